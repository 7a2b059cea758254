"""DSSRA+ on the Thermal tier with clocks free and open."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from generated_parts import markdown_table
from playing import rounds

from collapipe_env.agents.dssra.plus import DSSRAPlus
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.scenario.decision_names import COLLAPIPE

PAGE = "heat.md"
PRICES = ((0.0, 0.5), (0.3566, 0.9204), (0.1, 0.9), (0.02, 0.5))
"""``heat_price`` and ``heat_start``: none (DSSRA), those of the tier, and two that were tried by hand."""
GOVERNORS = ("pause", "step", "ipa")
EPISODES, ROUNDS = 8, 100


class Played(NamedTuple):
    """Figures of one scheduler's rounds.

    Attributes:
        delay: Mean round delay of each episode (E,) [s].
        slowed: Share of devices and rounds that a governor slows.
        capped: Share of devices and rounds that a plan caps.
    """

    delay: FloatArray
    slowed: float
    capped: float


def clock_scenario(governor: str, *, clocks: bool) -> Scenario:
    """The Thermal tier of medium under a governor.

    Args:
        clocks: Whether plans may cap clocks.
    """
    opened = ["clock_cap"] if clocks else []
    return load_scenario(
        {
            "base": "medium-thermal",
            "name": "medium-thermal-clock" if clocks else "medium-thermal",
            "decisions": [*COLLAPIPE, *opened],
            "dynamics": {"processes": {"heat": {"governor": governor}}},
        }
    )


def played(governor: str, price: float, start: float, *, clocks: bool) -> Played:
    """Play DSSRA+ with a price of heat.

    Args:
        governor: Governor of all devices.
        price: ``heat_price`` [s/J].
        start: ``heat_start``.
        clocks: Whether plans may cap clocks.
    """
    scenario = clock_scenario(governor, clocks=clocks)
    env = CollaPipeVectorEnv(EPISODES, scenario, learner="surrogate", reward="delay")
    scheduler = DSSRAPlus(scenario, heat_price=price, heat_start=start)
    delays, slowed, capped = [], [], []
    for record in rounds(env, scheduler, ROUNDS):
        plan = record.allocation
        delays.append(np.asarray(record.costs.delay))
        slowed.append((env.state.processes["heat"]["share"] < 1.0).mean())
        capped.append(0.0 if plan.clock_cap is None else (plan.clock_cap < 1.0).mean())
    return Played(np.mean(delays, axis=0), float(np.mean(slowed)), float(np.mean(capped)))


def table() -> str:
    """Return the table."""
    rows = []
    for governor in GOVERNORS:
        for price, start in PRICES:
            free = played(governor, price, start, clocks=False)
            own = played(governor, price, start, clocks=True)
            change = 100.0 * (own.delay / free.delay - 1.0)
            rows.append(
                (
                    f"`{governor}`",
                    f"{price:g} s/J from {start:g}" if price else "none (DSSRA)",
                    f"{free.delay.mean():.2f} s; {free.slowed:.1%}",
                    f"{own.delay.mean():.2f} s; {own.slowed:.1%}; {own.capped:.0%}",
                    f"{100.0 * (own.delay.mean() / free.delay.mean() - 1.0):+.1f} % "
                    f"({change.min():+.1f} ... {change.max():+.1f})",
                )
            )
    return markdown_table(("governor", "price of heat", "clocks free", "clocks open", "change"), rows, left=2)


PARTS = {
    "clocks": (
        table,
        f"(`medium-thermal`, {EPISODES} episodes x {ROUNDS} rounds, surrogate): mean delay of a round; share "
        "of devices and rounds that the governor slows; with open clocks also the share that plans cap; mean "
        "change, with the range over episodes",
    )
}
