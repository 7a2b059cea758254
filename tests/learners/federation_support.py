"""Runs of the federation with any option, for the tests of its options."""

from dataclasses import replace

import numpy as np
from learner_support import BLOCKS, B, N, single_outcome, small_learner

from collapipe_env.physics.allocation import COMMON
from collapipe_env.physics.moves import STAY
from collapipe_env.physics.payload import UpdateFormat
from collapipe_env.physics.training_memory import FULL_PRECISION
from collapipe_env.training.federation import Federation
from collapipe_env.training.outcome_checks import TrainedRound

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
    setup, desk = learner._prepared
    setup = replace(
        setup,
        update_format=update_format or UpdateFormat(),
        task_spec=replace(setup.task_spec, architecture=replace(setup.architecture, dropout=dropout)),
        schedule_steps=learning.get("schedule_steps", 100),
        memory=memory,
        moment_bits=moment_bits,
    )
    learner._prepared = setup, desk
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
                blocks,
                alive(learner._prepared[0].local_steps, clusters),
                server_blocks=server_blocks,
                mode=mode,
            )
        )
    return report


def plan_of(run, blocks, survived, micro_batches=(2, 3, 1), on_server=0, mode=COMMON, staleness=None):
    """A round of a run on its own, without its learner's checks."""
    setup, clusters = run._setup, len(blocks)
    return TrainedRound(
        blocks=blocks,
        micro_batches=np.array(micro_batches),
        survived=survived,
        server_blocks=np.full(clusters, on_server),
        server_mode=np.array(mode),
        staleness=np.zeros_like(blocks) if staleness is None else staleness,
        moments=np.full((clusters, setup.architecture.blocks), STAY),
        recompute=np.full(clusters, setup.memory.recompute),
        local_steps=np.full(clusters, setup.local_steps),
    )


def parts_of(run):
    """Places of the embedding and of every block."""
    model, flat, _ = run.replicas[0]
    return [flat.slices([part]) for part in (model.embedding, *model.blocks)]
