"""Tokeniser of tasks that tag words: words as sub-word pieces, with the first piece of each word.

Upper and lower case stay apart, since capitals tell names from other words; the tokeniser in
:mod:`collapipe_env.models.tokenization` is for whole texts and lower-cases them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Regex, Tokenizer, normalizers

from collapipe_env.ground.arrays import IntArray
from collapipe_env.ground.errors import DataError
from collapipe_env.models.hf_tokenizer import special_ids
from collapipe_env.models.tokenization import learn_byte_pairs, padded

ALPHABET = 256
"""Most characters that get a token of their own."""

NOT_A_START = -1
"""Word number of a piece that continues a word, and of padding."""


@dataclass(frozen=True)
class PieceRows:
    """Sentences as rows of pieces.

    Attributes:
        tokens: Token ids, shape (sentences, q); 0 is padding.
        words: Number of the word that begins at each piece, -1 elsewhere, shape (sentences, q). Words whose
            first piece is beyond the q pieces do not occur.
    """

    tokens: IntArray
    words: IntArray


def train_cased_tokenizer(sentences: Sequence[Sequence[str]], vocabulary: int) -> Tokenizer:
    """Learn a byte-pair encoding of words and punctuation marks that keeps upper and lower case apart.

    Args:
        sentences: Words of the training sentences only; held-out ones must not shape the vocabulary.
        vocabulary: Largest number of tokens, padding and unknown included.

    Returns:
        The tokeniser; it is made for single words.
    """
    # Invisible characters (zero-width spaces and joiners, controls) would make two words of one.
    normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(r"[\p{Cf}\p{Cc}]"), "")])
    words = [word for sentence in sentences for word in sentence]
    return learn_byte_pairs(words, vocabulary, min(ALPHABET, vocabulary - 2), normalizer)


def encode_words(tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], sequence_length: int) -> PieceRows:
    """Turn sentences into rows of pieces, cut or padded at the end.

    Every word has at least one piece: a word of which the tokeniser leaves nothing becomes an unknown token.
    A tokeniser that has the tokens ``[CLS]`` and ``[SEP]`` (BERT) gets them around each row.

    Args:
        tokenizer: Tokeniser of single words.
        sentences: Words of every sentence.
        sequence_length: Pieces per row, q.

    Returns:
        The rows; each holds the first word's first piece.

    Raises:
        DataError: If rows are too short for that.
    """
    distinct = sorted({word for sentence in sentences for word in sentence})
    encodings = tokenizer.encode_batch(distinct, add_special_tokens=False)
    special = special_ids(tokenizer)
    pieces = {w: encoding.ids or [special.unknown] for w, encoding in zip(distinct, encodings, strict=True)}
    opening, closing = ([i] if i is not None else [] for i in (special.start, special.end))
    room = sequence_length - len(closing)
    if room <= len(opening):
        raise DataError(
            f"sequence_length {sequence_length} has no room for a word between [CLS] and [SEP]; set it to 3 "
            "or more"
        )

    rows = []
    numbers = np.full((len(sentences), sequence_length), NOT_A_START, dtype=np.int64)
    for number, sentence in zip(numbers, sentences, strict=True):
        ids, starts = list(opening), []
        for word in sentence:
            if len(ids) >= room:
                break
            starts.append(len(ids))
            ids += pieces[word]
        rows.append(ids[:room] + closing)
        number[starts] = np.arange(len(starts))
    return PieceRows(padded(rows, sequence_length), numbers)
