"""The file of an agent that only plays: one ``.safetensors`` file, from which nothing is ever executed.

It holds the weights that decide, and one text ``collapipe`` of JSON that says what the agent is
(:class:`AgentRecord`). The file also holds a digest over both, so a cut, edited or damaged file is refused.
Ordinary checkpoints (:mod:`.checkpoint`) also hold what training needs; :mod:`.algorithms` turns one into
this file. The format does not depend on the algorithm: each reads its own hyper-parameters and tensors.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt
import safetensors.numpy

from collapipe_env.ground.errors import CheckpointError, reason, shortened, shown
from collapipe_env.ground.files import ARCHIVE_BYTES, parse_json, read_regular, without_nan, write_bytes

FORMAT = "collapipe-env playing agent"
FORMAT_VERSION = 1
ENTRY = "collapipe"
"""Name of the only text in the file's header."""
LARGEST_HEADER = 16 * 1024**2
"""Most bytes of the file's header: the record, and names and shapes of the tensors."""
MOST_TENSORS = 10_000
TYPES = {"F32": np.float32, "F64": np.float64, "I32": np.int32, "I64": np.int64}
"""Types of tensors that are written and read, as the format calls them."""
REMEDY = "copy it again from where it came from, or, in the folder of a training, train again with --fresh"

Tensors: TypeAlias = dict[str, npt.NDArray[Any]]
Shapes: TypeAlias = dict[str, list[int]]
"""Shape of each part of an observation or action by its name, in the order of the parts; plain data."""


@dataclass(frozen=True)
class AgentRecord:
    """Description of an agent that only plays; plain data.

    Attributes:
        algorithm: Name in :data:`~.algorithms.ALGORITHMS`: ``"ppo"``, ``"sac"``, ...
        hyperparameters: Everything that decides the policy's shape, and how it was trained.
        scenario: The scenario that it was trained on; empty if there were several.
        systems: Range of the systems that it was trained on, if there were several; its ``name`` is shown in
            tables. Empty if there was one scenario.
        features: Shape of each feature of the observation that it reads, by its name, in their order. An
            agent for systems of any size gives those of one device, cluster, ...
        decisions: Shape of each part of the action that it decides, in the same way.
        steps: Transitions that it was trained on.
        training: Record of the training: ``command``, ``seed``, ``steps`` asked for, ``seconds``, ...
        history: Validations, oldest first.
        package_version: Version of the package that wrote it.
    """

    algorithm: str
    hyperparameters: dict[str, Any]
    scenario: dict[str, Any]
    systems: dict[str, Any]
    features: Shapes
    decisions: Shapes
    steps: int
    training: dict[str, Any]
    history: list[dict[str, Any]]
    package_version: str

    @property
    def trained_on(self) -> str:
        """Name of the scenario, or of the range of systems, that it was trained on."""
        return str((self.scenario or self.systems).get("name", "?"))


_KINDS = {name: get_origin(kind) or kind for name, kind in get_type_hints(AgentRecord).items()}
"""Type of each entry of the record."""


class AgentFile(NamedTuple):
    """Content of an agent's file.

    Attributes:
        record: Description of the agent.
        tensors: Its weights by their names, finite.
    """

    record: AgentRecord
    tensors: Tensors


def write_agent_file(path: Path, record: AgentRecord, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write an agent's file; an older file in its place stays until the new one is complete.

    The same record and tensors give the same bytes.

    Args:
        path: Where to write it.
        record: Description of the agent; numbers in it that are not finite become ``null``.
        tensors: Its weights by their names, of the types of :data:`TYPES`.

    Raises:
        CheckpointError: If a tensor is of another type or not finite.
        DataError: If the place cannot be written to.
    """
    write_bytes(path, packed_agent(record, tensors, str(path)))


def packed_agent(record: AgentRecord, tensors: Mapping[str, npt.NDArray[Any]], place: str) -> bytes:
    """Return the bytes of an agent's file; ``place`` is for errors. See :func:`write_agent_file`."""
    plain = {name: np.array(value, order="C") for name, value in tensors.items()}
    for name, value in plain.items():
        if value.dtype not in TYPES.values():
            raise CheckpointError(
                f"{place}: tensor {shown(name)} is of type {value.dtype}: give one of "
                f"{', '.join(np.dtype(kind).name for kind in TYPES.values())}"
            )
    _require_finite(plain, place)
    content = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        **without_nan(dataclasses.asdict(record)),
    }
    content["sha256"] = _digest(content, plain)
    text = json.dumps(content, allow_nan=False)
    return safetensors.numpy.save(plain, {ENTRY: text})


def is_agent_file(head: bytes) -> bool:
    """Whether a file may be of this format, by its first nine bytes: the header's length and its brace."""
    return len(head) >= 9 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= LARGEST_HEADER


