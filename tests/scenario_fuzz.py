"""Scenarios drawn at random over all fields that scenarios have, from ordinary to absurd."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
from combination_support import FACTORS, plays, scenario_of
from covering_support import Case
from pydantic import TypeAdapter

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.scenario.names import PRESETS, TIERED
from collapipe_env.simulator.process_registry import PROCESSES

BOUNDED = {
    "clusters", "devices", "blocks", "batch_size", "local_steps", "local_steps_choices", "rounds",
    "micro_batch_choices", "decisions", "task", "processes", "layout_seed", "name",
}  # fmt: skip
"""Fields that are not changed by their range: sizes, which are drawn small enough for a fast round, and
those that the case sets."""
LARGEST = 6
"""Most clusters, and most devices of a cluster."""


def drawn_scenario(seed: int) -> tuple[Scenario, str]:
    """A valid scenario.

    Args:
        seed: The same one gives the same scenario.

    Returns:
        The scenario; and ``"shipped"`` for one of the package's with fewer rounds, ``"mild"`` for one whose
        fields are near those of a combined case, ``"wild"`` for one with fields anywhere in their ranges.
    """
    rng = np.random.default_rng([seed, 77])
    kind = str(rng.choice(["shipped", "mild", "wild"], p=[0.2, 0.4, 0.4]))
    if kind == "shipped":
        return load_scenario(_shipped(rng)), kind
    data = load_scenario(_sized(rng, scenario_of(_case(rng)))).to_dict()
    for _ in range(int(rng.integers(1, 13))):
        changed = _changed(rng, data, wild=kind == "wild")
        try:
            data = load_scenario(changed).to_dict()
        except ScenarioError:
            continue  # this change would contradict another field
    return load_scenario({**data, "name": f"drawn-{seed}"}), kind


def _shipped(rng: np.random.Generator) -> dict[str, Any]:
    """A shipped scenario, those of the tiers more often; large ones are seldom."""
    names = [name for name in (*PRESETS, *TIERED) if "large" not in name]
    if rng.random() < 0.1:
        names = [name for name in PRESETS if "xlarge" not in name]
    return {"base": str(rng.choice(names)), "dynamics": {"rounds": int(rng.integers(2, 30))}}


def _case(rng: np.random.Generator) -> Case:
    """Levels of all factors that play together, the opened decisions and processes often at their first."""
    while True:
        kept = rng.random()
        case = {
            name: levels[0] if rng.random() < kept else str(rng.choice(levels))
            for name, levels in FACTORS.items()
        }
        # The environment is built by the test itself.
        case |= {"kind": "vector", "learner": "surrogate", "plan": "gpipe", "scheduler": "pipeline"}
        if plays(case):
            return case


def _sized(rng: np.random.Generator, fields: dict[str, Any]) -> dict[str, Any]:
    """A case's scenario with sizes of its own."""
    clusters = int(rng.integers(1, LARGEST))
    devices: Any = int(rng.integers(1, LARGEST))
    if rng.random() < 0.5:
        devices = rng.integers(1, LARGEST, clusters).tolist()
    batch = int(rng.choice([1, 4, 6, 16]))
    workload = {
        "blocks": int(rng.integers(1, 13)),
        "batch_size": batch,
        "local_steps": int(rng.integers(1, 4)),
    }
    return {
        **fields,
        "workload": {**fields["workload"], **workload},
        "cluster": {**fields["cluster"], "clusters": clusters, "devices": devices},
        "dynamics": {**fields["dynamics"], "rounds": int(rng.integers(2, 25))},
    }


def _changed(rng: np.random.Generator, data: Mapping[str, Any], *, wild: bool) -> dict[str, Any]:
    """Every field of a scenario, one of them changed."""
    changed = copy.deepcopy(dict(data))
    places = list(_places(changed, _schema(Scenario)))
    processes = changed["dynamics"]["processes"]
    for name, fields in processes.items():
        places += _places(fields, _schema(PROCESSES.get(name).Spec))
    part, name, schema, root = places[rng.integers(len(places))]
    part[name] = _drawn(rng, part[name], schema, root, wild=wild)
    return changed


@cache
def _schema(kind: Any) -> dict[str, Any]:
    return TypeAdapter(kind).json_schema()


Place = tuple[dict[str, Any], str, Mapping[str, Any], Mapping[str, Any]]
"""A part of the plain data, the field's name in it, the field's schema, and the schema that it is of."""


def _places(
    data: dict[str, Any], root: Mapping[str, Any], schema: Mapping[str, Any] | None = None
) -> Iterator[Place]:
    """All fields that can be changed."""
    properties = (root if schema is None else schema).get("properties", {})
    for name, value in data.items():
        if name in BOUNDED or name not in properties:
            continue
        inner = _resolved(properties[name], root)
        if isinstance(value, dict):
            yield from _places(value, root, inner)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for entry in value:
                yield from _places(entry, root, _resolved(inner["items"], root))
        else:
            yield data, name, inner, root


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    return root["$defs"][schema["$ref"].rsplit("/", 1)[1]] if "$ref" in schema else schema


def _drawn(
    rng: np.random.Generator, old: Any, schema: Mapping[str, Any], root: Mapping[str, Any], *, wild: bool
) -> Any:
    """Another value of a field, which other fields may contradict."""
    schema = _resolved(schema, root)
    if "anyOf" in schema:
        choices = [_resolved(choice, root) for choice in schema["anyOf"]]
        schema = choices[rng.integers(len(choices))]
    kind = schema.get("type")
    if "enum" in schema:
        return schema["enum"][rng.integers(len(schema["enum"]))]
    if kind == "boolean":
        return bool(rng.random() < 0.5)
    if kind == "array":
        entries = list(old) if isinstance(old, list) and old else [1.0]
        inner = schema.get("items") or {}
        if not inner:
            return old
        place = rng.integers(len(entries))
        entries[place] = _drawn(rng, entries[place], inner, root, wild=wild)
        return entries
    if kind not in ("number", "integer"):
        return None if kind == "null" else old
    number = _number(rng, old if isinstance(old, int | float) else 1.0, schema, wild=wild)
    return round(number) if kind == "integer" else number


def _number(rng: np.random.Generator, old: float, schema: Mapping[str, Any], *, wild: bool) -> float:
    """Another number: near the old one; or anywhere in the field's range, bounds included."""
    way = rng.choice(["near", "scaled", "bound", "anywhere"]) if wild else "near"
    low = schema.get("minimum", schema.get("exclusiveMinimum", 0.0))
    high = schema.get("maximum", schema.get("exclusiveMaximum", 1e6))
    if way == "near":
        found = old * float(rng.lognormal(0.0, 0.4)) if old else float(rng.choice([0.0, 0.1, 1.0]))
    elif way == "scaled":
        found = (old or 1.0) * 10.0 ** float(rng.uniform(-3.0, 3.0))
    elif way == "bound":
        found = float(rng.choice([low, high]))
        if found == schema.get("exclusiveMinimum"):
            found += 1e-9 * max(abs(high), 1.0)
        if found == schema.get("exclusiveMaximum"):
            found -= 1e-9 * max(abs(high), 1.0)
    else:
        least = max(low, 1e-12 * max(high, 1.0))
        found = float(np.exp(rng.uniform(np.log(least), np.log(max(high, least * 2.0)))))
    return min(max(found, low), high)
