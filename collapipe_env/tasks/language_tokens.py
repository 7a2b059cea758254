"""Byte-pair tokens of language models, learned from texts or a checkpoint's own, and how they are packed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from collapipe_env.ground.arrays import IntArray
from collapipe_env.ground.errors import CheckpointError, ScenarioError, shortened
from collapipe_env.models.hf_config import FETCH_ANEW, read_config
from collapipe_env.models.hf_tokenizer import language_tokenizer
from collapipe_env.models.tokenization import PADDING
from collapipe_env.tasks.base import NO_TARGET

HIDDEN = 1
"""Id that stands for a hidden token in training; no text has it."""
END = 2
"""Id that ends every document, and begins a stream of them."""
NAMES = ("<|padding|>", "<|hidden|>", "<|endoftext|>")
"""Names of the first ids of a learned vocabulary, which stand for no text."""
BYTES = 256
"""Tokens of single bytes, which every vocabulary has."""
LEAST_KEPT = 0.5
"""Least share of a text's bytes that its ids must stand for."""
WORD_MARK = "\u2581"
"""Mark that stands for a space in tokens of SentencePiece, as in the first two Llamas."""


@dataclass(frozen=True)
class LanguageTokens:
    """Vocabulary of a language model: learned here, or of a checkpoint, where even id 0 may stand for text.

    Nothing in a text is ever read as a special token: ``<|endoftext|>`` in a document is a few characters.

    Attributes:
        tokenizer: The tokeniser.
        end: Id that ends every document.
        size: Number of ids, from 0 on; the tokeniser of a checkpoint may have fewer than the model.
    """

    tokenizer: Tokenizer = field(repr=False)
    end: int
    size: int

    def __post_init__(self) -> None:
        """Let the tokeniser read the names of special tokens in a text as plain text."""
        self.tokenizer.encode_special_tokens = True

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
        return self.tokenizer.decode_batch([list(map(int, row)) for row in rows])

    def require_text(self, documents: Sequence[IntArray], texts: Sequence[str]) -> None:
        """Refuse a tokeniser whose ids, of each text, stand for less than half the bytes of all texts.

        Raises:
            CheckpointError: With both numbers of bytes.
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


def checkpoint_tokens(folder: str) -> LanguageTokens:
    """Return the tokens of a GPT-2, Llama or Qwen2 checkpoint.

    Raises:
        CheckpointError: If it is not a language model, or its tokeniser is missing or damaged.
    """
    tokenizer, end = language_tokenizer(folder)
    return LanguageTokens(tokenizer, end, int(read_config(folder)["vocabulary"]))


def learn_bytes(texts: Sequence[str], vocabulary: int) -> LanguageTokens:
    """Learn a byte-pair encoding over the UTF-8 bytes of words, as in GPT-2 (Radford et al., 2019).

    Nothing is normalised. The same texts give the same tokens in every process.

    Args:
        texts: Training texts only; held-out texts must not shape the vocabulary.
        vocabulary: Largest number of ids, those that stand for no text included.

    Raises:
        ScenarioError: If there is no room for a token for every byte.
    """
    if vocabulary < len(NAMES) + BYTES:
        raise ScenarioError(
            f"vocabulary is {vocabulary}, but language-modelling needs a token for every byte; set "
            f"vocabulary (of the workload, or of the trained proxy) to {len(NAMES) + BYTES} at least"
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(NAMES),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return LanguageTokens(tokenizer, END, tokenizer.get_vocab_size())


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
