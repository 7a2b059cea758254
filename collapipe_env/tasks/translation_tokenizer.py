"""Subword tokenisers of translation, which are reversible: they keep case, accents and spacing."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Regex, Tokenizer, decoders, normalizers

from collapipe_env.ground.arrays import IntArray
from collapipe_env.models.tokenization import learn_byte_pairs, padded

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

    Args:
        texts: Training texts only; held-out texts must not shape the vocabulary.
        vocabulary: Largest number of tokens, the four special ones included; at least 16.

    Returns:
        The tokeniser. It adds no begin and end tokens: :func:`encode_sources` and :func:`encode_targets` do.
    """
    normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    )
    most = min(MOST_CHARACTERS, (vocabulary - len(SPECIAL_TOKENS)) // 2)
    tokenizer = learn_byte_pairs(texts, vocabulary, most, normalizer, SPECIAL_TOKENS, fuse_unknown=True)
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def encode_sources(tokenizer: Tokenizer, texts: Sequence[str], sequence_length: int) -> IntArray:
    """Turn texts into rows of ids that close with the end token, cut or padded to one length.

    Args:
        sequence_length: Tokens per row q, the end token included; a longer text is cut at the end.

    Returns:
        Ids, shape (texts, q).
    """
    encodings = tokenizer.encode_batch(list(texts))
    return padded([[*one.ids[: sequence_length - 1], END] for one in encodings], sequence_length)


def encode_targets(tokenizer: Tokenizer, texts: Sequence[str], sequence_length: int) -> IntArray:
    """Turn texts into rows of ids between the begin and the end token, cut or padded to one length.

    Args:
        sequence_length: Tokens to predict q, the end token included. A text that does not fit is cut and has
            no end token, so that models do not learn to stop in the middle of a sentence.

    Returns:
        Ids, shape (texts, q + 1).
    """
    encodings = tokenizer.encode_batch(list(texts))
    return padded([[BEGIN, *[*one.ids, END][:sequence_length]] for one in encodings], sequence_length + 1)


def decode(tokenizer: Tokenizer, rows: IntArray) -> list[str]:
    """Turn rows of ids, up to their first end token, into texts.

    Args:
        rows: Ids, shape (texts, n). Special tokens, and ids beyond the tokeniser's, add nothing to the text.
    """
    size = tokenizer.get_vocab_size()
    kept: list[list[int]] = []
    for row in rows.tolist():
        text = row[: row.index(END)] if END in row else row
        kept.append([i for i in text if len(SPECIAL_TOKENS) <= i < size])
    return [text.strip() for text in tokenizer.decode_batch(kept)]
