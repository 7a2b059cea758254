"""Scripts as plain JSON and back: checked on the way in, nothing is executed."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from collapipe_env.execution.scripts import (
    BACKWARD,
    FORWARD,
    WEIGHT,
    ClusterScript,
    Move,
    RecoveryScript,
    RoundScript,
    StageScript,
)
from collapipe_env.ground.errors import CollaPipeError, fault_line, nearest_name, place_of, shown

KINDS = (RoundScript, ClusterScript, StageScript, RecoveryScript, Move)
READERS: dict[type, TypeAdapter[Any]] = {kind: TypeAdapter(kind) for kind in KINDS}
NAMES = sorted({field.name for kind in KINDS for field in fields(kind)})
"""Names of all fields."""
Script = TypeVar("Script", RoundScript, ClusterScript, RecoveryScript)


class ScriptError(CollaPipeError):
    """A script has a missing, unknown, out-of-range or contradictory field."""


def to_json(script: RoundScript | ClusterScript | RecoveryScript) -> dict[str, Any]:
    """Return a script as dictionaries, lists, numbers and texts, ready for ``json.dumps``."""
    plain: dict[str, Any] = READERS[type(script)].dump_python(script, mode="json")
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
    try:
        script: Script = READERS[kind].validate_python(data)
    except ValidationError as error:
        raise _fault(error.errors()[0]) from None
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


def _fault(fault: ErrorDetails) -> ScriptError:
    """Return the error for a field of a wrong type or out of its range."""
    if fault["type"] == "unexpected_keyword_argument":
        *above, name = fault["loc"]
        hint = nearest_name(str(name), NAMES)
        return ScriptError(f"{place_of('script', above)} has an unknown field {shown(name)}; {hint}")
    remedy = "; write scripts with to_json" if fault["type"] == "missing" else ""
    return ScriptError(fault_line(fault, "script") + remedy)


def _error(place: str, value: object, wanted: str) -> ScriptError:
    found = value if isinstance(value, str) and " " in value else shown(value)
    return ScriptError(f"{place} is {found}; it has to be {wanted}")
