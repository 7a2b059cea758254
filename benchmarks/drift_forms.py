"""DSSRA with the exact drift and with its bound: delay, energy and decision time, scenario by scenario.

Both play the same episodes, from empty queues; they see the same channels. Run::

    python benchmarks/drift_forms.py
    python benchmarks/drift_forms.py --scenarios medium --rounds 500 --episodes 10
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import numpy as np
from measuring import BenchmarkOptions, Between, command, store
from tqdm import tqdm

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.rounds import lasting
from collapipe_env.scenario import Scenario, load_scenario

FORMS: tuple[Literal["bound", "exact"], ...] = ("bound", "exact")


@dataclass(frozen=True)
class Options(BenchmarkOptions):
    """DSSRA with the exact drift and with its bound."""

    scenarios: tuple[str, ...] = ("small", "medium", "large", "xlarge")
    """Scenarios to play."""
    rounds: Annotated[int, Between(1, 100_000)] = 100
    """Rounds of an episode, 1 to 100,000."""
    episodes: Annotated[int, Between(1, 1000)] = 4
    """Episodes, 1 to 1000."""
    per: str = "round"
    """Meaning of energy budgets: round, or second (docs/budgets.md)."""

    def check(self) -> None:
        """Refuse options that cannot be run."""
        super().check()
        for name in self.scenarios:
            load_scenario(name).with_overrides({"budgets.per": self.per})


@dataclass(frozen=True)
class Course:
    """Episodes of one form.

    Attributes:
        delay_s: Mean delay of a round [s].
        worst_energy: Worst node's average energy over its budget (power, if budgets are per second), mean
            over episodes.
        milliseconds: Processor time of one environment's decision [ms].
    """

    delay_s: float
    worst_energy: float
    milliseconds: float


def play(scenario: Scenario, form: Literal["bound", "exact"], rounds: int, episodes: int) -> Course:
    """Play all episodes at once."""
    env = CollaPipeVectorEnv(episodes, lasting(scenario, rounds), "surrogate", autoreset_mode="Disabled")
    env.reset(seed=0)
    scheduler = DSSRA(scenario, drift=form)
    scheduler.allocate(env.state)  # compiled before it is timed
    delays, energy, granted, seconds = [], np.zeros(()), np.zeros(episodes), 0.0
    for _ in tqdm(range(rounds), desc=f"{scenario.name}, {form}", leave=False):
        start = time.process_time()
        plan = scheduler.allocate(env.state)
        seconds += time.process_time() - start
        delays.append(env.step_allocation(plan)[4]["delay"])
        record = env.last_round
        assert record is not None
        energy = energy + record.costs.energy_ratio
        granted = granted + record.costs.allowance
    worst = float((energy / granted[:, None, None]).max(axis=(-2, -1)).mean())
    return Course(float(np.mean(delays)), worst, 1e3 * seconds / (rounds * episodes))


def compare(options: Options) -> None:
    """Play, print the table as Markdown, and store it."""
    rows = []
    print(
        "| scenario | delay (s), bound | exact | change | worst energy, bound | exact | ms, bound | exact |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name in options.scenarios:
        scenario = load_scenario(name).with_overrides({"budgets.per": options.per})
        bound, exact = (play(scenario, form, options.rounds, options.episodes) for form in FORMS)
        change = 100.0 * (exact.delay_s / bound.delay_s - 1.0)
        print(
            f"| `{name}` | {bound.delay_s:.3f} | {exact.delay_s:.3f} | {change:+.1f} % | "
            f"{bound.worst_energy:.3f} | {exact.worst_energy:.3f} | "
            f"{bound.milliseconds:.2f} | {exact.milliseconds:.2f} |",
            flush=True,
        )
        rows.append({"scenario": name, "bound": vars(bound), "exact": vars(exact)})
    store(options, "DSSRA with the exact drift and with its bound", rows=rows)


main = partial(command, Options, compare, __doc__)

if __name__ == "__main__":
    sys.exit(main())
