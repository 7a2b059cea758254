"""Labels of schedulers in tables and figures, and the lines below that explain them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from collapipe_env.schedulers import LEARNED
from collapipe_env.zoo.shipped_agents import is_shipped, shown_agent

if TYPE_CHECKING:
    from collapipe_env.evaluation.comparison import ScenarioComparison
    from collapipe_env.evaluation.statistics import Summary

SERVER_MARK = "†"
"""Mark after the name of a scheduler whose plans put encoder blocks on the edge server."""
SERVER_NOTE = (
    f"{SERVER_MARK} also trains encoder blocks on the edge server, whose energy is in no budget here; with "
    "the other schedulers the server trains only the head or decoder."
)
BUDGET_NOTE = (
    f"{SERVER_MARK} also trains encoder blocks on the edge server, whose energy has a budget here: the "
    "worst energy and the queues include it."
)


def counted(number: int, noun: str) -> str:
    """A number of things in words, such as ``1 round`` and ``2 rounds``.

    Args:
        number: Number of things.
        noun: Noun in the singular; the plural adds an s.
    """
    return f"{number} {noun}{'s' if number != 1 else ''}"


def label_of(title: str, server_blocks: int, runs: int = 1) -> str:
    """A scheduler's name with its training runs, and a mark if it uses the edge server's compute.

    Args:
        title: Its own name.
        server_blocks: Largest number of encoder blocks that its plans put on the server.
        runs: Number of its training runs; a single run is not mentioned.
    """
    named = f"{title} ({runs} runs)" if runs > 1 else title
    return f"{named} {SERVER_MARK}" if server_blocks > 0 else named


def common_labels(summaries: Sequence[Summary]) -> dict[str, str]:
    """One label for each scheduler of several scenarios, with all titles that it has in them."""
    found = {}
    for name in dict.fromkeys(summary.scheduler for summary in summaries):
        lines = [summary for summary in summaries if summary.scheduler == name]
        titles = dict.fromkeys(line.title for line in lines)
        found[name] = label_of(
            " / ".join(titles), max(line.server_blocks for line in lines), max(line.runs for line in lines)
        )
    return found


def notes(comparisons: Sequence[ScenarioComparison]) -> list[str]:
    """Lines that explain the mark, and name the files of trained agents if there are any."""
    lines = []
    marked = [e for c in comparisons for one in c.results.values() for e in one if e.server_blocks > 0]
    if any(e.server_energy_ratio == 0.0 for e in marked):
        lines.append(SERVER_NOTE)
    elif marked:
        lines.append(BUDGET_NOTE)
    for comparison in comparisons:
        plan, results = comparison.plan, comparison.results
        if LEARNED in results and plan.agents:
            place = f" in {comparison.name}" if len(comparisons) > 1 else ""
            runs = f"{len(plan.agents)} training runs" if len(plan.agents) > 1 else "trained agent"
            files = ", ".join(map(shown_agent, plan.agents))
            lines.append(f"{results[LEARNED][0].title}{place}: {runs}, from {files}")
    shipped = {name: e[0].title for c in comparisons for name, e in c.results.items() if is_shipped(name)}
    return lines + [f"{title}: trained agent, from {name}" for name, title in shipped.items()]
