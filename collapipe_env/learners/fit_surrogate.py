"""Fit the surrogate's constants to real runs of the torch learner; the command that made the shipped fit.

Run ``python -m collapipe_env.learners.fit_surrogate``. It trains the proxy of a scenario under a grid of
loss probabilities, cluster counts and local steps, fits :class:`SurrogateConstants` to the evaluation
losses by least squares on two thirds of the runs, reports the error on the rest, and writes the fit.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import tyro
from scipy.optimize import least_squares
from tqdm import tqdm

from collapipe_env.files import write_json
from collapipe_env.learners.base import RoundOutcome
from collapipe_env.learners.factory import make_learner
from collapipe_env.learners.surrogate import SurrogateConstants, SurrogateOutcome
from collapipe_env.scenario import Scenario, load_scenario

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class FitOptions:
    """Fit the surrogate learner's constants to real training runs."""

    scenario: Annotated[str, tyro.conf.arg(help="scenario whose learner is run")] = "medium"
    rounds: Annotated[int, tyro.conf.arg(help="rounds of each run")] = 100
    seeds: Annotated[int, tyro.conf.arg(help="runs for each condition")] = 2
    output: Annotated[Path, tyro.conf.arg(help="file to write; an existing one keeps its other tasks")] = (
        Path("surrogate_fits.json")
    )
    runs_file: Annotated[
        Path | None, tyro.conf.arg(help="keep the real runs' losses in this JSON file, or reuse those in it")
    ] = None


@dataclass(frozen=True)
class Run:
    """One real run under a fixed condition.

    Attributes:
        survival: Probability that a micro-batch arrives.
        clusters: ``N``.
        local_steps: ``H``.
        seed: Seed of the run.
        outcomes: Reduced outcomes, one a round.
        losses: Evaluation loss after each round, the untrained model's first (R + 1,) [nat].
        evaluated: Rounds after which the loss was really evaluated (R + 1,), bool.
    """

    survival: float
    clusters: int
    local_steps: int
    seed: int
    outcomes: Sequence[SurrogateOutcome]
    losses: FloatArray
    evaluated: npt.NDArray[np.bool_]


SURVIVAL = (1.0, 0.5, 0.15)
SHAPES = ((4, 1), (1, 1), (4, 2))
"""Pairs of clusters and local steps."""
MICRO_BATCHES = 8


def real_run(
    scenario: Scenario,
    survival: float,
    clusters: int,
    local_steps: int,
    seed: int,
    rounds: int,
    known_losses: list[float] | None = None,
) -> Run:
    """Train one model for real while micro-batches are lost at random.

    Args:
        scenario: Its learner is trained.
        survival: Probability that a micro-batch arrives.
        clusters: ``N``.
        local_steps: ``H``.
        seed: Of losses and training.
        rounds: Length of the run.
        known_losses: Losses of an earlier call with the same arguments (rounds + 1); then nothing is
            trained and only the outcomes are drawn again.
    """
    scenario = scenario.with_overrides(
        {
            "cluster.clusters": clusters,
            "workload.local_steps": local_steps,
            "learning.evaluate_every": 2,
        }
    )
    rng = np.random.default_rng(seed)
    (learner_rng,) = rng.spawn(1)
    learner = None if known_losses is not None else make_learner("torch", scenario, 1)
    losses = known_losses or []
    if learner is not None:
        losses = [float(learner.reset([learner_rng]).loss[0])]
    B, L, K = scenario.workload.batch_size, scenario.blocks, scenario.max_devices
    blocks = np.zeros((1, clusters, K), dtype=np.int64)
    blocks[..., 0] = L
    micro_batches = np.full((1, clusters), MICRO_BATCHES)
    outcomes = []
    for _ in range(rounds):
        outcome = RoundOutcome(
            blocks=blocks,
            micro_batches=micro_batches,
            survived=rng.random((1, clusters, local_steps, MICRO_BATCHES)) < survival,
            success=np.full((1, clusters), survival),
        )
        outcomes.append(SurrogateOutcome.of(outcome, B))
        if learner is not None:
            losses.append(float(learner.train_round(outcome).loss[0]))
    played = np.arange(rounds + 1)
    return Run(
        survival, clusters, local_steps, seed, outcomes, np.array(losses), (played % 2 == 0) | (played == 1)
    )


def real_runs(scenario: Scenario, options: FitOptions) -> list[Run]:
    """Every run of the grid, from the file of an earlier call where there is one."""
    kept: dict[str, list[float]] = {}
    if options.runs_file is not None and options.runs_file.exists():
        kept = json.loads(options.runs_file.read_text(encoding="utf-8"))
    runs = []
    grid = list(itertools.product(SURVIVAL, SHAPES, range(options.seeds)))
    for survival, (clusters, local_steps), seed in tqdm(grid, desc="real runs", unit="run"):
        key = f"{scenario.name}-{survival}-{clusters}-{local_steps}-{seed}-{options.rounds}"
        run = real_run(
            scenario, survival, clusters, local_steps, seed, options.rounds, known_losses=kept.get(key)
        )
        runs.append(run)
        kept[key] = run.losses.tolist()
        if options.runs_file is not None:
            write_json(options.runs_file, kept)
    return runs


