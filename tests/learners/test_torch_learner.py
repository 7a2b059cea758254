"""The real learner: federation, seeds, evaluation and refusals."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from collapipe_env.ground.errors import AllocationError, DataError, ScenarioError
from collapipe_env.learners import RoundOutcome, TorchLearner
from collapipe_env.models.architecture import Architecture
from collapipe_env.models.tokenization import PADDING, UNKNOWN
from collapipe_env.physics.payload import UpdateFormat
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.learning import LearningSpec
from collapipe_env.simulator.learner import Arrivals
from collapipe_env.training.sample_stream import SampleStream

ARCHITECTURE = Architecture(3, 8, 16, 2, 12, 300)
N, B, H = 3, 8, 2


def learner(num_envs=1, local_steps=H, **learning):
    defaults = {
        "evaluation_samples": 40, "evaluate_every": 2, "partition": "dirichlet", "warmup_steps": 0,
    }  # fmt: skip
    return TorchLearner(
        ARCHITECTURE,
        task="classification",
        outputs=2,
        decoder_blocks=0,
        learning=LearningSpec(**{**defaults, **learning}),
        clusters=N,
        batch_size=B,
        local_steps=local_steps,
        num_envs=num_envs,
    )


def outcome(num_envs=1, local_steps=H, micro_batches=(2, 3, 8), blocks=(1, 0, 2), survived=True):
    alive = np.zeros((num_envs, N, local_steps, B), dtype=bool)
    alive[...] = survived
    counts = np.tile(np.array(micro_batches), (num_envs, 1))
    return RoundOutcome(
        np.tile(np.array(blocks), (num_envs, N, 1)),
        counts,
        Arrivals.of(alive, counts),
        np.ones((num_envs, N)),
    )


def rngs(*seeds):
    return [np.random.default_rng(seed) for seed in seeds]


def losses(report):
    return np.stack((report.loss, report.metric, report.train_loss))


def parameters(run):
    return run._parameters.clone()


def test_same_seed_same_bits_and_other_seed_differs():
    def history(seed):
        subject = learner()
        subject.reset(rngs(seed))
        return [losses(subject.train_round(outcome())) for _ in range(3)]

    np.testing.assert_array_equal(history(5), history(5))
    assert not np.array_equal(history(5), history(6))


def test_batch_row_equals_single_environment():
    batch, single = learner(2), learner(1)
    batch.reset(rngs(5, 6))
    single.reset(rngs(6))
    for _ in range(2):
        both, one = losses(batch.train_round(outcome(2))), losses(single.train_round(outcome(1)))
        np.testing.assert_array_equal(both[:, 1:], one)


def test_masked_reset_leaves_the_others_alone():
    subject, reference = learner(2), learner(2)
    subject.reset(rngs(1, 2))
    reference.reset(rngs(1, 2))
    for each in (subject, reference):
        each.train_round(outcome(2))
    report = subject.reset(rngs(3, 99), np.array([True, False]))
    assert np.isnan(report.train_loss[0])
    assert np.isfinite(report.train_loss[1])
    np.testing.assert_array_equal(
        losses(subject.train_round(outcome(2)))[:, 1], losses(reference.train_round(outcome(2)))[:, 1]
    )
    fresh = learner(1)
    np.testing.assert_array_equal(fresh.reset(rngs(3)).loss[0], report.loss[0])


def test_global_torch_randomness_is_neither_read_nor_written():
    torch.manual_seed(0)
    state = torch.get_rng_state()
    subject = learner()
    first = subject.reset(rngs(4)).loss
    subject.train_round(outcome())
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(123)
    np.testing.assert_array_equal(learner().reset(rngs(4)).loss, first)


def test_cut_and_micro_batches_hardly_change_training():
    reports = []
    for blocks, micro_batches in (((3, 0, 0), (1, 1, 1)), ((1, 1, 1), (8, 5, 3))):
        subject = learner(optimizer="sgd", learning_rate=0.1)
        subject.reset(rngs(0))
        for _ in range(2):
            report = subject.train_round(outcome(blocks=blocks, micro_batches=micro_batches))
        reports.append(report)
    np.testing.assert_allclose(reports[0].train_loss, reports[1].train_loss, rtol=1e-5)
    np.testing.assert_allclose(reports[0].loss, reports[1].loss, rtol=1e-5)


def test_lost_round_changes_nothing_but_uses_the_batch_up():
    subject = learner()
    subject.reset(rngs(0))
    run = subject._runs[0]
    before, head = parameters(run), run._head.flat.values.clone()
    report = subject.train_round(outcome(survived=False))
    assert np.isnan(report.train_loss[0])
    assert torch.equal(parameters(run), before)
    assert torch.equal(run._head.flat.values, head)

    lossless = learner()
    lossless.reset(rngs(0))
    lossless.train_round(outcome())
    for mine, other in zip(run._streams, lossless._runs[0]._streams, strict=True):
        np.testing.assert_array_equal(mine.take(5), other.take(5))


def test_average_is_weighted_by_data_over_the_clusters_that_updated():
    """Plain SGD from a common start: the new model is the start minus the weighted mean of the updates."""
    moved = []
    for alive in ([True, False, False], [False, True, False], [True, True, False]):
        subject = learner(local_steps=1, optimizer="sgd", learning_rate=0.5, weight_decay=0.0)
        subject.reset(rngs(8))
        run = subject._runs[0]
        before = parameters(run)[0]
        subject.train_round(outcome(local_steps=1, survived=np.array(alive)[None, :, None, None]))
        after = parameters(run)
        assert all(torch.equal(row, after[0]) for row in after)
        moved.append(after[0] - before)
    share = run._data_sizes
    assert share.sum() == len(run._setup.strata)
    expected = (share[0] * moved[0] + share[1] * moved[1]) / (share[0] + share[1])
    assert share[0] != share[1]
    assert float(moved[0].norm()) > 0
    torch.testing.assert_close(moved[2], expected.float(), rtol=1e-4, atol=1e-6)


def test_head_moves_by_the_mean_gradient_over_all_samples_that_arrived():
    """Two clusters with different numbers of surviving samples, against their separate head gradients."""
    cases = {"first": (8, 0), "second": (0, 2), "both": (8, 2)}  # surviving micro-batches of one sample each
    moved = {}
    for name, counts in cases.items():
        alive = np.zeros((1, N, 1, B), dtype=bool)
        for n, count in enumerate(counts):
            alive[0, n, 0, :count] = True
        subject = learner(local_steps=1, optimizer="sgd", server_learning_rate=1.0, weight_decay=0.0)
        subject.reset(rngs(2))
        head = subject._runs[0]._head.flat.values
        before = head.clone()
        subject.train_round(outcome(local_steps=1, micro_batches=(8, 8, 8), survived=alive))
        moved[name] = head - before
    torch.testing.assert_close(
        moved["both"], (8 * moved["first"] + 2 * moved["second"]) / 10, rtol=1e-4, atol=1e-6
    )

    subject.reset(rngs(2))
    run = subject._runs[0]
    tokens, targets, _ = run._next_batch(run._streams[0])
    run._setup.task.loss(run._head.module(run._models[0](tokens), tokens != PADDING), targets).backward()
    torch.testing.assert_close(moved["first"], -run._head.flat.gradients, rtol=1e-4, atol=1e-6)


def test_local_optimisers_keep_their_state_over_rounds():
    subject = learner(local_steps=1)
    subject.reset(rngs(0))
    for _ in range(3):
        subject.train_round(
            outcome(local_steps=1, survived=np.array([True, True, False])[None, :, None, None])
        )
    steps = [
        [int(state["step"]) for state in optimizer.state_dict()["state"].values()]
        for optimizer in subject._runs[0]._optimizers
    ]
    assert steps == [[3, 3], [3, 3], []]


def test_evaluation_after_the_first_and_every_kth_round():
    subject = learner(evaluate_every=3, learning_rate=0.01)
    seen = [subject.reset(rngs(0)).loss[0]]
    seen += [subject.train_round(outcome()).loss[0] for _ in range(6)]
    changed = [i for i in range(1, 7) if seen[i] != seen[i - 1]]
    assert changed == [1, 3, 6]


def test_it_learns_the_training_data():
    subject = learner(
        learning_rate=0.01, server_learning_rate=0.01, token_dropout=0.0, evaluate_every=1000, partition="iid"
    )
    subject.reset(rngs(0))
    trained = [subject.train_round(outcome()).train_loss[0] for _ in range(120)]
    assert np.mean(trained[-20:]) < np.mean(trained[:20]) - 0.04


def test_outcomes_are_checked():
    """All rules are in the tests of the checks."""
    subject = learner()
    subject.reset(rngs(0))
    with pytest.raises(AllocationError, match="must be non-negative and sum to 3"):
        subject.train_round(replace(outcome(), blocks=np.full((1, N, 2), 2)))


def test_misuse_is_refused():
    with pytest.raises(RuntimeError, match="call reset"):
        learner().train_round(outcome())
    with pytest.raises(ValueError, match="2 generators for 1 environments"):
        learner().reset(rngs(0, 1))


def scenario(proxy=None, **changes):
    defaults = {
        "workload.blocks": 3, "workload.width": 12, "workload.feedforward": 20, "workload.heads": 3,
        "workload.sequence_length": 9, "workload.vocabulary": 200, "workload.batch_size": B,
        "workload.local_steps": H, "cluster.clusters": N, "learning.evaluation_samples": 20,
        "learning.proxy": proxy,
    }  # fmt: skip
    return load_scenario("small").with_overrides({**defaults, **changes})


def test_from_scenario_trains_the_proxy_or_the_priced_architecture():
    proxy = {"width": 8, "feedforward": 10, "heads": 2, "sequence_length": 7, "vocabulary": 150}
    trained = TorchLearner.from_scenario(scenario(proxy), 2).architecture
    assert trained == Architecture(3, 8, 10, 2, 7, 150, "bert", learned_positions=7, token_types=2)
    as_priced = TorchLearner.from_scenario(scenario({**proxy, "style": None}), 2).architecture
    assert as_priced == Architecture(3, 8, 10, 2, 7, 150)
    priced = TorchLearner.from_scenario(scenario(), 1)
    assert priced.architecture == Architecture(3, 12, 20, 3, 9, 200)
    priced.reset(rngs(0))
    assert np.isfinite(priced.train_round(outcome()).train_loss[0])


def test_from_scenario_hands_the_update_format_and_the_schedule_on():
    changes = {
        "workload.weight_bits": 8, "workload.update_compression": "top-k", "workload.top_k_share": 0.25,
        "dynamics.rounds": 17,
    }  # fmt: skip
    subject = TorchLearner.from_scenario(scenario(**changes), 1)
    subject.reset(rngs(0))
    setup = subject._runs[0]._setup
    assert setup.update_format == UpdateFormat(8, "top-k", 0.25)
    assert setup.schedule_steps == 17 * setup.local_steps == 34
    other = TorchLearner.from_scenario(scenario(**changes, **{"learning.schedule_steps": 9}), 1)
    other.reset(rngs(0))
    assert other._runs[0]._setup.schedule_steps == 9


def test_unfit_workloads_are_refused():
    with pytest.raises(ScenarioError, match=r"decoder_blocks is 2.*set decoder_blocks: 0"):
        learner_of("classification", decoder_blocks=2).reset(rngs(0))
    with pytest.raises(DataError, match=r"2 classes .* set outputs: 2"):
        learner_of("classification", outputs=3).reset(rngs(0))
    with pytest.raises(ScenarioError, match="did you mean 'classification'"):
        learner_of("clasification")


def learner_of(task, outputs=2, decoder_blocks=0):
    return TorchLearner(
        ARCHITECTURE, task=task, outputs=outputs, decoder_blocks=decoder_blocks, learning=LearningSpec(),
        clusters=N, batch_size=B, local_steps=H, num_envs=1,
    )  # fmt: skip


def test_sample_stream_shows_every_sample_once_per_pass():
    indices = np.array([3, 5, 8, 9, 11])
    stream = SampleStream(indices, np.random.default_rng(0))
    taken = np.concatenate([stream.take(7), stream.take(2), stream.take(6)])
    for start in (0, 5, 10):
        np.testing.assert_array_equal(np.sort(taken[start : start + 5]), indices)


def test_token_dropout_hides_its_share_of_real_tokens_only():
    def batches(probability):
        subject = learner(token_dropout=probability)
        subject.reset(rngs(0))
        run = subject._runs[0]
        return torch.cat([run._next_batch(run._streams[0])[0] for _ in range(40)])

    plain, hidden = batches(0.0), batches(0.4)
    real = plain != PADDING
    assert torch.equal(hidden == PADDING, ~real)
    changed = hidden != plain
    assert (hidden[changed] == UNKNOWN).all()
    assert float(changed[real].double().mean()) == pytest.approx(0.4, abs=0.04)


def test_importing_learners_does_not_import_torch():
    code = "import sys, collapipe_env.learners, collapipe_env.tasks; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
