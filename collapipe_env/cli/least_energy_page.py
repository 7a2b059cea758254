"""Least energy of a scenario's nodes beside their budgets, as a table on the terminal."""

from __future__ import annotations

import textwrap

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from collapipe_env.feasibility import FeasibilityReport
from collapipe_env.feasibility.feasibility_report import node_name
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import node_budgets


def print_least_energy(scenario: Scenario, report: FeasibilityReport) -> None:
    """Print a row for each cluster's CU and for its devices, of which the worst one counts.

    The margin is what the worst episode leaves of the budget.
    """
    device, cu = node_budgets(scenario)
    table = new_table("cluster", "node", "typical", "worst", "budget", "margin", "over in", left=2)
    for row in report.of_kinds():
        budget = device if row.node else cu
        table.add_row(
            str(row.cluster),
            node_name(row.node).removeprefix("the "),
            *(f"{use * budget:.3g}" for use in (row.median, row.worst)),
            f"{budget:.3g}",
            f"{100.0 * (1.0 - row.worst):+.{'0f' if row.worst < 100.0 else '0e'}} %",
            str(row.over),
        )
    print(f"least energy of the worst nodes in {report.episodes} sampled episodes, delay ignored [J]:")
    Console(highlight=False).print(table)


def new_table(*heads: str, left: int = 1) -> Table:
    """A table whose first columns are aligned left, the others right."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1))
    for place, head in enumerate(heads):
        table.add_column(head, justify="left" if place < left else "right", no_wrap=True)
    return table


def wrapped(text: str, indent: int = 2) -> str:
    """A line in at most 80 columns, with an indent from its second line on."""
    return textwrap.fill(
        text, 80, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
