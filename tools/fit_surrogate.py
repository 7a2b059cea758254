"""Fit the surrogate's constants to runs of the real learner, as the shipped fits were made.

Trains the scenario's proxy under many conditions: shares of micro-batches that arrive, equal and unequal over
the clusters, numbers of micro-batches, local steps, numbers of clusters and partitions of the data. Constants
are fitted to one part of the conditions and tested on the others, which the fit has never seen. Finished runs
are kept, so an interrupted call continues where it was. Run::

    python tools/fit_surrogate.py --scenario medium --task ner
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fitting.conditions import FITTED, FITTED_OPENED, HELD_OUT, HELD_OUT_OPENED, Condition
from fitting.least_squares import (
    agreement,
    before_overfitting,
    by_condition,
    fit,
    predicted_losses,
    ranking,
    ranking_of_times,
    seed_noise,
)
from fitting.matched_steps import APART, Matched, matched
from fitting.real_runs import EVALUATE_EVERY, Run, RunsFile, run_key, run_of, train
from fitting.shipped_runs import HeldOutRuns, held_out_file, write_held_out
from generated_parts import markdown_table
from pydantic import BaseModel, Field

from collapipe_env.ground.errors import DataError
from collapipe_env.ground.files import read_json, write_json
from collapipe_env.ground.progress import progress_bar
from collapipe_env.learners.surrogate_fits import SurrogateConstants
from collapipe_env.scenario import Scenario, load_scenario

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from measuring import command

ABOUT = (
    "Constants of the surrogate learner (SurrogateConstants), fitted to runs of the torch learner's proxy by "
    "the command in each entry. Errors are root mean squares over all evaluations [nat]: of single runs "
    "under the conditions of the fit and under the held-out ones, and of each condition's mean over seeds. "
    "The seed noise is that between two seeds of a condition over sqrt(2): about as closely single runs can "
    "be followed. Ranks: Spearman's correlation of real and predicted last losses, and of rounds to a "
    "target, over held-out conditions. Where a loss rises again by more than a tenth of its fall, runs count "
    "until their lowest loss (overfitted_conditions). By seed: constants from pairs of runs that differ in "
    "one thing alone, from each seed. The held-out runs stand in surrogate_runs.json. An entry that says "
    "stale is of runs with other settings than the defaults of today; a fit made anew does not say it."
)


class Options(BaseModel):
    """Fit the surrogate learner's constants to real training runs."""

    scenario: str = "medium"
    """Scenario whose learner is run: a shipped one or a YAML file."""
    task: str | None = None
    """Task to train; the scenario's own by default."""
    rounds: Annotated[int, Field(ge=10)] = 100
    """Rounds of each run, at least 10."""
    seeds: Annotated[int, Field(ge=1)] = 2
    """Runs under each condition, at least 1."""
    opened: bool = False
    """Also run up to 16 local steps, and rounds that clusters sit out, for scenarios that open these."""
    most_local_steps: Annotated[int, Field(ge=1, le=16)] = 16
    """Leave out conditions with more local steps, 1 to 16: those take the longest."""
    output: Path = Path("surrogate_fits.json")
    """File to write; an existing one keeps its other fits. The held-out runs are written beside it."""
    runs_file: Path | None = None
    """File that keeps finished runs; surrogate_runs-<scenario>-<task>.json in this folder by default."""


def conditions_of(
    scenario: Scenario, listed: Sequence[Condition], besides: Sequence[Condition] = ()
) -> list[Condition]:
    """The listed conditions that differ in this scenario, from each other and from those in use.

    With a single cluster, for instance, half of the clusters and all clusters are the same.
    """

    def footprint(condition: Condition) -> tuple[object, ...]:
        N, B, H = condition.clusters(scenario), scenario.workload.batch_size, condition.local_steps
        partition = "iid" if N == 1 else condition.partition
        head = condition.head if H > 1 else "common"
        playing, survival = max(1, round(N * condition.taking_part)), condition.survival_table(N, 2)
        return N, H, head, playing, condition.micro_batches_of(B), partition, survival.tobytes()

    found: dict[tuple[object, ...], Condition] = {}
    for condition in (*besides, *listed):
        found.setdefault(footprint(condition), condition)
    return list(found.values())[len(set(map(footprint, besides))) :]


def real_runs(
    scenario: Scenario, conditions: Sequence[Condition], options: Options, runs_file: Path
) -> list[Run]:
    """All runs, finished ones from the file, with a progress bar over rounds."""
    kept = RunsFile(runs_file)
    # Seed by seed, so that an interrupted call has runs of every condition.
    wanted = [(condition, seed) for seed in range(options.seeds) for condition in conditions]
    keys = [run_key(scenario, condition, seed, options.rounds) for condition, seed in wanted]
    done = sum(kept.losses(key) is not None for key in keys)
    runs = []
    title = f"{scenario.name} {scenario.workload.task}"
    total = len(wanted) * options.rounds
    with progress_bar(total, title, "rounds", initial=done * options.rounds) as bar:
        for key, (condition, seed) in zip(keys, wanted, strict=True):
            losses = kept.losses(key)
            if losses is None:
                bar.set_postfix_str(f"{condition}, seed {seed}")
                losses = train(scenario, condition, seed, options.rounds, lambda: bar.update(1))
                kept.keep(key, condition, seed, losses)
            runs.append(run_of(scenario, condition, seed, options.rounds, losses))
    return runs


