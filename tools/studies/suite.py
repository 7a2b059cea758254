"""The suite: plays what is not measured, writes the package's file of returns, makes parts of its page.

``python -m tools.docs suite`` makes all of them. Finished episodes are kept below ``runs/docs/suite`` as long
as the package's sources stay as they are, and the file is written after each id. An id is not played where
the file has it from the same scenario and agents: after a change of the simulator or a scheduler, take its
entry out of the file, or write ``{}`` into it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium as gym
import numpy as np
from generated_parts import markdown_table
from player import KEPT, sources

from collapipe_env.envs.suite import FILE, SUITE, SuiteEntry, _measured
from collapipe_env.evaluation.episode import HELD_OUT_SEED
from collapipe_env.evaluation.plotting import COLOURS, MARK, new_figure
from collapipe_env.evaluation.resampling import estimate
from collapipe_env.evaluation.runner import evaluate_all
from collapipe_env.evaluation.scheduler_loading import make_scheduler, package_title
from collapipe_env.evaluation.statistics import by_run
from collapipe_env.evaluation.suite_plays import agents_of, episode_return, made_from, plan_of
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.files import write_json
from collapipe_env.schedulers import LEARNED
from collapipe_env.zoo.shipped_agents import agent_path
from studies.held_out import Estimated

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROCESSES = 2
"""Episodes that are played at once."""
PICTURED = 10
"""Round that a picture shows."""
NOTHING = "not yet measured"
Entry = Mapping[str, Any]


def is_measured(entry: SuiteEntry) -> bool:
    """Whether the file has all returns of an id, from its present scenario and agents."""
    counts = {name: len(values) for name, values in entry.returns.items()}
    same = (entry.made_from, entry.agents) == (made_from(entry), agents_of(entry))
    return same and counts == dict.fromkeys(entry.schedulers, entry.episodes)


def measure(entry: SuiteEntry) -> None:
    """Play an id's episodes, and write their returns into the package's file."""
    folder = KEPT / "suite" / sources()[:8] / entry.scenario
    plan = plan_of(entry, folder, entry.schedulers)
    (outcome,) = evaluate_all([plan], PROCESSES, lines=False)
    content = json.loads(Path(FILE).read_text(encoding="utf-8"))
    content[entry.id] = {
        "made_from": made_from(entry),
        "agents": agents_of(entry),
        "rounds": plan.rounds,
        "first_seed": HELD_OUT_SEED,
        "returns": {name: list(map(episode_return, found)) for name, found in outcome.results.items()},
    }
    write_json(Path(FILE), {each.id: content[each.id] for each in SUITE if each.id in content})
    _measured.cache_clear()


def scores(entry: Entry, quick: bool) -> str:
    """Play the ids that are not measured, and return the table of all: returns, and scores in brackets.

    Args:
        entry: Names the schedulers of the columns, in ``columns``.
        quick: Whether to play least, without writing: an episode of two rounds of the first id.
    """
    if quick:
        plan = plan_of(SUITE[0], KEPT / "quick" / "suite", SUITE[0].schedulers, episodes=1, rounds=2)
        evaluate_all([plan], 1)
    for each in SUITE if not quick else ():
        if not is_measured(each):
            print(f"{each.id}: {each.episodes} episodes of {', '.join(each.schedulers)}", flush=True)
            measure(each)
    heads = ["id", "bar", *(title for title in entry["columns"])]
    rows = [
        [f"[`{each.id}`](#{each.id.lower()})", package_title(each.bar)]
        + [_cell(each, name) for name in entry["columns"].values()]
        for each in SUITE
    ]
    return markdown_table(heads, rows, left=2)


def _cell(entry: SuiteEntry, name: str) -> str:
    """Mean return, and the score; the bar stands out."""
    if not entry.returns:
        return NOTHING if name == "random" else ""
    if name not in entry.returns:
        return ""
    mean = float(np.mean(entry.returns[name]))
    text = f"{mean:,.1f} ({round(entry.score(mean)):,})"  # an integer has no -0
    return f"**{text}**" if name == entry.bar else text


class Runs(NamedTuple):
    """Training runs on an id, with differences from its bar in the same episodes.

    Attributes:
        entry: The id.
        bar: Returns of the bar (E,).
        returns: Of the training runs (R, E).
    """

    entry: SuiteEntry
    bar: FloatArray
    returns: FloatArray

    def behind(self, name: str) -> FloatArray:
        """Priced delay of another scheduler relative to the bar's, less 1 (E,)."""
        return np.array(self.entry.returns[name][: len(self.bar)]) / self.bar - 1.0


def played_runs(entry: Entry, quick: bool) -> Iterator[Runs]:
    """Play what is not kept of the training runs.

    Args:
        entry: Holds the ``scenarios`` of the ids, and the files of the ``runs``.
        quick: Whether to play least: an episode of two rounds on the first id.
    """
    files = tuple(map(agent_path, entry["runs"]))
    for each in (one for one in SUITE if one.scenario in entry["scenarios"][: 1 if quick else None]):
        folder = KEPT / ("quick" if quick else "runs") / sources()[:8] / each.scenario
        size = {"episodes": 1, "rounds": 2} if quick else {}
        (outcome,) = evaluate_all([plan_of(each, folder, (LEARNED,), agents=files, **size)], PROCESSES)
        found = by_run(outcome.results[LEARNED], episode_return)
        yield Runs(each, np.array(each.returns[each.bar])[: found.shape[1]], found)


