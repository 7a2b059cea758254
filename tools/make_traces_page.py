"""Play DSSRA on traces, and write a table and the picture of ``docs/traces.md``.

Run ``COLLAPIPE_DATA=... python tools/make_traces_page.py``; it takes about a minute. Without the data
sets the picture shows synthetic traces only.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from fit_traces import SOURCES, fitted_traces
from fitting.trace_fits import Mixture, decibels
from generated_parts import markdown_table, write_parts
from playing import rounds

from collapipe_env.dynamics.trace_bank import TraceBank
from collapipe_env.dynamics.trace_like import PROFILES, made_traces
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.plotting import COLOURS, RC, new_figure, save
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.errors import DataError
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.schedulers import SCHEDULERS
from collapipe_env.simulator.build import usual_round
from collapipe_env.trace_files import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
PAGE, PICTURE = ROOT / "docs" / "traces.md", ROOT / "docs" / "images" / "traces.png"
EPISODES, ROUNDS = 20, 60
SHOWN_S, LAGS_S = 600, (1, 2, 3, 5, 7, 10, 15, 20, 30, 45, 60, 90, 120)
PLAYED: dict[str, dict[str, Any] | None] = {
    "none": None,
    **{f"`{name}`": {"profile": name, "level": "layout"} for name in PROFILES},
    "`driving`, `absolute`": {"profile": "driving"},
    "`static`, `absolute`": {"profile": "static"},
}
"""Traces of each row of the table, and their fields."""


def scenario_of(traces: dict[str, Any] | None) -> Scenario:
    """``medium`` on traces.

    Args:
        traces: Fields of the process; ``None`` without it.
    """
    return load_scenario(
        {"base": "medium", "dynamics": {"processes": {} if traces is None else {"traces": traces}}}
    )


def played(scenario: Scenario, name: str, *, truth: bool = False) -> tuple[float, float]:
    """Mean round delay [s], and the worst node's mean energy over its budget.

    Args:
        name: Name of the scheduler.
        truth: Whether it decides from a round's own gains.
    """
    env = CollaPipeVectorEnv(EPISODES, scenario, learner="surrogate")
    delays, energy = [], []
    sees = (lambda env: env.truth) if truth else (lambda env: env.state)
    for record in rounds(env, SCHEDULERS.get(name)(scenario), ROUNDS, sees=sees):
        delays.append(record.costs.delay.mean())
        energy.append(record.costs.energy_ratio)
    worst = np.mean(energy, axis=0).max(axis=(-2, -1)).mean()
    return float(np.mean(delays)), float(worst)


def error_db(scenario: Scenario) -> float:
    """Root mean square difference between the gain of a round and that of the second before it [dB]."""
    env = CollaPipeVectorEnv(EPISODES, scenario, learner="surrogate")
    env.reset(seed=0)
    nothing, squares = np.zeros(env.action_space.shape or ()), []
    for _ in range(ROUNDS):
        squares.append(np.mean((10.0 * np.log10(env.truth.uplink_gain / env.state.uplink_gain)) ** 2))
        env.step(nothing)
    return float(np.sqrt(np.mean(squares)))


def delays_table() -> str:
    """Return the table of delays."""
    rows = []
    for name, traces in PLAYED.items():
        scenario = scenario_of(traces)
        best, _ = played(scenario, "dssra", truth=True)
        delay, worst = played(scenario, "dssra")
        even, _ = played(scenario, "pipeline")
        more = f" (+{100.0 * (delay / best - 1.0):.1f} %)" if traces is not None else ""
        error = f"{error_db(scenario):.1f} dB"
        rows.append([name, error, f"{best:.2f} s", f"{delay:.2f} s{more}", f"{worst:.2f}", f"{even:.2f} s"])
    heads = ("traces", "error of known gains", "DSSRA on the truth", "DSSRA", "its energy", "even split")
    return markdown_table(heads, rows)


def correlations(traces: list[Trace]) -> FloatArray:
    """Autocorrelation around each trace's own mean at :data:`LAGS_S`, weighted by length.

    Args:
        traces: Traces; those no longer than a lag do not count for it.
    """
    around = [values - values.mean() for values in map(decibels, traces)]
    found = []
    for lag in LAGS_S:
        long = [one for one in around if len(one) > lag]
        each = [np.mean(one[lag:] * one[:-lag]) / np.mean(one * one) for one in long]
        found.append(np.average(each, weights=[len(one) for one in long]))
    return np.array(found)


def _pieces(traces: list[Trace]) -> list[Trace]:
    """Traces that are longer than the part that the picture shows."""
    return [trace for trace in traces if trace.duration_s > SHOWN_S]


def picture() -> Figure:
    """A made and a real trace with the means of their rounds, and autocorrelations of profiles."""
    figure = new_figure(7.2, 6.4)
    above, middle, below = figure.subplots(3, 1, height_ratios=(1.0, 1.0, 1.15))
    round_s = usual_round(scenario_of(None))
    measured = _measured("driving")
    middle_title = "measured, UCC 5G driving" if measured else "another one"
    shown = (made_traces("driving")[2], _pieces(measured)[0] if measured else made_traces("driving")[5])
    for axes, trace, title in zip(
        (above, middle), shown, ("made, profile driving", middle_title), strict=True
    ):
        bank = TraceBank([trace])
        begins = np.arange(1.0, SHOWN_S - round_s, round_s)
        none = np.zeros(len(begins), dtype=np.int64)
        seconds = decibels(trace)[:SHOWN_S]
        axes.plot(np.arange(len(seconds)), seconds, color=COLOURS[5], linewidth=1.0, label="every second")
        known, means = bank.means_between(none, begins[:, None] + [-1.0, 0.0, round_s]).T
        axes.hlines(means, begins, begins + round_s, color=COLOURS[0], linewidth=2.0, label="round")
        axes.plot(begins, known, ".", color=COLOURS[1], markersize=5.0, label="known before it")
        axes.set_ylabel("RSRP (dBm)")
        axes.set_title(title, fontsize=9.5)
        axes.set_xlim(0.0, SHOWN_S)
    above.legend(loc="upper right", ncols=3, fontsize=8.5)
    middle.set_xlabel("time (s)")
    fine = np.arange(0.0, 121.0)
    for colour, name in zip(COLOURS, ("driving", "static", "bus", "driving-rate"), strict=False):
        mixture = Mixture(PROFILES[name].weights, PROFILES[name].times_s)
        model = [mixture.correlation(lag) for lag in fine]
        below.plot(fine, model, color=colour, linewidth=1.6, label=name)
        if found := _measured(name):
            below.plot(LAGS_S, correlations(found), "o", color=colour, markersize=4.0)
    below.set_xlabel("lag (s); lines: profiles, dots: data sets")
    below.set_ylabel("autocorrelation")
    below.legend(loc="upper right", ncols=2)
    return figure


def _measured(name: str) -> list[Trace]:
    """Traces that a profile was fitted to; none where they are not on this machine."""
    try:
        return fitted_traces(SOURCES[name])
    except DataError:
        return []


def main() -> None:
    """Write the table and the picture."""
    write_parts(PAGE, {"delays": delays_table() + f"\n\n{NOTE}"})
    with mpl.rc_context(RC):
        save(picture(), PICTURE)


NOTE = (
    f"`python tools/make_traces_page.py` (`medium`, {EPISODES} episodes x {ROUNDS} rounds, surrogate, "
    "synthetic traces, `level: layout` except in the last two rows; energy: worst node, over its budget)"
)

if __name__ == "__main__":
    main()
