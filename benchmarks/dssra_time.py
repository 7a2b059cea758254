"""Time of DSSRA's decisions and what they are worth against the even split.

Plays the same channels with both schedulers and prints, for every scenario, the time of a decision for one
environment (median and 95th percentile; the first call, which compiles or loads, is apart), the mean and the
95th percentile of the round delay, and the largest time-average energy use of a node over its budget::

    python benchmarks/dssra_time.py
    python benchmarks/dssra_time.py --scenarios medium --rounds 200 --envs 8
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.baselines.even_split import PipeLine
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.scenario import Scenario, load_scenario, scenario_names
from collapipe_env.simulator.build import action_codec
from collapipe_env.simulator.simulator import Simulator


@dataclass(frozen=True)
class Result:
    """One scheduler on one scenario.

    Attributes:
        seconds: Time of a decision of one environment, round by round [s].
        delay: Round delays (rounds, E) [s].
        ratio: Energy over budget (rounds, E, N, K+1).
    """

    seconds: np.ndarray
    delay: np.ndarray
    ratio: np.ndarray


def play(scenario: Scenario, scheduler: DSSRA | PipeLine, rounds: int, envs: int, seed: int) -> Result:
    """Play rounds in a batch of environments.

    Args:
        scenario: What to play.
        scheduler: Who decides.
        rounds: Rounds.
        envs: Environments; their decisions are timed together and divided.
        seed: Seed of the channels.
    """
    simulator = Simulator(scenario, IdleLearner(envs), envs)
    simulator.reset([np.random.default_rng([seed, e]) for e in range(envs)])
    codec = action_codec(scenario)
    observation = np.zeros((envs, 0), dtype=np.float32)
    seconds, delay, ratio = [], [], []
    for _ in range(rounds):
        start = time.perf_counter()
        action = scheduler.act(observation, simulator.state)
        seconds.append((time.perf_counter() - start) / envs)
        costs = simulator.step(codec.decode(action, simulator.state.memory_cap)).costs
        delay.append(costs.delay)
        ratio.append(costs.energy_ratio)
    return Result(np.array(seconds), np.array(delay), np.array(ratio))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Time and worth of DSSRA's decisions")
    parser.add_argument(
        "--scenarios", nargs="+", default=["small", "medium", "large"], choices=scenario_names()
    )
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--envs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print("scenario  scheduler  first [s]  decision [ms]  p95 [ms]  delay [s]  p95 [s]  worst node's energy")
    for name in options.scenarios:
        scenario = load_scenario(name)
        for scheduler in (PipeLine(scenario), DSSRA(scenario)):
            start = time.perf_counter()
            play(scenario, scheduler, 1, 1, options.seed)
            first = time.perf_counter() - start
            result = play(scenario, scheduler, options.rounds, options.envs, options.seed)
            milliseconds = 1e3 * result.seconds
            print(
                f"{name:9s} {scheduler.name:9s} {first:10.1f} {np.median(milliseconds):14.2f} "
                f"{np.percentile(milliseconds, 95):9.2f} {result.delay.mean():10.2f} "
                f"{np.percentile(result.delay, 95):8.2f} {result.ratio.mean(axis=0).max():20.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
