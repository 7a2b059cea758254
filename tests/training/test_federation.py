"""Real training against plain loops: any mixture of servers, staleness, own steps and options.

Under split training V1 keeps a server-side copy per cluster, V2 one model that serves them in turn.
"""

from dataclasses import fields

import numpy as np
import pytest
from learner_support import BLOCKS, CUT, MICRO_BATCHES, B, N, SmallRun, outcome_of, small_learner
from oracles.plain_training import COMMON, COPIES, SEQUENTIAL, PlainTraining

from collapipe_env.simulator.learner import Arrivals, RoundOutcome

SGD = {"optimizer": "sgd"}
ALL = (BLOCKS,) * N
# Slots without blocks have gaps that must not be read.
LAGS = {"blocks": [(1, 0, 3), (0, 2, 2), (2, 1, 1)], "staleness": [(2, 9, 1), (7, 1, 0), (1, 3, 1)]}


def on(mode, *counts):
    """The server's side of a round: it runs so many blocks of each cluster."""
    cut = [(BLOCKS - count - BLOCKS // 4, BLOCKS // 4) if count < BLOCKS else (0, 0) for count in counts]
    return {"mode": mode, "server_blocks": counts, "blocks": cut}


V1, V2 = on(COPIES, 1, 0, 2), on(SEQUENTIAL, 2, 2, 2)
CHANGING = [on(SEQUENTIAL, 1, 1, 1), {}, on(COPIES, 1, 1, 0), V2]
OWN = [{"steps": steps} for steps in ([3, 1, 2], [0, 4, 1], [0, 0, 0], [1, 0, 1])]
LAGGING_BEHIND_A_SERVER = [
    {**on(mode, 2, 2, 2), "blocks": [(1, 1), (0, 2), (2, 0)], "staleness": [(2, 1), (0, 1), (1, 0)]}
    for mode in (COPIES, SEQUENTIAL)
]
CASES = {
    # Options, local steps, and rounds that are played one after another; None loses everything.
    "copies": ({}, 2, [{}, None, {}]),
    "copies, sgd": (SGD, 2, [{}, {}]),
    "one step": (SGD, 1, [{}, None, {}]),
    "one head": ({"head": "common"}, 3, [{}, None, {}]),
    "one head, sgd": ({"head": "common", **SGD}, 3, [{}, {}]),
    "v1": ({}, 2, [V1, V1]),
    "v1, sgd": (SGD, 2, [V1, V1]),
    "v2": ({}, 2, [V2, V2]),
    "v2, sgd": (SGD, 2, [V2, V2]),
    "v2, none or all": ({}, 2, [on(SEQUENTIAL, 0, 0, 0), on(SEQUENTIAL, *ALL), on(SEQUENTIAL, 0, 0, 0)]),
    "changing servers": ({}, 1, [*CHANGING, {}, V2]),
    "predicted": ({}, 4, [LAGS, LAGS]),
    "predicted, sgd": (SGD, 4, [LAGS, LAGS]),
    "predicted, momentum": ({**SGD, "momentum": 0.6}, 4, [LAGS, LAGS]),
    "predicted under a schedule": ({"schedule": "cosine", "schedule_steps": 9}, 4, [LAGS, LAGS]),
    "stale": ({"weight_prediction": False}, 4, [LAGS, LAGS]),
    "stale, sgd": ({**SGD, "weight_prediction": False}, 4, [LAGS, LAGS]),
    "a server never lags": ({}, 3, LAGGING_BEHIND_A_SERVER),
    "own steps": ({"most_local_steps": 4}, 1, OWN),
    "own steps, one head": ({**SGD, "most_local_steps": 4, "head": "common"}, 1, OWN),
    "momentum everywhere": ({**SGD, "momentum": 0.8}, 2, [V1, V2, {}]),
    "pulled back": ({**SGD, "proximal": 3.0}, 3, [{}, V1]),
    "pulled and clipped": ({**SGD, "proximal": 3.0, "gradient_clip": 0.2, "weight_decay": 0.5}, 3, [V2, {}]),
    "hardly clipped": ({**SGD, "gradient_clip": 1e6}, 1, [{}, {}]),
    "linear schedule": (
        {"schedule": "linear", "warmup_steps": 2, "schedule_steps": 7}, 2, [{}, None, V1, V2, {}]
    ),
    "own steps under a schedule": ({"most_local_steps": 4, "schedule": "inverse-sqrt"}, 1, OWN[1:]),
    "server momentum": ({"aggregation": "fedavgm"}, 2, [{}, V2, V1]),
    "fedadam": ({"aggregation": "fedadam"}, 2, [{}, None, {}]),
    "fedyogi": ({"aggregation": "fedyogi", "aggregation_rate": 0.1}, 1, [V2, {}, {}]),
    "smoothed targets": ({"label_smoothing": 0.2, "partition": "quantity"}, 1, [{}, {}]),
}  # fmt: skip


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", CASES)
def test_training_equals_plain_loops(name):
    """Some micro-batches are lost in every round."""
    options, local_steps, rounds = CASES[name]
    run, plain = SmallRun(local_steps, **options), PlainTraining(SmallRun(local_steps, **options))
    for t, played in enumerate(rounds):
        chance = 0.0 if played is None else 0.6
        survived = np.random.default_rng(t).random((N, run.setup.most_local_steps, B)) < chance
        played = {"blocks": CUT, "micro_batches": MICRO_BATCHES, **(played or {})}
        plain.assert_equals(run, run.train(survived=survived, **played), plain.round(survived, **played))
    assert run.federation.rounds == len(rounds)


def test_environments_of_a_batch_may_differ_in_mode():
    """Row by row the same as alone, the common server written out as -1 or not at all."""
    rows = [(COMMON, 0), (SEQUENTIAL, 2), (COPIES, 1)]
    outcomes = [
        outcome_of([(BLOCKS - count,)] * N, server_blocks=(count,) * N, mode=mode, local_steps=2)
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
    batch = small_learner(2, seeds=(11,) * len(rows))
    report = [batch.train_round(joined) for _ in range(2)][-1]
    outcomes[0] = outcome_of([(BLOCKS,)] * N, local_steps=2)
    for e, outcome in enumerate(outcomes):
        alone = small_learner(2)
        assert report.train_loss[e] == [alone.train_round(outcome) for _ in range(2)][-1].train_loss[0]
