"""What holds for every scenario of the package, and for every field that a scenario has."""

import copy
import dataclasses
import json
import pickle
import re
from collections.abc import Iterator
from importlib import resources
from typing import Any, get_args

import numpy as np
import pytest
from pydantic import TypeAdapter
from variants_support import mostly_slow

from collapipe_env.dynamics import PROCESSES
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.feasibility import energy_feasibility
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import Scenario, draw_layout, load_scenario, scenario_names
from collapipe_env.scenario.loading import scenario_digest
from collapipe_env.scenario.names import LANGUAGE
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.even_split import even_split
from collapipe_env.simulator.idle_fields import idle_fields
from collapipe_env.tasks import task_names

LADDER = {"small": (2, 3, 6), "medium": (4, 5, 12), "large": (16, 8, 12), "xlarge": (64, 16, 16)}
SIZES = {
    **LADDER,
    **{"bert-small": (4, 5, 4), "bert-base": (4, 5, 12), "transformer-base": (4, 5, 6)},
    **{"boards": (4, 4, 12), "phones": (4, 5, 12), "llm-boards": (4, 6, 24), "llm-phones": (4, 5, 12)},
    **{f"{size}-trace-like": LADDER[size] for size in ("small", "medium", "large")},
    **{f"{size}-target": LADDER[size] for size in ("small", "medium")},
    **{
        f"{size}-{tier}": LADDER[size] if (size, tier) != ("medium", "migration") else (4, 4, 12)
        for tier in ("migration", "channel", "thermal", "mobile", "stale", "churn", "wild")
        for size in ("small", "medium", "large", *(("xlarge",) if tier in ("stale", "wild") else ()))
    },
}
"""Clusters, devices of the largest one and blocks of every shipped scenario."""
QUICK = [place for place, name in enumerate(SIZES) if name.startswith("small")]
"""Those whose budgets are searched by default; an environment of another one warns where it can meet none."""
every_scenario = pytest.mark.parametrize("name", SIZES)


