"""The tokeniser of a checkpoint; free of PyTorch.

Ids stay as the checkpoint has them, because they are the rows of its embedding table. So padding is 0 as
everywhere in this package, but the unknown token is not 1 (in BERT, 1 is an unused row and ``[UNK]`` is 100):
use :func:`special_ids`, which also works for the package's own tokenisers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import BertWordPieceTokenizer, ByteLevelBPETokenizer, Tokenizer, processors

from collapipe_env.ground.errors import CheckpointError, shown
from collapipe_env.ground.files import read_regular
from collapipe_env.models.hf_config import (
    CONFIG,
    Entry,
    checkpoint_folder,
    read_config,
    read_entries,
    read_settings,
    reading,
)
from collapipe_env.models.tokenization import PADDING

LARGEST = 64 * 1024**2
"""Most bytes of a tokeniser's file."""
_SWITCHES = {
    "lowercase": Entry("do_lower_case", "flag", True),
    "strip_accents": Entry("strip_accents", "flag", None),
    "handle_chinese_chars": Entry("tokenize_chinese_chars", "flag", True),
}
PAD, UNK, MASK, START, END = "[PAD]", "[UNK]", "[MASK]", "[CLS]", "[SEP]"


class SpecialIds(NamedTuple):
    """Ids of tokens that stand for no text, beside padding, which is 0.

    Attributes:
        unknown: Stands for words outside the vocabulary.
        hidden: Replacement of dropped tokens: ``[MASK]`` where there is one, as in BERT's pre-training,
            otherwise the unknown token.
        start: Opens every text; None if texts have no such token.
        end: Closes every text; None if texts have no such token.
    """

    unknown: int
    hidden: int
    start: int | None
    end: int | None


def special_ids(tokenizer: Tokenizer) -> SpecialIds:
    """Return the ids of the special tokens of a checkpoint's tokeniser, or of one learned here.

    Raises:
        CheckpointError: If it has no unknown token, or padding is not 0.
    """
    padding, unknown, mask, start, end = map(tokenizer.token_to_id, (PAD, UNK, MASK, START, END))
    if padding != PADDING or unknown is None:
        raise CheckpointError(
            f"the tokeniser has {PAD} at {padding} and {UNK} at {unknown}; it needs both, with {PAD} at "
            f"{PADDING}: choose another checkpoint"
        )
    return SpecialIds(unknown, unknown if mask is None else mask, start, end)


def checkpoint_tokenizer(folder: str | Path) -> Tokenizer:
    """Return a checkpoint's tokeniser, from ``tokenizer.json`` or, without that file, from ``vocab.txt``.

    A ``vocab.txt`` is used as BERT uses it: WordPiece between ``[CLS]`` and ``[SEP]``, lower-cased unless
    ``tokenizer_config.json`` says ``"do_lower_case": false``.

    Returns:
        The tokeniser, which neither pads nor cuts.

    Raises:
        CheckpointError: If a file is missing or damaged, its ids do not fit ``config.json``, or padding is
            not 0.
    """
    path = checkpoint_folder(folder)
    tokenizer, file = _read(path, read_config(path))
    try:
        special_ids(tokenizer)
    except CheckpointError as error:
        raise CheckpointError(f"{file}: {error}") from None
    return tokenizer


