"""Tokens of a language model's checkpoint: its own tokeniser, with the checkpoint's ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from tokenizers import Tokenizer, decoders

from collapipe_env.ground.arrays import IntArray
from collapipe_env.ground.errors import CheckpointError, shortened
from collapipe_env.models.hf_config import FETCH_ANEW, read_config
from collapipe_env.models.hf_tokenizer import language_tokenizer

LEAST_KEPT = 0.5
"""Least share of a text's bytes that its ids must stand for."""
WORD_MARK = "\u2581"
"""Mark that stands for a space in tokens of SentencePiece, as in the first two Llamas."""


@dataclass(frozen=True)
class CheckpointTokens:
    """Vocabulary of a checkpoint, where every id may stand for text, even 0.

    Nothing in a text is ever read as a special token: ``<|endoftext|>`` in a document is a few characters.

    Attributes:
        tokenizer: The checkpoint's tokeniser.
        end: Id that ends every document.
        size: Number of ids, from 0 on; the tokeniser may have fewer than the model.
    """

    tokenizer: Tokenizer = field(repr=False)
    end: int
    size: int

    def __len__(self) -> int:
        """Number of ids, from 0 on."""
        return self.size

    @property
    def hidden(self) -> int:
        """Id that stands for a hidden token in training: the end, since such a tokeniser has none for it."""
        return self.end

    def encode(self, texts: Sequence[str]) -> list[IntArray]:
        """Return the ids of each text; none ends with :attr:`end`.

        Raises:
            CheckpointError: If the tokeniser fails.
        """
        try:
            found = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        except Exception as error:  # the library has no class of its own
            raise CheckpointError(
                f"the checkpoint's tokenizer.json cannot encode the text ({shortened(str(error))}); "
                f"{FETCH_ANEW}"
            ) from None
        return [np.array(encoding.ids, dtype=np.int64) for encoding in found]

    def decode(self, rows: IntArray | Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each row; ids without text are skipped, half characters become a mark."""
        kept = [[i for i in map(int, row) if 0 <= i < self.size] for row in rows]
        return self.tokenizer.decode_batch(kept, skip_special_tokens=True)

    def require_text(self, documents: Sequence[IntArray], texts: Sequence[str]) -> None:
        """Refuse a tokeniser that loses most of a text.

        Args:
            documents: Ids of each text.

        Raises:
            CheckpointError: If the ids stand for less than half the bytes of the texts.
        """
        kept = sum(int(self.byte_counts[ids].sum()) for ids in documents)
        given = sum(len(text.encode()) for text in texts)
        if kept < LEAST_KEPT * given:
            raise CheckpointError(
                f"the checkpoint's tokenizer.json keeps {kept:,} of {given:,} bytes of the text, less than "
                f"{LEAST_KEPT:.0%}: it does not fit this text, or its vocabulary is damaged; {FETCH_ANEW}"
            )

    @cached_property
    def byte_counts(self) -> IntArray:
        """Bytes of UTF-8 that each id stands for, shape (ids,); 0 for those that stand for no text."""
        counts = np.zeros(self.size, dtype=np.int64)
        of_bytes = isinstance(self.tokenizer.decoder, decoders.ByteLevel)
        for token, number in self.tokenizer.get_vocab(with_added_tokens=False).items():
            counts[number] = len(token) if of_bytes else _bytes_of_piece(token)
        for number, added in self.tokenizer.get_added_tokens_decoder().items():
            counts[number] = 0 if added.special else len(added.content.encode())
        counts[self.end] = 0
        counts.flags.writeable = False
        return counts

    @cached_property
    def unwritten(self) -> tuple[int, ...]:
        """Ids that stand for no text, except the end; a model that writes never chooses them."""
        return tuple(i for i in np.flatnonzero(self.byte_counts == 0).tolist() if i != self.end)


def _bytes_of_piece(token: str) -> int:
    """Return the bytes of a piece of text in SentencePiece's spelling; ``<0x0A>`` is one byte."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return 1
    return len(token.replace(WORD_MARK, " ").encode())


def checkpoint_tokens(folder: str) -> CheckpointTokens:
    """Return the tokens of a GPT-2, Llama or Qwen2 checkpoint.

    Raises:
        CheckpointError: If it is not a language model, or its tokeniser is missing or damaged.
    """
    tokenizer, end = language_tokenizer(folder)
    tokenizer.encode_special_tokens = True
    return CheckpointTokens(tokenizer, end, int(read_config(folder)["vocabulary"]))
