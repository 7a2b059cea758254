"""Rates of gains beside rates as capacities, and the scenarios on synthetic traces."""

from __future__ import annotations

import numpy as np
from generated_parts import markdown_table
from make_traces_page import EPISODES, ROUNDS, played

from collapipe_env.dynamics.trace_bank import TraceBank
from collapipe_env.dynamics.trace_like import PROFILES, made_traces
from collapipe_env.dynamics.traces_spec import TracesSpec
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.physics.radio import db_to_linear, uplink_rate
from collapipe_env.physics.trace_gains import rate_gain
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.names import TRACED
from collapipe_env.simulator.build import usual_round

PAGE = "traces.md"
SHARES = (1.0, 0.25, 0.05)
"""Shares of the band that are compared at full power."""

SCHEDULERS = {
    "DSSRA on the truth": ("dssra", True),
    "DSSRA": ("dssra", False),
    "DSSRA+": ("dssra-plus", False),
    "even split": ("pipeline", False),
}
"""Columns: the scheduler, and whether it decides from a round's own gains."""


def round_rates(name: str, round_s: float) -> FloatArray:
    """Mean rates of the rounds of all synthetic traces of a profile [bit/s].

    Args:
        name: A profile of rates.
        round_s: Length of a round [s].
    """
    bank = TraceBank(made_traces(name))
    begins = np.arange(0.0, bank.lengths_s.values.min() - round_s, round_s)
    traces = np.repeat(np.arange(len(bank)), len(begins))
    times = np.tile(begins, len(bank))[:, None] + [0.0, round_s]
    found: FloatArray = bank.means_between(traces, times)[..., 0]
    return found


def over_capacity(rates: FloatArray, share: float, power_share: float) -> FloatArray:
    """Rates from the gain of measured rates, over the same rates as capacities.

    Args:
        rates: Measured rates, any shape [bit/s].
        share: Share of the band, ``beta``.
        power_share: Power over the power that is assumed for the measured link.
    """
    spec, noise = TracesSpec(profile="bus"), load_scenario("medium").radio.noise_w_per_hz
    power, band = db_to_linear(spec.power_dbm - 30.0), spec.bandwidth_hz
    gain = rate_gain(
        rates,
        band,
        spec.efficiency,
        noise,
        power,
        least_rate=1e6 * spec.rate_min_mbps,
        most_snr=db_to_linear(spec.snr_max_db),
    )
    beta = np.full_like(rates, share)
    inverted = uplink_rate(beta, np.full_like(rates, power_share * power), gain, noise * band, band)
    # As a capacity, a rate is that of the whole band without the link's loss, divided by shares.
    ratio: FloatArray = inverted / (beta * rates / spec.efficiency)
    return ratio


def table() -> str:
    """Return the table: the median ratio of each profile of rates."""
    round_s, rows = usual_round(load_scenario("medium")), []
    for name, profile in PROFILES.items():
        if profile.quantity == "rate":
            rates = round_rates(name, round_s)
            cells = [np.median(over_capacity(rates, share, 1.0)) for share in SHARES]
            cells.append(np.median(over_capacity(rates, SHARES[1], 0.1)))
            rows.append([f"`{name}`", f"{np.median(rates) / 1e6:.1f} Mbit/s", *(f"{x:.2f}" for x in cells)])
    heads = ("traces", "median rate", *(f"share {share:g}" for share in SHARES), "0.25, a tenth of the power")
    return markdown_table(heads, rows)


def scenarios_table() -> str:
    """Return the table of mean round delays."""
    rows = []
    for name in TRACED:
        scenario = load_scenario(name)
        found = [played(scenario, which, truth=truth) for which, truth in SCHEDULERS.values()]
        rows.append([f"`{name}`", *(f"{delay:.2f} s ({worst:.2f})" for delay, worst in found)])
    return markdown_table(("scenario", *SCHEDULERS), rows)


PARTS = {
    "capacities": (
        table,
        "(synthetic traces, means over rounds of `medium`, `s = 1 / eta`, fields of `traces` at their "
        "defaults)",
    ),
    "trace-scenarios": (
        scenarios_table,
        f"({EPISODES} episodes x {ROUNDS} rounds, surrogate; in brackets the energy of the worst node over "
        "its budget)",
    ),
}
