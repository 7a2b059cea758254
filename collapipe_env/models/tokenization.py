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

    Returns:
        The tokeniser.
    """
    normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update("▁" + normalizer.normalize_str(text).replace(" ", "▁"))
    alphabet = sorted(counts, key=lambda c: (-counts[c], c))[: min(256, vocabulary - 2)]
    tokenizer = learn_byte_pairs(texts, vocabulary, alphabet, normalizer)
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def learn_byte_pairs(
    texts: Sequence[str],
    vocabulary: int,
    alphabet: Sequence[str],
    normalizer: normalizers.Normalizer,
    special_tokens: Sequence[str] = ("[PAD]", "[UNK]"),
    *,
    fuse_unknown: bool = False,
) -> Tokenizer:
    """Learn a byte-pair encoding over words and punctuation marks, the same in every process.

    Args:
        texts: Training texts.
        vocabulary: Largest number of tokens, the special ones included.
        alphabet: Characters that get a token of their own. The caller chooses them, since the library's own
            choice among equally frequent ones follows a hash table's order.
        normalizer: Normaliser, which texts pass through first.
        special_tokens: Tokens that stand for no text, in the order of their ids: padding, unknown, others.
        fuse_unknown: Whether neighbouring unknown characters become one token.

    Returns:
        The tokeniser, without a decoder.
    """
    tokenizer = Tokenizer(models.BPE(unk_token=special_tokens[UNKNOWN], fuse_unk=fuse_unknown))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(special_tokens),
        initial_alphabet=list(alphabet),
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, texts: Sequence[str], sequence_length: int) -> IntArray:
    """Turn texts into rows of token ids, cut or padded at the end.

    Args:
        tokenizer: Tokeniser from :func:`train_tokenizer`.
        sequence_length: Tokens per row, q.

    Returns:
        Ids, shape (texts, q). Every row holds at least one token that is not padding.
    """
    rows = np.full((len(texts), sequence_length), PADDING, dtype=np.int64)
    for row, encoding in zip(rows, tokenizer.encode_batch(list(texts)), strict=True):
        ids = encoding.ids[:sequence_length] or [UNKNOWN]
        row[: len(ids)] = ids
    return rows
