"""Byte-pair tokens of language models: every text can be written with them and read back to the byte."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from collapipe_env.arrays import IntArray
from collapipe_env.errors import ScenarioError

HIDDEN = 1
"""Id that stands for a hidden token in training; no text has it."""
END = 2
"""Id that ends every document, and begins a stream of them."""
FIRST = 3
"""Id of the first token that stands for text; those before stand for none."""
BYTES = 256
"""Tokens of single bytes, which every vocabulary has."""


@dataclass(frozen=True)
class ByteTokens:
    """A vocabulary of byte strings, the ids from :data:`FIRST` on.

    Ids below stand outside the tokeniser, so nothing that a text says is ever read as one of them.

    Attributes:
        tokenizer: The byte-pair encoding; its ids are less by :data:`FIRST`.
    """

    tokenizer: Tokenizer = field(repr=False)

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
        """Return the text of each row; ids that stand for no text add nothing, half characters a mark."""
        size = len(self)
        kept = [[i - FIRST for i in map(int, row) if FIRST <= i < size] for row in rows]
        return self.tokenizer.decode_batch(kept)

    @cached_property
    def byte_counts(self) -> IntArray:
        """Bytes that each id stands for, shape (ids,); 0 for those that stand for no text."""
        counts = np.zeros(len(self), dtype=np.int64)
        for token, number in self.tokenizer.get_vocab().items():
            counts[FIRST + number] = len(token)  # the encoding writes a byte as one character
        counts.flags.writeable = False
        return counts


def learn_bytes(texts: Sequence[str], vocabulary: int) -> ByteTokens:
    """Learn a byte-pair encoding over the UTF-8 bytes of words, as GPT-2 has it (Radford et al., 2019).

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


def pack(documents: Sequence[IntArray], sequence_length: int) -> tuple[IntArray, IntArray]:
    """Pack documents into rows: each row continues where the one before it ends.

    All documents are one stream, ``END d_1 END d_2 END ... END``, of which every token but the first is the
    target of exactly one position. A row may hold several documents, and attention reaches over their
    borders, which the end token marks, as in GPT-2 and GPT-3; only the last row is padded.

    Args:
        documents: Ids of each document, without end; at least one document.
        sequence_length: Tokens of a row q.

    Returns:
        Tokens and targets (the tokens that follow), both of shape (rows, q).
    """
    parts: list[IntArray] = [np.array([END])]
    for document in documents:
        parts += [document, parts[0]]
    stream = np.concatenate(parts).astype(np.int64)
    rows = -(-(len(stream) - 1) // sequence_length)
    padded = np.zeros(rows * sequence_length + 1, dtype=np.int64)  # 0 is padding everywhere
    padded[: len(stream)] = stream
    targets = padded[1:].reshape(rows, sequence_length)
    tokens = padded[:-1].reshape(rows, sequence_length).copy()
    tokens[targets == 0] = 0  # the stream's last token is read by nobody
    return tokens, targets.copy()
