"""Training of the graph net: where it starts, when it is judged, and when it gives up.

What it shares with other algorithms is in ``tests/contracts/test_learned_agents.py``.
"""

import re
import shutil
from dataclasses import replace

import graph_net_support as support
import numpy as np
import pytest
import torch

from collapipe_env.agents.learned.agent_file import read_agent_file
from collapipe_env.agents.learned.graph import graph_training
from collapipe_env.agents.learned.graph.graph_files import LATER
from collapipe_env.agents.learned.graph.graph_parameters import GraphParameters
from collapipe_env.agents.learned.graph.graph_training import ADAM, GraphPlan, GraphTraining, GraphValidator
from collapipe_env.agents.learned.graph.net import GraphNet
from collapipe_env.agents.learned.hyperparameters import usual
from collapipe_env.agents.learned.training_files import TrainingFiles
from collapipe_env.agents.learned.validation import Score
from collapipe_env.ground.errors import CheckpointError
from collapipe_env.scenario import load_scenario
from collapipe_env.zoo.shipped_agents import agent_path

FEW = usual(
    GraphParameters, clusters=4, most_clusters=2, scenarios=("small",), random_groups=1, samples=2, width=8,
    hidden=8, heads=2,
)  # fmt: skip
"""A small net on small groups."""


def validator(*_) -> GraphValidator:
    """Validations of a few rounds of `small` instead of the four scenarios' 800 each."""
    return GraphValidator(support.SMALL, (), episodes=4, rounds=10)


@pytest.fixture(autouse=True)
def short_validations(monkeypatch):
    monkeypatch.setattr(graph_training, "graph_validator", validator)


def trained(folder, steps, parameters=FEW, every=100):
    """A training that has run."""
    plan = GraphPlan(support.SMALL, parameters, steps, 1, every)
    training = GraphTraining(plan, TrainingFiles(folder))
    training.run(lambda _: None)
    return training


@pytest.fixture
def step(monkeypatch):
    """Let the steps of trainings be others, until they are put back."""
    usual_step = graph_training.learn_and_play

    def put(other=usual_step):
        monkeypatch.setattr(graph_training, "learn_and_play", other)

    put.usual = usual_step
    return put


def interrupted(step, call, folder, steps, parameters=FEW):
    """A training that the user interrupts at a step (1, 2, ...)."""
    left = [call]

    def stopping(*arguments):
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        return step.usual(*arguments)

    step(stopping)
    with pytest.raises(KeyboardInterrupt):
        trained(folder, steps, parameters)
    step()
    return TrainingFiles(folder)


def assert_same_tensors(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name])


@pytest.mark.parametrize("judged", [[2, 4, 6], [2, 3]])
def test_a_version_whose_validation_was_interrupted_is_judged_when_the_run_goes_on(
    tmp_path, monkeypatch, judged
):
    files = trained(tmp_path, 2, every=2).files

    def stopped(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(GraphValidator, "__call__", stopped)
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path, judged[-1], every=2)
    assert read_agent_file(files.latest).record.steps == judged[1]
    again = trained(tmp_path, judged[-1], every=2)
    assert [score.steps for score in again.state.history] == judged


def test_an_interrupt_keeps_the_latest_version_alone_from_the_first_step_on(tmp_path, step):
    """The first step compiles for a while, in which users lose patience."""
    files = interrupted(step, 1, tmp_path / "one", 2)
    assert [path.name for path in files.latest.parent.iterdir()] == ["latest.safetensors"]
    assert read_agent_file(files.latest).record.steps == 0
    for name in ("one", "two"):
        trained(tmp_path / name, 2)
    first, second = (read_agent_file(TrainingFiles(tmp_path / name).latest) for name in ("one", "two"))
    assert_same_tensors(first.tensors, second.tensors)
    files = interrupted(step, 3, tmp_path / "three", 20)
    assert not files.best.exists()
    # Its steps are done then, but it has not been validated.
    assert [score.steps for score in trained(tmp_path / "three", 2).state.history] == [2]
    assert read_agent_file(files.best).record.steps == 2


@pytest.mark.parametrize(("learned", "value"), [(0, np.inf), (2, np.nan)])
def test_a_training_that_has_diverged_is_given_up_and_can_be_gone_on_with(
    tmp_path, monkeypatch, step, learned, value
):
    monkeypatch.setattr(graph_training, "MOST_SKIPPED", 2)
    files, count = TrainingFiles(tmp_path), [0]

    def spoiled(*arguments):
        count[0] += 1
        losses = step.usual(*arguments)
        return losses._replace(total=losses.total * value) if count[0] > learned else losses

    step(spoiled)
    message = rf"diverged at step {learned + 2}: no finite gradient in 3 steps; {files.latest} holds"
    with pytest.raises(CheckpointError, match=message):
        trained(tmp_path, 50)
    step()
    record, kept = read_agent_file(files.latest)
    assert record.steps == learned + 2
    assert float(kept[f"{ADAM}step.chain_head.bias"]) == learned
    assert all(np.isfinite(array).all() for array in kept.values())
    assert not files.best.exists()
    resumed = trained(tmp_path, learned + 4)
    assert [score.steps for score in resumed.state.history] == [learned + 4]
    after = read_agent_file(files.latest).tensors
    assert float(after[f"{ADAM}step.chain_head.bias"]) == learned + 2
    assert (after["chain_head.weight"] != kept["chain_head.weight"]).any()


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A training of four steps, to be copied."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_training, "graph_validator", validator)
        return trained(tmp_path_factory.mktemp("first"), 4).files


