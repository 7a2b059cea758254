"""Registry: names, lazy entries, entries of installed packages, and what it refuses."""

import subprocess
import sys
import warnings
from fractions import Fraction
from pathlib import Path

import pytest

from collapipe_env.ground.errors import ScenarioError, SchedulerError
from collapipe_env.ground.registry import Registry, origin


def even(number):
    return number % 2 == 0


def odd(number):
    return not even(number)


class Bell:
    """Something to be imported by name."""


class OtherBell:
    """Something else."""


def checked(name, thing):
    if not callable(thing):
        raise ScenarioError(f"{name} does not ring")


TESTS = {"kind": "test", "shipped": {"even": even, "half": "fractions:Fraction"}}
BELLS = {
    **{"kind": "bell", "shipped": {"big": Bell}, "error": SchedulerError, "reserved": ("agent",)},
    **{"hint": "one of your own: a:B", "use": "is called at noon"},
}
FREE = {"kind": "task", "shipped": {"ner": Bell}, "names": None}


@pytest.fixture
def tests() -> Registry:
    return Registry(**TESTS)


def test_entries_are_found_and_listed_in_order(tests):
    assert tests.register("odd", odd) is odd
    decorated = tests.register("third")(lambda number: number % 3 == 0)
    assert [tests.get(name) for name in tests] == [even, Fraction, odd, decorated]
    assert tests.names() == ("even", "half", "odd", "third")
    assert (tests.shipped(), tests.added()) == (("even", "half"), ("odd", "third"))
    assert [name in tests for name in ("odd", "half", "other", 3)] == [True, True, False, False]


@pytest.mark.parametrize(
    ("made", "name", "message"),
    [
        (TESTS, "evn", r"^test 'evn' is not known: did you mean 'even'\?$"),
        (TESTS, "zzz", "^test 'zzz' is not known: valid names: even, half$"),
        (TESTS, 4, "^test 4 is not known"),
        (BELLS, "bigg", r"did you mean 'big'\? \(one of your own: a:B\)$"),
    ],
)
def test_an_unknown_name_meets_the_nearest(made, name, message):
    registry = Registry(**made)
    for ask in (registry.get, registry.require):
        with pytest.raises(made.get("error", ScenarioError), match=message):
            ask(name)
    assert "did you mean 'tiny'" in str(registry.unknown("tinny", more=("tiny",)))


def test_lazy_entries_are_imported_when_asked_for():
    code = (
        "import sys\n"
        "from collapipe_env.ground.registry import Registry\n"
        "lazy = Registry('thing', {'wave': 'wave:Wave_read'})\n"
        "lazy.register('colours', 'colorsys:rgb_to_hsv')\n"
        "assert lazy.names() == ('wave', 'colours')\n"
        "assert not {'wave', 'colorsys'} & set(sys.modules)\n"
        "assert lazy.get('wave').__module__ == 'wave'\n"
        "assert 'colorsys' not in sys.modules\n"
        "assert lazy.get('colours')(0.0, 0.0, 1.0) == (2 / 3, 1.0, 1.0)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


NAMES = "test name .*: use lower-case letters"
PLACES = "write 'package.module:Name'"


@pytest.mark.parametrize(
    ("made", "name", "entry", "message"),
    [
        *(
            (TESTS, name, odd, NAMES)
            for name in ("", "Upper", "7up", "a-b", "a:b", "a" * 41, "a.py", None, 7)
        ),
        *((TESTS, "new", text, PLACES) for text in ("fractions.F", "", "fractions:", ":F", "a b:C", "a:b:c")),
        *(
            (FREE, name, Bell, "use one line of 1 to 40 characters")
            for name in ("", "  ", "a\nb", "a\x1b[31mb", "a\u202eb", "a" * 41, None)
        ),
        *(
            (BELLS, name, OtherBell, f"bell name '{name}' is taken by the package")
            for name in ("big", "agent")
        ),
        (BELLS, "three", 3, "bell 'three': 3 cannot be called: .* that is called at noon"),
        ({**TESTS, "check": checked}, "three", 3, "three does not ring"),
    ],
)
@pytest.mark.parametrize("replace", [False, True])
def test_what_cannot_be_registered(made, name, entry, message, replace):
    registry = Registry(**made)
    with pytest.raises(made.get("error", ScenarioError), match=message):
        registry.register(name, entry, replace=replace)
    with pytest.raises(made.get("error", ScenarioError), match=message):
        registry.register(name, replace=replace)(entry)
    assert registry.names() == tuple(made["shipped"])


def test_free_names():
    free = Registry(**FREE)
    free.register("SST-2", Bell)
    assert free.get("SST-2") is Bell


@pytest.mark.parametrize(
    ("made", "entry", "message"),
    [
        (
            TESTS,
            "collapipe_env.nothing:Thing",
            "'later' cannot be imported from collapipe_env.nothing:Thing: No",
        ),
        (TESTS, "fractions:Nothing", "'later' cannot be imported from fractions:Nothing: .*Nothing"),
        (BELLS, "math:pi", "bell 'later': 3.14.* cannot be called"),
        ({**TESTS, "check": checked}, "math:pi", "later does not ring"),
    ],
)
def test_lazy_entries_are_checked_when_they_are_imported(made, entry, message):
    registry = Registry(**made)
    registry.register("later", entry)
    with pytest.raises(made.get("error", ScenarioError), match=message):
        registry.get("later")


def cell(size=1):
    """What a notebook's cell defines, each time that it is run."""

    class Thing:
        number = size

    return {"class": Thing, "function": lambda: size, "text": "fractions:Fraction", "data": {"a": 1}}


@pytest.mark.parametrize("kind", cell())
def test_a_definition_may_be_run_again_and_the_last_one_counts(tests, kind):
    tests.register("mine", cell(1)[kind])
    again = cell(2)[kind]
    tests.register("mine", again)
    assert tests.get("mine") is (Fraction if kind == "text" else again)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (even, odd, r"'mine' is taken by .*test_registry:even: choose another, or give replace=True"),
        (Bell, OtherBell, "taken by .*:Bell"),
        (Bell, "fractions:Fraction", "taken by .*:Bell"),
        ("fractions:Fraction", Bell, "taken by fractions:Fraction"),
        ({"a": 1}, {"a": 2}, r"taken by \{'a': 1\}"),
        (Fraction(1, 2), Fraction(1, 3), "taken by fractions:Fraction"),
    ],
)
def test_nothing_else_is_overwritten_unless_told(tests, before, after, message):
    tests.register("mine", before)
    with pytest.raises(ScenarioError, match=message):
        tests.register("mine", after)
    tests.register("mine", after, replace=True)
    assert tests.where("mine") == origin(after)


