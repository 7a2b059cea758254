"""Compare trainings where knowledge is uncertain, and write table and picture of ``docs/learned_agents.md``.

The page names the commands of the trainings, whose folders must lie below ``--work``. Then run
``python tools/make_uncertain_table.py``. It trains PPO of Stable-Baselines3 as it comes where that is
missing, once for each scenario, and keeps all episodes. The picture is ``docs/images/uncertain.png``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import matplotlib as mpl
import numpy as np
import torch
from sb3_contrib import RecurrentPPO
from stable_baselines3 import PPO

# The modules of these folders import each other as they would in their own process.
sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import playing
from generated_parts import markdown_table, typed_command, write_parts
from measuring import command
from pydantic import BaseModel, Field
from recurrent_ppo import ClusterMemory

from collapipe_env import PolicyScheduler, evaluate
from collapipe_env.agents.learned.agent_file import read_agent_file
from collapipe_env.agents.learned.validation import VALIDATION_SEED, Validator
from collapipe_env.envs.sb3 import make_sb3_vec_env
from collapipe_env.evaluation.plotting import COLOURS, DASHES, INK, MUTED, RC, log_axis, new_figure, save
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.evaluation.statistics import Results, Summary, summarise_all
from collapipe_env.ground.errors import DataError, ScenarioError
from collapipe_env.ground.files import write_text
from collapipe_env.scenario import load_scenario

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOCS = Path(__file__).parents[1] / "docs"
PAGE, PICTURE = DOCS / "learned_agents.md", DOCS / "images" / "uncertain.png"
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


class Options(BaseModel):
    """Compare PPO and RecurrentPPO where knowledge is uncertain."""

    scenarios: tuple[str, ...] = ("large-stale", "large-churn", "large-wild")
    """Scenarios, each with its own trainings."""
    against: tuple[str, ...] = ("random", EVEN, "dssra", REFERENCE, "zoo:graph-wild")
    """Schedulers that play the same held-out episodes; dssra-plus must be among them."""
    steps: Annotated[int, Field(ge=20)] = 32_768
    """Rounds of each training."""
    seeds: Annotated[int, Field(ge=1)] = 5
    """Trainings of PPO and of RecurrentPPO with the cluster policy."""
    plain: tuple[str, ...] = ("large-stale", "large-churn", "large-wild")
    """Scenarios with a row for PPO as it comes, one training each."""
    episodes: Annotated[int, Field(ge=1)] = 10
    """Held-out episodes."""
    rounds: Annotated[int, Field(ge=1)] = 100
    """Rounds of a held-out episode."""
    work: Path = Path("runs/uncertain")
    """Folder of trainings and episodes."""
    no_page: bool = False
    """Leave page and picture in docs as they are; the picture goes to the folder of trainings."""

    def check(self) -> None:
        """Refuse options that cannot be run.

        Raises:
            DataError: Names a training that is missing.
            ScenarioError: Names the option, its value and the range.
        """
        for name in (*self.scenarios, *self.plain):
            load_scenario(name)
        if REFERENCE not in self.against:
            raise ScenarioError(f"--against {' '.join(self.against)}: {REFERENCE} is missing, add it")
        for name in self.scenarios:
            for seed in range(self.seeds):
                for algorithm, file in (("recurrent", "best.zip"), ("ppo", "checkpoints/best.safetensors")):
                    place = self.folder(name, algorithm, seed) / file
                    if not place.exists():
                        raise DataError(
                            f"{place} does not exist: {PAGE.name} names the command that trains it"
                        )

    def folder(self, scenario: str, algorithm: str, seed: int) -> Path:
        """Folder of a training."""
        return self.work / f"{scenario}-{algorithm}-seed{seed}"


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
    episodes = evaluate(
        [
            *options.against,
            *(
                [PolicyScheduler(plain(options, name), name="plain", normalise=False)]
                if name in options.plain
                else []
            ),
            *memories.values(),
        ],
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


def validated(options: Options, name: str, scheduler: str) -> float:
    """Priced delay of a scheduler on the trainings' validation episodes [s], kept in a file."""
    file = options.work / f"{name}-{scheduler}-validation.txt"
    if not file.exists():
        scenario = load_scenario(name)
        env, player = Validator(scenario, 16).env, make_scheduler(scheduler, scenario)
        for _ in playing.rounds(env, player, env.scenario.dynamics.rounds, VALIDATION_SEED):
            pass
        total = np.mean([env.summary(row)["return"] for row in range(env.num_envs)])
        write_text(file, str(-total * env.reference_delay / env.scenario.dynamics.rounds))
    return float(file.read_text(encoding="utf-8"))


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
            axes.plot(
                options.steps / 1000.0,
                last,
                "x",
                color=COLOURS[2],
                clip_on=False,
                label="PPO as it comes, at the end",
            )
        for scheduler, colour in ((EVEN, MUTED), (REFERENCE, INK)):
            axes.axhline(
                validated(options, name, scheduler),
                color=colour,
                linestyle=DASHES if scheduler == EVEN else "-",
                linewidth=1.2,
                label=TITLES[scheduler],
            )
        low, high = axes.get_ylim()
        if high > 3.0 * low:
            log_axis(axes, "y")
        axes.set_title(name)
        axes.set_xlabel("thousand rounds of training")
    panels[0].set_ylabel("priced delay on validation episodes (s)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def run(options: Options, given: Sequence[str]) -> None:
    """Do what the options ask for."""
    torch.set_num_threads(1)
    text = table(options)
    print(text)
    with mpl.rc_context(RC):
        figure = draw(options)
        save(figure, options.work / PICTURE.name if options.no_page else PICTURE)
    if not options.no_page:
        typed = typed_command(["python", "tools/make_uncertain_table.py", *given])
        write_parts(PAGE, {"uncertain": f"{text}\n\n```bash\n{typed}\n```"})
        print(f"wrote {PAGE} and {PICTURE}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, write the table and draw the picture; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)

    def checked(options: Options) -> None:
        options.check()
        run(options, given)

    return command(Options, checked, __doc__)(given)


if __name__ == "__main__":
    sys.exit(main())
