"""Learners by name: the package's own and the user's."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import halving_learner
import numpy as np
import pytest
from variants_support import mostly_slow

import collapipe_env
from collapipe_env import evaluate
from collapipe_env.cli.main import main
from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.learners.factory import LEARNERS, make_learner, register_learner
from collapipe_env.learners.surrogate import SurrogateLearner
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.learner import LearningReport

SOURCE = Path(halving_learner.__file__).read_text()


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """Nothing stays registered."""
    monkeypatch.setattr(LEARNERS, "_added", {})


def losses(env, rounds=3):
    env.reset(seed=0)
    env.action_space.seed(0)
    return [env.step(env.action_space.sample())[4]["loss"] for _ in range(rounds)]


def test_names_of_learners():
    assert LEARNERS.names() == ("real", "surrogate")
    scenario = load_scenario("small")
    assert isinstance(make_learner("surrogate", scenario, 2), SurrogateLearner)
    with pytest.raises(
        ScenarioError, match=r"learner 'surogate' is not known: did you mean 'surrogate'\?"
    ) as caught:
        make_learner("surogate", scenario, 2)
    assert "in Python call register_learner, on the command line path/" in str(caught.value)
    learner = halving_learner.Halving(scenario, 2)
    assert make_learner(learner, scenario, 2) is learner
    with pytest.raises(ScenarioError, match="learner name 'real' is taken by the package"):
        register_learner("real", make_learner)


def nothing(*_):
    return None


def a_class(*_):
    return halving_learner.Halving


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (nothing, "it returned None, which has no reset: a learner is an object with"),
        (a_class, "Halving'>, which is a class: a learner is an"),
        (json.dumps, "cannot be built: TypeError: .*; it is called with the scenario and the number of"),
        ("math:sqrt", r"\(math:sqrt\) cannot be built: TypeError: "),
    ],
)
def test_what_is_no_learner_is_told_in_one_line(factory, message):
    register_learner("wrong", factory)
    for play in (
        lambda: CollaPipeEnv("small", "wrong"),
        lambda: evaluate("pipeline", "small", seeds=1, rounds=1, learner="wrong"),
    ):
        with pytest.raises(ScenarioError, match=f"^learner 'wrong' .*{message}") as caught:
            play()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [None, 3, object(), SurrogateLearner])
def test_an_object_that_is_no_learner_is_refused(value):
    with pytest.raises(
        ScenarioError, match=r"^learner = .*: a learner is an object with reset and train_round"
    ):
        CollaPipeEnv("small", value)


def test_registered_learners_have_names_everywhere():
    register_learner("halving", halving_learner.Halving)
    assert losses(CollaPipeEnv("small", "halving")) == [4.0, 2.0, 1.0]
    found = evaluate("pipeline", "small", seeds=1, rounds=2, learner="halving")
    assert found.episodes["pipeline"][0].loss == [4.0, 2.0]

    @register_learner("still")
    def still(scenario, num_envs):
        return Still(num_envs)

    assert losses(CollaPipeEnv("small", "still")) == [1.0, 1.0, 1.0]


class Still:
    def __init__(self, num_envs):
        self._report = LearningReport(np.ones(num_envs), np.full(num_envs, np.nan), np.full(num_envs, np.nan))

    def reset(self, rngs, mask=None):  # noqa: ARG002
        return self._report

    def train_round(self, outcome):  # noqa: ARG002
        return self._report


@pytest.mark.parametrize("remembers", [False, True])
def test_metrics_that_tables_cannot_name_are_refused_whether_or_not_a_learner_remembers(remembers):
    class Naming(Still):
        def train_round(self, outcome):  # noqa: ARG002
            return replace(self._report, metrics={"a\nb": self._report.loss})

    if remembers:
        Naming.remember = lambda _: lambda: None
    env = CollaPipeEnv("small", Naming(1))
    env.reset(seed=0)
    with pytest.raises(ScenarioError, match=r"metric 'a\\nb' of the learner or task"):
        env.step(np.zeros(env.action_space.shape, dtype=np.float32))


@pytest.mark.parametrize("processes", mostly_slow([1, 2]))
def test_a_learner_of_ones_own_on_the_command_line(tmp_path, processes):
    """In processes of their own, too."""
    file, out = tmp_path / "mine.py", tmp_path / "run"
    arguments = [
        "evaluate",
        "--scenario",
        "small",
        "--schedulers",
        "pipeline",
        "--episodes",
        "2",
        "--rounds",
        "2",
    ]
    arguments += ["--no-figures", "--learner", f"{file}:Halving", "--out", str(out)]
    arguments += ["--processes", str(processes)]
    file.write_text(SOURCE)
    assert main(arguments) == 0
    episodes = json.loads((out / "results.json").read_text())["episodes"]["pipeline"]
    assert [e["loss"] for e in episodes] == [[4.0, 2.0]] * 2
    names = sorted(path.name.partition("-")[0][:-8] for path in (out / "evaluation").iterdir())
    assert names == ["halving_"]


@pytest.mark.parametrize(
    ("learner", "message"),
    [
        ("rael", "learner 'rael' is not known: did you mean 'real'"),
        ("nowhere.py:Halving", "learner 'nowhere.py:Halving': there is no file 'nowhere.py'"),
        ("math:pi", "which cannot be called: name a class or function that is called with the scenario and"),
        ("no_such_module_here:X", "No module named 'no_such_module_here': check its spelling"),
    ],
)
def test_learners_that_are_refused_on_the_command_line(tmp_path, capsys, learner, message):
    for command in (["evaluate"], ["compare", "--scenarios", "small"]):
        assert main([*command, "--learner", learner, "--out", str(tmp_path / "run")]) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_registries_import_nothing_heavy():
    code = (
        "import sys, collapipe_env\n"
        "from collapipe_env import register_learner, register_task\n"
        "register_learner('mine', 'collapipe_env.training.real_learner:TorchLearner')\n"
        "assert not {'torch', 'numba', 'scipy'} & set(sys.modules), sorted(sys.modules)\n"
        "import collapipe_env.learners, collapipe_env.tasks, collapipe_env.scenario.published_models\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    assert {"register_learner", "register_reward", "register_scenario", "register_task"} <= set(
        collapipe_env.__all__
    )