def fit_all(runs: Sequence[Run]) -> tuple[SurrogateConstants, list[Matched]]:
    """The constants, and those of :data:`APART`, which come from pairs of runs where there are such pairs."""
    constants, found = fit(runs), []
    for name in APART:
        one = matched(constants, runs, name)
        if one is not None:
            found.append(one)
            constants = fit(runs, {each.name: each.value for each in found})
    return constants, found


def entry_of(
    options: Options,
    scenario: Scenario,
    constants: SurrogateConstants,
    fitted: list[Run],
    held_out: list[Run],
    pairs: Sequence[Matched],
) -> dict[str, Any]:
    """The stored entry of a fit."""
    inside, outside = agreement(constants, fitted), agreement(constants, held_out)
    return {
        "task": scenario.workload.task,
        "blocks": scenario.blocks,
        "clusters": scenario.clusters,
        "constants": asdict(constants),
        "rmse_fitted_nat": inside.rmse,
        "rmse_held_out_nat": outside.rmse,
        "rmse_held_out_means_nat": outside.mean_rmse,
        "seed_noise_fitted_nat": seed_noise(fitted),
        "seed_noise_held_out_nat": seed_noise(held_out),
        "r2_fitted": inside.r2,
        "r2_held_out": outside.r2,
        "ranks_held_out": ranking(constants, held_out),
        "ranks_of_times_held_out": ranking_of_times(constants, held_out),
        "by_seed": {one.name: list(one.by_seed) for one in pairs},
        "overfitted_conditions": _cut(options, [*fitted, *held_out]),
        "fitted_conditions": len(by_condition(fitted)),
        "held_out_conditions": len(by_condition(held_out)),
        "seeds": options.seeds,
        "rounds": options.rounds,
        "command": f"python tools/fit_surrogate.py --scenario {options.scenario} "
        f"--task {scenario.workload.task} --rounds {options.rounds} --seeds {options.seeds}"
        + (" --opened" if options.opened else "")
        + (f" --most-local-steps {options.most_local_steps}" if options.most_local_steps < 16 else ""),
    }


def _cut(options: Options, runs: Sequence[Run]) -> int:
    """The number of conditions whose runs were cut at overfitting."""
    whole = 1 + options.rounds // EVALUATE_EVERY
    return sum(len(group[0].losses) < whole for group in by_condition(runs).values())


def table(constants: SurrogateConstants, fitted: Sequence[Run], held_out: Sequence[Run]) -> str:
    """Final losses and errors under every condition."""
    rows = []
    for name, runs in (("fitted", fitted), ("held out", held_out)):
        for condition, group in by_condition(runs).items():
            # A single evaluation is noisy, so the mean of the last fifth stands for the end.
            last = -(-len(group[0].losses) // 5)
            real = np.mean([run.losses[-last:] for run in group])
            predicted = np.mean([predicted_losses(constants, run)[-last:] for run in group])
            error = agreement(constants, group).mean_rmse
            rows.append((name, condition, f"{real:.4f}", f"{predicted:.4f}", f"{error:.4f}"))
    heads = ("", "condition", "real final loss (nat)", "surrogate", "RMSE of mean")
    return markdown_table(heads, rows, left=2)


def stored_fits(path: Path) -> dict[str, Any]:
    """The entries of a file of fits; none if there is no file yet.

    Raises:
        DataError: If the file is damaged.
    """
    if not path.exists():
        return {}
    fits = read_json(path, "delete it, or choose another --output").get("fits", {})
    if not isinstance(fits, dict):
        raise DataError(f"--output: {path} holds no fits; choose another file")
    return fits


def run(options: Options) -> None:
    """Make the runs, fit, report and write."""
    import torch

    # Small models train fastest in one thread, and losses then do not depend on the number of cores.
    torch.set_num_threads(1)
    base = load_scenario(options.scenario)
    task = options.task or base.workload.task
    scenario = base.with_task(task)
    key = f"{base.name}/{task}"
    stored_fits(options.output)  # a file that cannot be used is refused now, not after hours

    runs_file = options.runs_file or Path(f"surrogate_runs-{base.name}-{task}.json")
    more, more_held_out = (FITTED_OPENED, HELD_OUT_OPENED) if options.opened else ((), ())
    known, unseen = (
        [condition for condition in listed if condition.local_steps <= options.most_local_steps]
        for listed in ((*FITTED, *more), (*HELD_OUT, *more_held_out))
    )
    training = conditions_of(scenario, known)
    testing = conditions_of(scenario, unseen, training)
    runs = real_runs(scenario, [*training, *testing], options, runs_file)
    whole = [run for run in runs if run.condition in testing]
    fitted = before_overfitting([run for run in runs if run.condition in training])
    held_out = before_overfitting(whole)

    constants, pairs = fit_all(fitted)
    entry = entry_of(options, scenario, constants, fitted, held_out, pairs)
    # Read only now: another fit may have been written meanwhile.
    fits = {**stored_fits(options.output), key: entry}
    write_json(options.output, {"about": ABOUT, "fits": dict(sorted(fits.items()))}, "--output")
    beside = held_out_file(options.output)
    write_held_out(beside, key, HeldOutRuns(options.scenario, task, options.rounds, whole))
    print(table(constants, fitted, held_out))
    for one in pairs:
        print(one)
    print(f"wrote {options.output} and {beside}")


main = command(Options, run, __doc__)

if __name__ == "__main__":
    sys.exit(main())
