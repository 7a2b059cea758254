"""The tokeniser of a checkpoint; free of PyTorch.

Ids stay as the checkpoint has them, because they are the rows of its embedding table. So padding is 0 as
everywhere in this package, but the unknown token is not 1 (in BERT, 1 is an unused row and ``[UNK]`` is 100):
use :func:`special_ids`, which also works for the package's own tokenisers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import BertWordPieceTokenizer, ByteLevelBPETokenizer, Tokenizer, processors

from collapipe_env.ground.errors import CheckpointError, shortened, shown
from collapipe_env.ground.files import read_regular
from collapipe_env.models.hf_config import CONFIG, checkpoint_folder, read_config, read_settings
from collapipe_env.models.tokenization import PADDING

LARGEST = 64 * 1024**2
"""Most bytes of a tokeniser's file."""
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


def checkpoint_tokenizer(folder: str | Path, sequence_length: int | None = None) -> Tokenizer:
    """Return a checkpoint's tokeniser, from ``tokenizer.json`` or, without that file, from ``vocab.txt``.

    A ``vocab.txt`` is used as BERT uses it: WordPiece between ``[CLS]`` and ``[SEP]``, lower-cased unless
    ``tokenizer_config.json`` says ``"do_lower_case": false``.

    Args:
        sequence_length: Longest row of ids; the closing ``[SEP]`` is kept when a text is cut. None for no
            cut.

    Returns:
        The tokeniser, which does not pad.

    Raises:
        CheckpointError: If a file is missing or damaged, its ids do not fit ``config.json``, or padding is
            not 0.
    """
    path = checkpoint_folder(folder)
    ready = path / "tokenizer.json"
    file = ready if ready.is_file() else path / "vocab.txt"
    if not file.is_file():
        raise CheckpointError(
            f"{path} holds neither tokenizer.json nor vocab.txt; copy the checkpoint's tokeniser there"
        )
    tokenizer = _from_json(file) if file == ready else _from_vocabulary(file)
    try:
        special_ids(tokenizer)
    except CheckpointError as error:
        raise CheckpointError(f"{file}: {error}") from None
    _require_rows(tokenizer, file, read_config(path)["vocabulary"])
    if sequence_length is not None:
        tokenizer.enable_truncation(sequence_length)
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
    file, names = path / "tokenizer.json", (path / "vocab.json", path / "merges.txt")
    if file.is_file():
        tokenizer = _from_json(file)
    elif fields["style"] == "gpt2" and all(name.is_file() for name in names):
        file, tokenizer = names[0], _from_merges(*names)
    else:
        raise CheckpointError(f"{path} holds no tokenizer.json; copy the checkpoint's tokeniser there")
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)  # adds no token that opens a text
    _require_rows(tokenizer, file, fields["vocabulary"])
    end = read_settings(path / CONFIG).get("eos_token_id")
    if isinstance(end, list) and end:
        end = end[0]
    if type(end) is not int or not 0 <= end < fields["vocabulary"]:
        raise CheckpointError(
            f"{path / CONFIG}: eos_token_id is {shown(end)}, but a token from 0 to "
            f"{fields['vocabulary'] - 1} has to end documents; choose another checkpoint"
        )
    return tokenizer, end


def _require_rows(tokenizer: Tokenizer, file: Path, rows: int) -> None:
    """Refuse ids that have no row in the checkpoint's table."""
    highest = max(tokenizer.get_vocab().values(), default=-1)
    if highest >= rows:
        raise CheckpointError(
            f"{file} has token ids up to {highest}, but vocab_size in {file.with_name(CONFIG)} is {rows}; "
            "the files belong to different checkpoints"
        )


def _from_merges(vocabulary: Path, merges: Path) -> Tokenizer:
    """Return the byte-level tokeniser of GPT-2 as it was released."""
    ids = read_settings(vocabulary)
    lines = _read(merges).decode("utf-8", errors="replace").splitlines()
    try:
        kept = (line.split(" ") for line in lines if line and not line.startswith("#version"))
        made = ByteLevelBPETokenizer(ids, [(left, right) for left, right in kept])
    except Exception as error:  # the library raises nothing narrower
        raise CheckpointError(
            f"{vocabulary} or {merges} is damaged ({shortened(str(error))}); fetch both again"
        ) from None
    return Tokenizer.from_str(made.to_str())


def _from_json(file: Path) -> Tokenizer:
    content = _read(file)
    try:
        tokenizer = Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises nothing narrower
        raise CheckpointError(f"{file} is damaged ({shortened(str(error))}); fetch it again") from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _read(file: Path) -> bytes:
    try:
        return read_regular(file, LARGEST)
    except OSError as error:
        raise CheckpointError(f"cannot read {file} ({error.strerror}); fetch it again") from None


def _from_vocabulary(file: Path) -> Tokenizer:
    try:
        # Not splitlines(): BERT's vocabularies hold tokens that it would take for ends of lines.
        text = _read(file).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
        tokens = text.rstrip("\n").split("\n")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"cannot read {file} ({error}); fetch it again") from None
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
    options = _options(file.with_name("tokenizer_config.json"))
    made = BertWordPieceTokenizer(
        ids,
        lowercase=options.get("do_lower_case", True),
        strip_accents=options.get("strip_accents"),
        handle_chinese_chars=options.get("tokenize_chinese_chars", True),
    )
    return Tokenizer.from_str(made.to_str())


def _options(file: Path) -> dict[str, Any]:
    """Return the switches of ``tokenizer_config.json``; none if there is no such file."""
    if not file.is_file():
        return {}
    options = read_settings(file, "fetch it again, or delete it for BERT's defaults")
    for key in ("do_lower_case", "strip_accents", "tokenize_chinese_chars"):
        if options.get(key) is not None and not isinstance(options[key], bool):
            raise CheckpointError(f"{file}: {key} is {shown(options[key])}; it must be true or false")
    return {key: value for key, value in options.items() if value is not None}
