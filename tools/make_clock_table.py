"""Play the Thermal tier with clocks free and open, and write the table about caps in ``docs/heat.md``.

Run ``python tools/make_clock_table.py``; it takes about three minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from generated_parts import markdown_table, write_parts

from collapipe_env.agents.dssra.plus import DSSRAPlus
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.scenario.decision_names import COLLAPIPE

PAGE = Path(__file__).parents[1] / "docs" / "heat.md"
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


def played(governor: str, price: float, start: float, *, clocks: bool, seed: int = 0) -> Played:
    """Play DSSRA+ with a price of heat.

    Args:
        governor: Governor of all devices.
        price: ``heat_price`` [s/J].
        start: ``heat_start``.
        clocks: Whether plans may cap clocks.
        seed: Seed of the episodes.
    """
    scenario = clock_scenario(governor, clocks=clocks)
    env = CollaPipeVectorEnv(EPISODES, scenario, learner="surrogate", reward="delay")
    env.reset(seed=seed)
    scheduler = DSSRAPlus(scenario, heat_price=price, heat_start=start)
    delays, slowed, capped = [], [], []
    for _ in range(ROUNDS):
        plan = scheduler.allocate(env.state)
        env.step_allocation(plan)
        assert env.last_round is not None
        delays.append(np.asarray(env.last_round.costs.delay))
        slowed.append((env.state.processes["heat"]["share"] < 1.0).mean())
        capped.append(0.0 if plan.clock_cap is None else (plan.clock_cap < 1.0).mean())
    return Played(np.mean(delays, axis=0), float(np.mean(slowed)), float(np.mean(capped)))


def table(governors: Sequence[str], seed: int = 0) -> str:
    """Return the table.

    Args:
        governors: Governors to play.
        seed: Seed of the episodes.
    """
    rows = []
    for governor in governors:
        for price, start in PRICES:
            free = played(governor, price, start, clocks=False, seed=seed)
            own = played(governor, price, start, clocks=True, seed=seed)
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Play everything and write the table.

    Args:
        arguments: Command line; that of this process by default.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--governors", nargs="+", choices=GOVERNORS, default=list(GOVERNORS))
    parser.add_argument("--seed", type=int, default=0, help="of the episodes; the page has 0")
    parser.add_argument("--write", action="store_true", help=f"write it into {PAGE.name}, not only print it")
    options = parser.parse_args(arguments)
    if options.write and (options.seed or options.governors != list(GOVERNORS)):
        parser.error("--write is for the page's own table: leave out --seed and --governors")
    found = table(options.governors, options.seed)
    print(found)
    if options.write:
        stamp = (
            f"`python tools/make_clock_table.py --write` (`medium-thermal`, {EPISODES} episodes x {ROUNDS} "
            "rounds, surrogate): mean delay of a round; share of devices and rounds that the governor "
            "slows; with open clocks also the share that plans cap; mean change, with the range over episodes"
        )
        write_parts(PAGE, {"clocks": f"{found}\n\n{stamp}"})


if __name__ == "__main__":
    main()
