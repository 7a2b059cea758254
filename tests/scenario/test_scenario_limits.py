"""Scenarios made to cost time or to break messages are refused, in a short message and without much work."""

import dataclasses
import os
import random
import stat
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collapipe_env.ground.errors import ScenarioError, nearest_name, shown
from collapipe_env.scenario import (
    BudgetSpec,
    ClusterSpec,
    DeviceProfile,
    DeviceSpec,
    DynamicsSpec,
    LearningSpec,
    ProxySpec,
    RadioSpec,
    Scenario,
    WorkloadSpec,
    layout,
    load_scenario,
)

HUGE = 16**5000
"""An integer that Python refuses to write as decimal digits."""
LONGEST_MESSAGE = 6_000


def refused(source: Any) -> str:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(source)
    message = str(caught.value)
    assert len(message) < LONGEST_MESSAGE
    return message


def refusals(sources: Iterable[Any]) -> list[str]:
    """Load many sources, of which nothing but a ScenarioError may come; return the errors' messages."""
    messages = []
    for source in sources:
        try:
            load_scenario(source)
        except ScenarioError as error:
            messages.append(str(error))
    assert max(map(len, messages)) < LONGEST_MESSAGE
    return messages


def refused_text(folder: Path, text: str) -> str:
    file = folder / "scenario.yaml"
    file.write_text(text, encoding="utf-8")
    return refused(file)


@pytest.mark.parametrize(
    "spec",
    [
        *(Scenario, WorkloadSpec, DeviceProfile, DeviceSpec, ClusterSpec, RadioSpec, BudgetSpec),
        *(DynamicsSpec, LearningSpec, ProxySpec),
    ],
)
def test_every_field_of_every_section_refuses_a_huge_integer(spec: Any) -> None:
    for field in dataclasses.fields(spec):
        with pytest.raises(ScenarioError) as caught:
            spec(**{field.name: HUGE})
        assert field.name in str(caught.value)
        assert len(str(caught.value)) < LONGEST_MESSAGE


@pytest.mark.parametrize(
    "source",
    [
        HUGE,
        {HUGE: 1},
        {"radio": {HUGE: 1}},
        {"base": HUGE},
        {"workload": {"task": HUGE}},
        {"workload": {"model": HUGE}},
        {"radio": {"noise_dbm_per_hz": -HUGE}},
        {"budgets": {"cu_energy_j": 2**1010}},
        {"devices": {"profiles": [{"memory_bytes": [HUGE]}]}},
    ],
    ids=lambda _: "case",  # the values make no names of tests
)
def test_huge_integers_in_mappings(source: Any) -> None:
    refused(source)


@pytest.mark.parametrize(
    "overrides",
    [
        {"radio.diversity": HUGE},
        {"dynamics.rounds": np.array(HUGE, dtype=object)},
        {f"devices.profiles.{'9' * 5000}.weight": 1.0},
        {"devices.profiles.²": 1.0},
        {"a." * 100_000: 1},
        {"x" * 1_000_000: 1},
        {"radio": HUGE},
    ],
    ids=lambda _: "case",  # the values make no names of tests
)
def test_huge_integers_and_names_in_overrides(overrides: dict[str, Any]) -> None:
    small = load_scenario("small")
    with pytest.raises(ScenarioError) as caught:
        small.with_overrides(overrides)
    assert len(str(caught.value)) < LONGEST_MESSAGE


