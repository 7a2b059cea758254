"""Machine translation: a decoder on the server attends to the devices' output."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from torch import Generator, Tensor, int64, nn
from torch.nn import functional

from collapipe_env.ground.arrays import IntArray
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.models.decoder import CachedDecoding, Decoder
from collapipe_env.models.tokenization import BEGIN, PADDING, SOURCE, TARGET, decode, encode, train_tokenizer
from collapipe_env.scenario.task_registry import SHIPPED_TRAITS
from collapipe_env.tasks.base import Split, TaskData, TaskSpec
from collapipe_env.tasks.beam_search import beam_search
from collapipe_env.tasks.data_parts import Samples
from collapipe_env.tasks.parallel_text import load_parallel
from collapipe_env.tasks.preparation import DataTask, prepared, tokenizer_of

SMALLEST_VOCABULARY = 64
"""Least number of target tokens; fewer leave no room for an alphabet."""


class Translation(DataTask):
    """Sentences and their translations; cross-entropy of the target tokens, BLEU and chrF.

    Targets begin with the begin token, so the decoder reads q tokens of a row of q + 1 and predicts q. Source
    and target have tokenisers of their own; a checkpoint's is the source's.
    """

    name = "translation"
    metrics = ("bleu", "chrf")
    traits = SHIPPED_TRAITS["translation"]
    embedded = "messages"
    read = staticmethod(load_parallel)
    columns = ("languages",)

    def check(self, spec: TaskSpec) -> None:
        """Refuse too few outputs."""
        if spec.outputs < SMALLEST_VOCABULARY:
            raise ScenarioError(
                f"outputs is {spec.outputs}, but for translation it is the target vocabulary; set outputs: "
                f"{SMALLEST_VOCABULARY} at least (2000 suits small data)"
            )

    def prepare(self, spec: TaskSpec) -> TaskData:
        """Return the pairs as token rows, with the translations as references."""
        parts, length = self.samples(spec), spec.architecture.sequence_length
        source = tokenizer_of(spec, parts[0].inputs, SOURCE)
        target = train_tokenizer(parts[0].answers, spec.outputs, TARGET)

        def split(pairs: Samples) -> Split:
            tokens = encode(source, pairs.inputs, length)
            return Split(tokens, encode(target, pairs.answers, length + 1), pairs.answers)

        return prepared(parts, split, source, decode=functools.partial(decode, target))

    def data_line(self, spec: TaskSpec) -> str:
        """Return the direction of the translation, as ``translates en -> de``."""
        first, second = self.samples(spec)[0].languages or ("the first column", "the second")
        return f"translates {first} -> {second}"

    def build_head(self, spec: TaskSpec, generator: Generator) -> nn.Module:
        """Return the decoder."""
        return Decoder(spec.architecture, spec.decoder_blocks, spec.outputs, generator)

    def units(self, targets: Tensor) -> Tensor:
        """Return the number of tokens to predict in each sample, including the end token."""
        return (targets[:, 1:] != PADDING).sum(dim=1).float()

    def loss(self, outputs: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """Return the mean cross-entropy of the target tokens in nats.

        Args:
            outputs: The decoder's scores of all positions, or only of those with a token to predict, shape
                (positions, V_out).
            targets: Ids, shape (samples, q + 1).
        """
        expected = targets[:, 1:].flatten()
        if len(outputs) < len(expected):
            expected = expected[expected != PADDING]
        return functional.cross_entropy(outputs, expected, ignore_index=PADDING, label_smoothing=smoothing)

    def predict(self, head: nn.Module, hidden: Tensor, mask: Tensor, spec: TaskSpec) -> Tensor:
        """Write translations, shape (samples, q), padded after the end token."""
        assert isinstance(head, Decoder)
        stepper = CachedDecoding(head, hidden, mask)
        first = mask.new_full((len(hidden),), BEGIN, dtype=int64)
        length = spec.architecture.sequence_length
        return beam_search(stepper, first, spec.beam_size, length)

    def score(self, predictions: IntArray, split: Split, data: TaskData) -> Mapping[str, float]:
        """Return BLEU (Papineni et al., 2002) and chrF (Popović, 2015) of the whole split, in [0, 1].

        Both are sacrebleu's with its default settings, against the references as they are in the file.
        """
        # Imported here, because only scores need it.
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF

        assert data.decode is not None
        texts, references = data.decode(predictions), [list(split.references)]
        bleu = BLEU(force=True).corpus_score(texts, references).score  # force: no warning about tokens
        return {"bleu": bleu / 100, "chrf": CHRF().corpus_score(texts, references).score / 100}
