"""Byte-pair tokens of language models: they encode every text, and decode it to the same bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from collapipe_env.ground.arrays import IntArray
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.models.tokenization import PADDING

NO_TARGET = -100
"""Target of a position that predicts nothing; no token has it, whatever the vocabulary."""
HIDDEN = 1
"""Id that stands for a hidden token in training; no text has it."""
END = 2
"""Id that ends every document, and begins a stream of them."""
NAMES = ("<|padding|>", "<|hidden|>", "<|endoftext|>")
"""Names of the ids that stand for no text, in a tokeniser that is saved with a model."""
FIRST = 3
"""Id of the first token that stands for text; those before stand for none."""
BYTES = 256
"""Tokens of single bytes, which every vocabulary has."""


@dataclass(frozen=True)
class ByteTokens:
    """A vocabulary of byte strings, the ids from :data:`FIRST` on.

    The tokeniser does not know the ids below, so nothing in a text is ever read as one of them.

    Attributes:
        tokenizer: The byte-pair encoding; its ids are lower by :data:`FIRST`.
        end: Id that ends every document.
        hidden: Id that stands for a hidden token in training.
        unwritten: Ids that stand for no text, except the end; a model that writes never chooses them.
    """

    tokenizer: Tokenizer = field(repr=False)
    end: ClassVar[int] = END
    hidden: ClassVar[int] = HIDDEN
    unwritten: ClassVar[tuple[int, ...]] = (PADDING, HIDDEN)

    def __len__(self) -> int:
        """Number of ids, from 0 on."""
        return FIRST + self.tokenizer.get_vocab_size()

    def encode(self, texts: Sequence[str]) -> list[IntArray]:
        """Return the ids of each text; none ends with :data:`END`."""
        return [
            np.array(encoding.ids, dtype=np.int64) + FIRST
            for encoding in self.tokenizer.encode_batch(list(texts))
        ]

    def decode(self, rows: IntArray | Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each row; ids without text are skipped, half characters become a mark."""
        size = len(self)
        kept = [[i - FIRST for i in map(int, row) if FIRST <= i < size] for row in rows]
        return self.tokenizer.decode_batch(kept)

    @property
    def whole_tokenizer(self) -> Tokenizer:
        """The tokeniser with the ids of :meth:`encode` and names for those that stand for no text."""
        content = json.loads(self.tokenizer.to_str())
        vocabulary = {token: number + FIRST for token, number in content["model"]["vocab"].items()}
        content["model"]["vocab"] = {**{name: i for i, name in enumerate(NAMES)}, **vocabulary}
        tokenizer = Tokenizer.from_str(json.dumps(content))
        tokenizer.add_special_tokens(list(NAMES))
        return tokenizer

    @cached_property
    def byte_counts(self) -> IntArray:
        """Bytes that each id stands for, shape (ids,); 0 for those that stand for no text."""
        counts = np.zeros(len(self), dtype=np.int64)
        for token, number in self.tokenizer.get_vocab().items():
            counts[FIRST + number] = len(token)  # the encoding writes a byte as one character
        counts.flags.writeable = False
        return counts


def learn_bytes(texts: Sequence[str], vocabulary: int) -> ByteTokens:
    """Learn a byte-pair encoding over the UTF-8 bytes of words, as in GPT-2 (Radford et al., 2019).

    Nothing is normalised. The same texts give the same tokens in every process.

    Args:
        texts: Training texts only; held-out texts must not shape the vocabulary.
        vocabulary: Largest number of ids, those that stand for no text included.

    Raises:
        ScenarioError: If there is no room for a token for every byte.
    """
    if vocabulary < FIRST + BYTES:
        raise ScenarioError(
            f"vocabulary is {vocabulary}, but language-modelling needs a token for every byte; set "
            f"vocabulary (of the workload, or of the trained proxy) to {FIRST + BYTES} at least"
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - FIRST,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return ByteTokens(tokenizer)


def pack(documents: Sequence[IntArray], sequence_length: int, end: int = END) -> tuple[IntArray, IntArray]:
    """Pack documents into rows: each row continues where the one before it ends.

    All documents are one stream, ``END d_1 END d_2 END ... END``, in which every token except the first is
    the target of exactly one position. A row may hold several documents, and attention crosses their borders,
    which the end token marks, as in GPT-2 and GPT-3. Only the last row is padded: there targets are
    :data:`NO_TARGET` and tokens 0, which may be a token of text elsewhere. Causal blocks need no mask for
    padding, since no real token sees anything after it.

    Args:
        documents: Ids of each document, without end; at least one document.
        sequence_length: Tokens of a row q.
        end: Id that ends documents.

    Returns:
        Tokens and targets (the tokens that follow), both of shape (rows, q).
    """
    parts: list[IntArray] = [np.array([end])]
    for document in documents:
        parts += [document, parts[0]]
    stream = np.concatenate(parts).astype(np.int64)
    rows = -(-(len(stream) - 1) // sequence_length)
    targets = np.full(rows * sequence_length, NO_TARGET, dtype=np.int64)
    tokens = np.full(rows * sequence_length, PADDING, dtype=np.int64)
    targets[: len(stream) - 1], tokens[: len(stream) - 1] = stream[1:], stream[:-1]
    return tokens.reshape(rows, sequence_length), targets.reshape(rows, sequence_length)