def test_many_faults_are_counted(tmp_path: Path) -> None:
    message = refused({"base": "small", **{f"field{i}": 1 for i in range(20_000)}})
    assert "20,000 faults" in message
    assert "field9: got 1" in message
    assert "and 19,990 more" in message
    profiles = [{"weight": -1.0, "switched_capacitance": 1e-27}] * 9_000
    message = refused({"base": "small", "devices": {"profiles": profiles}})
    assert "9,000 faults" in message
    assert "devices.profiles.0.weight" in message
    assert "field18999" not in refused_text(tmp_path, "".join(f"field{i}: 1\n" for i in range(19_000)))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("".join(f"field{i}: 1\n" for i in range(20_001)), r"20,001 lines, commas and brackets"),
        ("a: [" + "0," * 400_000 + "0]", "400,001 lines, commas"),
        ("[" * 900_000, "900,000 lines, commas"),
        ("[" * 15_000, "line 1: nested too deeply"),
        ("a: 1\nb: " + "{a: " * 15_000, "line 2: nested too deeply"),
        ("- " * 400_000, "recursion"),
        ("a: *" + "b" * 900_000, "undefined alias"),
        ("base: " + "x" * 900_000, "no shipped scenario"),
        ("workload: {task: " + "x" * 900_000 + "}", "no task"),
        ("workload: {model: " + "x" * 900_000 + "}", "unknown model"),
    ],
    ids=lambda _: "case",  # the values make no names of tests
)
def test_large_and_deep_files(text: str, reason: str, tmp_path: Path) -> None:
    assert reason in refused_text(tmp_path, text)


def test_names_are_compared_only_with_few_of_their_length() -> None:
    many = [f"column{i}" for i in range(100_000)]
    assert len(nearest_name("colunm1", many)) < LONGEST_MESSAGE
    assert nearest_name("colunm1", many) == "did you mean 'column1'?"
    assert len(nearest_name("x" * 10**6, ["radio", "y" * 10**6])) < 200
    assert len(shown(["x" * 10**6] * 100)) < 1000
    assert shown({"a": [HUGE]}) == "{'a': [an integer of 20,001 bits]}"


TINY_FLOOR = {"bandwidth_floor": 1e-5}


def test_a_crowd_is_given_up_after_bounded_tries() -> None:
    cluster = ClusterSpec(
        clusters=300, cluster_separation_min_m=40.0, cu_distance_min_m=1.0, cu_distance_max_m=430.0, devices=2
    )
    drawn = 0

    class Counting:
        def random(self, size: int) -> np.ndarray:
            nonlocal drawn
            drawn += size
            return rng.random(size)

    rng = np.random.default_rng(0)
    with pytest.raises(ScenarioError, match="could be placed"):
        layout.place_clusters(cluster, Counting())  # type: ignore[arg-type]
    one_start = cluster.clusters * layout.TRIES_PER_CLUSTER
    assert drawn / 2 <= layout.TRIES_AT_ALL + one_start  # a distance and an angle each


def test_centres_are_those_of_plain_rejection_sampling() -> None:
    for seed in range(3):
        cluster = ClusterSpec(
            clusters=60,
            cluster_separation_min_m=75.0,
            cu_distance_min_m=1.0,
            cu_distance_max_m=400.0,
            devices=2,
        )
        rng, centres = np.random.default_rng(seed), np.empty((0, 2))
        while len(centres) < 60:
            for size in (64, layout.TRIES_PER_CLUSTER - 64):
                distance = 1.0 + 399.0 * rng.random(size)
                angle = 2.0 * np.pi * rng.random(size)
                points = np.stack([distance * np.cos(angle), distance * np.sin(angle)], axis=1)
                gap = np.hypot(*np.moveaxis(points[:, None] - centres[None], 2, 0))
                free = points[(gap >= 75.0).all(axis=1)]
                if len(free):
                    centres = np.vstack([centres, free[:1]])
                    break
            else:
                centres = np.empty((0, 2))  # start again
        found = layout.place_clusters(cluster, np.random.default_rng(seed))
        assert np.array_equal(found, centres)


def test_clusters_whose_hops_would_fill_the_memory() -> None:
    large = {"clusters": 1024, "devices": 512, "cluster_separation_min_m": 1.0}
    assert "269,485,056 pairs of nodes" in refused({"cluster": large, "budgets": TINY_FLOOR})


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_no_scenario(tmp_path: Path) -> None:
    pipe = tmp_path / "scenario.yaml"
    os.mkfifo(pipe)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    program = f"from collapipe_env.scenario import load_scenario; load_scenario({str(pipe)!r})"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert "not a regular file" in done.stderr.splitlines()[-1]


