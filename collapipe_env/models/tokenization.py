"""Byte-pair tokenisers learned from the training split, and rows of their ids: no download."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

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
"""Tokens that stand for no text, in the order of their ids; only translation has the last two."""
Kind = tuple[normalizers.Normalizer, int, int, str]
"""Normaliser, number of special tokens, most characters with a token of their own, frame of a text."""

_WIDTHS = normalizers.NFKC()
LOWER_CASED: Kind = (normalizers.Sequence([_WIDTHS, normalizers.Lowercase()]), 2, 256, "$A")
"""For whole texts."""
# Invisible characters (zero-width spaces and joiners, controls) would make two words of one.
_VISIBLE = normalizers.Replace(Regex(r"[\p{Cf}\p{Cc}]"), "")
CASED: Kind = (normalizers.Sequence([_WIDTHS, _VISIBLE]), 2, 256, "$A")
"""For single words, with upper and lower case apart: capitals tell names from other words."""
_SPACES = normalizers.Replace(Regex(r"\s+"), " ")
_REVERSIBLE = normalizers.Sequence([normalizers.NFC(), _SPACES, normalizers.Strip()])
SOURCE: Kind = (_REVERSIBLE, 4, 1000, "$A [EOS]")
"""For texts to translate: reversible, except for Unicode composition and runs of white space. Characters take
at most half of the vocabulary, and neighbouring unknown ones become one token."""
TARGET: Kind = (_REVERSIBLE, 4, 1000, "[BOS] $A [EOS]")
"""For translations, like :data:`SOURCE`."""


def train_tokenizer(texts: Sequence[str], vocabulary: int, kind: Kind = LOWER_CASED) -> Tokenizer:
    """Learn a byte-pair encoding over words and punctuation marks, the same in every process.

    Byte-pair encoding without continuation marks is used rather than WordPiece, because the latter's training
    numbers its continuation tokens in the order of a hash table, which differs between processes. Characters
    are counted here, since the library's own choice among equally frequent ones follows such an order, too.

    Args:
        texts: Training texts only; held-out texts must not shape the vocabulary.
        vocabulary: Largest number of tokens, the special ones included; at least 16.

    Returns:
        The tokeniser; it adds begin and end tokens as the kind says.
    """
    normalizer, special, characters, frame = kind
    reversible = special == len(SPECIAL_TOKENS)
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
    tokenizer.post_processor = processors.TemplateProcessing(
        single=frame, special_tokens=[(name, i) for i, name in enumerate(SPECIAL_TOKENS)]
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
    """Turn texts into rows of ids, shape (texts, q), cut or padded; each has a token that is not padding.

    A translation that is cut has no end token, so that models do not learn to stop in the middle of it.
    """
    encodings = tokenizer.encode_batch(list(texts))
    return padded([one.ids[:sequence_length] or [UNKNOWN] for one in encodings], sequence_length)


def padded(rows: Sequence[Sequence[int]], length: int) -> IntArray:
    """Return rows of at most ``length`` ids as an array, padded at the end."""
    filled = np.full((len(rows), length), PADDING, dtype=np.int64)
    for row, ids in zip(filled, rows, strict=True):
        row[: len(ids)] = ids
    return filled


def decode(tokenizer: Tokenizer, rows: IntArray) -> list[str]:
    """Turn rows of ids, up to their first end token, into texts, to which special tokens add nothing."""
    kept = [row[: row.index(END)] if END in row else row for row in rows.tolist()]
    return [text.strip() for text in tokenizer.decode_batch(kept)]
