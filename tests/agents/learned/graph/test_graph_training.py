"""Training of the graph net: it learns, goes on where it stopped, and repeats itself."""

import json
import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import graph_net_support as support
import numpy as np
import pytest
import torch

from collapipe_env.agents.learned.agent_file import read_agent_file
from collapipe_env.agents.learned.agent_loading import load_agent
from collapipe_env.agents.learned.graph import graph_training
from collapipe_env.agents.learned.graph.graph_files import LATER
from collapipe_env.agents.learned.graph.graph_parameters import GraphParameters
from collapipe_env.agents.learned.graph.graph_training import ADAM, GraphPlan, GraphTraining, GraphValidator
from collapipe_env.agents.learned.graph.net import GraphNet
from collapipe_env.agents.learned.hyperparameters import usual
from collapipe_env.agents.learned.training_files import TrainingFiles
from collapipe_env.ground.errors import CheckpointError
from collapipe_env.scenario import load_scenario
from collapipe_env.zoo.shipped_agents import agent_path

FEW = usual(GraphParameters, clusters=8, most_clusters=3, random_groups=2, samples=2, width=16, hidden=16)
"""A small net on small groups."""


@pytest.fixture(autouse=True)
def short_validations(monkeypatch):
    """Validations of a few rounds of `small` instead of the four scenarios' 800 each."""
    monkeypatch.setattr(
        graph_training,
        "graph_validator",
        lambda *_: GraphValidator(support.SMALL, (support.SMALL,), episodes=4, rounds=25),
    )


def trained(folder, steps, parameters=FEW, *, every=5, seed=1, say=None):
    """A training that has run."""
    plan = GraphPlan(support.SMALL, parameters, steps, seed, every, "a command")
    training = GraphTraining(plan, TrainingFiles(folder))
    training.run((lambda _: None) if say is None else say)
    return training


def interrupt_at(monkeypatch, call, action=None):
    """Let the user interrupt, or something else happen, at a step (1, 2, ...)."""
    count, step = [0], graph_training.learn_and_play

    def interrupted(*arguments):
        count[0] += 1
        if count[0] == call:
            raise KeyboardInterrupt
        return step(*arguments)

    monkeypatch.setattr(graph_training, "learn_and_play", action(step) if action else interrupted)


def without_seconds(record):
    """Plain data of a record but for wall-clock times, which no two runs share."""
    data = json.loads(json.dumps(asdict(record)))
    del data["training"]["seconds"]
    for entry in data["history"]:
        del entry["seconds"]
    return data


def assert_same_tensors(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name])


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(tmp_path):
    for name, seed in (("first", 1), ("second", 1), ("third", 2)):
        trained(tmp_path / name, 8, every=4, seed=seed)
    first, second, third = (
        read_agent_file(TrainingFiles(tmp_path / name).best) for name in ("first", "second", "third")
    )
    assert without_seconds(first.record) == without_seconds(second.record)
    assert_same_tensors(first.tensors, second.tensors)
    assert any((value != third.tensors[name]).any() for name, value in first.tensors.items())


@pytest.mark.slow
def test_training_says_what_it_reaches_and_keeps_the_best_version(tmp_path):
    said = []
    training = trained(tmp_path, 10, every=4, say=said.append)
    assert [score.steps for score in training.state.history] == [4, 8, 10]
    assert len(said) == 3
    assert all("priced delay" in line for line in said)
    best = min(training.state.history, key=lambda score: score.objective)
    assert training.state.best == best
    files = training.files
    record, tensors = read_agent_file(files.best)
    assert (record.steps, record.algorithm, record.training["command"]) == (best.steps, "graph", "a command")
    assert not any(name.startswith(ADAM) for name in tensors)
    record, tensors = read_agent_file(files.latest)
    assert record.steps == 10
    assert any(name.startswith(ADAM) for name in tensors)
    assert list(files.tensorboard.iterdir())
    # The best version scores what the record says, seen by a validation of its own.
    scheduler = load_agent(files.best, support.SMALL)
    score = GraphValidator(support.SMALL, (support.SMALL,), episodes=4, rounds=25)(scheduler._net, 0, 0.0)
    assert score.objective == pytest.approx(best.objective, rel=1e-9)