def runs(entry: Entry, quick: bool) -> str:
    """A table of training runs beside the bars, paired by episode."""
    rows = []
    for one in played_runs(entry, quick):
        each, bar, found = one
        others = [estimate(one.behind(name)) for name in entry["columns"].values()]
        means = 100.0 * (found / bar - 1.0).mean(axis=1)
        net = f"{Estimated.of(estimate(found / bar - 1.0)).percent:+.1f~}"
        rows.append(
            [f"[`{each.id}`](#{each.id.lower()})", f"{package_title(each.bar)} {bar.mean():,.1f}"]
            + [f"{Estimated.of(other).percent:+.1f~}" for other in others]
            + [net, f"{means.min():+.1f} to {means.max():+.1f}", f"{each.score(float(found.mean())):.0f}"]
        )
    heads = ["id", "bar", *entry["columns"], f"{len(entry['runs'])} runs together", "single runs", "score"]
    return markdown_table(heads, rows, left=2)


def drawn_runs() -> Figure:
    """The training runs of ``suite/runs``, and the rows beside them."""
    from docs import entries

    entry = entries()["suite/runs"]
    figure = new_figure(7.2, 3.4)
    axes = figure.subplots()
    played = list(played_runs(entry, False))
    for place, one in enumerate(played):
        for colour, name in zip(COLOURS, entry["columns"].values(), strict=False):
            found = Estimated.of(estimate(one.behind(name))).percent
            spread = [[found.mean - found.low], [found.high - found.mean]]
            axes.errorbar(
                place, found.mean, spread, fmt="s", color=colour, label=_once(place, package_title(name))
            )
        means = 100.0 * (one.returns / one.bar - 1.0).mean(axis=1)
        beside = place + np.linspace(0.1, 0.3, len(means))
        label = _once(place, "graph net, each training")
        axes.plot(beside, means, "o", color=COLOURS[2], label=label)
    axes.axhline(0.0, label="DSSRA+ with tuned scalars", **MARK)
    axes.set_xticks(range(len(played)), [one.entry.scenario for one in played])
    axes.set_xlim(-0.4, len(played) - 0.4)
    axes.set_ylabel("priced delay against DSSRA+ (%)")
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def _once(place: int, label: str) -> str:
    """A label for the first place only."""
    return "_" if place else label


def sections(_: Entry, quick: bool) -> str:
    """A section of each id: picture, spaces, episode, and what is hard."""
    return "\n\n".join(map(section, SUITE[:1] if quick else SUITE))


def section(entry: SuiteEntry) -> str:
    """The section of an id."""
    env = gym.make(entry.id).unwrapped
    scenario = env.scenario
    clusters, devices = scenario.clusters, scenario.cluster.max_devices
    target = scenario.dynamics.target_loss
    ends = "" if target is None else f"; ends when the smoothed loss reaches {target:g} nat"
    threshold = entry.reward_threshold
    bar = f"{package_title(entry.bar)} (`{entry.bar}`): "
    bar += NOTHING if threshold is None else f"mean return {threshold:,.2f} in {entry.episodes} episodes"
    reward = "minus the drift plus penalty `V T + L(t+1) - L(t)` of a round, over `V T_ref`"
    rows = [
        ["what is hard", entry.hard],
        ["system", f"`{entry.scenario}`: {clusters} clusters of {devices} devices"],
        ["learner", "real training" if entry.learner == "real" else "surrogate"],
        ["observation", f'{env.observation_space.shape[0]:,} numbers, or a graph (`observation="graph"`)'],
        ["action", f"{env.action_space.shape[0]:,} numbers in [-1, 1]: {', '.join(scenario.decisions)}"],
        ["reward", f"{reward}{'' if target is None else ', so the return is the priced time to the target'}"],
        ["episode", f"{scenario.dynamics.rounds} rounds{' at most' if ends else ''}{ends}"],
        ["bar", bar],
    ]
    words = f"A round of {entry.scenario} under {package_title(entry.bar)}"
    picture = f"![{words}](images/suite-{entry.scenario}.png)"
    table = markdown_table(["", entry.id.rpartition("-")[2]], rows, left=2)
    return f"### {entry.id}\n\n{picture}\n\n{table}"


def picture(scenario: str) -> Any:
    """The tenth round of an id under its bar, as its environment renders it."""
    entry = next(each for each in SUITE if each.scenario == scenario)
    env = gym.make(entry.id, learner="surrogate", render_mode="rgb_array").unwrapped
    scheduler = make_scheduler(entry.bar, env.scenario)
    observation, _ = env.reset(seed=0)
    scheduler.reset(0)
    for _ in range(PICTURED):
        observation, *_ = env.step_allocation(scheduler.act(observation, env.state))
    return env.render()


def digest() -> bytes:
    """What all parts are made from besides this file: the present scenarios, agents and words."""
    return repr(
        [(entry, made_from(entry), agents_of(entry), entry.reward_threshold) for entry in SUITE]
    ).encode()
