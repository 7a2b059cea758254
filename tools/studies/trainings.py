"""Several trainings of a learned scheduler beside DSSRA in the same held-out episodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from generated_parts import markdown_table
from player import KEPT, sources

from collapipe_env import evaluate
from collapipe_env.agents.learned.agent_file import read_agent_file
from collapipe_env.zoo.shipped_agents import agent_path
from studies.held_out import Estimated

REFERENCE = "dssra"


def table(entry: Mapping[str, Any], quick: bool) -> str:
    """Play what is not kept: a line for the trainings of an algorithm on a scenario."""
    sizes = {"seeds": 1 if quick else entry["episodes"], "rounds": 2 if quick else entry["rounds"]}
    lines = []
    for name, files in list(entry["trainings"].items())[: 1 if quick else None]:
        scenario, algorithm = name.split()
        chosen = files[: 1 if quick else None]
        folder = KEPT / ("quick" if quick else "trainings") / sources()[:8] / f"{scenario}-{algorithm}"
        played = evaluate([REFERENCE, "agent"], scenario, agent=chosen, out=folder, **sizes)
        bar, net = played[REFERENCE], played["agent"]
        own, found = (
            np.array([one.priced_delay for one in played.episodes[who]]).reshape(-1, sizes["seeds"])
            for who in (REFERENCE, "agent")
        )
        means = 100.0 * (found / own - 1.0).mean(axis=1)
        steps = read_agent_file(agent_path(files[0])).record.training["steps"]
        lines.append(
            [f"`{scenario}`", algorithm, f"{steps:,}", str(len(chosen))]
            + [f"{Estimated.of(net.difference).percent:+.1f~}", f"{means.min():+.1f} to {means.max():+.1f}"]
            + [f"{100.0 * one.energy_excess.mean:+.1f}" for one in (net, bar)]
        )
    heads = ["scenario", "algorithm", "rounds", "trainings", "priced delay against DSSRA (%)"]
    return markdown_table([*heads, "single trainings", "energy excess (%)", "DSSRA's"], lines, left=2)
