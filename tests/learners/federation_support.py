"""Runs of the federation with any option, for the tests of its options."""

from dataclasses import replace

import numpy as np
from learner_support import BLOCKS, B, N, single_outcome, small_learner

from collapipe_env.physics.payload import UpdateFormat
from collapipe_env.physics.training_memory import FULL_PRECISION
from collapipe_env.training.federation import Federation

CUT = [(2, 2, 0), (1, 0, 3), (4, 0, 0)]


def make(
    local_steps=1,
    seed=11,
    update_format=None,
    dropout=0.0,
    memory=FULL_PRECISION,
    moment_bits=None,
    **learning,
):
    """A learner and its run, which may send its updates, and keep what it trains, in some format."""
    learner = small_learner(local_steps, **learning)
    learner._moment_bits = moment_bits
    setup = learner._prepared[0]
    setup = replace(
        setup,
        update_format=update_format or UpdateFormat(),
        architecture=replace(setup.architecture, dropout=dropout),
        schedule_steps=learning.get("schedule_steps", 100),
        memory=memory,
        moment_bits=moment_bits,
    )
    run = learner._runs[0] = Federation(setup, np.random.default_rng(seed))
    return learner, run


def alive(local_steps=1, clusters=(True,) * N):
    survived = np.ones((N, local_steps, B), dtype=bool)
    survived[np.flatnonzero(~np.array(clusters))] = False
    return survived


def train(learner, rounds=2, clusters=(True,) * N, server_blocks=None, mode=None):
    on_server = (0,) * N if server_blocks is None else server_blocks
    blocks = CUT if server_blocks is None else [(BLOCKS - count,) for count in on_server]
    for _ in range(rounds):
        report = learner.train_round(
            single_outcome(
                blocks, alive(learner._local_steps, clusters), server_blocks=server_blocks, mode=mode
            )
        )
    return report


def parts_of(run):
    """Places of the embedding and of every block."""
    model, flat = run._models[0], run._flats[0]
    return [flat.slices([part]) for part in (model.embedding, *model.blocks)]
