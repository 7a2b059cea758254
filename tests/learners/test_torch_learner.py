"""The real learner: masked resets, what a scenario hands on, samples, and refusals."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from learner_support import BLOCKS, B, N, new_learner, single_outcome, small_learner

from collapipe_env.ground.errors import AllocationError
from collapipe_env.models.architecture import Architecture
from collapipe_env.models.tokenization import PADDING, UNKNOWN
from collapipe_env.physics.payload import UpdateFormat
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.learner import Arrivals, RoundOutcome
from collapipe_env.training.cluster_samples import SampleStream
from collapipe_env.training.real_learner import TorchLearner

H = 2


def outcome(num_envs=1):
    """A round in which all micro-batches arrive."""
    one = single_outcome([(1, 0, 3)] * N, np.ones((N, H, B), dtype=bool))
    blocks, micro_batches, survived, survival = (
        np.repeat(values, num_envs, axis=0)
        for values in (one.blocks, one.micro_batches, one.arrivals.survived, one.survival)
    )
    return RoundOutcome(blocks, micro_batches, Arrivals.of(survived, micro_batches), survival)


def rngs(*seeds):
    return [np.random.default_rng(seed) for seed in seeds]


def losses(report):
    return np.stack((report.loss, report.metric, report.train_loss))


def test_masked_reset_leaves_the_others_alone():
    subject, reference = (small_learner(H, seeds=(1, 2), evaluate_every=2) for _ in range(2))
    for each in (subject, reference):
        each.train_round(outcome(2))
    report = subject.reset(rngs(3, 99), np.array([True, False]))
    assert np.isnan(report.train_loss[0])
    assert np.isfinite(report.train_loss[1])
    np.testing.assert_array_equal(
        losses(subject.train_round(outcome(2)))[:, 1], losses(reference.train_round(outcome(2)))[:, 1]
    )
    np.testing.assert_array_equal(new_learner(H).reset(rngs(3)).loss[0], report.loss[0])


def test_outcomes_are_checked():
    """All rules are in the tests of the checks."""
    with pytest.raises(AllocationError, match="must be non-negative and sum to 4"):
        small_learner(H).train_round(replace(outcome(), blocks=np.full((1, N, 2), 3)))


def test_misuse_is_refused():
    with pytest.raises(RuntimeError, match="call reset"):
        new_learner(H).train_round(outcome())
    with pytest.raises(ValueError, match="2 generators for 1 environments"):
        new_learner().reset(rngs(0, 1))


def scenario(proxy=None, **changes):
    defaults = {
        "workload.blocks": BLOCKS, "workload.width": 12, "workload.feedforward": 20, "workload.heads": 3,
        "workload.sequence_length": 9, "workload.vocabulary": 200, "workload.batch_size": B,
        "workload.local_steps": H, "cluster.clusters": N, "learning.evaluation_samples": 20,
        "learning.proxy": proxy,
    }  # fmt: skip
    return load_scenario("small").with_overrides({**defaults, **changes})


def test_from_scenario_trains_the_proxy_or_the_priced_architecture():
    proxy = {"width": 8, "feedforward": 10, "heads": 2, "sequence_length": 7, "vocabulary": 150}
    trained = TorchLearner.from_scenario(scenario(proxy), 2).training.architecture
    assert trained == Architecture(BLOCKS, 8, 10, 2, 7, 150, "bert", learned_positions=7, token_types=2)
    as_priced = TorchLearner.from_scenario(scenario({**proxy, "style": None}), 2).training.architecture
    assert as_priced == Architecture(BLOCKS, 8, 10, 2, 7, 150)
    priced = TorchLearner.from_scenario(scenario(), 1)
    assert priced.training.architecture == Architecture(BLOCKS, 12, 20, 3, 9, 200)
    priced.reset(rngs(0))
    assert np.isfinite(priced.train_round(outcome()).train_loss[0])


def test_from_scenario_hands_the_update_format_the_head_and_the_schedule_on():
    changes = {
        "workload.weight_bits": 8, "workload.update_compression": "top-k", "workload.top_k_share": 0.25,
        "workload.head": "common", "dynamics.rounds": 17,
    }  # fmt: skip
    subject = TorchLearner.from_scenario(scenario(**changes), 1)
    subject.reset(rngs(0))
    setup = subject._runs[0]._setup
    assert setup.update_format == UpdateFormat(8, "top-k", 0.25)
    assert setup.schedule_steps == 17 * setup.local_steps == 34
    assert setup.head == "common"
    other = TorchLearner.from_scenario(scenario(**changes, **{"learning.schedule_steps": 9}), 1)
    other.reset(rngs(0))
    assert other._runs[0]._setup.schedule_steps == 9


def test_sample_stream_shows_every_sample_once_per_pass():
    indices = np.array([3, 5, 8, 9, 11])
    stream = SampleStream(indices, np.random.default_rng(0))
    taken = np.concatenate([stream.take(7), stream.take(2), stream.take(6)])
    for start in (0, 5, 10):
        np.testing.assert_array_equal(np.sort(taken[start : start + 5]), indices)


def test_token_dropout_hides_its_share_of_real_tokens_only():
    def batches(probability):
        run = small_learner(H, token_dropout=probability)._runs[0]
        return torch.cat([run.samples.next_batch(run._setup, run.streams[0])[0] for _ in range(40)])

    plain, hidden = batches(0.0), batches(0.4)
    real = plain != PADDING
    assert torch.equal(hidden == PADDING, ~real)
    changed = hidden != plain
    assert (hidden[changed] == UNKNOWN).all()
    assert float(changed[real].double().mean()) == pytest.approx(0.4, abs=0.04)
