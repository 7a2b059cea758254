"""Gains between devices that walk, devices that leave, and rates of gains beside rates as capacities."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from generated_parts import markdown_table

from collapipe_env.dynamics.trace_bank import TraceBank
from collapipe_env.dynamics.trace_like import PROFILES, made_traces
from collapipe_env.dynamics.traces_spec import TracesSpec
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.backends import NUMPY
from collapipe_env.physics.radio import db_to_linear
from collapipe_env.physics.rates import PAPER_LINKS, link_rate, uplink_snr
from collapipe_env.physics.trace_gains import rate_gain
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.simulator.build import usual_round
from collapipe_env.simulator.process_registry import active_processes
from collapipe_env.simulator.system import laid_out

LAYOUTS, ROUND_S, LAGS = 400, 10.0, (1, 6, 30)
"""Drawn layouts, seconds of a round, and rounds between two looks at a gain."""
SHARES = (1.0, 0.25, 0.05)
"""Shares of the band that are compared at full power."""


def walking(
    changes: Mapping[str, Any], layouts: int, names: Sequence[str]
) -> tuple[Scenario, Iterator[tuple[Any, dict[str, Any]]]]:
    """``medium`` with devices that walk: the scenario, and system and processes of every round.

    Args:
        changes: Further changes of the scenario.
        layouts: Number of drawn layouts.
        names: Processes that move something; several have seeds of their own.
    """
    scenario = load_scenario("medium").with_overrides(
        {"cluster.layout": "per_episode", "dynamics.processes.mobility": {}, **changes}
    )
    seeds = np.random.SeedSequence(0).generate_state(layouts, np.uint64)
    system, seconds = laid_out(scenario, seeds, NUMPY), np.full(layouts, ROUND_S)
    processes = [p for p in active_processes(scenario) if p.name in names]

    def course() -> Iterator[tuple[Any, dict[str, Any]]]:
        carried: dict[str, Any] = {}
        for t in range(LAGS[-1] + 1):
            now, carried = system, dict(carried)
            for process in processes:
                own = seeds + np.uint64(len(process.name) if len(names) > 1 else 0)
                u = NUMPY.uniform(own, np.full(layouts, t), process.numbers)
                if t == 0:
                    carried[process.name] = process.begin(now, u)
                elif process.defines("advance"):
                    # Mobility depends on time alone, not on states or costs.
                    carried[process.name] = process.advance(carried[process.name], None, None, u, seconds)
                now = process.apply(now, carried[process.name])
            yield now, carried

    return scenario, course()


def gains_db(shadowing_db: float, layouts: int = LAYOUTS) -> FloatArray:
    """Gains of all pairs of nodes in every round (rounds, layouts * pairs) [dB], without fading."""
    scenario, course = walking({"radio.d2d_shadowing_db": shadowing_db}, layouts, ("shadowing", "mobility"))
    return np.stack([10.0 * np.log10(now.link_gain[:, scenario.clusters :].ravel()) for now, _ in course])


def memory(entry: Mapping[str, Any], quick: bool) -> str:
    """The table of how long gains of hops remember."""
    rows = []
    for shadowing_db in (0.0, 4.0):
        gains = gains_db(shadowing_db, 4 if quick else LAYOUTS)
        change = np.abs(gains[1] - gains[0])
        kept = [np.corrcoef(gains[0], gains[lag])[0, 1] for lag in LAGS]
        cells = [f"{shadowing_db:g} dB", f"{gains.std():.1f} dB", f"{np.median(change):.1f} dB"]
        rows.append([*cells, *(f"{value:.2f}" for value in kept)])
    lags = [f"after {lag * ROUND_S:g} s" for lag in LAGS]
    return markdown_table(("shadowing", "deviation", "median change in 10 s", *lags), rows)


def departures(entry: Mapping[str, Any], quick: bool) -> str:
    """The table of devices that are away, and of departures that were announced."""
    layouts = 40 if quick else LAYOUTS
    scenario, course = walking({"dynamics.processes.mobility": {"area": "open"}}, layouts, ("mobility",))
    leaves = [carried["mobility"]["leaves_s"] for _, carried in course]
    left = [(before > 0.0) & (now == 0.0) for before, now in itertools.pairwise(leaves)]
    said = sum((one & (before < ROUND_S)).sum() for one, before in zip(left, leaves, strict=False))
    gone, away = np.sum(left), np.mean([one == 0.0 for one in leaves])
    lost = gone / (LAGS[-1] * layouts * scenario.clusters * scenario.max_devices)
    head = ("devices away", f"devices that leave in {ROUND_S:g} s", "of those, announced")
    return markdown_table(head, [[f"{away:.1%}", f"{lost:.1%}", f"{said / gone:.0%}"]])


def round_rates(name: str, round_s: float) -> FloatArray:
    """Mean rates of the rounds of all synthetic traces of a profile [bit/s]."""
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
    least, most = 1e6 * spec.rate_min_mbps, db_to_linear(spec.snr_max_db)
    gain = rate_gain(rates, band, spec.efficiency, noise, power, least_rate=least, most_snr=most)
    beta = np.full_like(rates, share)
    snr = uplink_snr(beta, np.full_like(rates, power_share * power), gain, noise * band)
    inverted = link_rate(PAPER_LINKS, beta * band, snr)
    # As a capacity, a rate is that of the whole band without the link's loss, divided by shares.
    ratio: FloatArray = inverted / (beta * rates / spec.efficiency)
    return ratio


def capacities(entry: Mapping[str, Any], quick: bool) -> str:
    """The table of the median ratio of each profile of rates."""
    round_s, rows = usual_round(load_scenario("medium")), []
    for name, profile in PROFILES.items():
        if profile.quantity == "rate":
            rates = round_rates(name, round_s)
            cells = [np.median(over_capacity(rates, share, 1.0)) for share in SHARES]
            cells.append(np.median(over_capacity(rates, SHARES[1], 0.1)))
            rows.append([f"`{name}`", f"{np.median(rates) / 1e6:.1f} Mbit/s", *(f"{x:.2f}" for x in cells)])
    heads = ("traces", "median rate", *(f"share {share:g}" for share in SHARES), "0.25, a tenth of the power")
    return markdown_table(heads, rows)