def test_a_run_in_two_parts_goes_on_with_steps_history_weights_and_moments(tmp_path, monkeypatch):
    files = trained(tmp_path, 6, every=3).files
    before = read_agent_file(files.latest)
    plan = GraphPlan(support.SMALL, FEW, 12, 1, 3, "a command")
    resumed = GraphTraining(plan, files)
    assert resumed.state.steps == 6
    assert [score.to_dict() for score in resumed.state.history] == before.record.history
    assert resumed.state.seconds == before.record.training["seconds"]
    with monkeypatch.context() as patch:
        # Interrupted before its first step, it writes what it had read: weights and moments alike.
        interrupt_at(patch, 1)
        with pytest.raises(KeyboardInterrupt):
            resumed.run(lambda _: None)
    assert_same_tensors(read_agent_file(files.latest).tensors, before.tensors)
    again = GraphTraining(plan, files)
    again.run(lambda _: None)
    assert [score.steps for score in again.state.history] == [3, 6, 9, 12]
    assert read_agent_file(files.latest).record.steps == 12
    moments = read_agent_file(files.latest).tensors[f"{ADAM}step.chain_head.bias"]
    assert float(moments) == 12.0


@pytest.mark.parametrize("judged", [[3, 6, 9, 12], [3, 4]])
def test_a_version_whose_validation_was_interrupted_is_judged_when_the_run_goes_on(
    tmp_path, monkeypatch, judged
):
    files = trained(tmp_path, 3, every=3).files
    plan = GraphPlan(support.SMALL, FEW, judged[-1], 1, 3, "a command")
    with monkeypatch.context() as patch:
        calls = []

        def interrupted(*_):
            calls.append(None)
            raise KeyboardInterrupt

        patch.setattr(GraphValidator, "__call__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            GraphTraining(plan, files).run(lambda _: None)
        assert len(calls) == 1
    assert read_agent_file(files.latest).record.steps == judged[1]
    again = GraphTraining(plan, files)
    again.run(lambda _: None)
    assert [score.steps for score in again.state.history] == judged


def test_a_finished_training_is_left_as_it_is(tmp_path):
    files = trained(tmp_path, 4, every=4).files
    content = files.best.read_bytes(), files.latest.read_bytes()
    said = []
    trained(tmp_path, 4, every=4, say=said.append)
    assert (files.best.read_bytes(), files.latest.read_bytes()) == content
    assert not said


def test_an_interrupt_keeps_the_latest_version_alone_and_a_missing_best_one_is_made(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        interrupt_at(patch, 4)
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path / "one", 20, every=10)
    files = TrainingFiles(tmp_path / "one")
    assert [path.name for path in files.latest.parent.iterdir()] == ["latest.safetensors"]
    assert read_agent_file(files.latest).record.steps == 3
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    resumed = trained(tmp_path / "two", 5, every=10)
    assert resumed.state.steps == 5
    assert [score.steps for score in resumed.state.history] == [5]
    resumed = trained(tmp_path / "one", 3, every=10)  # its steps are done, but it has not been validated
    assert [score.steps for score in resumed.state.history] == [3]
    assert read_agent_file(files.best).record.steps == 3
    files.best.unlink()
    for _ in range(2):
        assert trained(tmp_path / "one", 3, every=10).state.best.steps == 3
        assert files.best.exists()


def test_a_version_stays_whole_if_writing_the_next_one_is_cut_short(tmp_path, monkeypatch):
    files = trained(tmp_path, 2, every=2).files
    content, write = files.latest.read_bytes(), Path.write_bytes

    def half(path, data):
        write(path, data[: len(data) // 2])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", half)
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path, 4, every=2)
    assert files.latest.read_bytes() == content
    assert {path.name for path in files.latest.parent.iterdir()} == {"latest.safetensors", "best.safetensors"}


def with_gradients(value, calls):
    """Steps whose loss has gradients of this value in these calls (0, 1, ...)."""

    def action(step):
        count = [-1]

        def spoiled(*arguments):
            count[0] += 1
            losses = step(*arguments)
            return losses._replace(total=losses.total * value) if count[0] in calls else losses

        return spoiled

    return action


@pytest.mark.parametrize(("learned", "value"), [(0, np.inf), (3, np.nan)])
def test_a_training_that_has_diverged_is_given_up_and_can_be_gone_on_with(
    tmp_path, monkeypatch, learned, value
):
    monkeypatch.setattr(graph_training, "MOST_SKIPPED", 5)
    files = TrainingFiles(tmp_path)
    message = (
        rf"diverged at step {learned + 5}: no finite gradient in 6 steps; {files.latest} holds the weights; "
        "train again"
    )
    with monkeypatch.context() as patch:
        interrupt_at(patch, 0, with_gradients(value, range(learned, 1000)))
        with pytest.raises(CheckpointError, match=message):
            trained(tmp_path, 50, every=50)
    record, kept = read_agent_file(files.latest)
    assert record.steps == learned + 5
    assert float(kept[f"{ADAM}step.chain_head.bias"]) == learned
    assert all(np.isfinite(array).all() for array in kept.values())
    assert not files.best.exists()
    resumed = trained(tmp_path, learned + 8, every=50)
    assert [score.steps for score in resumed.state.history] == [learned + 8]
    after = read_agent_file(files.latest).tensors
    assert float(after[f"{ADAM}step.chain_head.bias"]) == learned + 3
    assert (after["chain_head.weight"] != kept["chain_head.weight"]).any()


def test_an_interrupt_before_the_first_step_can_be_gone_on_with(tmp_path, monkeypatch):
    """The first step compiles for a while, in which users lose patience."""
    with monkeypatch.context() as patch:
        interrupt_at(patch, 1)
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path / "one", 4, every=4)
    assert read_agent_file(TrainingFiles(tmp_path / "one").latest).record.steps == 0
    trained(tmp_path / "one", 4, every=4)
    trained(tmp_path / "two", 4, every=4)
    first, second = (read_agent_file(TrainingFiles(tmp_path / name).latest) for name in ("one", "two"))
    assert_same_tensors(first.tensors, second.tensors)


@pytest.mark.parametrize(
    ("field", "value"),
    [("clusters", 9), ("learning_rate", 1e-3), ("width", 32), ("without", ("edges",))],
)
def test_other_hyper_parameters_are_refused_by_name(tmp_path, field, value):
    trained(tmp_path, 2, every=2)
    other = replace(FEW, **{field: value})
    wanted = f"was trained with {field} = {getattr(FEW, field)}, not {value}: "
    with pytest.raises(CheckpointError, match=re.escape(wanted)):
        GraphTraining(GraphPlan(support.SMALL, other, 4, 1, 2), TrainingFiles(tmp_path))


def started_from(tmp_path, source, **changes):
    """A training that starts from a net, interrupted before its first step."""
    parameters = replace(FEW, start_from=str(source), **changes)
    return GraphTraining(GraphPlan(support.SMALL, parameters, 4, 3, 4), TrainingFiles(tmp_path)), parameters


@pytest.mark.parametrize("version", ["best", "latest"])
def test_a_training_starts_from_the_weights_of_another(tmp_path, monkeypatch, version):
    given = getattr(trained(tmp_path / "first", 4, every=4).files, version)
    training, parameters = started_from(tmp_path / "second", given)
    with monkeypatch.context() as patched:
        interrupt_at(patched, 1)
        with pytest.raises(KeyboardInterrupt):
            training.run(lambda _: None)
    wanted = read_agent_file(given).playing
    found = read_agent_file(training.files.latest).playing
    assert_same_tensors(wanted.tensors, found.tensors)
    assert found.record.steps == 0
    assert found.record.hyperparameters["start_from"] == str(given)
    given.unlink()  # what goes on needs it no more
    done = trained(tmp_path / "second", 4, parameters, every=4, seed=3)
    assert done.state.steps == 4
    learned = read_agent_file(training.files.latest).playing.tensors
    # All weights but those for heat and for hidden gains, of which these systems have none.
    apart = {name for name, value in wanted.tensors.items() if (learned[name] != value).any()}
    assert apart == {name for name in wanted.tensors if not name.startswith(LATER)}


def test_the_share_head_learns_where_gains_are_hidden(tmp_path):
    parameters = replace(FEW, scenarios=("small-wild",), random_groups=0)
    first = trained(tmp_path, 3, parameters, every=3).files.latest
    head = read_agent_file(first).tensors["share_head.weight"]
    assert (head != 0.0).any()
    trained(tmp_path, 5, parameters, every=5)  # and goes on
    assert (read_agent_file(first).tensors["share_head.weight"] != head).any()


def test_a_training_starts_from_a_net_of_the_zoo_without_parts_of_it(tmp_path, monkeypatch):
    sizes = {name: getattr(usual(GraphParameters), name) for name in ("width", "hidden")}
    training, _ = started_from(tmp_path, "zoo:graph", **sizes, without=("pooling",))
    interrupt_at(monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt):
        training.run(lambda _: None)
    found = read_agent_file(training.files.latest).tensors
    for name, value in read_agent_file(agent_path("zoo:graph")).tensors.items():
        np.testing.assert_array_equal(found[name], 0.0 if ".shared." in name else value)


def test_a_net_to_start_from_that_does_not_suit_is_refused(tmp_path):
    given = trained(tmp_path / "first", 2, every=2).files.best
    with pytest.raises(CheckpointError, match=r"best.safetensors, which .* width = 16, not 32: give --graph"):
        started_from(tmp_path / "second", given, width=32)
    with pytest.raises(CheckpointError, match=re.escape(str(tmp_path / "none.safetensors"))):
        started_from(tmp_path / "second", tmp_path / "none.safetensors")
    with pytest.raises(CheckpointError, match=r"medium-ppo.safetensors is an agent of ppo"):
        started_from(tmp_path / "second", "zoo:medium-ppo")


def test_the_best_version_only_plays(tmp_path):
    files = trained(tmp_path, 2, every=2).files
    files.latest.write_bytes(files.best.read_bytes())
    with pytest.raises(CheckpointError, match=r"lacks the training data of .*: it can only play"):
        GraphTraining(GraphPlan(support.SMALL, FEW, 4, 1, 2), files)


def test_sixty_steps_are_better_than_fresh_weights(tmp_path):
    parameters = replace(FEW, clusters=16, learning_rate=5e-3, averaged_steps=5)
    torch.manual_seed(1)
    fresh = GraphNet(parameters)
    first = GraphValidator(support.SMALL, (support.SMALL,), episodes=4, rounds=25)(fresh, 0, 0.0)
    training = trained(tmp_path, 60, parameters, every=20)
    assert training.state.best.objective < 0.92 * first.objective
    assert training.state.best.steps == 60


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, ["small", "medium", "medium"]),
        ({"random_groups": 0}, ["large-churn"]),
        ({"random_systems": "wild"}, ["large-wild", "random-48x"]),
    ],
)
def test_versions_are_compared_on_systems_like_those_of_the_training(changes, names):
    shown, compared = load_scenario("large-churn"), []

    def validator(_, scenarios, **__):
        compared.extend(scenario.name for scenario in scenarios)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_training, "GraphValidator", validator)
        graph_training.graph_validator(shown, replace(FEW, **changes))
    assert all(found.startswith(name) for found, name in zip(compared, names, strict=True))
