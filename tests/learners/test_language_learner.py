"""Real training of a language model: documents stay with their clusters, states, figures, samples."""

import math

import numpy as np
import pytest
from learner_support import learner_of, new_learner

from collapipe_env.ground.errors import ScenarioError, StateError
from collapipe_env.models.architecture import Architecture
from collapipe_env.scenario.learning import LearningSpec
from collapipe_env.simulator.learner import Arrivals, RoundOutcome
from collapipe_env.tasks import TaskSpec, get_task
from collapipe_env.tasks.base import NO_TARGET
from collapipe_env.tasks.language_tokens import END
from collapipe_env.tasks.partition import partition

N, BLOCKS, LENGTH, VOCABULARY = 3, 2, 16, 300


def learner(seed=1, partition_name="iid", **learning):
    sizes = Architecture(BLOCKS, 16, 24, 2, LENGTH, VOCABULARY, causal=True)
    fields = {"token_dropout": 0.0, "evaluation_samples": 40, "evaluate_every": 1, "metric_every": 1}
    learning = LearningSpec(partition=partition_name, **{**fields, **learning})
    found = learner_of(sizes, learning, "language-modelling", VOCABULARY, clusters=N, batch_size=16)
    found.reset([np.random.default_rng(seed)])
    return found


def outcome():
    blocks, micro_batches = np.array([[[1, 1]] * N]), np.full((1, N), 2)
    arrived = Arrivals.of(np.ones((1, N, 1, 2), dtype=bool), micro_batches)
    return RoundOutcome(blocks, micro_batches, arrived, np.ones((1, N)))


@pytest.mark.parametrize("name", ["iid", "dirichlet", "length", "quantity"])
def test_no_row_holds_documents_of_two_clusters(name):
    run = learner(partition_name=name)._runs[0]
    data = get_task("language-modelling").load(TaskSpec(run._setup.architecture, VOCABULARY))
    rng = np.random.default_rng(1).spawn(3 + N)[0]
    expected = partition(name, data.strata, data.lengths, N, 0.5, rng)
    every = data.decode(list_of_documents(data.train.targets))
    seen = []
    for part, stream in zip(expected, run.streams, strict=True):
        rows = run.samples.targets.numpy()[stream._indices]
        texts = data.decode(list_of_documents(rows))
        assert texts == [every[i] for i in part]  # whole documents, in their order, and no others
        seen += texts
    assert sorted(seen) == sorted(every)
    assert run._data_sizes.tolist() == [len(stream._indices) for stream in run.streams]


def list_of_documents(targets):
    stream = targets[targets != NO_TARGET]
    return np.split(stream, np.flatnonzero(stream == END) + 1)[:-1]


def test_figures_are_those_of_the_evaluated_rows():
    found = learner()
    report = found.train_round(outcome())
    assert report.metric[0] == report.metrics["perplexity"][0]
    assert report.metric[0] == pytest.approx(math.exp(report.loss[0]), rel=1e-5)
    data = get_task("language-modelling").load(TaskSpec(found.training.architecture, VOCABULARY))
    rows = np.random.default_rng(0).permutation(len(data.test))[:40]
    tokens = (data.test.targets[rows] != NO_TARGET).sum()
    size = sum(data.test.references[i] for i in rows)
    expected = report.loss[0] * tokens / math.log(2) / size
    assert report.metrics["bits_per_byte"][0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("partition_name", ["iid", "dirichlet"])
def test_a_saved_run_goes_on_as_it_would_have(partition_name):
    one = learner(partition_name=partition_name)
    one.train_round(outcome())
    other = learner(seed=7, partition_name=partition_name)
    other.set_state(one.get_state())
    for _ in range(3):
        assert other.train_round(outcome()).train_loss[0] == one.train_round(outcome()).train_loss[0]


@pytest.mark.parametrize(
    "damage",
    [
        lambda one, two: {"0": one, "1": np.concatenate([two, one[:1]])},
        lambda one, two: {"0": one, "1": two[1:]},
        lambda one, two: {"0": np.sort(np.concatenate([one, two])), "1": two[:0]},
        lambda one, two: {"0": one, "1": two.astype(float)},
        lambda one, _: {"0": one},
    ],
    ids=["twice", "missing", "empty", "type", "absent"],
)
def test_damaged_documents_are_refused(damage):
    found = learner()
    state, before = found.get_state(), found.get_state()["runs"]["0"]["partition"]
    state["runs"]["0"]["partition"] = {"2": before["2"], **damage(before["0"], before["1"])}
    with pytest.raises(StateError, match="partition"):
        found.set_state(state)
    after = found.get_state()["runs"]["0"]["partition"]
    assert all(np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.slow
def test_samples_continue_held_out_documents_and_change_nothing():
    found, silent = learner(), learner()
    for one in (found, silent):
        one.train_round(outcome())
    samples = found.written_samples(3)
    assert found.written_samples(3) == samples
    data = get_task("language-modelling").load(TaskSpec(found.training.architecture, VOCABULARY))
    texts = data.decode(list_of_documents(data.test.targets))
    assert len(samples) == 3
    for sample, place in zip(samples, (0, 50, 99), strict=True):
        assert set(sample) == {"prompt", "document", "greedy", "top_p"}
        assert texts[place].startswith(sample["prompt"] + sample["document"])
        assert sample["prompt"]
        assert sample["greedy"] != sample["top_p"]
    assert len(found.written_samples(1000)) == len(texts)
    assert found.train_round(outcome()).train_loss[0] == silent.train_round(outcome()).train_loss[0]


def test_other_tasks_write_nothing():
    found = new_learner()
    with pytest.raises(RuntimeError, match="call reset before written_samples"):
        found.written_samples(1)
    found.reset([np.random.default_rng(0)])
    with pytest.raises(ScenarioError, match="task 'classification' does not continue texts"):
        found.written_samples(1)
