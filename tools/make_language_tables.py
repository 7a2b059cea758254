"""Measure what language models cost the shipped systems, and write the tables of ``docs/language_models.md``.

Run ``python tools/make_language_tables.py``; it takes a minute or two. Nothing is trained: energy budgets are
searched as by ``collapipe scenario check``, and DSSRA and the even split play rounds whose prices are
summed up. Changes of DSSRA or of prices change the tables; ``--rounds`` sets the number of rounds.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from generated_parts import markdown_table, write_parts

from collapipe_env.agents.dssra.policy import DSSRA
from collapipe_env.baselines.even_split import PipeLine
from collapipe_env.feasibility import energy_feasibility
from collapipe_env.ground.errors import CollaPipeError
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.physics.allocation import ONE_F_ONE_B, Allocation
from collapipe_env.physics.memory import device_memory
from collapipe_env.scenario import OverheadSpec, Scenario, load_scenario
from collapipe_env.schedulers import StateScheduler
from collapipe_env.simulator.build import workload_costs
from collapipe_env.simulator.round import RoundCosts
from collapipe_env.simulator.state import SystemState
from collapipe_env.simulator.world import World

PAGE = Path(__file__).parents[1] / "docs" / "language_models.md"
SCENARIOS = ("llm-boards", "llm-phones")
ROUNDS, EPISODES = 100, 2
MOST_MICRO_BATCHES = 16
MARGIN = 0.9
"""Largest use over budget after a budget is raised, as in the shipped scenarios."""
FULL = {"workload.update_compression": "none"}
"""Changes that train and send all weights in place of adapters."""


class OneForwardOneBackward(PipeLine):
    """The even split under 1F1B with as many micro-batches as there are samples, which stores least."""

    def allocate(self, state: SystemState) -> Allocation:
        """See :meth:`collapipe_env.schedulers.StateScheduler.allocate`."""
        plan = super().allocate(state)
        ones = np.ones_like(plan.micro_batches)
        held = plan.blocks > 0
        after = np.flip(np.cumsum(np.flip(held, axis=-1), axis=-1), axis=-1)  # stages from each on
        return replace(
            plan,
            micro_batches=ones * max(self.parameters.micro_batch_choices),
            schedule=ones * ONE_F_ONE_B,
            caps=np.maximum(after, 1),
            chunks=ones,
        )


@dataclass(frozen=True)
class Played:
    """Figures of rounds that a scheduler played; means over rounds and episodes unless stated otherwise.

    Attributes:
        delay: Round delay [s].
        memory: Largest memory of any device in any round [byte].
        collect: Collection of the cluster that ended last [s].
        upload: Upload of that cluster [s].
        broadcast: Broadcast of the new model [s].
        payload: Bits that a cluster uploads a round.
        micro_batches: Number of micro-batches of a cluster, the median.
        excess: Worst node's energy over its budget, less 1.
    """

    delay: float
    memory: float
    collect: float
    upload: float
    broadcast: float
    payload: float
    micro_batches: float
    excess: float

    @property
    def exchange_share(self) -> float:
        """Share of a round in which updates and new weights are on the air."""
        return (self.collect + self.upload + self.broadcast) / self.delay


@lru_cache(maxsize=64)
def played(scenario: Scenario, scheduler: type[StateScheduler], rounds: int) -> Played:
    """Play rounds without any learning, from empty queues.

    Args:
        scheduler: Class of the scheduler.
        rounds: Rounds of an episode.
    """
    world = World(scenario, IdleLearner(EPISODES), EPISODES)
    world.reset([np.random.default_rng([0, episode]) for episode in range(EPISODES)])
    decides = scheduler(scenario)
    costs = [world.step(decides.allocate(world.state)).costs for _ in range(rounds)]
    energy = np.mean([one.energy_ratio for one in costs], axis=0)
    return Played(
        delay=float(np.mean([one.delay for one in costs])),
        memory=float(max(one.memory.max() for one in costs)),
        collect=float(np.mean([_of_the_last(one, one.collect) for one in costs])),
        upload=float(np.mean([_of_the_last(one, one.upload) for one in costs])),
        broadcast=float(np.mean([one.broadcast for one in costs])),
        payload=workload_costs(scenario).update_payload_bits,
        micro_batches=float(np.median([one.allocation.micro_batches for one in costs])),
        excess=float(energy.max() - 1.0),
    )


def _of_the_last(costs: RoundCosts, times: np.ndarray) -> np.ndarray:
    """Times (E,) of the cluster for which the round waits, in each episode."""
    last = np.argmax(costs.cluster_delay, axis=-1)
    return np.asarray(np.take_along_axis(times, last[:, None], axis=-1)[:, 0])


def with_feasible_budgets(scenario: Scenario) -> Scenario:
    """Return the scenario, with energy budgets raised that cannot be met with a margin of 10 %.

    Args:
        scenario: The scenario; budgets that can be met stay as they are.
    """
    ratio = energy_feasibility(scenario).energy_ratio
    changes = {}
    for name, use in (("cu_energy_j", ratio[..., 0].max()), ("device_energy_j", ratio[..., 1:].max())):
        budget = getattr(scenario.budgets, name) * float(use)
        if use > MARGIN + 1e-6:
            step = 10.0 ** (math.floor(math.log10(budget / MARGIN)) - 1)
            changes[f"budgets.{name}"] = math.ceil(budget / MARGIN / step) * step
    return scenario.with_overrides(changes) if changes else scenario


def feasibility_table() -> str:
    """Return the table of the least energy use over budget."""
    rows = []
    for name in SCENARIOS:
        scenario = load_scenario(name)
        report = energy_feasibility(scenario)
        for cluster in range(scenario.clusters):
            use = report.energy_ratio[:, cluster]
            worst = use.max(axis=0)
            node = int(worst.argmax())
            rows.append(
                (
                    name,
                    cluster,
                    "CU" if node == 0 else f"device {node - 1}",
                    f"{np.median(use.max(axis=-1)):.3f}",
                    f"{worst.max():.3f}",
                    f"{100.0 * (1.0 - worst.max()):.0f} %",
                    f"{worst[0]:.3f}",
                    f"{worst[1:].max():.3f}",
                )
            )
    heads = ("scenario", "cluster", "worst node", "median", "worst episode", "margin", "CU", "devices")
    return markdown_table(heads, rows, left=3)


def alone_bytes(scenario: Scenario, samples: int) -> float:
    """Bytes of a device that holds all blocks and keeps the activations of some samples at once.

    Args:
        scenario: The scenario; embedding and head are not counted.
        samples: Samples of a pass: the mini-batch, or fewer where gradients are summed over passes.
    """
    costs = workload_costs(scenario)
    working = samples * costs.working_bytes
    return float(
        device_memory(
            np.asarray(costs.blocks),
            samples,
            costs.block_state_bytes,
            costs.stored_activation_bytes,
            working,
        )
    )


def memory_rows(name: str, rounds: int) -> list[tuple[str, ...]]:
    """Memory of a device alone and of the fullest device of a cluster, in the forms of training.

    Args:
        name: A scenario.
        rounds: Rounds that DSSRA and the even split play.
    """
    rows = []
    for trained, changes in (("adapters", {}), ("everything", FULL)):
        for recompute in (False, True):
            scenario = load_scenario(name).with_overrides({**changes, "workload.recompute": recompute})
            whole, single = (alone_bytes(scenario, n) for n in (scenario.workload.batch_size, 1))
            kept = "inputs of blocks" if recompute else "all"
            cells = [f"{whole / 1e6:,.0f}", f"{single / 1e6:,.0f}"]
            for scheduler in (PipeLine, OneForwardOneBackward, DSSRA):
                try:
                    found = played(with_feasible_budgets(scenario), scheduler, rounds).memory
                except CollaPipeError:
                    cells.append("does not fit")
                else:
                    cells.append(f"{found / 1e6:,.0f} ({found / whole:.2f}, {found / single:.2f})")
            rows.append((name, trained, kept, *cells))
    return rows


def memory_table(rounds: int) -> str:
    """Return the table of memories; see :func:`memory_rows`."""
    heads = ("scenario", "trained", "kept", "alone", "alone, one by one", "even split", "even, 1F1B", "DSSRA")
    return markdown_table(heads, [row for name in SCENARIOS for row in memory_rows(name, rounds)], left=3)


def by_number(scenario: Scenario, rounds: int) -> dict[int, Played]:
    """DSSRA's rounds with one number of micro-batches for all clusters, by that number.

    Args:
        rounds: Rounds of an episode.
    """
    numbers = [M for M in scenario.workload.micro_batch_choices if M <= MOST_MICRO_BATCHES]
    return {
        M: played(scenario.with_overrides({"workload.micro_batches": (M,)}), DSSRA, rounds) for M in numbers
    }


def _delay(found: Played) -> str:
    return f"{found.delay:.2f} ({100.0 * found.excess:+.0f})"


def micro_batches_table(rounds: int) -> str:
    """Return the table of delays by the number of micro-batches, with prices of passes and without."""
    free = {f"overheads.{field}": 0 for field in vars(OverheadSpec())}
    numbers = [2**power for power in range(MOST_MICRO_BATCHES.bit_length())]
    rows = []
    for name in SCENARIOS:
        for what, changes in (("as shipped", {}), ("no overheads", free)):
            scenario = load_scenario(name).with_overrides(changes)
            delays = by_number(scenario, rounds)
            best = min(delays, key=lambda M: delays[M].delay)
            chosen = played(scenario, DSSRA, rounds)
            cells = (_delay(delays[M]) if M in delays else "-" for M in numbers)
            rows.append((name, what, *cells, best, f"{_delay(chosen)}, {chosen.micro_batches:.0f}"))
    heads = ("scenario", "prices", *(f"M = {M}" for M in numbers), "best M", "M free, median")
    return markdown_table(heads, rows, left=2)


def uplink_table(rounds: int) -> str:
    """Return the table of what updates cost: adapters against all weights."""
    rows = []
    for name in SCENARIOS:
        adapters = load_scenario(name)
        full = with_feasible_budgets(adapters.with_overrides(FULL))
        budgets = {
            f"budgets.{field}": getattr(full.budgets, field) for field in ("device_energy_j", "cu_energy_j")
        }
        for what, scenario in (
            ("adapters", adapters),
            ("adapters", adapters.with_overrides(budgets)),
            ("all weights", full),
        ):
            found = played(scenario, DSSRA, rounds)
            rows.append(
                (
                    name,
                    what,
                    f"{found.payload / 1e6:,.0f}",
                    *(f"{time:.2f}" for time in (found.collect, found.upload, found.broadcast, found.delay)),
                    f"{100.0 * found.exchange_share:.1f} %",
                    f"{scenario.budgets.device_energy_j:g} / {scenario.budgets.cu_energy_j:g}",
                )
            )
    heads = (
        "scenario",
        "sent",
        "upload of a cluster (Mbit)",
        "collection (s)",
        "upload (s)",
        "broadcast (s)",
        "round (s)",
        "share of the three",
        "budgets, device / CU (J)",
    )
    return markdown_table(heads, rows, left=2)


def tables(rounds: int) -> Mapping[str, str]:
    """Return all tables by the names of their parts."""
    return {
        "feasibility": feasibility_table(),
        "devices": memory_table(rounds),
        "micro-batches": micro_batches_table(rounds),
        "uplink": uplink_table(rounds),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure everything and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="rounds of an episode (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    command = "python tools/make_language_tables.py"
    if options.rounds != ROUNDS:
        command += f" --rounds {options.rounds}"
    stamp = f"`{command}`: {options.rounds} rounds of {EPISODES} episodes, from empty queues"
    found = tables(options.rounds)
    write_parts(PAGE, {name: f"{table}\n\n{stamp}" for name, table in found.items()})
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