def language_tokenizer(folder: str | Path) -> tuple[Tokenizer, int]:
    """Return the tokeniser of a GPT-2, Llama or Qwen2 checkpoint, and the id that ends a document.

    It is read from ``tokenizer.json`` or, for GPT-2 without that file, from ``vocab.json`` and
    ``merges.txt``. Ids stay as the checkpoint has them, so 0 is a token like any other, and there is none for
    padding. The end is ``eos_token_id`` of ``config.json``, the first if there are several.

    Returns:
        The tokeniser, which neither pads nor cuts nor adds tokens, and the id.

    Raises:
        CheckpointError: If a file is missing or damaged, its ids do not fit ``config.json``, or no token ends
            a document.
    """
    path = checkpoint_folder(folder)
    fields = read_config(path)
    if fields["style"] not in ("gpt2", "llama"):
        raise CheckpointError(
            f"{path} is a checkpoint of style {fields['style']!r}, which is not a language model"
        )
    tokenizer, _ = _read(path, fields)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)  # adds no token that opens a text
    end = read_settings(path / CONFIG).get("eos_token_id")
    if isinstance(end, list) and end:
        end = end[0]
    if type(end) is not int or not 0 <= end < fields["vocabulary"]:
        raise CheckpointError(
            f"{path / CONFIG}: eos_token_id is {shown(end)}, but a token from 0 to "
            f"{fields['vocabulary'] - 1} has to end documents; choose another checkpoint"
        )
    return tokenizer, end


def _read(folder: Path, fields: Mapping[str, Any]) -> tuple[Tokenizer, Path]:
    """Return the tokeniser in the first file that exists of those that its style may have, and the file."""
    readers = _READERS[fields["style"]]
    file = next((folder / name for name in readers if (folder / name).is_file()), None)
    if file is None:
        raise CheckpointError(f"{folder} holds no {' or '.join(readers)}; copy its tokeniser there")
    tokenizer = readers[file.name](file)
    highest = max(tokenizer.get_vocab().values(), default=-1)
    if highest >= fields["vocabulary"]:
        raise CheckpointError(
            f"{file} has token ids up to {highest}, but vocab_size in {folder / CONFIG} is "
            f"{fields['vocabulary']}; the files belong to different checkpoints"
        )
    return tokenizer, file


def _from_merges(vocabulary: Path) -> Tokenizer:
    """Return the byte-level tokeniser of GPT-2 as it was released, with ``merges.txt`` beside it."""
    ids, merges = read_settings(vocabulary), vocabulary.with_name("merges.txt")
    with reading(f"{vocabulary} or {merges}"):
        lines = read_regular(merges, LARGEST).decode("utf-8", errors="replace").splitlines()
        kept = (line.split(" ") for line in lines if line and not line.startswith("#version"))
        made = ByteLevelBPETokenizer(ids, [(left, right) for left, right in kept])
        return Tokenizer.from_str(made.to_str())


def _from_json(file: Path) -> Tokenizer:
    with reading(file):
        tokenizer = Tokenizer.from_buffer(read_regular(file, LARGEST))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _from_vocabulary(file: Path) -> Tokenizer:
    with reading(file):
        text = read_regular(file, LARGEST).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    # Not splitlines(): BERT's vocabularies hold tokens that it would take for ends of lines.
    tokens = text.rstrip("\n").split("\n")
    ids: dict[str, int] = {}
    for number, token in enumerate(tokens):
        if token in ids:
            raise CheckpointError(
                f"{file}:{number + 1}: token {shown(token)} is already in line {ids[token] + 1}; "
                "fetch it again"
            )
        ids[token] = number
    lacking = [name for name in (PAD, UNK, START, END) if name not in ids]
    if lacking:
        raise CheckpointError(f"{file} lacks {', '.join(lacking)}; this is not a vocabulary of BERT")
    file = file.with_name("tokenizer_config.json")
    told = read_settings(file, "fetch it again, or delete it for BERT's defaults") if file.is_file() else {}
    made = BertWordPieceTokenizer(ids, **read_entries(told, _SWITCHES, file))
    return Tokenizer.from_str(made.to_str())


_READERS: Mapping[str, Mapping[str, Callable[[Path], Tokenizer]]] = {
    "bert": {"tokenizer.json": _from_json, "vocab.txt": _from_vocabulary},
    "gpt2": {"tokenizer.json": _from_json, "vocab.json": _from_merges},
    "llama": {"tokenizer.json": _from_json},
}
"""Readers of the files that may hold the tokeniser, by style."""
