"""DSSRA where changes of plan are priced, with and without the previous plan among its starting points.

DSSRA settles segments and micro-batches in turn, so it can miss a plan that keeps the blocks where they are
under another number of micro-batches. A second DSSRA (``kept``) also begins its search, for each number of
micro-batches, with the previous round's blocks, and takes the plan with the least objective. Three things are
measured:

* how often each misses the optimum of one round, which the oracle finds by trying every plan of small
  systems, in states of DSSRA's episodes in which a load has just changed;
* the processor time of a decision;
* the effect on episodes of the Migration tier: the delay of a round, plus the worth of the energy queues at
  the end. A better round need not be a better episode.

Run::

    python benchmarks/kept_plans.py
    python benchmarks/kept_plans.py --states 40 --scenarios small-migration --episodes 4
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from measuring import RESULTS, Figure, command, publish, within
from tqdm import tqdm

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.baselines.oracle import Oracle
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.resampling import estimate
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.memory import device_memory, fits
from collapipe_env.physics.recomputation import recomputation_terms
from collapipe_env.physics.schedules.storage import memory_terms
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.simulator.state import SystemState

WHAT = "gap to the optimum of a round, processor time, and delays of episodes, without and with the kept plan"
ALIKE = {
    "name": "board",
    "clock_min_hz": 1e9,
    "clock_max_hz": 1e9,
    "flops_per_cycle": 100,
    "switched_capacitance": 1e-27,
    "memory_bytes": [4e9],
}
SHAPES: tuple[dict[str, Any], ...] = tuple(
    {
        "base": "small-migration",
        "name": f"{clusters} x 2 boards at {megahertz:g} MHz",
        "workload": {"blocks": blocks, "micro_batches": micro_batches},
        "cluster": {"clusters": clusters, "devices": 2},
        "devices": {"profiles": [ALIKE]},
        "radio": {"d2d_bandwidth_hz": 1e6 * megahertz},
        "budgets": {"device_energy_j": 6.0 * blocks / 4, "cu_energy_j": 36},
    }
    for clusters, blocks, micro_batches in ((1, 12, [2, 4, 8, 16]), (2, 4, [4, 16]))
    for megahertz in (5.0, 2.5)
)
"""Small systems in which a change of load is about worth a change of plan; at most 100 combinations."""
LONG = 40
"""Rounds of an episode whose states are solved."""
MISSED, FAR = 1e-3, 1e-2
"""Relative gaps above which the optimum counts as missed, and as missed by far."""
SEED = 1_000_000
"""Seed of the episodes, the same as in the table of tiers."""


@dataclass(frozen=True)
class Options:
    """DSSRA with and without the previous plan among its starting points."""

    states: int = 200
    """States solved by the oracle, 1 to 100,000; a second or two each."""
    scenarios: tuple[str, ...] = ("small-migration", "medium-migration")
    """Scenarios whose episodes are played."""
    episodes: int = 16
    """Episodes of each, 2 to 1000."""
    rounds: int = 100
    """Rounds of an episode, 2 to 100,000."""
    seed: int = SEED
    """Seed of the episodes, at least 0."""
    output: Path = RESULTS / "kept_plans.json"
    """JSON file to write."""

    def check(self) -> None:
        """Refuse options that cannot be run.

        Raises:
            ScenarioError: Names the option, its value and the range.
        """
        within(
            ("--states", self.states, 1, 100_000),
            ("--episodes", self.episodes, 2, 1000),
            ("--rounds", self.rounds, 2, 100_000),
            ("--seed", self.seed, 0, 2**32),
        )


class Kept(DSSRA):
    """DSSRA that also begins with the previous round's blocks, for each number of micro-batches."""

    def allocate(self, state: SystemState, start: Allocation | None = None) -> Allocation:
        """Decide one round: the best of DSSRA's own decision and of the decisions from the kept plan.

        Args:
            state: The system before the round (E, ...).
            start: As for DSSRA.
        """
        best = super().allocate(state, start)
        least = self.objective(state, best)
        held = np.asarray(state.processes["migration"]["blocks"]).astype(np.int64)
        for number in self.parameters.micro_batch_choices:
            first = best.map(np.copy)
            first.micro_batches[...] = number
            first.blocks[...] = held
            rows = self._playable(state, first)
            if not rows.any():
                continue
            found = super().allocate(state[rows], first[rows])
            value = self.objective(state[rows], found)
            better = value < least[rows]
            taken = np.flatnonzero(rows)[better]
            least[taken] = value[better]
            for name in ("blocks", "micro_batches", "bandwidth", "device_power", "cu_power"):
                getattr(best, name)[taken] = getattr(found, name)[better]
        return best

    def _playable(self, state: SystemState, plan: Allocation) -> Any:
        """Rows in which the devices can hold the blocks (E,): none before the first round."""
        costs = self.parameters.costs
        terms = recomputation_terms(self.parameters, plan)
        samples, block_state, working = memory_terms(costs, plan, terms)
        needed = device_memory(plan.blocks, samples, block_state, terms.activation_bytes, working)
        room = fits(needed, state.memory_bytes, 0.0) & (state.present | (plan.blocks == 0))
        whole = (plan.blocks.sum(axis=-1) == costs.blocks).all(axis=-1)
        return whole & room.all(axis=(-2, -1))


