"""Real training against plain loops: heads for each cluster or one for all, and split training.

Under split training V1 keeps a server-side copy per cluster, V2 one model that serves them in turn.
"""

from dataclasses import fields

import numpy as np
import pytest
from learner_support import BLOCKS, B, N, PlainTraining, single_outcome, small_learner
from variants_support import mostly_slow

from collapipe_env.physics.allocation import COMMON, COPIES, SEQUENTIAL
from collapipe_env.simulator.learner import Arrivals, RoundOutcome

H = 2
NONE = (0,) * N
ROUNDS = {
    "common": [(COMMON, NONE)],
    "v1": [(COPIES, (1, 0, 2))],
    "v2": [(SEQUENTIAL, (2, 2, 2))],
    "v2, none or all": [(SEQUENTIAL, NONE), (SEQUENTIAL, (BLOCKS,) * N)],
    "changing": [(SEQUENTIAL, (1,) * N), (COMMON, NONE), (COPIES, (1, 1, 0)), (SEQUENTIAL, (2,) * N)],
}
CASES = [
    *[(name, H, "copies", optimizer) for name in ROUNDS for optimizer in ("adamw", "sgd")],
    *[("common", 1, "copies", "sgd"), ("common", 3, "common", "adamw"), ("common", 3, "common", "sgd")],
]


def blocks_for(server_blocks):
    return [
        (BLOCKS - count - BLOCKS // 4, BLOCKS // 4) if count < BLOCKS else (0, 0) for count in server_blocks
    ]


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("rounds", "local_steps", "head", "optimizer"), mostly_slow(CASES, [0, 2, 4, 6, 8, 10, 11])
)
def test_training_equals_plain_loops(rounds, local_steps, head, optimizer):
    """Some micro-batches are lost in every round, and in the last but one all are."""
    options = {"head": head, "optimizer": optimizer}
    learner = small_learner(local_steps, **options)
    plain = PlainTraining(small_learner(local_steps, **options))
    played = (ROUNDS[rounds] * 4)[: max(4, 2 * len(ROUNDS[rounds]))]
    for t, (mode, server_blocks) in enumerate(played):
        chance = 0.0 if t == len(played) - 2 else 0.6
        survived = np.random.default_rng(t).random((N, local_steps, B)) < chance
        served = {"server_blocks": server_blocks, "mode": mode}
        report = learner.train_round(single_outcome(blocks_for(server_blocks), survived, **served))
        plain.assert_equals(learner, report, plain.round(survived, **served))


def test_environments_of_a_batch_may_differ_in_mode():
    """Row by row the same as alone, the common server written out as -1 or not at all."""
    rows, everybody = [(COMMON, 0), (SEQUENTIAL, 2), (COPIES, 1)], np.ones((N, H, B), dtype=bool)
    outcomes = [
        single_outcome([(BLOCKS - count,)] * N, everybody, server_blocks=(count,) * N, mode=mode)
        for mode, count in rows
    ]
    joined = RoundOutcome(
        arrivals=Arrivals.of(
            np.concatenate([o.arrivals.survived for o in outcomes]),
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
    outcomes[0] = single_outcome([(BLOCKS,)] * N, everybody)
    for e, outcome in enumerate(outcomes):
        alone = small_learner(H)
        assert report.train_loss[e] == [alone.train_round(outcome) for _ in range(2)][-1].train_loss[0]
