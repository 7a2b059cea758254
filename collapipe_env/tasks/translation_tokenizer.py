"""Subword tokenisers of translation, which are reversible: they keep case, accents and spacing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, normalizers

from collapipe_env.ground.arrays import IntArray
from collapipe_env.models.tokenization import PADDING, learn_byte_pairs

BEGIN = 2
"""Id of the token that a target begins with."""
END = 3
"""Id of the token that a source or target ends with."""
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[BOS]", "[EOS]")
"""Tokens that stand for no text, in the order of their ids."""
MOST_CHARACTERS = 1000
"""Most characters in a vocabulary; they also take at most half of it."""


def train_subwords(texts: Sequence[str], vocabulary: int) -> Tokenizer:
    """Learn a byte-pair encoding that is reversible, except for Unicode composition and runs of white space.

    The same texts give the same tokeniser in every process. The alphabet is chosen here, because the
    library's own choice between equally frequent characters follows a hash table's order.

    Args:
        texts: Training texts only; held-out texts must not shape the vocabulary.
        vocabulary: Largest number of tokens, the four special ones included; at least 16.

    Returns:
        The tokeniser. It adds no begin and end tokens: :func:`encode_sources` and :func:`encode_targets` do.
    """
    normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    )
    counts = Counter("▁")
    for text in texts:
        counts.update(normalizer.normalize_str(text).replace(" ", "▁"))
    frequent = sorted(counts, key=lambda character: (character != "▁", -counts[character], character))
    alphabet = frequent[: min(MOST_CHARACTERS, (vocabulary - len(SPECIAL_TOKENS)) // 2)]
    tokenizer = learn_byte_pairs(texts, vocabulary, alphabet, normalizer, SPECIAL_TOKENS, fuse_unknown=True)
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def encode_sources(tokenizer: Tokenizer, texts: Sequence[str], sequence_length: int) -> IntArray:
    """Turn texts into rows of ids that close with the end token, cut or padded to one length.

    Args:
        tokenizer: Tokeniser from :func:`train_subwords`.
        sequence_length: Tokens per row q, the end token included; a longer text is cut at the end.

    Returns:
        Ids, shape (texts, q).
    """
    rows = np.full((len(texts), sequence_length), PADDING, dtype=np.int64)
    for row, ids in zip(rows, _ids(tokenizer, texts), strict=True):
        kept = [*ids[: sequence_length - 1], END]
        row[: len(kept)] = kept
    return rows


def encode_targets(tokenizer: Tokenizer, texts: Sequence[str], sequence_length: int) -> IntArray:
    """Turn texts into rows of ids between the begin and the end token, cut or padded to one length.

    Args:
        tokenizer: Tokeniser from :func:`train_subwords`.
        sequence_length: Tokens to predict q, the end token included. A text that does not fit is cut and has
            no end token, so that models do not learn to stop in the middle of a sentence.

    Returns:
        Ids, shape (texts, q + 1).
    """
    rows = np.full((len(texts), sequence_length + 1), PADDING, dtype=np.int64)
    rows[:, 0] = BEGIN
    for row, ids in zip(rows[:, 1:], _ids(tokenizer, texts), strict=True):
        kept = [*ids, END][:sequence_length]
        row[: len(kept)] = kept
    return rows


def decode(tokenizer: Tokenizer, rows: IntArray) -> list[str]:
    """Turn rows of ids, up to their first end token, into texts.

    Args:
        tokenizer: Tokeniser from :func:`train_subwords`.
        rows: Ids, shape (texts, n). Special tokens, and ids beyond the tokeniser's, add nothing to the text.
    """
    size = tokenizer.get_vocab_size()
    kept: list[list[int]] = []
    for row in rows.tolist():
        text = row[: row.index(END)] if END in row else row
        kept.append([i for i in text if len(SPECIAL_TOKENS) <= i < size])
    return [text.strip() for text in tokenizer.decode_batch(kept)]


def _ids(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    return [encoding.ids for encoding in tokenizer.encode_batch(list(texts))]
