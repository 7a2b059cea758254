"""Play schedulers under every terms of the server, and write the table of ``docs/server.md``.

Run ``python tools/make_server_table.py``; it takes half a minute.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from generated_parts import markdown_table, write_parts

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.server import server_energy
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.schedulers import SCHEDULERS
from collapipe_env.simulator.build import system_parameters

PAGE = Path(__file__).parents[1] / "docs" / "server.md"
TERMS: dict[str, dict[str, object]] = {
    "free": {"terms": "free"},
    "metered": {"terms": "metered"},
    "contended": {"terms": "contended"},
    "contended, mean share": {"terms": "contended", "tenants": 0.575},
    "weak": {"terms": "weak"},
}
"""Name of each row, with its fields of the section ``server``."""
NAMES = ("dssra", "splitfed_v1", "splitfed_v2", "pipar")
EPISODES, ROUNDS = 2, 50


def played(scenario: Scenario, name: str) -> tuple[float, float, float]:
    """Mean round delay [s], and the server's energy in a round [J]: for encoder blocks, and in all.

    Args:
        scenario: Scenario of the episodes.
        name: Name of the scheduler.
    """
    env = CollaPipeVectorEnv(EPISODES, scenario, learner="surrogate")
    observation, _ = env.reset(seed=0)
    scheduler, parameters = SCHEDULERS.get(name)(scenario), system_parameters(scenario)
    scheduler.reset()
    delays, encoder, whole = [], [], []
    for _ in range(ROUNDS):
        plan = scheduler.act(observation, env.state)
        assert isinstance(plan, Allocation)
        observation = env.step_allocation(plan)[0]
        record = env.last_round
        assert record is not None
        c = record.costs
        seconds = (c.elements.downlink, c.broadcast, c.delay)
        used = server_energy(
            parameters.server, parameters.costs, parameters.bs_power_w, c.allocation, seconds
        )
        delays.append(record.costs.delay.mean())
        encoder.append(used.encoder.sum(axis=-1).mean())
        whole.append(encoder[-1] + used.head.sum(axis=-1).mean() + (used.idle + used.radio).mean())
    return float(np.mean(delays)), float(np.mean(encoder)), float(np.mean(whole))


def table() -> str:
    """Return the table."""
    titles = [str(getattr(SCHEDULERS.get(name), "name", name)) for name in NAMES]
    rows = []
    for row, section in TERMS.items():
        scenario = load_scenario({"base": "medium", "server": section})
        budget = system_parameters(scenario).server.budget_j
        cells = [row]
        for name in NAMES:
            delay, encoder, whole = played(scenario, name)
            against = "no budget" if budget is None else f"{encoder / budget:.0%} of budget"
            over = "" if budget is None or encoder <= budget else "**"
            cells.append(f"{delay:.2f} s; {encoder:.1f} J, {over}{against}{over}; {whole:.0f} J in all")
        rows.append(cells)
    return markdown_table(("terms", *titles), rows)


def main() -> None:
    """Play everything and write the table."""
    stamp = (
        f"`python tools/make_server_table.py` (`medium`, {EPISODES} episodes x {ROUNDS} rounds, surrogate)"
    )
    write_parts(PAGE, {"terms": f"{table()}\n\n{stamp}"})
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
