"""Scripts as plain JSON and back: checked on the way in, nothing is executed."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from collapipe_env.execution.scripts import (
    BACKWARD,
    FORWARD,
    WEIGHT,
    ClusterScript,
    RecoveryScript,
    RoundScript,
    StageScript,
)
from collapipe_env.ground.errors import CollaPipeError, nearest_name, shown

LARGEST = 2**53
"""Bound of whole numbers in a script, up to which JSON's numbers are exact everywhere."""
LONGEST = 1_000_000
"""Most entries of a list in a script."""

Script = TypeVar("Script", RoundScript, ClusterScript, RecoveryScript)


class ScriptError(CollaPipeError):
    """A script has a missing, unknown, out-of-range or contradictory field."""


def to_json(script: RoundScript | ClusterScript | RecoveryScript) -> dict[str, Any]:
    """Return a script as dictionaries, lists, numbers and texts, ready for ``json.dumps``."""
    plain = _plain(script)
    assert isinstance(plain, dict)
    return plain


def from_json(data: object, kind: type[Script]) -> Script:
    """Return the script that :func:`to_json` wrote.

    Args:
        data: The script, read from JSON.
        kind: Class of the script.

    Raises:
        ScriptError: If a field is missing, unknown, of a wrong type or out of its range, or fields contradict
            each other. The message names the field.
    """
    script: Script = _read(kind, data, "script")
    if isinstance(script, RoundScript):
        for n, cluster in enumerate(script.clusters):
            if cluster.cluster != n:
                raise _error(f"script.clusters[{n}].cluster", cluster.cluster, f"{n}, its place")
            check_cluster(cluster, f"script.clusters[{n}]")
    elif isinstance(script, ClusterScript):
        check_cluster(script, "script")
    else:
        check_cluster(script.script, "script.script")
    return script


def check_cluster(script: ClusterScript, place: str) -> None:
    """Refuse a cluster's script whose fields contradict each other.

    Args:
        place: Its name in messages.

    Raises:
        ScriptError: If they do.
    """
    S, M = len(script.stages), script.micro_batches
    if not script.plays:
        if script.stages:
            raise _error(f"{place}.stages", S, "none, as plays is false")
        return
    if S == 0 or M < 1:
        raise _error(f"{place}.micro_batches and stages", (M, S), "1 or more of each, as plays is true")
    if script.local_steps < 0:
        raise _error(f"{place}.local_steps", script.local_steps, "0 or more")
    for name, wanted in (("hop_forward_s", S + 1), ("hop_backward_s", S + 1), ("hosts", S)):
        if (found := len(getattr(script, name))) != wanted:
            raise _error(f"{place}.{name}", f"{found} entries", f"{wanted} for {S} stages")
    if len(script.arrived) != script.local_steps or any(len(step) != M for step in script.arrived):
        raise _error(f"{place}.arrived", "other sizes", f"{script.local_steps} lists of {M}")
    seen: set[int] = set()
    for s, stage in enumerate(script.stages):
        where = f"{place}.stages[{s}]"
        if not stage.devices or min(stage.devices) < 1 or seen & set(stage.devices):
            raise _error(f"{where}.devices", stage.devices, "numbers from 1, at least one, in one stage only")
        if len(stage.shares) != len(stage.devices) or abs(math.fsum(stage.shares) - 1.0) > 1e-6:
            raise _error(f"{where}.shares", stage.shares, "one for each device, summing to 1")
        if len(stage.chunks) != len(stage.chunk_share):
            raise _error(f"{where}.chunks", len(stage.chunks), f"{len(stage.chunk_share)} as chunk_share")
        seen |= set(stage.devices)
        _check_stage(stage, M, where)
    _check_stage(script.server, M, f"{place}.server")