def predicted_losses(constants: SurrogateConstants, run: Run) -> FloatArray:
    """The surrogate's loss curve under a run's outcomes (R + 1,) [nat]."""
    loss = np.array([constants.initial_loss])
    curve = [float(loss[0])]
    for played, outcome in enumerate(run.outcomes):
        loss = constants.next_loss(loss, np.array([float(played)]), outcome)
        curve.append(float(loss[0]))
    return np.array(curve)


def fit(runs: Sequence[Run]) -> SurrogateConstants:
    """Least-squares constants for a set of runs; all are non-negative."""
    lowest = float(min(run.losses.min() for run in runs))
    # The loss is not convex in the constants: a slow start and a low floor trade against a fast one and a
    # high floor, so the search begins at several places.
    starts = [
        SurrogateConstants(
            initial_loss=float(np.mean([run.losses[0] for run in runs])),
            floor_loss=floor * lowest,
            rate=rate,
            warmup=warmup,
            variance=1.0,
            drift=0.1,
            heterogeneity=0.001,
            error=0.01,
        )
        for floor, rate, warmup in ((0.9, 0.03, 10.0), (0.8, 0.03, 50.0), (0.5, 0.01, 100.0))
    ]
    return min((_descend(start, runs) for start in starts), key=lambda c: root_mean_square_error(c, runs))


def _descend(start: SurrogateConstants, runs: Sequence[Run]) -> SurrogateConstants:
    """Local least squares from one start."""
    names = [f.name for f in fields(SurrogateConstants) if f.name != "initial_loss"]
    low = dict.fromkeys(names, 0.0) | {"rate": 1e-4, "warmup": 1.0}
    high = dict.fromkeys(names, np.inf) | {"rate": 0.9, "warmup": 200.0, "heterogeneity": 1.0}

    def residuals(values: FloatArray) -> FloatArray:
        constants = replace(start, **dict(zip(names, values.tolist(), strict=True)))
        return np.concatenate(
            [(predicted_losses(constants, run) - run.losses)[run.evaluated] for run in runs]
        )

    solution = least_squares(
        residuals,
        [getattr(start, name) for name in names],
        bounds=([low[name] for name in names], [high[name] for name in names]),
        x_scale=[max(getattr(start, name), 1e-3) for name in names],
        max_nfev=200,
    )
    return replace(start, **dict(zip(names, np.asarray(solution.x).tolist(), strict=True)))


def root_mean_square_error(constants: SurrogateConstants, runs: Sequence[Run]) -> float:
    """Error of the surrogate's loss over all evaluations of the runs [nat]."""
    errors = [(predicted_losses(constants, run) - run.losses)[run.evaluated] for run in runs]
    return float(np.sqrt(np.mean(np.concatenate(errors) ** 2)))


def main(options: FitOptions) -> None:
    """Run the grid, fit, report and write."""
    import torch

    torch.set_num_threads(1)
    scenario = load_scenario(options.scenario)
    runs = real_runs(scenario, options)
    # The last seed of every condition is held out for the error that is reported.
    held_out = [run for run in runs if run.seed == options.seeds - 1 and options.seeds > 1]
    constants = fit([run for run in runs if run not in held_out])
    noise = _seed_noise(runs)
    entry = {
        "constants": asdict(constants),
        "rmse_fitted_nat": root_mean_square_error(constants, [r for r in runs if r not in held_out]),
        "rmse_held_out_nat": root_mean_square_error(constants, held_out or runs),
        "seed_noise_nat": noise,
        "runs": len(runs),
        "rounds": options.rounds,
        "scenario": scenario.name,
        "survival": SURVIVAL,
        "clusters_and_local_steps": SHAPES,
        "command": f"python -m collapipe_env.learners.fit_surrogate --scenario {options.scenario} "
        f"--rounds {options.rounds} --seeds {options.seeds}",
    }
    content = (
        json.loads(options.output.read_text(encoding="utf-8")) if options.output.exists() else {"fits": {}}
    )
    content["about"] = (
        "Constants of the surrogate learner (SurrogateConstants), fitted to runs of the torch learner's "
        "proxy by the command in each entry. seed_noise_nat is the root mean square difference between "
        "two seeds of the same condition over sqrt(2): no surrogate can be closer than that."
    )
    content["fits"][scenario.workload.task] = entry
    write_json(options.output, content)
    for name, value in entry.items():
        print(f"{name:26s} {value}")
    print(f"wrote {options.output}")


def _seed_noise(runs: Sequence[Run]) -> float:
    """Root mean square deviation between seeds of one condition, over sqrt(2) [nat]."""
    differences = [
        (a.losses - b.losses)[a.evaluated]
        for a, b in itertools.combinations(runs, 2)
        if (a.survival, a.clusters, a.local_steps) == (b.survival, b.clusters, b.local_steps)
    ]
    if not differences:
        return float("nan")
    return float(np.sqrt(np.mean(np.concatenate(differences) ** 2) / 2.0))


if __name__ == "__main__":
    main(tyro.cli(FitOptions))