def read_agent_file(path: Path) -> AgentFile:
    """Read an agent's file without executing anything from it.

    Lengths, names, types and shapes are checked before a tensor is made, so no more memory is set aside than
    the file holds.

    Raises:
        CheckpointError: If the file is missing, too large, damaged, of another program or of a newer version.
    """
    try:
        content = read_regular(path, ARCHIVE_BYTES)
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} does not exist: give an agent that collapipe train or collapipe zoo export wrote"
        ) from None
    except OSError as error:
        raise CheckpointError(
            f"cannot read {path} ({error.strerror}): give the path of a saved agent"
        ) from None
    place = str(path)
    raw = _raw_record(_header(content, place), place)
    try:
        tensors = safetensors.numpy.load(content)
    except Exception as error:  # the library may raise anything for damaged files
        raise CheckpointError(f"{place} is damaged ({reason(error)}): {REMEDY}") from None
    claimed = raw.pop("sha256", None)
    if claimed != _digest(raw, tensors):
        raise CheckpointError(
            f"{place} is damaged: its content does not have the SHA-256 that it names: {REMEDY}"
        )
    record = _record(raw, place)
    _require_finite(tensors, place)
    return AgentFile(record, tensors)


def is_shapes(value: object) -> bool:
    """Whether plain data from a file are shapes by names, each short enough to show in a message."""
    return isinstance(value, dict) and all(
        isinstance(shape, list)
        and len(shape) <= 8
        and all(type(size) is int and 0 <= size < 2**31 for size in shape)
        for shape in value.values()
    )


def _header(content: bytes, place: str) -> dict[str, Any]:
    """Texts in the file's header, after checks of its list of tensors."""
    foreign = CheckpointError(
        f"{place} is not an agent that collapipe train or collapipe zoo export wrote, or was cut short: give "
        "the path of one, or train again with --fresh"
    )
    if not is_agent_file(content[:9]):
        raise foreign
    (length,) = struct.unpack("<Q", content[:8])
    try:
        header = parse_json(content[8 : 8 + length])
    except ValueError as error:
        raise CheckpointError(f"{place}: its header is damaged ({reason(error)}): {REMEDY}") from None
    texts = header.pop("__metadata__", None) if isinstance(header, dict) else None
    if not isinstance(texts, dict) or not isinstance(texts.get(ENTRY), str):
        raise foreign
    if len(header) > MOST_TENSORS:
        raise CheckpointError(
            f"{place} lists {len(header):,} tensors, above the limit of {MOST_TENSORS:,}: this is not a "
            "saved agent"
        )
    for name, entry in header.items():
        kind = entry.get("dtype") if isinstance(entry, dict) else None
        if kind not in TYPES:
            raise CheckpointError(
                f"{place}: tensor {shown(name)} is of type {shown(kind)}, where one of {', '.join(TYPES)} is "
                "expected: this is not a saved agent"
            )
    return texts


def _raw_record(texts: Mapping[str, str], place: str) -> dict[str, Any]:
    """The record as it was written, of this format and version."""
    try:
        raw = parse_json(texts[ENTRY].encode("utf-8", "surrogatepass"))
    except ValueError as error:
        raise CheckpointError(f"{place}: its record is damaged ({reason(error)}): {REMEDY}") from None
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise CheckpointError(f"{place} is foreign: its record does not say format = {FORMAT!r}")
    if raw.get("format_version") != FORMAT_VERSION:
        raise CheckpointError(
            f"{place} has format version {shown(raw.get('format_version'))}; this collapipe-env reads "
            f"{FORMAT_VERSION}: use the version that wrote it ({shown(raw.get('package_version'))})"
        )
    return raw


def _record(raw: Mapping[str, Any], place: str) -> AgentRecord:
    fields: dict[str, Any] = {}
    for name, kind in _KINDS.items():
        value = raw.get(name)
        fine = isinstance(value, kind) and not isinstance(value, bool)
        if name in ("features", "decisions"):
            fine = is_shapes(value)
        if name == "history":
            fine = isinstance(value, list) and all(isinstance(entry, dict) for entry in value)
        if not fine:
            raise CheckpointError(
                f"{place}: {name} is missing from its record or has the wrong type: this is not a saved agent"
            )
        fields[name] = value
    if bool(fields["scenario"]) == bool(fields["systems"]):
        raise CheckpointError(
            f"{place}: its record must name a scenario or a range of systems that it was trained on, and not "
            "both: this is not a saved agent"
        )
    return AgentRecord(**fields)


def _digest(content: Mapping[str, Any], tensors: Mapping[str, npt.NDArray[Any]]) -> str:
    """SHA-256 over the record and the names, types, shapes and bytes of the tensors."""
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for name, value in sorted(tensors.items()):
        digest.update(json.dumps([name, value.dtype.name, value.shape]).encode())
        digest.update(value.tobytes())
    return digest.hexdigest()


def _require_finite(tensors: Mapping[str, npt.NDArray[Any]], place: str) -> None:
    for name, value in tensors.items():
        if not np.isfinite(value).all():
            raise CheckpointError(
                f"{place}: weights {shortened(name)} are not finite, so training had diverged: train again "
                "with a smaller learning rate"
            )
