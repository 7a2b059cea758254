"""Play the scenarios on synthetic traces, and write their table in ``docs/traces.md``.

Run ``python tools/make_trace_scenarios.py``; it takes some minutes and needs no data sets.
"""

from __future__ import annotations

from generated_parts import markdown_table, write_parts
from make_traces_page import EPISODES, PAGE, ROUNDS, played

from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.names import TRACED

SCHEDULERS = {
    "DSSRA on the truth": ("dssra", True),
    "DSSRA": ("dssra", False),
    "DSSRA+": ("dssra-plus", False),
    "even split": ("pipeline", False),
}
"""Columns: the scheduler, and whether it decides from a round's own gains."""
NOTE = (
    f"`python tools/make_trace_scenarios.py` ({EPISODES} episodes x {ROUNDS} rounds, surrogate; in brackets "
    "the energy of the worst node over its budget)"
)


def table() -> str:
    """Return the table of mean round delays."""
    rows = []
    for name in TRACED:
        scenario = load_scenario(name)
        found = [played(scenario, which, truth=truth) for which, truth in SCHEDULERS.values()]
        rows.append([f"`{name}`", *(f"{delay:.2f} s ({worst:.2f})" for delay, worst in found)])
    return markdown_table(("scenario", *SCHEDULERS), rows)


if __name__ == "__main__":
    write_parts(PAGE, {"trace-scenarios": table() + f"\n\n{NOTE}"})