def _check_stage(stage: StageScript, micro_batches: int, place: str) -> None:
    """Refuse a stage whose chunks or operations are wrong or incomplete."""
    for first, end in stage.chunks:
        if not 0 <= first <= end:
            raise _error(f"{place}.chunks", (first, end), "a first block and an end not before it")
    if not stage.chunk_share or abs(math.fsum(stage.chunk_share) - 1.0) > 1e-6:
        raise _error(f"{place}.chunk_share", stage.chunk_share, "shares that sum to 1")
    chunks, done = range(len(stage.chunk_share)), set()
    with_weights = any(kind == WEIGHT for kind, _, _ in stage.order)
    for i, operation in enumerate(stage.order):
        kind, m, chunk = operation
        known = kind in (FORWARD, BACKWARD, WEIGHT) and 0 <= m < micro_batches and chunk in chunks
        before = kind == FORWARD or (kind - 1, m, chunk) in done
        if not known or operation in done or not before:
            wanted = "forward (0), backward (1) and weight gradient (2) of each micro-batch, in turn and once"
            raise _error(f"{place}.order[{i}]", operation, wanted)
        done.add(operation)
    each = (3 if with_weights else 2) * micro_batches * len(chunks)
    if len(done) != each:
        raise _error(f"{place}.order", f"{len(done)} operations", f"{each} for {micro_batches} micro-batches")
    if stage.weight_limit is not None and (stage.weight_limit < 1 or with_weights):
        raise _error(
            f"{place}.weight_limit",
            stage.weight_limit,
            "null, or at least 1 and no weights in order",
        )


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    return value


@cache
def _types_of(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _read(kind: Any, value: Any, place: str) -> Any:
    """Return a value of a type; raise an error that names its place if it is of another type."""
    if is_dataclass(kind):
        assert isinstance(kind, type)
        return _read_fields(kind, value, place)
    origin, options = get_origin(kind), get_args(kind)
    if origin is tuple:
        if not isinstance(value, list) or len(value) > LONGEST:
            raise _error(place, value, f"a list of at most {LONGEST:,} entries")
        if options[-1] is Ellipsis:
            return tuple(_read(options[0], entry, f"{place}[{i}]") for i, entry in enumerate(value))
        if len(value) != len(options):
            raise _error(place, value, f"a list of {len(options)} entries")
        pairs = zip(options, value, strict=True)
        return tuple(_read(option, entry, f"{place}[{i}]") for i, (option, entry) in enumerate(pairs))
    if origin in (Union, types.UnionType):
        (other,) = (option for option in options if option is not type(None))
        return None if value is None else _read(other, value, place)
    if origin is Literal:
        if value not in options:
            raise _error(place, value, f"one of {', '.join(options)}")
        return value
    return _read_number(kind, value, place)


def _read_fields(kind: type, value: Any, place: str) -> Any:
    if not isinstance(value, Mapping):
        raise _error(place, value, "an object with named fields")
    hints = _types_of(kind)
    for name in value:
        if name not in hints:
            raise ScriptError(f"{place} has an unknown field {shown(name)}; {nearest_name(name, hints)}")
    for name in hints:
        if name not in value:
            raise ScriptError(f"{place} lacks the field {name!r}; write scripts with to_json")
    return kind(**{name: _read(hint, value[name], f"{place}.{name}") for name, hint in hints.items()})


def _read_number(kind: Any, value: Any, place: str) -> Any:
    if kind is bool:
        if not isinstance(value, bool):
            raise _error(place, value, "true or false")
        return value
    if isinstance(value, bool):
        raise _error(place, value, "a number")
    if kind is int:
        if not isinstance(value, int) or abs(value) > LARGEST:
            raise _error(place, value, "a whole number of at most 2**53")
        return value
    # All real numbers of scripts are shares or times.
    if not isinstance(value, (int, float)) or not 0.0 <= value <= LARGEST:
        raise _error(place, value, "a finite number of 0 or more")
    return float(value)


def _error(place: str, value: object, wanted: str) -> ScriptError:
    found = value if isinstance(value, str) and " " in value else shown(value)
    return ScriptError(f"{place} is {found}; it has to be {wanted}")
