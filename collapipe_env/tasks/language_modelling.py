"""Language modelling: the next token of plain text, by causal blocks on devices, a head on the server."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.models.language_head import LanguageHead
from collapipe_env.models.style_fields import CAUSAL
from collapipe_env.scenario.task_registry import SHIPPED_TRAITS
from collapipe_env.tasks.base import NO_TARGET, Split, TaskData, TaskSpec
from collapipe_env.tasks.continuations import (
    NOT_FINITE,
    TOP_P,
    ScoresNotFiniteError,
    continued,
    drawn,
    likeliest,
)
from collapipe_env.tasks.data_parts import Samples
from collapipe_env.tasks.documents import load_documents
from collapipe_env.tasks.heads import ChoosingTask, TokenLinear
from collapipe_env.tasks.language_tokens import HIDDEN, LanguageTokens, checkpoint_tokens, learn_bytes, pack
from collapipe_env.tasks.preparation import length_strata, shared

LARGEST_EXPONENT = 690.0
"""A perplexity with a larger logarithm counts as infinite."""


class LanguageModelling(ChoosingTask):
    """Plain text, token by token; cross-entropy of the next one, perplexity, bits per byte.

    Documents become byte-pair tokens, which are learned from the training part or come from a checkpoint. The
    tokens are packed into rows of ``sequence_length`` by :func:`~collapipe_env.tasks.language_tokens.pack`,
    for each cluster separately, so no row holds documents of two clusters. The outputs of the trained head
    are the trained vocabulary, whatever the priced one is. Positions without a target hold
    :data:`~collapipe_env.tasks.base.NO_TARGET`, since 0 is a token of text in checkpoints.

    Strata are the documents' kinds in the order of their names, or classes of their lengths if they have
    none. References of held-out rows are the bytes of text that their targets stand for.
    """

    name = "language-modelling"
    metrics = ("perplexity", "bits_per_byte")
    traits = SHIPPED_TRAITS["language-modelling"]
    embedded = "stories"
    read = staticmethod(load_documents)

    def prepare(self, spec: TaskSpec) -> TaskData:
        """Return the documents as packed rows; the vocabulary needs a token for every byte."""
        (train, *held_out), length = self.samples(spec), spec.architecture.sequence_length
        own = spec.checkpoint is None
        if spec.checkpoint is None:
            tokens = learn_bytes(train.inputs, spec.architecture.vocabulary)
        else:
            tokens = checkpoint_tokens(spec.checkpoint)
        documents = tokens.encode(train.inputs)
        tokens.require_text(documents, train.inputs)
        packed = functools.partial(_packed, documents, length, tokens.end)
        dev, test = (_held_out(tokens, part, length) for part in held_out)
        lengths = np.array([len(ids) for ids in documents], dtype=np.int64)
        kinds = np.unique(train.answers, return_inverse=True)[1].astype(np.int64)
        return TaskData(
            packed(np.arange(len(documents))),
            dev,
            test,
            shared(kinds if train.answers else length_strata(lengths)),
            shared(lengths),
            decode=tokens.decode,
            hidden=HIDDEN if own else tokens.end,
            pack=packed,
            end=tokens.end,
            unwritten=tokens.unwritten,
            tokenizer=tokens.tokenizer if own else None,
        )

    def build_head(self, spec: TaskSpec, generator: Generator) -> nn.Module:
        """Return the head over the trained vocabulary: the style's own, or a linear layer."""
        sizes = spec.architecture
        if sizes.style in CAUSAL:
            return LanguageHead(sizes, sizes.vocabulary, generator)
        # The blocks of other styles end with a norm.
        return TokenLinear(sizes.width, sizes.vocabulary, generator, norm_first=sizes.style == "pre-ln")

    def measure(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the nats that the targets of each sample take, shape (samples,), from its scores."""
        nats = functional.cross_entropy(
            outputs.flatten(end_dim=1), targets.flatten(), ignore_index=NO_TARGET, reduction="none"
        )
        return nats.view(targets.shape).double().sum(dim=1)

    def score(self, predictions: FloatArray, split: Split, data: TaskData) -> Mapping[str, float]:  # noqa: ARG002
        """Return the perplexity of the tokens, and bits per byte of the text; for both, less is better.

        The tokens include the ends of documents, whose bits count although they stand for no byte. Bits per
        byte can be compared between vocabularies, perplexities cannot. Predictions are the nats of each
        sample, from :meth:`measure`.
        """
        nats, tokens = float(np.sum(predictions)), int((split.targets != NO_TARGET).sum())
        exponent = nats / tokens
        perplexity = math.exp(exponent) if exponent < LARGEST_EXPONENT else math.inf
        return {
            "perplexity": perplexity,
            "bits_per_byte": nats / math.log(2.0) / max(1, sum(split.references)),
        }

    @torch.no_grad()
    def continuations(
        self, model: nn.Module, head: nn.Module, split: Split, data: TaskData, count: int
    ) -> list[dict[str, str]]:
        """Let a model continue the beginnings of held-out documents, the same ones every time.

        A beginning is a quarter of a row, or half a shorter document; the model continues it by up to a row.

        Args:
            model: Maps token ids (1, up to q) to outputs of the blocks (1, up to q, d). It is in evaluation
                mode, as is the head.
            count: Documents, taken evenly over the part; all of them if it has fewer.

        Returns:
            For each, ``prompt``, ``document`` (its own continuation), ``greedy`` (the likeliest token every
            time) and ``top_p`` (drawn token by token).
        """
        assert data.decode is not None
        assert data.end is not None
        device = next(head.parameters()).device
        window = split.tokens.shape[1]

        def score(tokens: Tensor) -> Tensor:
            hidden = model(tokens)[:, -1:]
            last: Tensor = head(hidden, hidden.new_ones(hidden.shape[:2], dtype=torch.bool))[:, 0]
            return last

        end = data.end
        stream = split.targets[split.targets != NO_TARGET]
        documents = np.split(stream, np.flatnonzero(stream == end) + 1)[:-1]
        chosen = np.unique(np.linspace(0, len(documents) - 1, count).round().astype(np.int64)).tolist()
        generator = Generator().manual_seed(0)
        found = []
        for document in (documents[i] for i in chosen):
            cut = max(1, min(window // 4, len(document) // 2))
            prompt = torch.from_numpy(np.concatenate(([end], document[:cut])))[None].to(device)
            rest = _before(end, document[cut : cut + window])
            known = [data.decode(ids[None])[0] for ids in (document[:cut], rest)]
            try:
                written = [
                    continued(score, prompt, window, window, choose, data.unwritten)[0].cpu().numpy()
                    for choose in (likeliest, drawn(TOP_P, generator))
                ]
                texts = [data.decode(_before(end, ids)[None])[0] for ids in written]
            except ScoresNotFiniteError:
                texts = [NOT_FINITE, NOT_FINITE]
            names = ("prompt", "document", "greedy", "top_p")
            found.append(dict(zip(names, known + texts, strict=True)))
        return found


def _before(end: int, ids: IntArray) -> IntArray:
    """Return the ids before the first end of a document."""
    ends = np.flatnonzero(ids == end)
    return ids[: ends[0]] if len(ends) else ids


def _packed(documents: list[IntArray], sequence_length: int, end: int, chosen: IntArray) -> Split:
    """Pack the documents with these indices."""
    tokens, targets = pack([documents[i] for i in chosen.tolist()], sequence_length, end)
    return Split(shared(tokens), shared(targets))


def _held_out(tokens: LanguageTokens, part: Samples, sequence_length: int) -> Split:
    """Pack all documents of a part, with the bytes of text in each row's targets as references."""
    split = _packed(tokens.encode(part.inputs), sequence_length, tokens.end, np.arange(len(part)))
    sizes = tokens.byte_counts[np.maximum(split.targets, 0)] * (split.targets != NO_TARGET)
    return replace(split, references=tuple(sizes.sum(axis=1).tolist()))
