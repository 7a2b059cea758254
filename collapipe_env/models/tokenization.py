"""Byte-pair tokenisers learned from the training split, and rows of their ids: no download."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from collapipe_env.ground.arrays import IntArray

PADDING = 0
"""Id of the padding token; positions that hold it are masked out everywhere."""
UNKNOWN = 1
"""Id of the token for characters that the training split does not contain."""


BEGIN = 2
"""Id of the token that a translation begins with."""
END = 3
"""Id of the token that a sentence or its translation ends with."""
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[BOS]", "[EOS]")
"""Tokens that stand for no text, in the order of their ids; only :data:`REVERSIBLE` has the last two."""
Kind = tuple[normalizers.Normalizer, int, int]
"""Normaliser, number of special tokens, most characters with a token of their own."""

LOWER_CASED: Kind = (normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]), 2, 256)
"""For whole texts."""
# Invisible characters (zero-width spaces and joiners, controls) would make two words of one.
_VISIBLE = normalizers.Replace(Regex(r"[\p{Cf}\p{Cc}]"), "")
CASED: Kind = (normalizers.Sequence([normalizers.NFKC(), _VISIBLE]), 2, 256)
"""For single words, with upper and lower case apart: capitals tell names from other words."""
_SPACES = normalizers.Replace(Regex(r"\s+"), " ")
REVERSIBLE: Kind = (normalizers.Sequence([normalizers.NFC(), _SPACES, normalizers.Strip()]), 4, 1000)
"""For translations: reversible, except for Unicode composition and runs of white space. Characters take at
most half of the vocabulary, and neighbouring unknown ones become one token."""


def train_tokenizer(texts: Sequence[str], vocabulary: int, kind: Kind = LOWER_CASED) -> Tokenizer:
    """Learn a byte-pair encoding over words and punctuation marks, the same in every process.

    Byte-pair encoding without continuation marks is used rather than WordPiece, because the latter's training
    numbers its continuation tokens in the order of a hash table, which differs between processes. Characters
    are counted here, since the library's own choice among equally frequent ones follows such an order, too.

    Args:
        texts: Training texts only; held-out texts must not shape the vocabulary.
        vocabulary: Largest number of tokens, the special ones included; at least 16.

    Returns:
        The tokeniser, which adds no begin and end tokens.
    """
    normalizer, special, characters = kind
    reversible = kind is REVERSIBLE
    most = min(characters, (vocabulary - special) // (2 if reversible else 1))
    counts = Counter("▁")  # the pre-tokeniser writes a space so, and puts one before every text
    for text in texts:
        counts.update("▁" + normalizer.normalize_str(text).replace(" ", "▁"))
    alphabet = sorted(counts, key=lambda c: (c != "▁", -counts[c], c))[:most]
    tokenizer = Tokenizer(models.BPE(unk_token=SPECIAL_TOKENS[UNKNOWN], fuse_unk=reversible))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()]
    )
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL_TOKENS[:special]),
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, texts: Sequence[str], sequence_length: int) -> IntArray:
    """Turn texts into rows of ids, shape (texts, q), cut or padded; each has a token that is not padding."""
    encodings = tokenizer.encode_batch(list(texts))
    return padded([one.ids[:sequence_length] or [UNKNOWN] for one in encodings], sequence_length)


def padded(rows: Sequence[Sequence[int]], length: int) -> IntArray:
    """Return rows of at most ``length`` ids as an array, padded at the end."""
    filled = np.full((len(rows), length), PADDING, dtype=np.int64)
    for row, ids in zip(filled, rows, strict=True):
        row[: len(ids)] = ids
    return filled


def encode_sources(tokenizer: Tokenizer, texts: Sequence[str], sequence_length: int) -> IntArray:
    """Turn texts into rows of ids, shape (texts, q), cut or padded, which close with the end token."""
    encodings = tokenizer.encode_batch(list(texts))
    return padded([[*one.ids[: sequence_length - 1], END] for one in encodings], sequence_length)


def encode_targets(tokenizer: Tokenizer, texts: Sequence[str], sequence_length: int) -> IntArray:
    """Turn texts into rows of ids between the begin and the end token, shape (texts, q + 1).

    A text that does not fit is cut and has no end token, so that models do not learn to stop in the middle of
    a sentence.
    """
    encodings = tokenizer.encode_batch(list(texts))
    return padded([[BEGIN, *[*one.ids, END][:sequence_length]] for one in encodings], sequence_length + 1)


def decode(tokenizer: Tokenizer, rows: IntArray) -> list[str]:
    """Turn rows of ids, up to their first end token, into texts, to which special tokens add nothing."""
    kept = [row[: row.index(END)] if END in row else row for row in rows.tolist()]
    return [text.strip() for text in tokenizer.decode_batch(kept)]
