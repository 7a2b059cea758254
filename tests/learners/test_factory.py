"""Learners by name: the package's own and the user's."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from halving_learner import Halving
from variants_support import mostly_slow

from collapipe_env import evaluate
from collapipe_env.cli.main import main
from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.learners.factory import LEARNERS, make_learner, register_learner
from collapipe_env.learners.surrogate import SurrogateLearner
from collapipe_env.scenario import load_scenario

SOURCE = Path(__file__).with_name("halving_learner.py").read_text()
SMALL = load_scenario("small")


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
    assert isinstance(make_learner("surrogate", SMALL, 2), SurrogateLearner)
    learner = Halving(SMALL, 2)
    assert make_learner(learner, SMALL, 2) is learner
    with pytest.raises(ScenarioError, match=r"'surogate' is not known: did you mean 'surrogate'\?.*path/"):
        make_learner("surogate", SMALL, 2)
    with pytest.raises(ScenarioError, match="learner name 'real' is taken by the package"):
        register_learner("real", make_learner)


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (lambda *_: None, "it returned None, which has no reset: a learner is an object with"),
        (lambda *_: Halving, "Halving'>, which is a class: a learner is an"),
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
    with pytest.raises(ScenarioError, match=r"^learner = .*: a learner is an object with reset and train"):
        CollaPipeEnv("small", value)


def test_errors_of_the_package_reach_the_caller_as_they_are():
    def picky(*_):
        raise ScenarioError("give it more clusters")

    register_learner("picky", picky)
    with pytest.raises(ScenarioError, match=r"^give it more clusters$"):
        CollaPipeEnv("small", "picky")


def test_registered_learners_have_names_everywhere():
    register_learner("halving", Halving)
    assert losses(CollaPipeEnv("small", "halving")) == [4.0, 2.0, 1.0]
    found = evaluate("pipeline", "small", seeds=1, rounds=2, learner="halving")
    assert found.episodes["pipeline"][0].loss == [4.0, 2.0]

    @register_learner("still")
    def still(scenario, num_envs):
        learner = Halving(scenario, num_envs)
        learner.train_round = lambda _: learner.reset(None)
        return learner

    assert losses(CollaPipeEnv("small", "still")) == [8.0, 8.0, 8.0]


@pytest.mark.parametrize("remembers", [False, True])
def test_metrics_that_tables_cannot_name_are_refused_whether_or_not_a_learner_remembers(remembers):
    class Naming(Halving):
        def train_round(self, outcome):
            report = super().train_round(outcome)
            return replace(report, metrics={"a\nb": report.loss})

    if remembers:
        Naming.remember = lambda _: lambda: None
    env = CollaPipeEnv("small", Naming(None, 1))
    env.reset(seed=0)
    with pytest.raises(ScenarioError, match=r"metric 'a\\nb' of the learner or task"):
        env.step(np.zeros(env.action_space.shape, dtype=np.float32))


@pytest.mark.parametrize("processes", mostly_slow([1, 2]))
def test_a_learner_of_ones_own_on_the_command_line(tmp_path, processes):
    """In processes of their own, too."""
    file, out = tmp_path / "mine.py", tmp_path / "run"
    file.write_text(SOURCE)
    words = f"evaluate --scenario small --schedulers pipeline --episodes 2 --rounds 2 --processes {processes}"
    assert main([*words.split(), "--no-figures", "--learner", f"{file}:Halving", "--out", str(out)]) == 0
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
