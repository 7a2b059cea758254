"""Every kind of bad input gives one clear ScenarioError."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import (
    BudgetSpec,
    RadioSpec,
    Scenario,
    WorkloadSpec,
    load_scenario,
)


def refused(source: Any) -> str:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(source)
    return str(caught.value)


@pytest.mark.parametrize(
    ("mapping", "place", "nearest"),
    [
        ({"radoi": {}}, "radoi", "radio"),
        (
            {"devices": {"profiles": [{"swiched_capacitance": 1e-27}]}},
            "devices.profiles.0.swiched_capacitance",
            "switched_capacitance",
        ),
        ({"learning": {"proxy": {"widht": 3}}}, "learning.proxy.widht", "width"),
    ],
)
def test_misspelt_field_names_the_nearest(mapping: dict[str, Any], place: str, nearest: str) -> None:
    message = refused(mapping)
    assert f"{place}: got" in message
    assert f"did you mean {nearest!r}?" in message
    assert "\n" not in message


def test_misspelt_override_names_the_nearest() -> None:
    small = load_scenario("small")
    with pytest.raises(ScenarioError, match=r"'radio\.diversty'.*did you mean 'diversity'"):
        small.with_overrides({"radio.diversty": 1})
    with pytest.raises(ScenarioError, match=r"'raido\.diversity'.*did you mean 'radio'"):
        small.with_overrides({"raido.diversity": 1})
    with pytest.raises(ScenarioError, match=r"'1' is not an index into devices\.profiles, which has 1"):
        small.with_overrides({"devices.profiles.1.weight": 1})
    with pytest.raises(ScenarioError, match=r"radio\.diversity is 4; override it as a whole"):
        small.with_overrides({"radio.diversity.m": 1})


@pytest.mark.parametrize(
    ("mapping", "place", "advice"),
    [
        (
            {"channel_knowledge": {"modes": "delayed"}},
            "channel_knowledge.modes: got 'delayed', but",
            "a list: write modes: [delayed]",
        ),
        ({"channel_knowledge": {"modes": "delayd"}}, "channel_knowledge.modes: got 'delayd'", "[delayed]"),
        ({"heat": {"levels": 0.5}}, "heat.levels: got 0.5", "a list: write levels: [0.5]"),
        ({"heat": {"governor": "stepp"}}, "heat.governor: got 'stepp'", "did you mean 'step'?"),
    ],
)
def test_process_fields_say_what_to_write(mapping: dict[str, Any], place: str, advice: str) -> None:
    message = refused({"base": "small", "dynamics": {"processes": mapping}})
    assert message.startswith(f"scenario mapping: dynamics.processes.{place}")
    assert advice in message
    assert "tuple" not in message


@pytest.mark.parametrize(
    ("mapping", "advice"),
    [
        ({"dynamics": {"load_levels": 0.5}}, "the input should be a list: write load_levels: [0.5] ("),
        ({"cluster": {"layout": "per_epsiode"}}, "did you mean 'per_episode'? ("),
        ({"server": {"terms": "meterd"}}, "did you mean 'metered'? ("),
        # A list of one such value would be refused, too, or no choice is close: nothing is suggested.
        ({"dynamics": {"load_levels": "0.5"}}, "the input should be a list ("),
        ({"decisions": "segmentz"}, "the input should be a list ("),
        ({"cluster": {"layout": "x"}}, "the input should be 'fixed' or 'per_episode' ("),
    ],
)
def test_sections_say_what_to_write(mapping: dict[str, Any], advice: str) -> None:
    assert advice in refused(mapping)


def test_misspelt_preset_names_the_nearest() -> None:
    assert "did you mean 'medium'?" in refused("mediun")
    assert "base: there is no shipped scenario 'larg'; did you mean 'large'?" in refused({"base": "larg"})
    assert "there is no shipped scenario 3" in refused({"base": 3})


@pytest.mark.parametrize(
    ("mapping", "expected"),
    [
        ({"radio": {"diversity": 0}}, ["radio.diversity: got 0", "greater than or equal to 1"]),
        ({"radio": {"bs_power_w": float("nan")}}, ["radio.bs_power_w: got nan", "finite"]),
        ({"radio": {"bs_power_w": float("inf")}}, ["radio.bs_power_w: got inf", "finite"]),
        ({"budgets": {"device_energy_j": 0}}, ["budgets.device_energy_j: got 0", "greater than 0", "unit J"]),
        ({"cluster": {"devices": [3, 0, 3, 3]}}, ["cluster.devices.1: got 0", "greater than or equal to 1"]),
        ({"workload": {"task": "vision"}}, ["workload.task: got 'vision'", "ner"]),
        (
            {"dynamics": {"target_loss": -1}},
            ["dynamics.target_loss: got -1", "greater than 0", "null for never"],
        ),
    ],
)
def test_out_of_range(mapping: dict[str, Any], expected: list[str]) -> None:
    message = refused(mapping)
    for part in expected:
        assert part in message


@pytest.mark.parametrize(
    ("mapping", "place", "allowed"),
    [
        ({"radio": {"diversity": 4.0}}, "radio.diversity: got 4.0", "valid integer"),
        ({"radio": {"diversity": True}}, "radio.diversity: got True", "valid integer"),
        ({"radio": {"bs_power_w": "20 W"}}, "radio.bs_power_w: got '20 W'", "valid number"),
        ({"radio": [1]}, "radio: got [1]", "a mapping is expected with fields among noise_dbm_per_hz"),
        ({"devices": {"profiles": {"name": "a"}}}, "devices.profiles: got {'name': 'a'}", "a list"),
        (
            {"cluster": {"devices": "many"}},
            "cluster.devices: got 'many'",
            "valid integer or the input should be a list",
        ),
        ({"name": 7}, "name: got 7", "valid string"),
        (
            {"name": "a\x1b[31mb"},
            r"name: got 'a\x1b[31mb'",
            "holds a line break or a control character; leave",
        ),
        ({"devices": {"profiles": [{"name": "\u202e"}]}}, r"profiles.0.name: got '\u202e'", "leave it out"),
        ({"radio": {4: 1}}, "radio", "field names are text, not 4"),
    ],
)
def test_wrong_type(mapping: dict[str, Any], place: str, allowed: str) -> None:
    message = refused(mapping)
    assert place in message
    assert allowed in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("mapping", "pattern"),
    [
        ({"workload": {"heads": 3}}, r"workload: heads = 3 does not divide width = 256"),
        (
            {"workload": {"micro_batches": [1, 3]}},
            r"workload: micro_batches holds 3.*batch_size = 64.*1, 2, 4, 8",
        ),
        (
            {"workload": {"micro_batches": [4, 2]}},
            r"workload: micro_batches must be in ascending order.*4 .* 2",
        ),
        ({"workload": {"micro_batches": [2, 2]}}, r"workload: micro_batches must be .* without repeats"),
        (
            {"workload": {"task": "translation", "decoder_blocks": 0}},
            r"workload: task = 'translation' needs decoder_blocks",
        ),
        (
            {"learning": {"momentum": 0.9}},
            r"learning: momentum = 0\.9 is for optimizer = 'sgd'.*set momentum to 0",
        ),
        (
            {"learning": {"schedule": "cosine", "schedule_steps": 10}},
            r"learning: schedule_steps = 10 ends schedule = 'cosine' within warmup_steps = 10.*raise",
        ),
        ({"devices": {"profiles": []}}, r"devices: profiles must hold at least one"),
        ({"devices": {"power_min_w": 0.3}}, r"devices: power_min_w = 0\.3 is above power_max_w = 0\.2"),
        ({"devices": {"profiles": [{}]}}, r"devices\.profiles\.0: exactly one of switched.*found neither"),
        (
            {"devices": {"profiles": [{"switched_capacitance": 1e-27, "active_power_w": 1}]}},
            r"devices\.profiles\.0: exactly one of switched_capacitance and active_power_w.*found both",
        ),
        (
            {"devices": {"profiles": [{"active_power_w": 1, "clock_min_hz": 3e9}]}},
            r"clock_min_hz = 3e\+09 is above clock_max_hz = 2e\+09",
        ),
        ({"devices": {"profiles": [{"active_power_w": 1, "memory_bytes": []}]}}, r"memory_bytes must hold"),
        (
            {"devices": {"profiles": [{"active_power_w": 1, "memory_bytes": [2e9, 1e9]}]}},
            r"memory_bytes must be in ascending order",
        ),
        (
            {"devices": {"profiles": [{"active_power_w": 1}] * 2}},
            r"devices: profiles holds the name 'mobile' twice",
        ),
        ({"cluster": {"devices": [3, 3]}}, r"cluster: devices lists 2 clusters but clusters = 4"),
        (
            {"cluster": {"cu_distance_min_m": 500}},
            r"cu_distance_min_m = 500 is above cu_distance_max_m = 400",
        ),
        ({"dynamics": {"load_levels": []}}, r"dynamics: load_levels must hold at least one"),
        ({"dynamics": {"load_levels": [1.0, 0.5]}}, r"dynamics: load_levels must be in ascending order"),
        (
            {"budgets": {"bandwidth_floor": 0.25}},
            r"budgets\.bandwidth_floor = 0\.25 times cluster\.clusters = 4 is 1; it must stay below 1",
        ),
        (
            {"cluster": {"hop_min_m": 0.199}},
            r"cluster\.hop_min_m = 0\.199 m gives hops between devices .*gain of 1\.01, .*at least 0\.2 m",
        ),
    ],
)
def test_contradictions(mapping: dict[str, Any], pattern: str) -> None:
    assert re.search(pattern, refused(mapping))


def test_the_least_distance_that_the_message_names_is_accepted() -> None:
    load_scenario({"base": "medium", "cluster": {"hop_min_m": 0.2}})


def test_several_faults_take_one_line_each() -> None:
    lines = refused({"radio": {"diversity": 0, "bs_powr_w": 1}, "workload": {"blocks": "x"}}).splitlines()
    assert lines[0] == "scenario mapping: 3 faults"
    assert sorted(line.split(":")[0].strip() for line in lines[1:]) == [
        "radio.bs_powr_w",
        "radio.diversity",
        "workload.blocks",
    ]


@pytest.mark.parametrize(
    ("build", "pattern"),
    [
        (lambda: RadioSpec(diversity=0), r"RadioSpec: diversity: got 0.*greater than or equal to 1"),
        (lambda: RadioSpec(diversty=1), r"RadioSpec: diversty: got 1.*did you mean 'diversity'"),  # type: ignore[call-arg]
        (lambda: RadioSpec(4), r"RadioSpec: fields are given by name"),  # type: ignore[call-arg]
        (lambda: WorkloadSpec(heads=3), r"WorkloadSpec: heads = 3 does not divide"),
        (lambda: Scenario(budgets=BudgetSpec(bandwidth_floor=0.3)), r"Scenario: budgets\.bandwidth_floor"),
        (lambda: Scenario(radio=3), r"Scenario: radio: got 3, but a mapping"),  # type: ignore[arg-type]
    ],
)
def test_objects_built_directly_are_checked_too(build: Callable[[], object], pattern: str) -> None:
    with pytest.raises(ScenarioError, match=pattern):
        build()


@pytest.mark.parametrize("source", [3, None, ["small"], b"small"])
def test_wrong_kind_of_source(source: Any) -> None:
    assert f"not {type(source).__name__}: {source!r}; names: small" in refused(source)


@pytest.mark.parametrize(
    ("content", "pattern"),
    [
        (b"", r", line 1: the file is empty"),
        (b"# only a comment\n", r", line 1: the file is empty"),
        (b"- radio\n- cluster\n", r", line 1: .*not a list"),
        (b"medium", r", line 1: .*not a str"),
        (b"radio:\n  diversity: 1\n  diversity: 2\n", r", line 3: .*duplicate key \"diversity\""),
        (b"radio:\n  diversity: [1\n", r", line 3: .*begun in line 2.*expected ',' or '\]'"),
        (b"radio:\n\tdiversity: 1\n", r", line 2: .*cannot start any token"),
        (b"name: a\nradio: !!python/object:os.system {}\n", r", line 2: .*could not determine a constructor"),
        (b"name: a\n---\nname: b\n", r", line 2: .*another document"),
        (b"name: a\nradio: \xff\n", r", line 2: not UTF-8"),
        (b"name: a\nradio: \x00\n", r", line 2: .*special characters are not allowed"),
        (b"radio: &r\n  radio: *r\n", r"nested too deeply"),
        (b"name: " + b"x" * 1_000_001, r"has 1,000,007 bytes, above the limit of 1,000,000"),
        (b"radio:\n  diversty: 1\n", r"radio\.diversty: got 1.*did you mean 'diversity'"),
    ],
)
def test_bad_files_are_named_with_their_line(content: bytes, pattern: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    message = refused(path)
    assert message.startswith(f"scenario file {path}")
    assert re.search(pattern, message)
    assert "\n" not in message


def test_exploding_aliases_are_stopped(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    path = tmp_path / "bomb.yaml"
    path.write_text("\n".join(lines), encoding="utf-8")
    assert "too large for a scenario" in refused(path)


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    missing = tmp_path / "missing.yaml"
    assert refused(missing) == f"scenario file {missing}: cannot be read: No such file or directory"
    assert refused(str(missing)) == refused(missing)
    circle = tmp_path / "circle.yaml"
    circle.symlink_to(circle)
    assert "cannot be read" in refused(circle)
    folder = tmp_path / "folder.yaml"
    folder.mkdir()
    assert "cannot be read: Is a directory" in refused(folder)
    assert "must end in .yaml or .yml, not in '.json'" in refused(tmp_path / "a.json")
    assert "must end in .yaml or .yml" in refused(f"some{os.sep}where")
    assert "ext.txt: the name must end in .yaml or .yml, not in '.txt'" in refused("ext.txt")
    assert "cannot be read" in refused("nul\0.yaml")
