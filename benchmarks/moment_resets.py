"""Learning under lost moments: the real learner with a share of its blocks' moments reset before every round.

It measures the cost of ``migration.moments: reset`` in loss, and the part of a round's progress that this is;
the surrogate leaves resets out. Every share trains on the same batches; differences from no resets are paired
by seed. Run::

    python benchmarks/moment_resets.py
    python benchmarks/moment_resets.py --scenario medium --rounds 200 --seeds 5
"""

from __future__ import annotations

import sys
from typing import Annotated

import numpy as np
import torch
from measuring import BenchmarkOptions, command, store
from pydantic import Field
from tqdm import tqdm

from collapipe_env.evaluation.table import markdown_table
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.learners.factory import make_learner
from collapipe_env.physics.moves import LOST, STAY
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.simulator.learner import Arrivals, RoundOutcome

HEADS = ("share reset", "mean loss (nat)", "last loss (nat)", "mean above none", "progress lost")


class Options(BenchmarkOptions):
    """The real learner with a share of its blocks' moments reset before every round."""

    scenario: str = "small"
    """Scenario whose learner trains."""
    shares: tuple[Annotated[float, Field(ge=0.0, le=1.0)], ...] = (0.0, 0.1, 0.5, 1.0)
    """Shares of the blocks that are reset before a round, each 0 to 1; the first is the reference."""
    rounds: Annotated[int, Field(ge=1)] = 100
    """Rounds, at least 1."""
    seeds: Annotated[int, Field(ge=1)] = 3
    """Training runs of each share, at least 1."""


def train(scenario: Scenario, share: float, rounds: int, seed: int) -> FloatArray:
    """Losses on the evaluation part after every round (rounds,) [nat].

    Args:
        scenario: The scenario, with migration.
        share: Probability that a block's moments are reset before a round.
        rounds: Rounds to train.
        seed: Seed of initial weights, batches and resets.
    """
    work, N = scenario.workload, scenario.clusters
    learner = make_learner("real", scenario, 1)
    learner.reset([np.random.default_rng([seed, 0])])
    rng = np.random.default_rng([seed, 1])
    M, losses = np.ones((1, N), dtype=np.int64), np.empty(rounds)
    for t in range(rounds):
        lost = rng.random((1, N, work.blocks)) < share
        outcome = RoundOutcome(
            blocks=np.full((1, N, 1), work.blocks),
            micro_batches=M,
            arrivals=Arrivals.of(np.ones((1, N, work.local_steps, 1), dtype=np.bool_), M),
            survival=np.ones((1, N)),
            moments=np.where(lost, LOST, STAY),
        )
        losses[t] = learner.train_round(outcome).loss[0]
    return losses


def slowdown(without: FloatArray, losses: FloatArray) -> float:
    """Lost share of every round's progress that best explains a course of losses, by least squares.

    Args:
        without: Losses after every round without resets (rounds,) [nat].
        losses: Losses with resets (rounds,) [nat].
    """
    rounds = np.arange(1, len(without) + 1, dtype=np.float64)
    candidates = np.linspace(-0.5, 0.95, 146)
    courses = [np.interp((1.0 - lost) * rounds, rounds, without) for lost in candidates]
    return float(candidates[np.argmin([((course - losses) ** 2).sum() for course in courses])])


def compare(options: Options) -> None:
    """Train, print the table and store it."""
    torch.set_num_threads(1)
    scenario = load_scenario(options.scenario).with_overrides(
        {"dynamics.processes": {"migration": {"moments": "reset"}}, "learning.evaluate_every": 1}
    )
    runs = [(share, seed) for share in options.shares for seed in range(options.seeds)]
    trained = [train(scenario, share, options.rounds, seed) for share, seed in tqdm(runs, disable=None)]
    losses = np.array(trained).reshape(len(options.shares), options.seeds, options.rounds)
    rows = []
    for share, mine in zip(options.shares, losses, strict=True):
        gaps = (mine - losses[0]).mean(axis=1)
        error = gaps.std(ddof=1) / np.sqrt(len(gaps)) if len(gaps) > 1 else float("nan")
        rows.append(
            {
                "share": share,
                "mean_loss": float(mine.mean()),
                "last_loss": float(mine[:, -1].mean()),
                "more": float(gaps.mean()),
                "standard_error": float(error),
                "progress_lost": slowdown(losses[0].mean(axis=0), mine.mean(axis=0)),
            }
        )
    form = "{share:g}|{mean_loss:.4f}|{last_loss:.4f}|{more:+.4f} ± {standard_error:.4f}|{progress_lost:.0%}"
    print(f"{options.scenario}: {options.rounds} rounds, {options.seeds} seeds, paired differences\n")
    print(markdown_table(HEADS, [form.format(**row).split("|") for row in rows]))
    store(options, "learning with moments of moved blocks reset", rows=rows)


main = command(Options, compare, __doc__)

if __name__ == "__main__":
    sys.exit(main())
