"""A byte-pair tokeniser learned from the training split: no download, the same for the same texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from collapipe_env.ground.arrays import IntArray

PADDING = 0
"""Id of the padding token; positions that hold it are masked out everywhere."""
UNKNOWN = 1
"""Id of the token for characters that the training split does not contain."""


def train_tokenizer(texts: Sequence[str], vocabulary: int) -> Tokenizer:
    """Learn a byte-pair encoding over lower-cased words and punctuation marks.

    Byte-pair encoding without continuation marks is used rather than WordPiece, because the latter's training
    numbers its continuation tokens in the order of a hash table, which differs between processes.

    Args:
        texts: Training texts only; held-out texts must not shape the vocabulary.
        vocabulary: Largest number of tokens, padding and unknown included.
    """
    normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer = learn_byte_pairs(texts, vocabulary, min(256, vocabulary - 2), normalizer)
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def learn_byte_pairs(
    texts: Sequence[str],
    vocabulary: int,
    characters: int,
    normalizer: normalizers.Normalizer,
    special_tokens: Sequence[str] = ("[PAD]", "[UNK]"),
    *,
    fuse_unknown: bool = False,
) -> Tokenizer:
    """Learn a byte-pair encoding over words and punctuation marks, the same in every process.

    Characters are counted here, since the library's own choice among equally frequent ones follows a hash
    table's order.

    Args:
        texts: Training texts.
        vocabulary: Largest number of tokens, the special ones included.
        characters: Most characters that get a token of their own.
        normalizer: Normaliser, which texts pass through first.
        special_tokens: Tokens that stand for no text, in the order of their ids: padding, unknown, others.
        fuse_unknown: Whether neighbouring unknown characters become one token.

    Returns:
        The tokeniser, without a decoder.
    """
    counts = Counter("▁")  # the pre-tokeniser writes a space so, and puts one before every text
    for text in texts:
        counts.update("▁" + normalizer.normalize_str(text).replace(" ", "▁"))
    alphabet = sorted(counts, key=lambda c: (c != "▁", -counts[c], c))[:characters]
    tokenizer = Tokenizer(models.BPE(unk_token=special_tokens[UNKNOWN], fuse_unk=fuse_unknown))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(special_tokens),
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, texts: Sequence[str], sequence_length: int) -> IntArray:
    """Turn texts into rows of token ids, cut or padded at the end to q tokens.

    Returns:
        Ids, shape (texts, q). Every row holds at least one token that is not padding.
    """
    encodings = tokenizer.encode_batch(list(texts))
    return padded([one.ids[:sequence_length] or [UNKNOWN] for one in encodings], sequence_length)


def padded(rows: Sequence[Sequence[int]], length: int) -> IntArray:
    """Return rows of at most ``length`` ids as an array, padded at the end."""
    filled = np.full((len(rows), length), PADDING, dtype=np.int64)
    for row, ids in zip(filled, rows, strict=True):
        row[: len(ids)] = ids
    return filled