PIECES = (
    "[", "]", "{", "}", ":", "- ", "&a ", "*a", "!!int ", "!!python/object:os.system ", "? ", "|\n", "0x1",
    "~", "1e400", ".inf", ".nan", "\t", "\0", "\u2028", "%YAML 1.1\n", "---\n", "<<: ", "'", '"',
    "!!binary aaaa",
    "!!set {a}", "!!omap [a: 1]", "!!timestamp 2001-01-01", "2001-01-01", "\ud7ff", "9" * 5000, "!!float ",
    "!!bool x", "!!int x", "!!null x", "0o9", "=", "`", "@", "#", "\r",
)  # fmt: skip
"""Texts that damages insert into YAML."""
ODD = (
    None, True, -1, 0, 1e300, -1e-300, float("nan"), float("inf"), HUGE, "x", "", "\ud800", b"x", [], {},
    [[]], [None], {"a": {"b": []}}, (1, 2), {1, 2}, object(), np.nan, np.array([1, 2]), 1j, range(3), type,
    "off",    np.datetime64("2001"), [1] * 1000, {"proxy": {}}, Scenario, LearningSpec(), 10**18,
)  # fmt: skip
"""Values of all kinds."""


def test_damaged_files_give_scenario_errors_or_load(tmp_path: Path) -> None:
    chance = random.Random(3)
    valid = load_scenario("small").to_yaml()

    def damaged() -> Path:
        text = valid[: chance.randrange(40, len(valid))] if chance.random() < 0.3 else valid
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(text))
            text = text[:at] + chance.choice(PIECES) + text[at + chance.choice((0, 0, 1, 7)) :]
        file = tmp_path / "damaged.yaml"
        file.write_text(text, encoding="utf-8")
        return file

    assert len(refusals(damaged() for _ in range(300))) > 150


def test_odd_values_anywhere_give_scenario_errors_or_load() -> None:
    chance = random.Random(5)
    sections = load_scenario("small").to_dict()

    def odd() -> dict[str, Any]:
        section = chance.choice(list(sections))
        value: Any = chance.choice(ODD)
        if isinstance(sections[section], dict) and chance.random() < 0.8:
            value = {chance.choice(list(sections[section])): value}
        elif chance.random() < 0.2:
            value = {"devices": {"profiles": [{"name": value}]}}
        return {"base": "small", section: value}

    assert len(refusals(odd() for _ in range(500))) > 250


@pytest.mark.parametrize("odd", ["a\0b", "\ud800", "a\udfffb"])
def test_text_that_nothing_can_write_is_refused_when_a_scenario_is_built(odd: str) -> None:
    places = [
        {"learning": {field: odd}} for field in ("dataset", "checkpoint", "text_column", "label_column")
    ]
    places += [{"name": odd}, {"learning": {"languages": [odd, "en"]}}]
    places += [{"devices": {"profiles": [{"name": odd}]}}]
    for place in places:
        assert "leave it out" in refused(place)
    with pytest.raises(ScenarioError, match="leave it out"):
        Scenario(name=odd)
    with pytest.raises(ScenarioError, match="leave it out"):
        load_scenario("small").with_overrides({"learning.dataset": odd})
    assert Scenario(name="Ünïcode 🙂 name").name == "Ünïcode 🙂 name"


@pytest.mark.parametrize("digits", ["9" * 5000, f"-{'9' * 5000}", f"+{'1_' * 4500}1", "0" * 5000])
def test_integers_that_python_does_not_read_are_placed(digits: str, tmp_path: Path) -> None:
    message = refused_text(tmp_path, f"base: small\n\nradio: {{diversity: {digits}}}\n")
    assert "scenario.yaml, line 3: " in message
    assert "is more than any field takes" in message
    assert "set_int_max_str_digits" not in message
    octal = refused_text(tmp_path, f"radio: {{diversity: 0o{'7' * 5000}}}")
    assert "radio.diversity: an integer of 15,000 bits is more than any field takes" in octal


def test_a_path_as_base_gets_no_advice_to_give_a_path(tmp_path: Path) -> None:
    message = refused_text(tmp_path, "base: ok.yaml\n")
    assert "base: there is no shipped scenario 'ok.yaml'" in message
    assert "small" in message
    assert "or give" not in message
    assert "(or give FILE.yaml, on the command line also file.py:Name, in Python" in refused("ok")
