"""Scenarios from files and texts: bad, hostile and damaged ones are refused in one line, and digests."""

import dataclasses
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collapipe_env.cli.early_end import Terminated
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import LearningSpec, Scenario, load_scenario, process_fields
from collapipe_env.scenario.decision_names import COLLAPIPE
from collapipe_env.scenario.loading import scenario_digest, scenario_from_text

HUGE = 16**5000
"""An integer that Python refuses to write as decimal digits."""
LONGEST_MESSAGE = 6_000


def refused(source: Any) -> str:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(source)
    message = str(caught.value)
    assert len(message) < LONGEST_MESSAGE
    return message


@pytest.fixture
def refused_text(tmp_path: Path):
    def refusal(content: str | bytes) -> str:
        file = tmp_path / "bad.yaml"
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        message = refused(file)
        assert message.startswith(f"scenario file {file}")
        assert "\n" not in message
        return message

    return refusal


@pytest.mark.parametrize("source", [3, None, ["small"], b"small"])
def test_wrong_kind_of_source(source: Any) -> None:
    assert f"not {type(source).__name__}: {source!r}; names: small" in refused(source)


BAD = [
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
    # Large and deep.
    ("".join(f"field{i}: 1\n" for i in range(20_001)), r"20,001 lines, commas and brackets"),
    ("a: [" + "0," * 400_000 + "0]", "400,001 lines, commas"),
    ("[" * 15_000, "line 1: nested too deeply"),
    ("a: 1\nb: " + "{a: " * 15_000, "line 2: nested too deeply"),
    ("- " * 400_000, "recursion"),
    ("a: *" + "b" * 90_000, "undefined alias"),
    ("base: " + "x" * 90_000, "no shipped scenario"),
    ("workload: {task: " + "x" * 90_000 + "}", "no task"),
    ("workload: {model: " + "x" * 90_000 + "}", "unknown model"),
    # Integers that Python does not read.
    *((f"base: small\n\nradio: {{diversity: {digits}}}\n", r", line 3: .*is more than any field takes")
      for digits in ("9" * 5000, f"-{'9' * 5000}", f"+{'1_' * 4500}1", "0" * 5000)),
    (f"radio: {{diversity: 0o{'7' * 5000}}}",
     r"radio\.diversity: an integer of 15,000 bits is more than any field takes"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "pattern"), BAD, ids=[str(place) for place in range(len(BAD))])
def test_bad_files_are_named_with_their_line(content: str | bytes, pattern: str, refused_text) -> None:
    message = refused_text(content)
    assert re.search(pattern, message)
    assert "set_int_max_str_digits" not in message


def test_exploding_aliases_are_stopped(refused_text) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    assert "too large for a scenario" in refused_text("\n".join(lines))


def test_missing_and_unreadable_files(tmp_path: Path, refused_text) -> None:
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
    message = refused_text("base: ok.yaml\n")
    assert "base: there is no shipped scenario 'ok.yaml'" in message
    assert "or give" not in message
    assert "(or give FILE.yaml, on the command line also file.py:Name, in Python" in refused("ok")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_no_scenario(tmp_path: Path) -> None:
    pipe = tmp_path / "scenario.yaml"
    os.mkfifo(pipe)
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
    "off", np.datetime64("2001"), [1] * 1000, {"proxy": {}}, Scenario, LearningSpec(), 10**18,
)  # fmt: skip
"""Values of all kinds."""


def refusals(sources: Iterable[Any]) -> int:
    """How many of some sources are refused; of the others nothing but a ScenarioError may come."""
    messages = []
    for source in sources:
        try:
            load_scenario(source)
        except ScenarioError as error:
            messages.append(str(error))
    assert max(map(len, messages)) < LONGEST_MESSAGE
    return len(messages)


@pytest.mark.parametrize("count", [25, pytest.param(300, marks=pytest.mark.slow)])
def test_damaged_files_give_scenario_errors_or_load(count: int, tmp_path: Path) -> None:
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

    assert refusals(damaged() for _ in range(count)) > count / 2


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

    assert refusals(odd() for _ in range(250)) > 125


@pytest.mark.parametrize("kind", [KeyboardInterrupt, Terminated])
def test_ctrl_c_while_a_scenario_becomes_plain_data_stays_one(kind: type[BaseException], monkeypatch) -> None:
    def stop(_: object) -> None:
        raise kind

    scenario = load_scenario("small-thermal")
    monkeypatch.setattr(process_fields, "adapter", stop)
    with pytest.raises(kind):
        scenario.to_dict()


