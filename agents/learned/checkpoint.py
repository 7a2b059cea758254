"""The file of a learned agent: a zip of JSON and tensors, from which nothing is ever executed.

Members: ``metadata.json`` (what the agent is and was trained on), ``policy.pt`` (its weights) and
``training.pt`` (optimiser states, to continue training). Tensors are read with ``weights_only=True``.
Stable-Baselines3's own archives hold pickled Python objects, which can run code when read, and are refused.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import pickle
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_origin, get_type_hints

import torch

from collapipe_env.ground.archives import open_zip, require_tensors
from collapipe_env.ground.errors import CheckpointError, reason, shortened, shown
from collapipe_env.ground.files import ARCHIVE_BYTES, parse_json, read_regular, without_nan, write_bytes

from .agent_file import Shapes, is_shapes
from .hyperparameters import HyperParameters, parameters_from_dict

FORMAT = "collapipe-env agent"
FORMAT_VERSION = 2
LARGEST_METADATA = 16 * 1024**2
"""Most bytes to which ``metadata.json`` may unpack."""


@dataclass(frozen=True)
class SavedAgent:
    """Content of a checkpoint.

    Attributes:
        algorithm: ``"ppo"`` or ``"sac"``.
        parameters: Hyper-parameters.
        scenario: The scenario it was trained on, as plain data.
        features: Shape of each feature of the observation by its name, in their order.
        decisions: Shape of each part of the action, in the same way.
        steps: Transitions it was trained on.
        training: How it was trained (seed, reward, learner, ...), plain data.
        history: Its validations, oldest first, plain data.
        package_version: Version of the package that wrote it.
        policy: Weights of the policy.
        optimisers: States needed to continue training.
    """

    algorithm: str
    parameters: HyperParameters
    scenario: dict[str, Any]
    features: Shapes
    decisions: Shapes
    steps: int
    training: dict[str, Any]
    history: list[dict[str, Any]]
    package_version: str
    policy: dict[str, torch.Tensor]
    optimisers: dict[str, Any]


_FIELDS = {"hyperparameters": dict} | {
    name: get_origin(kind) or kind
    for name, kind in get_type_hints(SavedAgent).items()
    if name not in ("parameters", "policy", "optimisers")
}
"""Types of the entries of ``metadata.json``."""


def write_checkpoint(
    path: Path, metadata: Mapping[str, Any], policy: Mapping[str, Any], optimisers: Mapping[str, Any]
) -> None:
    """Write a checkpoint; an older one in its place stays until the new one is complete.

    Args:
        path: Where to write it.
        metadata: Plain data, the fields of :class:`SavedAgent` that are not tensors.
        policy: State dictionary of the policy.
        optimisers: State dictionaries and tensors by name.

    Raises:
        DataError: If the place cannot be written to.
    """
    head = {"format": FORMAT, "format_version": FORMAT_VERSION, **without_nan(metadata)}
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("metadata.json", json.dumps(head, indent=2, allow_nan=False))
        for name, state in (("policy.pt", policy), ("training.pt", optimisers)):
            content = io.BytesIO()
            torch.save(dict(state), content)
            zipped.writestr(name, content.getvalue())
    write_bytes(path, archive.getvalue())


def read_checkpoint(path: Path) -> SavedAgent:
    """Read a checkpoint of PPO or SAC without executing anything from it.

    Raises:
        CheckpointError: If the file is missing, damaged, of another program or of another version.
    """
    with _opened(path) as archive:
        return _read(path, archive)


def read_metadata(path: Path) -> dict[str, Any]:
    """Return ``metadata.json`` of a checkpoint of any algorithm; ``algorithm`` and ``history`` are checked.

    Raises:
        CheckpointError: As for :func:`read_checkpoint`.
    """
    with _opened(path) as archive:
        return _metadata(path, archive)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open the archive; any error that damage causes becomes one line."""
    try:
        with open_zip(read_regular(path, ARCHIVE_BYTES)) as archive:
            yield archive
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} does not exist: give the path of an agent that collapipe train saved, such as "
            "runs/medium-ppo-seed0/checkpoints/best.zip"
        ) from None
    except OSError as error:
        raise CheckpointError(
            f"cannot read {path} ({error.strerror}): give the path of a saved agent"
        ) from None
    except CheckpointError:
        raise
    except Exception as error:  # a damaged archive can make the libraries raise anything
        raise CheckpointError(
            f"{path} is damaged or not a saved agent ({reason(error)}): copy it again from where it came "
            "from, or train again with --fresh"
        ) from None


