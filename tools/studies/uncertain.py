"""Trainings of PPO and RecurrentPPO where knowledge is uncertain, beside schedulers.

``docs/learned_agents.md`` names the commands of the trainings, whose folders must lie below ``work`` of the
entry. PPO of Stable-Baselines3 as it comes is trained where it is missing, once for each scenario.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from sb3_contrib import RecurrentPPO
from stable_baselines3 import PPO

# The modules of these folders import each other as they would in their own process.
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from generated_parts import markdown_table
from player import Play
from player import played as played_figures
from recurrent_ppo import ClusterMemory

from collapipe_env import PolicyScheduler, evaluate
from collapipe_env.agents.learned.agent_file import read_agent_file
from collapipe_env.agents.learned.validation import VALIDATION_SEED, Validator
from collapipe_env.envs.sb3 import make_sb3_vec_env
from collapipe_env.evaluation.plotting import COLOURS, DASHES, INK, MUTED, log_axis, new_figure, save
from collapipe_env.evaluation.statistics import Results, Summary, summarise_all
from collapipe_env.ground.errors import DataError
from collapipe_env.scenario import load_scenario

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE = "docs/learned_agents.md"
PICTURE = Path(__file__).parents[2] / "docs" / "images" / "uncertain.png"
REFERENCE, EVEN = "dssra-plus", "pipeline"
TITLES = {
    "random": "random",
    EVEN: "even split",
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
        plain: Scenarios with a row for PPO as it comes.
        episodes: Held-out episodes.
        rounds: Rounds of a held-out episode.
        work: Folder of trainings and episodes.
    """

    scenarios: tuple[str, ...]
    against: tuple[str, ...]
    steps: int
    seeds: int
    plain: tuple[str, ...]
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
    rivals: list[Any] = [*options.against, *memories.values()]
    if name in options.plain:
        rivals.insert(-len(memories), PolicyScheduler(plain(options, name), name="plain", normalise=False))
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
            delay, difference, energy = summary.priced_delay, summary.difference, summary.energy_excess
            against = _interval(difference, 100.0, "+.1f") if row != REFERENCE else ""
            cells = [_interval(delay, 1.0, ".2f"), against, f"{100.0 * energy.mean:+.1f}"]
            rows.append([f"`{name}`", TITLES[row], str(summary.runs), *cells])
    heads = ("scenario", "scheduler", "runs", "priced delay (s)", "against DSSRA+ (%)", "energy excess (%)")
    return markdown_table(heads, rows)


def _interval(estimate: Any, factor: float, form: str) -> str:
    mean, low, high = (f"{factor * value:{form}}" for value in (estimate.mean, estimate.low, estimate.high))
    return f"{mean} ({low}…{high})"


def validated(name: str, scheduler: str) -> float:
    """Priced delay of a scheduler on the trainings' validation episodes [s]."""
    play = Play(name, scheduler=scheduler, episodes=16, seed=VALIDATION_SEED)
    return float(played_figures(play, ["priced"])["priced"])


def curve(folder: Path) -> tuple[list[float], list[float]]:
    """Rounds of training, and the priced delay of each validation [s]."""
    file = folder / "validations.json"
    history = (
        json.loads(file.read_text(encoding="utf-8"))
        if file.exists()
        else read_agent_file(folder / "checkpoints" / "latest.safetensors").record.history
    )
    return [score["steps"] / 1000.0 for score in history], [score["priced_delay"] for score in history]


def draw(options: Options) -> Figure:
    """Learning curves of all trainings."""
    figure = new_figure(3.6 * len(options.scenarios), 3.6)
    panels = figure.subplots(1, len(options.scenarios), squeeze=False)[0]
    for axes, name in zip(panels, options.scenarios, strict=True):
        for (algorithm, label), colour in zip(
            (("ppo", "PPO"), ("recurrent", "RecurrentPPO")), COLOURS, strict=False
        ):
            curves = [curve(options.folder(name, algorithm, seed)) for seed in range(options.seeds)]
            for rounds, delays in curves:
                axes.plot(rounds, delays, color=colour, alpha=0.35, linewidth=0.8)
            mean = np.mean([delays for _, delays in curves], axis=0)
            axes.plot(curves[0][0], mean, color=colour, linewidth=2.0, label=f"{label}, cluster policy")
        if name in options.plain:
            last = Validator(load_scenario(name), 16)(plain(options, name), 0, 0.0).priced_delay
            label = "PPO as it comes, at the end"
            axes.plot(options.steps / 1000.0, last, "x", color=COLOURS[2], clip_on=False, label=label)
        for scheduler, colour, style in ((EVEN, MUTED, DASHES), (REFERENCE, INK, "-")):
            delay, label = validated(name, scheduler), TITLES[scheduler]
            axes.axhline(delay, color=colour, linestyle=style, linewidth=1.2, label=label)
        low, high = axes.get_ylim()
        if high > 3.0 * low:
            log_axis(axes, "y")
        axes.set_title(name)
        axes.set_xlabel("thousand rounds of training")
    panels[0].set_ylabel("priced delay on validation episodes (s)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def study(entry: Mapping[str, Any], quick: bool) -> str:
    """The table; the picture goes to ``docs/images``. It needs the trainings, so there is no quick one."""
    torch.set_num_threads(1)
    options = Options(**{name: entry[name] for name in Options._fields})._replace(work=Path(entry["work"]))
    text = table(options)
    if not quick:
        save(draw(options), PICTURE)
    return text
