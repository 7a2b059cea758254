"""Real training runs under the conditions of the fit, kept in a file as they finish."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.errors import DataError
from collapipe_env.ground.files import read_json, write_json
from collapipe_env.ground.version import __version__
from collapipe_env.learners.surrogate import factor_table, skew, step_factors
from collapipe_env.learners.surrogate_progress import SurrogateOutcome
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.learner import Arrivals, RoundOutcome
from fitting.conditions import Condition

EVALUATE_EVERY = 2
"""Rounds between the evaluations that the fit sees."""


@dataclass(frozen=True)
class Run:
    """One real run, reduced to the numbers that the surrogate needs.

    Attributes:
        condition: Its condition.
        seed: Its seed.
        outcome: All its rounds at once, along the axis of environments: arrived samples (R, N, H).
        factors: Share of the full step size in each local step of each round (R, H).
        skew: Skew of the partition, in [0, 1].
        losses: Evaluation losses [nat]: of the untrained model, then after every ``EVALUATE_EVERY``-th
            round (1 + R // EVALUATE_EVERY,).
    """

    condition: Condition
    seed: int
    outcome: SurrogateOutcome
    factors: FloatArray
    skew: float
    losses: FloatArray


@lru_cache(maxsize=256)
def prepared(scenario: Scenario, condition: Condition, rounds: int) -> Scenario:
    """The scenario as it is trained under a condition."""
    return scenario.with_overrides(
        {
            **condition.overrides(scenario),
            "learning.evaluate_every": EVALUATE_EVERY,
            "learning.evaluation": "inline",
            # Only losses are fitted, and writing translations takes longer than training.
            "learning.metric_every": rounds,
            "learning.metric_samples": 1,
        }
    )


def outcomes_of(scenario: Scenario, condition: Condition, seed: int, rounds: int) -> RoundOutcome:
    """Draw the rounds of a run in a :func:`prepared` scenario from its seed; first axis: rounds."""
    N, H = scenario.clusters, scenario.workload.local_steps
    M = condition.micro_batches_of(scenario.workload.batch_size)
    survival = condition.survival_table(N, rounds)
    # The second number keeps these draws apart from those of the training.
    rng = np.random.default_rng([seed, 1])
    blocks = np.zeros((rounds, N, scenario.max_devices), dtype=np.int64)
    blocks[..., 0] = scenario.blocks
    micro_batches = np.full((rounds, N), M)
    arrivals = Arrivals.of(rng.random((rounds, N, H, M)) < survival[:, :, None, None], micro_batches)
    plays = condition.players(N, rounds, rng)
    return RoundOutcome(
        blocks=blocks,
        micro_batches=micro_batches,
        arrivals=arrivals if plays is None else arrivals.only(plays),
        survival=survival,
        participates=plays,
    )


def run_of(scenario: Scenario, condition: Condition, seed: int, rounds: int, losses: Sequence[float]) -> Run:
    """A run with given losses; everything else follows from condition and seed.

    Raises:
        DataError: If there are not as many losses as evaluations.
    """
    if len(losses) != 1 + rounds // EVALUATE_EVERY or not np.isfinite(losses).all():
        raise DataError(
            f"run {condition}, seed {seed}: {len(losses)} losses, expected {1 + rounds // EVALUATE_EVERY} "
            "finite ones; delete it from the file of runs to make it again"
        )
    trained = prepared(scenario, condition, rounds)
    steps = trained.workload.local_steps
    return Run(
        condition=condition,
        seed=seed,
        outcome=SurrogateOutcome.of(
            outcomes_of(trained, condition, seed, rounds), trained.workload.batch_size
        ),
        factors=factor_table(step_factors(trained), rounds * steps).reshape(rounds, steps),
        skew=skew(trained.learning, trained.clusters),
        losses=np.asarray(losses, dtype=np.float64),
    )


def train(
    scenario: Scenario,
    condition: Condition,
    seed: int,
    rounds: int,
    on_round: Callable[[], object] = lambda: None,
) -> list[float]:
    """Train for real and return the evaluation losses, as in :class:`Run`."""
    from collapipe_env.learners.factory import make_learner

    trained = prepared(scenario, condition, rounds)
    learner = make_learner("real", trained, 1)
    played = outcomes_of(trained, condition, seed, rounds)
    losses = [float(learner.reset([np.random.default_rng([seed, 0])]).loss[0])]
    for t in range(rounds):
        one = slice(t, t + 1)
        report = learner.train_round(
            RoundOutcome(
                blocks=played.blocks[one],
                micro_batches=played.micro_batches[one],
                arrivals=Arrivals.of(played.arrivals.survived[one], played.micro_batches[one]),
                survival=played.survival[one],
                participates=None if played.participates is None else played.participates[one],
            )
        )
        if (t + 1) % EVALUATE_EVERY == 0:
            losses.append(float(report.loss[0]))
        on_round()
    return losses


class RunsFile:
    """File of the losses of finished runs, which are not trained again.

    A run's key is a digest of everything that determines it: the scenario's workload and learning section,
    the condition, the seed, the length and the package's version.
    """

    def __init__(self, path: Path) -> None:
        """Open a JSON file, which need not exist yet.

        Raises:
            DataError: If the file is damaged.
        """
        self._path = path
        self._runs: dict[str, Any] = {}
        if path.exists():
            runs = read_json(path, "delete it to make all runs again").get("runs")
            if not isinstance(runs, Mapping):
                raise DataError(f"{path} holds no runs; delete it to make all runs again")
            self._runs = dict(runs)

    def losses(self, key: str) -> list[float] | None:
        """The losses of a run; None if it has not finished yet.

        Raises:
            DataError: If its entry is damaged.
        """
        if key not in self._runs:
            return None
        try:
            return [float(loss) for loss in self._runs[key]["losses"]]
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{self._path}: run {key} is damaged ({error!r}); delete it from the file to make it again"
            ) from None

    def keep(self, key: str, condition: Condition, seed: int, losses: Sequence[float]) -> None:
        """Add a run and write the file."""
        self._runs[key] = {"condition": asdict(condition), "seed": seed, "losses": list(losses)}
        write_json(self._path, {"runs": self._runs}, "--runs-file")


def run_key(scenario: Scenario, condition: Condition, seed: int, rounds: int) -> str:
    """A digest of everything that a run's losses depend on."""
    trained = prepared(scenario, condition, rounds)
    digest = hashlib.sha256()
    kept = (trained.clusters, trained.workload, trained.learning)
    for part in (__version__, *kept, condition, seed, rounds):
        digest.update(repr(part).encode())
        digest.update(b"\0")
    return digest.hexdigest()[:24]
