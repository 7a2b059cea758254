"""The file of an agent: one ``.safetensors`` file, from which nothing is ever executed.

It holds the weights that decide, and one text ``collapipe`` of JSON that says what the agent is
(:class:`AgentRecord`). A version from which training continues also holds what only training needs: tensors
whose names begin with ``training.``. A digest over both is kept in the text, so a cut, edited or damaged file
is refused. The format does not depend on the algorithm: each reads its own hyper-parameters and tensors.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import safetensors.numpy
from pydantic import Field, TypeAdapter, ValidationError

from collapipe_env.ground.errors import CheckpointError, fault_line, reason, shortened, shown
from collapipe_env.ground.files import ARCHIVE_BYTES, parse_json, read_regular, without_nan, write_bytes

FORMAT = "collapipe-env playing agent"
FORMAT_VERSION = 1
ENTRY = "collapipe"
"""Name of the only text in the file's header."""
TRAINING = "training."
"""Beginning of the names of tensors that only training needs."""
LARGEST_HEADER = 16 * 1024**2
"""Most bytes of the file's header: the record, and names and shapes of the tensors."""
REMEDY = "copy it again from where it came from, or, in the folder of a training, train again with --fresh"

Tensors: TypeAlias = dict[str, npt.NDArray[Any]]
Size: TypeAlias = Annotated[int, Field(strict=True, ge=0, lt=2**31)]
Shapes: TypeAlias = dict[str, Annotated[list[Size], Field(max_length=8)]]
"""Shape of each part of an observation or action by its name, in the order of the parts; plain data."""


@dataclass(frozen=True)
class AgentRecord:
    """Description of an agent; plain data.

    Attributes:
        algorithm: Name in :data:`~.agent_loading.ALGORITHMS`: ``"ppo"``, ``"sac"``, ...
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
    steps: Annotated[int, Field(strict=True)]
    training: dict[str, Any]
    history: list[dict[str, Any]]
    package_version: str

    def __post_init__(self) -> None:
        if bool(self.scenario) == bool(self.systems):
            raise ValueError("names a scenario and a range of systems that it was trained on, or neither")

    @property
    def trained_on(self) -> str:
        """Name of the scenario, or of the range of systems, that it was trained on."""
        return str((self.scenario or self.systems).get("name", "?"))


class AgentFile(NamedTuple):
    """Content of an agent's file.

    Attributes:
        record: Description of the agent.
        tensors: Its weights by their names, finite, and what training needs; of a file, sorted by name.
    """

    record: AgentRecord
    tensors: Tensors

    @property
    def playing(self) -> AgentFile:
        """The part that plays: the same record, without tensors that only training needs."""
        kept = {name: value for name, value in self.tensors.items() if not name.startswith(TRAINING)}
        return AgentFile(self.record, kept)


def write_agent_file(path: Path, record: AgentRecord, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write an agent's file; an older file in its place stays until the new one is complete.

    The same record and tensors give the same bytes.

    Args:
        path: Where to write it.
        record: Description of the agent; numbers in it that are not finite become ``null``.
        tensors: Its weights by their names.

    Raises:
        CheckpointError: If a tensor is not finite.
        DataError: If the place cannot be written to.
    """
    write_bytes(path, packed_agent(record, tensors, str(path)))


def packed_agent(record: AgentRecord, tensors: Mapping[str, npt.NDArray[Any]], place: str) -> bytes:
    """Return the bytes of an agent's file; ``place`` is for errors. See :func:`write_agent_file`."""
    plain = {name: np.array(value, order="C") for name, value in tensors.items()}
    _require_finite(plain, place)
    content = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        **without_nan(dataclasses.asdict(record)),
    }
    content["sha256"] = _digest(content, plain)
    return safetensors.numpy.save(plain, {ENTRY: json.dumps(content, allow_nan=False)})


def read_agent_file(path: Path) -> AgentFile:
    """Read an agent's file without executing anything from it.

    No more memory is set aside than the file holds, whatever it claims.

    Raises:
        CheckpointError: If the file is missing, too large, damaged, of another program or of a newer version.
    """
    try:
        content = read_regular(path, ARCHIVE_BYTES)
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} does not exist: give an agent that collapipe train or collapipe zoo export wrote, such "
            "as runs/medium-ppo-seed0/checkpoints/best.safetensors"
        ) from None
    except OSError as error:
        raise CheckpointError(
            f"cannot read {path} ({error.strerror}): give the path of a saved agent"
        ) from None
    raw = _raw_record(content, path)
    try:
        tensors = dict(sorted(safetensors.numpy.load(content).items()))
    except Exception as error:  # the library may raise anything for damaged files
        raise CheckpointError(f"{path} is damaged ({reason(error)}): {REMEDY}") from None
    if raw.pop("sha256", None) != _digest(raw, tensors):
        raise CheckpointError(
            f"{path} is damaged: its content does not have the SHA-256 that it names: {REMEDY}"
        )
    try:
        record = TypeAdapter(AgentRecord).validate_python(raw)
    except ValidationError as error:
        raise CheckpointError(
            f"{path}: {fault_line(error.errors()[0], 'record')}: this is not a saved agent"
        ) from None
    _require_finite(tensors, str(path))
    return AgentFile(record, tensors)


def require_tensors(found: Tensors, wanted: Mapping[str, tuple[int, ...]], place: str) -> None:
    """Refuse tensors that are not those of a net: the first one of another name, type or shape is named.

    Args:
        found: Tensors of a file.
        wanted: Shapes of the net's tensors, all of single precision.
        place: The file, for the error.

    Raises:
        CheckpointError: If a tensor differs, is missing, or is of no use.
    """
    for name in dict.fromkeys((*wanted, *found)):
        held = f"{found[name].dtype} of shape {found[name].shape}" if name in found else "none"
        needed = f"float32 of shape {tuple(wanted[name])}" if name in wanted else "none"
        if held != needed:
            raise CheckpointError(
                f"{place}: its hyper-parameters need other weights: {shortened(name)} is {needed} there, "
                f"{held} in the file: {REMEDY}"
            )


def _raw_record(content: bytes, path: Path) -> dict[str, Any]:
    """The record as it was written, of this format and version."""
    if content.startswith(b"PK\x03\x04"):
        raise CheckpointError(
            f"{path} is a zip archive, as Stable-Baselines3 writes it: its pickled part could run any code. "
            "Only agents that collapipe train saved are read. To play it, load it in a file of your own "
            "and wrap it in collapipe_env.PolicyScheduler: --schedulers file.py:Name"
        )
    foreign = CheckpointError(
        f"{path} is not an agent that collapipe train or collapipe zoo export wrote, or was cut short: give "
        "the path of one, or train again with --fresh. To play another policy, wrap it in "
        "collapipe_env.PolicyScheduler in a file of your own: --schedulers file.py:Name"
    )
    length = int.from_bytes(content[:8], "little")
    if content[8:9] != b"{" or length > LARGEST_HEADER:
        raise foreign
    try:
        header = parse_json(content[8 : 8 + length])
        text = header.get("__metadata__", {}).get(ENTRY)
        raw = None if text is None else parse_json(text.encode("utf-8", "surrogatepass"))
    except (ValueError, AttributeError) as error:
        raise CheckpointError(f"{path}: its header is damaged ({reason(error)}): {REMEDY}") from None
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise foreign
    if raw.get("format_version") != FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format version {shown(raw.get('format_version'))}; this collapipe-env reads "
            f"{FORMAT_VERSION}: use the version that wrote it ({shown(raw.get('package_version'))})"
        )
    return raw


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