@pytest.mark.parametrize(("field", "value"), [("learning_rate", 1e-3), ("without", ("edges",))])
def test_other_hyper_parameters_are_refused_by_name(first, field, value):
    wanted = f"was trained with {field} = {getattr(FEW, field)}, not {value}: "
    with pytest.raises(CheckpointError, match=re.escape(wanted)):
        trained(first.folder, 8, replace(FEW, **{field: value}))


@pytest.mark.parametrize("version", ["best", "latest"])
def test_a_training_starts_from_the_weights_of_another(first, tmp_path, step, version):
    given = tmp_path / "given.safetensors"
    shutil.copy(getattr(first, version), given)
    parameters = replace(FEW, start_from=str(given))
    files = interrupted(step, 1, tmp_path / "run", 4, parameters)
    wanted, found = (read_agent_file(file).playing for file in (given, files.latest))
    assert_same_tensors(wanted.tensors, found.tensors)
    assert found.record.steps == 0
    assert found.record.hyperparameters["start_from"] == str(given)
    given.unlink()  # what goes on needs it no more
    assert trained(tmp_path / "run", 4, parameters).state.steps == 4
    learned = read_agent_file(files.latest).playing.tensors
    # All weights but those for heat and for hidden gains, of which these systems have none.
    apart = {name for name, value in wanted.tensors.items() if (learned[name] != value).any()}
    assert apart == {name for name in wanted.tensors if not name.startswith(LATER)}


def test_a_training_starts_from_a_net_of_the_zoo_without_parts_of_it(tmp_path, step):
    sizes = {name: getattr(usual(GraphParameters), name) for name in ("width", "hidden", "heads")}
    parameters = replace(FEW, start_from="zoo:graph", without=("pooling",), **sizes)
    found = read_agent_file(interrupted(step, 1, tmp_path, 4, parameters).latest).tensors
    for name, value in read_agent_file(agent_path("zoo:graph")).tensors.items():
        np.testing.assert_array_equal(found[name], 0.0 if ".shared." in name else value)


def test_a_net_to_start_from_that_does_not_suit_is_refused(first, tmp_path):
    for source, changes, message in (
        (first.best, {"width": 32}, r"best.safetensors, which .* width = 8, not 32: give --graph"),
        (tmp_path / "none.safetensors", {}, re.escape(str(tmp_path / "none.safetensors"))),
        ("zoo:medium-ppo", {}, r"medium-ppo.safetensors is an agent of ppo"),
    ):
        with pytest.raises(CheckpointError, match=message):
            trained(tmp_path / "run", 4, replace(FEW, start_from=str(source), **changes))


def test_the_share_head_learns_where_gains_are_hidden(tmp_path):
    parameters = replace(FEW, scenarios=("small-wild",), random_groups=0)
    heads = []
    for steps in (2, 4):  # and goes on
        latest = trained(tmp_path, steps, parameters).files.latest
        heads.append(read_agent_file(latest).tensors["share_head.weight"])
    assert (heads[0] != 0.0).any()
    assert (heads[1] != heads[0]).any()


def test_some_steps_are_better_than_fresh_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(graph_training, "WARM_UP", 1)
    parameters = replace(
        FEW, width=16, hidden=16, clusters=16, random_groups=0, learning_rate=1e-2, averaged_steps=3
    )
    torch.manual_seed(1)
    fresh = validator()(GraphNet(parameters), 0, 0.0)
    assert trained(tmp_path, 12, parameters).state.best.objective < 0.8 * fresh.objective


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, ["small", "medium", "medium"]),
        ({"random_groups": 0}, []),
        ({"random_systems": "wild"}, ["large-wild", "random-48x"]),
    ],
)
def test_versions_are_compared_on_systems_like_those_of_the_training(changes, names, monkeypatch):
    shown, compared = load_scenario("large-churn"), []
    monkeypatch.undo()
    monkeypatch.setattr(
        graph_training,
        "GraphValidator",
        lambda _, others, **__: compared.extend(scenario.name for scenario in others),
    )
    graph_training.graph_validator(shown, replace(FEW, **changes))
    assert all(found.startswith(name) for found, name in zip(compared, names, strict=True))


def test_the_scenario_of_the_training_counts_once_in_comparisons(monkeypatch):
    priced, shown = {"small": 4.0, "small-churn": 9.0}, load_scenario("small-churn")
    monkeypatch.setattr(
        graph_training, "score_of", lambda env, *_: Score(1, 1.0, priced[env.scenario.name], *[0.0] * 4)
    )
    for others, objective in (((), 9.0), ((support.SMALL,), 6.0), ((support.SMALL, shown), 6.0)):
        score = GraphValidator(shown, others, episodes=1, rounds=1)(support.random_net(1), 1, 1.0)
        assert (score.priced_delay, score.objective) == pytest.approx((9.0, objective))