def test_the_listed_scenarios_are_the_shipped_files() -> None:
    folder = resources.files("collapipe_env.scenario").joinpath("presets")
    files = {entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml")}
    assert set(scenario_names()) == files == set(SIZES)
    assert len({scenario_digest(load_scenario(name)) for name in SIZES}) == len(SIZES)


@every_scenario
def test_it_is_the_same_after_every_way_to_write_it(name: str, tmp_path) -> None:
    scenario = load_scenario(name)
    assert scenario.name == name
    assert (scenario.clusters, scenario.max_devices, scenario.blocks) == SIZES[name]
    path = tmp_path / "anything.yaml"
    path.write_text(scenario.to_yaml(), encoding="utf-8")
    ways = [
        load_scenario(scenario.to_dict()),
        load_scenario(json.loads(json.dumps(scenario.to_dict()))),
        load_scenario(path),
        load_scenario(str(path)),
        pickle.loads(pickle.dumps(scenario)),
        copy.deepcopy(scenario),
    ]
    assert all(again == scenario and hash(again) == hash(scenario) for again in ways)
    assert load_scenario(scenario) is scenario


@every_scenario
def test_it_takes_every_task(name: str) -> None:
    scenario = load_scenario(name)
    for task in task_names():
        if task == "translation" and name in LANGUAGE:
            with pytest.raises(ScenarioError, match="is a decoder itself"):
                scenario.with_task(task)
            continue
        other = scenario.with_task(task)
        assert other.workload.task == task
        assert other.name == (name if task == scenario.workload.task else f"{name}-{task}")
        assert load_scenario(other.to_dict()) == other


@every_scenario
def test_it_plays_a_round_in_layouts_of_every_episode_too(name: str) -> None:
    scenario = load_scenario(name)
    assert not idle_fields(scenario)
    rng = np.random.default_rng(1)
    assert all(draw_layout(scenario, rng).present.all() for _ in range(3))
    env = CollaPipeVectorEnv(1, scenario, "surrogate")
    env.reset(seed=1)
    able = env.state.memory_cap.sum(axis=-1) >= scenario.blocks
    env.step_allocation(even_split(system_parameters(scenario), env.state))
    record = env.last_round
    assert record is not None
    assert (record.allocation.blocks.sum(axis=-1)[able] == scenario.blocks).all()
    assert 0.0 < record.costs.delay[0] < np.inf


@pytest.mark.parametrize("name", mostly_slow(SIZES, QUICK))
def test_its_energy_budgets_leave_a_margin(name: str) -> None:
    report = energy_feasibility(load_scenario(name))
    assert report.least_use.max() <= 0.9
    assert report.share == 0.0


def sections(kind: Any) -> dict[str, Any]:
    """Classes of fields in a type, by name."""
    found = {kind.__name__: kind} if hasattr(kind, "__pydantic_fields__") else {}
    inner = [f.annotation for f in kind.__pydantic_fields__.values()] if found else get_args(kind)
    return found | {name: one for part in inner for name, one in sections(part).items()}


PROCESS_FIELDS = {name: PROCESSES.get(name).Spec for name in PROCESSES.shipped()}
SECTIONS = sections(Scenario) | {name: kind for name, kind in PROCESS_FIELDS.items() if kind is not None}
every_section = pytest.mark.parametrize("section", SECTIONS)
UNITS = {"_j": "J", "_w": "W", "_m": "m", "_hz": "Hz", "_db": "dB", "_dbm_per_hz": "dBm/Hz", "_bits": "bits",
         "_bytes": "byte"}  # fmt: skip


@every_section
def test_every_field_says_meaning_and_unit_or_range(section: str) -> None:
    for name, field in SECTIONS[section].__pydantic_fields__.items():
        text = field.description or ""
        assert len(text) >= (8 if section.islower() else 20), name
        if section.islower() or section in ("LearningSpec", "ProxySpec"):
            continue
        assert "; " in text, name
        suffix = max((s for s in UNITS if name.endswith(s)), key=len, default="")
        if suffix:
            assert re.search(rf"\b{re.escape(UNITS[suffix])}\b", text.rsplit("; ", 1)[1]), text


def test_all_scenarios_write_all_fields_and_the_file_that_users_copy_lists_them() -> None:
    def paths(data: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
        for name, value in data.items():
            inner = isinstance(value, dict) and value
            yield from paths(value, (*above, name)) if inner else [(*above, name)]

    free = (("dynamics", "processes"), ("learning", "proxy"))  # a scenario has the processes that are on
    written = [
        {path for path in paths(load_scenario(name).to_dict()) if path[:2] not in free} for name in SIZES
    ]
    assert all(one == written[0] for one in written)
    text = resources.files("collapipe_env.scenario").joinpath("presets/medium.yaml").read_text("utf-8")
    for section in SECTIONS.keys() - {"LearningSpec", "ProxySpec", "DSSRAPlusSpec", *PROCESS_FIELDS}:
        for field in dataclasses.fields(SECTIONS[section]):
            listed = re.search(rf"^[\s-]*{field.name}:", text, flags=re.MULTILINE)
            assert listed or field.name == "active_power_w", field.name
    assert load_scenario("medium") == Scenario(name="medium") == load_scenario({"name": "medium"})


def refusal(section: str, field: str, value: Any) -> str | None:
    """The error of a field's value; none where it fits."""
    try:
        if section.islower():
            load_scenario({"base": "small", "dynamics": {"processes": {section: {field: value}}}})
        else:
            SECTIONS[section](**{field: value})
    except ScenarioError as error:
        return str(error)
    return None


def outside(schema: dict[str, Any]) -> Iterator[Any]:
    """Values just outside the range that a field's schema gives, or of another type."""
    for one in schema.get("anyOf", [schema]):
        if "enum" in one:
            yield "none of them" if isinstance(one["enum"][0], str) else -77
        elif one.get("type") in ("number", "integer"):
            whole = one["type"] == "integer"
            low, high = one.get("minimum"), one.get("maximum")
            if low is not None:
                yield low - 1 if whole else float(np.nextafter(low, -np.inf))
            if high is not None:
                yield high + 1 if whole else float(np.nextafter(high, np.inf))
            yield from (one[bound] for bound in ("exclusiveMinimum", "exclusiveMaximum") if bound in one)
            yield from (float("nan"), float("inf"), True, "3", 1.5 if whole else None)
        elif one.get("type") == "boolean":
            yield 1


@every_section
def test_every_number_has_bounds_that_hold(section: str) -> None:
    """One step beyond a bound, NaN and other types are refused by name, value and range."""
    for field, schema in TypeAdapter(SECTIONS[section]).json_schema(mode="validation")["properties"].items():
        kinds = schema.get("anyOf", [schema])
        null = any(kind.get("type") == "null" for kind in kinds)
        text = len(kinds) > 1 and any(kind.get("type") in ("string", "array") for kind in kinds)
        for value in outside(schema):
            if text or (value is None and null):
                continue
            message = refusal(section, field, value)
            assert message is not None, (field, value)
            assert f"{field}: got {value!r}" in message, message
            assert schema["description"] in message or schema.get("type") == "boolean", message


HUGE = 16**5000
"""An integer that Python refuses to write as decimal digits."""


@every_section
def test_no_field_takes_a_huge_number_text_for_a_number_or_another_name(section: str) -> None:
    for field in dataclasses.fields(SECTIONS[section]):
        for value in (HUGE, -HUGE):
            message = refusal(section, field.name, value)
            assert message is not None, field.name
            assert field.name in message
            assert len(message) < 6_000
        misspelt = f"{field.name[:-1]}{field.name[-1] * 2}"
        assert f"did you mean {field.name!r}" in str(refusal(section, misspelt, 1)), field.name
        message = refusal(section, field.name, object())
        assert message is not None, field.name
