"""Trainings of PPO and RecurrentPPO where knowledge is uncertain, beside schedulers.

``docs/learned_agents.md`` names the commands of the trainings, whose folders must lie below ``work`` of the
entry. PPO of Stable-Baselines3 as it comes is trained where it is missing, once for each scenario.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sb3_contrib import RecurrentPPO
from stable_baselines3 import PPO

# The modules of these folders import each other as they would in their own process.
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from generated_parts import markdown_table
from recurrent_ppo import ClusterMemory

from collapipe_env import PolicyScheduler, evaluate
from collapipe_env.envs.sb3 import make_sb3_vec_env
from collapipe_env.evaluation.statistics import Results, Summary, summarise_all
from collapipe_env.ground.errors import DataError
from collapipe_env.scenario import load_scenario
from studies.held_out import Estimated

PAGE = "docs/learned_agents.md"
REFERENCE = "dssra-plus"
TITLES = {
    "random": "random",
    "pipeline": "even split",
    "dssra": "DSSRA",
    REFERENCE: "DSSRA+",
    "zoo:graph-wild": "graph net, `zoo:graph-wild`",
    "plain": "PPO as it comes",
    "agent": "PPO, cluster policy",
    "recurrent": "RecurrentPPO, cluster policy",
    "wiped": "the same, state wiped before every round",
}
"""Titles of the table's rows, in their order."""


class Options(NamedTuple):
    """The fields of the entry.

    Attributes:
        scenarios: Scenarios, each with its own trainings.
        against: Schedulers that play the same held-out episodes.
        steps: Rounds of each training.
        seeds: Trainings of PPO and of RecurrentPPO with the cluster policy.
        episodes: Held-out episodes.
        rounds: Rounds of a held-out episode.
        work: Folder of trainings and episodes.
    """

    scenarios: tuple[str, ...]
    against: tuple[str, ...]
    steps: int
    seeds: int
    episodes: int
    rounds: int
    work: Path

    def folder(self, scenario: str, algorithm: str, seed: int) -> Path:
        """Folder of a training.

        Raises:
            DataError: If a training is missing.
        """
        place = self.work / f"{scenario}-{algorithm}-seed{seed}"
        if algorithm != "plain" and not place.is_dir():
            raise DataError(f"{place} does not exist: {PAGE} names the command that trains it")
        return place


def plain(options: Options, scenario: str) -> PPO:
    """PPO of Stable-Baselines3 with its own defaults, trained if it is missing."""
    file = options.folder(scenario, "plain", 0) / "best.zip"
    if not file.exists():
        print(f"training PPO of Stable-Baselines3 on {scenario}", flush=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        env = make_sb3_vec_env(scenario, seed=0, learner="surrogate")
        PPO("MlpPolicy", env, seed=0, device="cpu").learn(options.steps).save(file)
    return PPO.load(file, device="cpu")


def played(options: Options, name: str) -> tuple[Results, int]:
    """Episodes of all rows on a scenario, and the scenario's own rounds."""
    scenario = load_scenario(name)
    runs = range(options.seeds)
    models = [
        RecurrentPPO.load(options.folder(name, "recurrent", seed) / "best.zip", device="cpu") for seed in runs
    ]
    memories = {
        f"{row} {seed}": PolicyScheduler(
            ClusterMemory(model, scenario, forgetful=row == "wiped"), name=f"{row} {seed}"
        )
        for row in ("recurrent", "wiped")
        for seed, model in enumerate(models)
    }
    as_it_comes = PolicyScheduler(plain(options, name), name="plain", normalise=False)
    rivals: list[Any] = [*options.against, as_it_comes, *memories.values()]
    episodes = evaluate(
        rivals,
        scenario,
        seeds=options.episodes,
        rounds=options.rounds,
        agent=[options.folder(name, "ppo", seed) / "checkpoints" / "best.safetensors" for seed in runs],
        reference=REFERENCE,
        out=options.work / f"{name}-comparison",
    ).episodes
    rows = {row: list(episodes[row]) for row in TITLES if row in episodes}
    for row in ("recurrent", "wiped"):
        rows[row] = [replace(e, run=seed) for seed in runs for e in episodes[f"{row} {seed}"]]
    return rows, scenario.dynamics.rounds


def summaries(results: Results, own_rounds: int) -> dict[str, Summary]:
    """Summary of each row; differences are to DSSRA+ in the same episode."""
    rows = {row: results[row] for row in TITLES if row in results}
    return dict(zip(rows, summarise_all(rows, np.nan, REFERENCE, own_rounds), strict=True))


def table(options: Options) -> str:
    """The table in Markdown."""
    rows = []
    for name in options.scenarios:
        for row, summary in summaries(*played(options, name)).items():
            delay, difference = Estimated.of(summary.priced_delay), Estimated.of(summary.difference)
            against = f"{difference.percent:+.1f~}" if row != REFERENCE else ""
            cells = [f"{delay:.2f~}", against, f"{100.0 * summary.energy_excess.mean:+.1f}"]
            rows.append([f"`{name}`", TITLES[row], str(summary.runs), *cells])
    heads = ("scenario", "scheduler", "runs", "priced delay (s)", "against DSSRA+ (%)", "energy excess (%)")
    return markdown_table(heads, rows)


def study(entry: Mapping[str, Any], quick: bool) -> str:
    """The table. It needs the trainings, so there is no quick one."""
    del quick
    torch.set_num_threads(1)
    return table(
        Options(**{name: entry[name] for name in Options._fields})._replace(work=Path(entry["work"]))
    )