LLAMA = {"workload.style": "llama", "workload.learned_positions": 0, "workload.token_types": 0}


def process(name: str, **fields: Any) -> dict[str, Any]:
    return {f"dynamics.processes.{name}": fields}


SAME = [
    ({}, {"budgets.per": "round"}),
    ({}, {"server": {"terms": "free", "pue": None}}),
    ({}, {"dssra_plus": {"migration_weight": 1, "heat_start": 0.5}}),
    ({}, {"dynamics.visibility": "full", "dynamics.time_base": "mixed", "dynamics.processes": {}}),
    ({}, {"radio.max_transmissions": 4, "devices.clock_cap_min": 0.2}),
    ({}, {"workload.train_bits": 32, "workload.moment_bits": 32, "workload.recompute": False}),
    ({}, {"workload.local_steps_choices": [1, 2, 4, 8, 16], "budgets.participation_min": 0.5}),
    ({}, {"decisions": COLLAPIPE[::-1]}),
    ({}, {"workload.kv_heads": 0, "learning.proxy.kv_heads": 0, "workload.rope_theta": 10_000}),
    (LLAMA, {"workload.qkv_bias": False, "workload.norm_epsilon": 1e-5}),
    (process("presence"), process("presence", replication="none")),
    (process("heat"), process("heat", ambient_sd_k=0.0, ambient_tau_s=1800)),
    (process("channel_knowledge", modes=["delayed"]), process("channel_knowledge", delay_rounds=1)),
    ({"cluster.devices": [3, 3]}, {"cluster.devices": (3, 3)}),
]
OTHERS = [
    ({}, [{"name": "other"}, {"dynamics.rounds": 7}, {"dynamics.visibility": "realistic"},
          {"budgets.per": "second"}, {"server.terms": "metered"}, {"dssra_plus.migration_weight": 0.5},
          {"workload.train_bits": 16, "workload.stored_activation_bits": 16,
           "workload.activation_bits": 16, "workload.gradient_bits": 16},
          {"workload.moment_bits": 8}, {"workload.recompute": True},
          {"decisions": [*COLLAPIPE, "recompute"]}, {"decisions": [*COLLAPIPE, "participation"]},
          {"workload.local_steps_choices": [1, 3]}, {"budgets.participation_min": 0.25},
          {"devices.clock_cap_min": 0.5},
          {"learning.proxy": "off"}, {"learning.proxy.width": 64}, {"learning.device": "cpu"},
          # A process that is on with its defaults is not one that is off.
          process("heat"), process("presence"), process("channel_knowledge"), process("migration")]),
    (process("heat"), [process("heat", ambient_sd_k=2.0), process("heat", levels=(1.0, 0.5))]),
    (LLAMA, [{"workload.kv_heads": 2}, {"workload.qkv_bias": True}, {"workload.rope_theta": 5e5},
             {"workload.rope_factor": 8.0}, {"workload.rope_original_length": 16},
             {"workload.norm_epsilon": 1e-6}, {"workload.tied_head": True}]),
]  # fmt: skip


def test_scenarios_that_mean_the_same_have_one_digest() -> None:
    for overrides, said in SAME:
        scenario = load_scenario("small").with_overrides(overrides)
        again = scenario.with_overrides(said)
        assert again == scenario, said
        assert scenario_digest(again) == scenario_digest(scenario), said


@pytest.mark.parametrize(("overrides", "changes"), OTHERS)
def test_every_change_changes_the_digest_and_is_written(
    overrides: dict[str, Any], changes: list[dict[str, Any]]
) -> None:
    base = load_scenario("small").with_overrides(overrides)
    made = [base, *(base.with_overrides(one) for one in changes)]
    assert len({scenario_digest(one) for one in made}) == len(made)
    for one in made:
        assert load_scenario(one.to_dict()) == one
    assert scenario_from_text(made[-1].to_yaml(), "there", "there") == made[-1]


def test_yaml_keeps_the_order_of_the_fields() -> None:
    lines = load_scenario("small").to_yaml().splitlines()
    assert [line.split(":")[0] for line in lines if line[0] not in " -"] == [
        field.name for field in dataclasses.fields(Scenario)
    ]