PACKAGE = """
import numpy as np
from dataclasses import dataclass
import collapipe_env
from collapipe_env.baselines.random_feasible import RandomFeasible as Scheduler
from collapipe_env.learners.surrogate import SurrogateLearner as Learner
from collapipe_env.tasks.classification import Classification as Task

def reward(before, costs, after):
    return -costs.delay

@dataclass(frozen=True)
class Fields:
    speed: float = 2.0

class Process(collapipe_env.Process):
    name, Spec = "theirs", Fields

def algorithm(agent, scenario, place):
    raise NotImplementedError
SCENARIO = {"base": "small", "dynamics": {"rounds": 3, "processes": {"theirs": {}}}}
"""
KINDS = ("scheduler", "learner", "reward", "task", "process", "algorithm", "scenario")
USE = """
import sys, warnings
warnings.simplefilter("error")
import gymnasium as gym
from collapipe_env.agents.learned.agent_loading import ALGORITHMS
from collapipe_env.dynamics import PROCESSES
from collapipe_env.envs.rewards import REWARDS
from collapipe_env.evaluation.evaluate import evaluate
from collapipe_env.learners.factory import LEARNERS
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.names import SCENARIOS
from collapipe_env.schedulers import SCHEDULERS
from collapipe_env.scenario.task_registry import TASKS
every = (SCHEDULERS, LEARNERS, REWARDS, TASKS, PROCESSES, ALGORITHMS, SCENARIOS)
assert all("theirs" in registry and registry.added() == ("theirs",) for registry in every)
assert "stranger" not in sys.modules
assert all(registry.get("theirs") is not None for registry in every)
scenario = load_scenario("theirs")
assert (scenario.name, scenario.clusters) == ("theirs", 2)
assert dict(scenario.dynamics.processes)["theirs"].speed == 2.0
assert load_scenario({"base": "theirs"}).dynamics == scenario.dynamics
assert scenario.with_overrides({"workload.task": "theirs"}).workload.task == "theirs"
env = gym.make("CollaPipeSurrogate-v0", scenario="theirs", reward="theirs", learner="theirs")
env.reset(seed=0)
assert env.step(env.action_space.sample())[1] < 0.0
assert evaluate("theirs", "theirs", seeds=1, rounds=2).comparison.summaries[0].runs == 1
"""


def distribution(folder: Path, name: str, points: str) -> None:
    """Metadata of an installed package with entry points."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points)


def test_an_installed_package_plugs_in_without_an_import(tmp_path, monkeypatch):
    places = ("Scheduler", "Learner", "reward", "Task", "Process", "algorithm", "SCENARIO")
    points = "".join(
        f"[collapipe_env.{kind}{'es' if kind == 'process' else 's'}]\ntheirs = stranger:{place}\n"
        for kind, place in zip(KINDS, places, strict=True)
    )
    (tmp_path / "stranger.py").write_text(PACKAGE)
    distribution(tmp_path, "stranger", points)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    subprocess.run([sys.executable, "-c", USE], check=True, timeout=300)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("even = math:pi", "math:pi of guest is left out: test name 'even' is taken by the package"),
        ("Bad-Name = math:pi", "math:pi of guest is left out: test name 'Bad-Name': use lower-case"),
    ],
)
def test_names_that_an_installed_package_may_not_take(line, message, tmp_path, monkeypatch):
    distribution(tmp_path, "guest", f"[tests]\nfine = math:e\n{line}\n")
    distribution(tmp_path, "second", "[tests]\nfine = math:inf\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry(**TESTS, group="tests")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert registry.get("fine") > 2.0
    for words in (message, "is left out: test name 'fine' is taken by math:"):
        assert any(words in str(one.message) for one in told)
    assert registry.get("even") is even
    with pytest.raises(ScenarioError, match="test name 'fine' is taken by math:"):
        registry.register("fine", even)
    registry.register("fine", odd, replace=True)
    assert registry.get("fine") is odd
    assert registry.added().count("fine") == 1
