"""Play schedulers on batteries: the table and the figure of ``docs/batteries.md``.

Run ``python tools/make_battery_page.py``; it takes about a minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from generated_parts import markdown_table, write_parts

from collapipe_env.allocation import Allocation
from collapipe_env.dynamics.battery_spec import BatterySpec
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.plotting import COLOURS, INK, RC, new_figure, save
from collapipe_env.physics.participation import players
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.schedulers import SCHEDULERS
from collapipe_env.simulator.record import RoundRecord
from collapipe_env.simulator.state import SystemState

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
PAGE, IMAGE = ROOT / "docs" / "batteries.md", ROOT / "docs" / "images" / "battery.png"
BATTERIES: dict[str, dict[str, Any] | None] = {
    "mains": None,
    "3 %, charger": {"usable_share": 0.03},
    "1 %, charger": {"usable_share": 0.01},
    "1 %, panel of 3 W": {"usable_share": 0.01, "harvest": "solar"},
    "1 %, none": {"usable_share": 0.01, "harvest": "none"},
}
"""Fields of the process in each row; ``None`` without it."""
RULES = {"pipeline": "even split", "dssra": "DSSRA"}
"""Titles of the schedulers by their names."""
EPISODES, ROUNDS, SEED = 8, 100, 7


def scenario_of(fields: dict[str, Any] | None) -> Scenario:
    """The scenario ``medium`` with batteries.

    Args:
        fields: Fields of the process; ``None`` without it.
    """
    processes = {} if fields is None else {"battery": fields}
    return load_scenario({"base": "medium", "dynamics": {"rounds": ROUNDS, "processes": processes}})


def rounds_of(scenario: Scenario, rule: str) -> Iterator[tuple[SystemState, RoundRecord]]:
    """Play a scheduler, and yield the system before each round and the round's record.

    Args:
        scenario: The scenario to play.
        rule: The scheduler.
    """
    env = CollaPipeVectorEnv(EPISODES, scenario, "surrogate")
    observation, _ = env.reset(seed=SEED)
    scheduler = SCHEDULERS.get(rule)(scenario)
    scheduler.reset()
    for _ in range(ROUNDS):
        before, plan = env.truth, scheduler.act(observation, env.state)
        assert isinstance(plan, Allocation)
        observation = env.step_allocation(plan)[0]
        record = env.last_round
        assert record is not None
        yield before, record


def played(label: str, rule: str) -> list[str]:
    """Cells of one row: delay, devices out, clusters out, energy of devices, largest deficit.

    Args:
        label: Name of the batteries.
        rule: The scheduler.
    """
    fields = BATTERIES[label]
    delay, energy, out, sits, deficit, last = [], [], [], [], 0.0, None
    for before, record in rounds_of(scenario_of(fields), rule):
        plays = players(record.allocation)
        sits.append(0.0 if plays is None else float((~plays).mean()))
        delay.append(record.costs.delay.mean())
        energy.append(record.costs.energy[..., 1:].mean())
        if fields is not None:
            out.append(1.0 - before.processes["battery"]["eligible"].mean())
            last = before
    if last is not None:
        deficit = float(last.processes["battery"]["deficit_j"].max())
    return [
        label,
        RULES[rule],
        f"{np.mean(delay):.2f}",
        f"{100.0 * np.mean(out):.1f}" if out else "",
        f"{100.0 * np.mean(sits):.1f}",
        f"{np.mean(energy):.1f}",
        f"{deficit:.1f}" if fields is not None else "",
    ]


def table() -> str:
    """Return the table."""
    heads = (
        "battery and source",
        "scheduler",
        "delay, s",
        "devices kept out, %",
        "clusters out, %",
        "energy, J",
        "largest deficit, J",
    )
    return markdown_table(heads, [played(label, rule) for label in BATTERIES for rule in RULES], 2)


def figure(label: str) -> Figure:
    """Levels of one cluster's batteries in one episode, and the clusters that play in all of them.

    Args:
        label: Name of the batteries.
    """
    fields = BATTERIES[label]
    assert fields is not None
    battery_j = BatterySpec(**fields).battery_j
    levels, minutes, plays, seconds = [], [], [], 0.0
    for before, record in rounds_of(scenario_of(fields), "dssra"):
        levels.append(before.processes["battery"]["charge"][0, 0] / battery_j)
        minutes.append(seconds / 60.0)
        seconds += float(record.costs.delay[0])
        taking = players(record.allocation)
        plays.append(taking[0].sum() if taking is not None else record.allocation.bandwidth.shape[1])
    drawn = new_figure(7.2, 4.6)
    above, below = drawn.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    for k, line in enumerate(np.transpose(levels)):
        above.plot(
            minutes, 100.0 * line, color=COLOURS[k % len(COLOURS)], linewidth=1.6, label=f"device {k + 1}"
        )
    for level, text in ((15.0, "out below"), (30.0, "back above")):
        above.axhline(level, color=INK, linewidth=1.0, linestyle=(0, (3.0, 1.5)))
        above.text(0.0, level + 1.0, text, color=INK, fontsize=8.5, va="bottom")
    above.set_ylabel("charge (%)")
    above.set_ylim(0.0, 105.0)
    above.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    above.set_title(f"medium, {label}, DSSRA: batteries of one cluster in one episode")
    below.step(minutes, plays, where="post", color=COLOURS[0], linewidth=1.6)
    below.set_ylabel("clusters that play")
    below.set_ylim(-0.2, 4.3)
    below.set_xlabel("simulated time (min)")
    return drawn


def main() -> None:
    """Play everything, write the table and draw the figure."""
    stamp = (
        f"`python tools/make_battery_page.py` (`medium`, {EPISODES} episodes x {ROUNDS} rounds, surrogate, "
        f"seed {SEED}): means over episodes; energy of a device in a round; largest deficit of any device "
        "before the last round"
    )
    write_parts(PAGE, {"batteries": f"{table()}\n\n{stamp}"})
    print(f"wrote {PAGE}")
    with mpl.rc_context(RC):
        save(figure("1 %, charger"), IMAGE)
    print(f"wrote {IMAGE}")


if __name__ == "__main__":
    main()
