"""SplitFed in real training: V1 keeps a server-side copy per cluster, V2 one model that serves in turn."""

from dataclasses import fields

import numpy as np
import pytest
import torch
from learner_support import BLOCKS, B, N, PlainTraining, single_outcome, small_learner
from variants_support import mostly_slow

from collapipe_env.learners import RoundOutcome
from collapipe_env.physics.allocation import COMMON, COPIES, SEQUENTIAL
from collapipe_env.simulator.learner import Arrivals

H = 2


def alive(probability=1.0, seed=0):
    return np.random.default_rng(seed).random((N, H, B)) < probability


def blocks_for(server_blocks):
    return [
        (BLOCKS - count - BLOCKS // 4, BLOCKS // 4) if count < BLOCKS else (0, 0) for count in server_blocks
    ]


def play(learner, plain, rounds):
    """Rounds of (mode, server blocks), with losses, checked after each."""
    for t, (mode, server_blocks) in enumerate(rounds):
        survived = alive(0.6, seed=t)
        learner.train_round(
            single_outcome(blocks_for(server_blocks), survived, server_blocks=server_blocks, mode=mode)
        )
        plain.round(survived, server_blocks=server_blocks, mode=mode)
        plain.assert_equals(learner)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("optimizer", mostly_slow(["adamw", "sgd"]))
@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param([(COPIES, (1, 0, 2))] * 3, id="v1"),
        pytest.param([(SEQUENTIAL, (2, 2, 2))] * 3, id="v2"),
        pytest.param([(SEQUENTIAL, (0, 0, 0)), (SEQUENTIAL, (BLOCKS,) * N)] * 2, id="v2, none or all"),
        pytest.param(
            [(SEQUENTIAL, (1,) * N), (COMMON, (0,) * N), (COPIES, (1, 1, 0)), (SEQUENTIAL, (2,) * N)] * 2,
            id="changing",
        ),
    ],
)
def test_training_equals_plain_loops(optimizer, rounds):
    options = {"optimizer": optimizer}
    play(small_learner(H, **options), PlainTraining(small_learner(H, **options)), rounds)


def train(mode, server_blocks=0, rounds=2, **learning):
    learner = small_learner(H, **learning)
    blocks = [(BLOCKS - server_blocks,)] * N
    for _ in range(rounds):
        counts = None if mode is None else (server_blocks,) * N
        report = learner.train_round(single_outcome(blocks, alive(), server_blocks=counts, mode=mode))
    return learner._runs[0], report


def test_copies_are_what_each_cluster_would_train_alone():
    """Plain SGD: the averaged head is the weighted mean of heads trained on one cluster's samples only."""
    options = {"optimizer": "sgd", "learning_rate": 0.3, "server_learning_rate": 0.3}
    alone = []
    for n in range(N):
        learner = small_learner(H, **options)
        survived = alive()
        survived[[k for k in range(N) if k != n]] = False
        learner.train_round(single_outcome([(BLOCKS,)] * N, survived))
        alone.append(learner._runs[0]._head.flat.values)
    run, _ = train(COPIES, server_blocks=1, rounds=1, **options)
    expected = sum(w * h for w, h in zip(run._data_sizes / run._data_sizes.sum(), alone, strict=True))
    torch.testing.assert_close(run._head.flat.values, expected, rtol=1e-5, atol=1e-7)


def test_where_the_cut_lies_does_not_matter_to_copies():
    runs = [train(COPIES, count)[0] for count in (0, 3)]
    assert torch.equal(runs[0]._parameters, runs[1]._parameters)
    assert torch.equal(runs[0]._head.flat.values, runs[1]._head.flat.values)


def test_explicit_common_server_is_the_default():
    (first, one), (second, two) = train(None), train(COMMON)
    np.testing.assert_array_equal(one.train_loss, two.train_loss)
    assert torch.equal(first._head.flat.values, second._head.flat.values)
    assert torch.equal(first._parameters, second._parameters)


def test_servers_differ_and_every_round_ends_with_one_model():
    heads = []
    for mode, count in ((COMMON, 0), (COPIES, 2), (SEQUENTIAL, 2), (SEQUENTIAL, 1)):
        run, report = train(mode, count, head="common")
        assert np.isfinite(report.train_loss).all()
        assert all(torch.equal(row, run._parameters[0]) for row in run._parameters)
        heads.append(run._head.flat.values)
    for i in range(len(heads)):
        for j in range(i):
            assert not torch.equal(heads[i], heads[j])


def test_environments_of_a_batch_may_differ_in_mode():
    """Row by row the same as alone, the common server written out as -1."""
    rows = [(COMMON, 0), (SEQUENTIAL, 2), (COPIES, 1)]
    outcomes = [
        single_outcome([(BLOCKS - count,)] * N, alive(), server_blocks=(count,) * N, mode=mode)
        for mode, count in rows
    ]
    joined = RoundOutcome(
        arrivals=Arrivals.of(
            np.concatenate([o.survived for o in outcomes]),
            np.concatenate([o.micro_batches for o in outcomes]),
        ),
        **{
            f.name: np.concatenate([getattr(o, f.name) for o in outcomes])
            for f in fields(RoundOutcome)
            if f.name != "arrivals" and getattr(outcomes[0], f.name) is not None
        },
    )
    batch = small_learner(H, seeds=(11,) * len(rows))
    report = [batch.train_round(joined) for _ in range(2)][-1]
    for e, (mode, count) in enumerate(rows):
        _, alone = train(mode, count)
        assert report.train_loss[e] == alone.train_loss[0]


def test_a_lost_round_moves_no_server():
    for mode in (COPIES, SEQUENTIAL):
        learner = small_learner(H)
        run = learner._runs[0]
        before = torch.cat([run._parameters.flatten(), run._head.flat.values])
        lost = single_outcome([(BLOCKS - 1,)] * N, alive(0.0), server_blocks=(1,) * N, mode=mode)
        learner.train_round(lost)
        assert torch.equal(torch.cat([run._parameters.flatten(), run._head.flat.values]), before)
