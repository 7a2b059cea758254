"""Suggested energy budgets of a scenario on the terminal: tables, a YAML snippet and warnings."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from collapipe_env.cli.least_energy_page import new_table, wrapped
from collapipe_env.evaluation.suggestion import EVEN, REFERENCE, Suggestion
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.plain_data import plain_yaml

LEAST_SHOWN = 0.0005
"""Least share of a round of a phase that is shown."""


def print_suggestion(scenario: Scenario, tightness: float, found: Suggestion) -> None:
    """Print everything that was found, the snippet as it can be pasted."""
    console = Console(highlight=False)
    print(f"scenario {scenario.name!r}: T_ref = {found.reference_delay:.4g} s")
    console.print(_phases(found))
    console.print(_energies(tightness, found))
    print(snippet(tightness, found), end="")
    print()
    if not found.warnings:
        print("no warnings: these budgets bind, and DSSRA keeps them")
    for text in found.warnings:
        print(wrapped(f"warning: {text}"))


def snippet(tightness: float, found: Suggestion) -> str:
    """The suggested budgets as lines of a scenario file."""
    note = f"  # or, to have them follow all other fields: tightness: {tightness:g}\n"
    head, lines = plain_yaml({"budgets": found.budgets._asdict()}).split("\n", 1)
    return f"{head}\n{note}{lines}"


def _phases(found: Suggestion) -> Table:
    even, reference = found.trials[EVEN], found.trials[REFERENCE]
    table = new_table("phase of a round", "even split", "DSSRA")
    for name in {**even.seconds, **reference.seconds}:
        shares = even.share(name), reference.share(name)
        if max(shares) >= LEAST_SHOWN:
            table.add_row(name, *(f"{100.0 * share:.1f} %" for share in shares))
    table.add_section()
    table.add_row("mean delay", *(f"{sum(t.seconds.values()):.4g} s" for t in (even, reference)))
    table.add_row("priced delay", *(f"{t.priced_delay:.4g} s" for t in (even, reference)))
    return table


def _energies(tightness: float, found: Suggestion) -> Table:
    table = new_table("energy a round", "device", "CU")
    for name, joules in (
        ("least, delay ignored", found.range.least),
        ("even split at full power", found.range.full),
        (f"budget at tightness {tightness:g}", found.budgets),
    ):
        table.add_row(name, *(f"{value:.3g} J" for value in joules))
    table.add_section()
    for name, trial in (("even split", EVEN), ("DSSRA", REFERENCE)):
        table.add_row(
            f"{name}, worst node", *(f"{100.0 * use:.1f} % of it" for use in found.trials[trial].use)
        )
    return table
