"""Several trainings of a learned scheduler beside DSSRA in the same held-out episodes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from generated_parts import markdown_table
from player import KEPT, sources

from collapipe_env import evaluate
from collapipe_env.agents.learned.agent_file import read_agent_file
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.loading import scenario_digest
from collapipe_env.zoo.shipped_agents import agent_path, shipped_agent
from studies.held_out import Estimated

REFERENCE = "dssra"


def table(entry: Mapping[str, Any], quick: bool) -> str:
    """Play what is not kept: a line for the trainings of an algorithm on a scenario."""
    sizes = {"seeds": 1 if quick else entry["episodes"], "rounds": 2 if quick else entry["rounds"]}
    lines = []
    for name, files in list(entry["trainings"].items())[: 1 if quick else None]:
        scenario, algorithm = name.split()
        folder = KEPT / ("quick" if quick else "trainings") / sources()[:8] / f"{scenario}-{algorithm}"
        files = files[: 1 if quick else None]
        played = evaluate([REFERENCE, "agent"], scenario, agent=files, out=folder, **sizes)
        bar, net = played[REFERENCE], played["agent"]
        own = {episode.episode: episode.priced_delay for episode in played.episodes[REFERENCE]}
        runs = [
            sum(episode.priced_delay / own[episode.episode] for episode in each) / len(own) - 1.0
            for _, each in groupby(played.episodes["agent"], key=lambda episode: episode.run)
        ]
        each = f"{100.0 * min(runs):+.1f} to {100.0 * max(runs):+.1f}"
        steps = read_agent_file(agent_path(files[0])).record.training["steps"]
        lines.append(
            [f"`{scenario}`", algorithm, f"{steps:,}", str(len(files))]
            + [f"{Estimated.of(net.difference).percent:+.1f~}", each]
            + [f"{100.0 * one.energy_excess.mean:+.1f}" for one in (net, bar)]
        )
    heads = (
        "scenario",
        "algorithm",
        "rounds",
        "trainings",
        "priced delay against DSSRA (%)",
        "single trainings",
    )
    return markdown_table((*heads, "energy excess (%)", "DSSRA's"), lines, left=2)


def digest() -> bytes:
    """The scenarios, and the shipped training; of the others the page has the commands."""
    scenarios = (scenario_digest(load_scenario(name)) for name in ("small", "medium"))
    return repr([*scenarios, shipped_agent("zoo:small-sac").sha256]).encode()