def _metadata(path: Path, archive: zipfile.ZipFile) -> dict[str, Any]:
    names = set(archive.namelist())
    if "metadata.json" not in names:
        if "data" in names and any(name.endswith(".pth") for name in names):
            raise CheckpointError(
                f"{path} is an archive of Stable-Baselines3, whose pickled part could run any code: only "
                "agents that collapipe train saved are read. To play it, load it in a file of your own and "
                "wrap it in collapipe_env.PolicyScheduler: --schedulers file.py:Name"
            )
        raise CheckpointError(
            f"{path} is foreign: only agents that collapipe train saved are read (they hold metadata.json). "
            "To play another policy, wrap it in collapipe_env.PolicyScheduler in a file of your own: "
            "--schedulers file.py:Name"
        )
    size = archive.getinfo("metadata.json").file_size
    if size > LARGEST_METADATA:
        raise CheckpointError(
            f"{path}: metadata.json unpacks to {size:,} bytes, above the limit of {LARGEST_METADATA:,}: this "
            "is not a saved agent"
        )
    metadata = _parsed(path, archive.read("metadata.json"))
    for name, kind in (("algorithm", str), ("history", list)):
        if not isinstance(metadata.get(name), kind):
            raise CheckpointError(f"{path}: {name} is missing from metadata.json or has the wrong type")
    if not all(isinstance(entry, dict) for entry in metadata["history"]):
        raise CheckpointError(f"{path}: history in metadata.json must be a list of objects")
    return metadata


def _read(path: Path, archive: zipfile.ZipFile) -> SavedAgent:
    metadata = _metadata(path, archive)
    for name, kind in _FIELDS.items():
        shapes = name in ("features", "decisions")
        if not (is_shapes(metadata.get(name)) if shapes else isinstance(metadata.get(name), kind)):
            raise CheckpointError(f"{path}: {name} is missing from metadata.json or has the wrong type")
    names = set(archive.namelist())
    for name in ("policy.pt", "training.pt"):
        if name not in names:
            raise CheckpointError(f"{path} lacks {name}: copy it again, or train again with --fresh")
    try:
        parameters = parameters_from_dict(metadata["algorithm"], metadata["hyperparameters"])
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}; train again with --fresh") from None
    policy = _tensors(path, archive, "policy.pt")
    require_weights(str(path), "policy.pt", policy, parameters)
    broken = [name for name, value in policy.items() if not bool(torch.isfinite(value).all())]
    if broken:
        raise CheckpointError(
            f"{path}: weights {shortened(broken[0])} are not finite, so training had diverged: train again "
            "with --fresh and a smaller learning rate"
        )
    fields = {name: metadata[name] for name in _FIELDS if name != "hyperparameters"}
    return SavedAgent(
        parameters=parameters, policy=policy, optimisers=_tensors(path, archive, "training.pt"), **fields
    )


def _parsed(path: Path, content: bytes) -> dict[str, Any]:
    try:
        metadata = parse_json(content)
    except ValueError as error:
        raise CheckpointError(
            f"{path}: metadata.json is damaged ({error}): train again with --fresh"
        ) from None
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise CheckpointError(f"{path} is foreign: its metadata.json does not say format = {FORMAT!r}")
    if metadata.get("format_version") != FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format version {shown(metadata.get('format_version'))}; this collapipe-env reads "
            f"{FORMAT_VERSION}: use the version that wrote it ({shown(metadata.get('package_version'))}), or "
            "train again"
        )
    return metadata


def _tensors(path: Path, archive: zipfile.ZipFile, name: str) -> dict[str, Any]:
    content = archive.read(name)
    try:
        if not zipfile.is_zipfile(io.BytesIO(content)):  # PyTorch's older formats are one bare pickle
            raise pickle.UnpicklingError
        with open_zip(content) as inner:
            require_tensors(inner, len(content))
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise CheckpointError(
            f"{path}: {name} holds more than tensors and would run code when read: this is not a saved agent"
        ) from None
    except Exception as error:  # a damaged pickle can raise anything
        raise CheckpointError(
            f"{path}: {name} is damaged ({reason(error)}): copy it again from where it came from, or train "
            "anew with --fresh"
        ) from None
    if not isinstance(state, dict):
        raise CheckpointError(f"{path}: {name} holds no dictionary of tensors: this is not a saved agent")
    return state


def require_weights(place: str, member: str, policy: Mapping[Any, Any], parameters: HyperParameters) -> None:
    """Refuse anything that is not a weight of a policy of that size, before computing with it.

    Args:
        place: File of the agent, for errors.
        member: Part of the file that holds the weights, for errors.
        policy: Weights by their names.
        parameters: Hyper-parameters, which give the least number of weights.

    Raises:
        CheckpointError: Names the wrong entry or size.
    """
    for name, value in policy.items():
        # A view of a single number can have any shape.
        fine = (
            isinstance(name, str)
            and isinstance(value, torch.Tensor)
            and value.layout is torch.strided
            and value.device.type == "cpu"
            and value.dtype is torch.float32
            and value.is_contiguous()
        )
        if not fine:
            found = f"a tensor of {value.dtype}" if isinstance(value, torch.Tensor) else shown(value)
            raise CheckpointError(
                f"{place}: {member} holds {found} under {shown(name)}, where weights of torch.float32 by "
                "their names are expected: this is not a saved agent"
            )
    widths = parameters.hidden_units
    least = sum(before * after for before, after in itertools.pairwise(widths))
    found_weights = sum(value.numel() for value in policy.values())
    if found_weights < least:
        raise CheckpointError(
            f"{place}: {member} holds {found_weights:,} weights, but hidden_units of {shown(list(widths))} "
            f"need {least:,} at least: this is not a saved agent"
        )