def gaps(options: Options) -> dict[str, FloatArray]:
    """Relative gaps of both to the oracle, in states of DSSRA's episodes in which a load has just changed.

    Args:
        options: Number of states and seed.
    """
    found: dict[str, list[float]] = {"dssra": [], "kept": []}
    bar = tqdm(total=options.states, unit="state", disable=None)
    for index, shape in enumerate(SHAPES):
        count = len(range(index, options.states, len(SHAPES)))
        scenario = load_scenario(shape)
        dssra, kept, oracle = DSSRA(scenario), Kept(scenario), Oracle(scenario, restarts=0)
        env = CollaPipeVectorEnv(1, scenario, "surrogate", autoreset_mode="Disabled")
        done, episode = 0, 0
        while done < count:
            env.reset(seed=options.seed + episode)
            episode += 1
            load = env.state.speed
            for _ in range(LONG):
                state = env.state.map(np.copy)
                ours = dssra.allocate(state)
                # In other states the plan stays, wherever the search begins.
                if (state.speed != load).any() and done < count:
                    done += 1
                    least = oracle.solve(state[0]).objective
                    theirs = kept.allocate(state)
                    for name, plan in (("dssra", ours), ("kept", theirs)):
                        found[name].append(float(oracle.objective(state, plan)[0]) / least - 1.0)
                    bar.update()
                load = state.speed
                env.step_allocation(ours)
    bar.close()
    return {name: np.array(values) for name, values in found.items()}


@dataclass(frozen=True)
class Played:
    """Episodes of one scheduler.

    Attributes:
        delay: Mean delay of a round in each episode (E,) [s].
        priced: The same plus the worth of the energy queues at the end (E,) [s].
        moved: Share of rounds in which moments travelled (E,).
        milliseconds: Processor time of a decision of one environment [ms], the median.
    """

    delay: FloatArray
    priced: FloatArray
    moved: FloatArray
    milliseconds: float


def played(scheduler: DSSRA, scenario: Scenario, options: Options) -> Played:
    """Play a scheduler's episodes.

    Args:
        options: Number and length of episodes.
    """
    env = CollaPipeVectorEnv(options.episodes, scenario, "surrogate", autoreset_mode="Disabled")
    env.reset(seed=options.seed)
    delay, moved, spent = [], [], []
    backlog = np.zeros_like(env.state.backlog)
    for _ in range(options.rounds):
        start = time.process_time()
        decision = scheduler.allocate(env.state)
        spent.append(1e3 * (time.process_time() - start) / options.episodes)
        env.step_allocation(decision)
        record = env.last_round
        assert record is not None
        assert record.costs.migration is not None
        delay.append(record.costs.delay)
        backlog = record.backlog
        moved.append((record.costs.migration > 0.0).any(axis=-1))
    queues = 0.5 * np.square(backlog).sum(axis=(-2, -1))
    mean = np.mean(delay, axis=0)
    return Played(
        mean,
        mean + queues / (scenario.budgets.tradeoff_v * options.rounds),
        np.mean(moved, axis=0),
        float(np.median(spent)),
    )


def gap_figures(found: dict[str, FloatArray]) -> list[Figure]:
    """Shares of states in which the optimum of a round is missed, and the gaps.

    Args:
        found: Gaps by name.
    """
    figures = []
    for name, values in found.items():
        figures += [
            Figure(
                f"{name}, optimum missed by over {100 * MISSED:g} %", 100.0 * (values > MISSED).mean(), "%"
            ),
            Figure(f"{name}, missed by over {100 * FAR:g} %", 100.0 * (values > FAR).mean(), "%"),
            Figure(f"{name}, mean gap", 100.0 * values.mean(), "%"),
            Figure(f"{name}, worst gap", 100.0 * values.max(), "%"),
        ]
    return figures


def episode_figures(name: str, options: Options) -> list[Figure]:
    """Effect of the kept plan as a start on episodes of a scenario.

    Args:
        name: The scenario.
        options: Number and length of episodes.
    """
    scenario = load_scenario(name)
    plain, kept = (played(kind(scenario, threads=1), scenario, options) for kind in (DSSRA, Kept))
    change = estimate(100.0 * (kept.priced / plain.priced - 1.0))
    return [
        Figure(f"{name}, priced delay, dssra", float(plain.priced.mean()), "s"),
        Figure(f"{name}, priced delay, kept", float(kept.priced.mean()), "s"),
        Figure(f"{name}, change of it", change.mean, "%", change.low, change.high),
        Figure(f"{name}, delay, dssra", float(plain.delay.mean()), "s"),
        Figure(f"{name}, delay, kept", float(kept.delay.mean()), "s"),
        Figure(f"{name}, rounds with moments moved, dssra", 100.0 * float(plain.moved.mean()), "%"),
        Figure(f"{name}, rounds with moments moved, kept", 100.0 * float(kept.moved.mean()), "%"),
        Figure(f"{name}, decision, dssra", plain.milliseconds, "ms"),
        Figure(f"{name}, decision, kept", kept.milliseconds, "ms"),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and store; returns the exit status."""
    return command(Options, _run, __doc__, arguments)


def _run(options: Options) -> None:
    figures = gap_figures(gaps(options))
    for name in options.scenarios:
        figures += episode_figures(name, options)
    publish(options, WHAT, figures)


if __name__ == "__main__":
    sys.exit(main())
