"""The graph net beside DSSRA: priced delay, energy and decision time on sizes of its training and others.

All play the same held-out episodes, from empty queues; delays are paired with those of the reference. Run::

    python benchmarks/graph_net.py
    python benchmarks/graph_net.py --agent runs/medium-graph-seed*/checkpoints/best.safetensors --rounds 500
    python benchmarks/graph_net.py --agent zoo:graph-wild --reference dssra-plus --scenarios large-wild
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from measuring import BenchmarkOptions, command, store
from pydantic import Field
from tqdm import tqdm

from collapipe_env.agents.learned.agent_loading import load_agent
from collapipe_env.agents.learned.graph.graph_scheduler import GraphScheduler
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.resampling import estimate
from collapipe_env.evaluation.rounds import lasting
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.errors import CheckpointError, ScenarioError
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.schedulers import StateScheduler
from collapipe_env.simulator.state import SystemState

TEST_SEED = 1_300_000_000
"""First seed of the episodes; training and validation use others."""
TIMED_STATES = 30


class Options(BenchmarkOptions):
    """The graph net beside DSSRA."""

    agent: Annotated[tuple[str, ...], Field(min_length=1)] = ("zoo:graph",)
    """Graph nets: files, or one of the zoo; several are training runs."""
    scenarios: Annotated[tuple[str, ...], Field(min_length=1)] = ("small", "medium", "large", "xlarge")
    """Scenarios to play."""
    reference: str = "dssra"
    """Scheduler to which the nets are compared."""
    rounds: Annotated[int, Field(ge=1)] = 500
    """Rounds of an episode, at least 1."""
    episodes: Annotated[int, Field(ge=2)] = 10
    """Episodes, at least 2; two fifths of them on sizes xlarge, at least 2."""
    batch: Annotated[int, Field(ge=1)] = 64
    """Systems of a batch that is timed, at least 1; an eighth of them on sizes xlarge."""


@dataclass(frozen=True)
class Course:
    """Episodes of one scheduler.

    Attributes:
        priced_s: Mean delay of a round of each episode, plus the worth of the queues at the end [s].
        worst_energy: Worst node's average energy over its budget, mean over episodes.
        single_ms: Processor time of a decision [ms].
        batch_ms: Processor time of a decision in a batch [ms].
    """

    priced_s: list[float]
    worst_energy: float
    single_ms: float
    batch_ms: float


def play(
    title: str,
    scenario: Scenario,
    allocate: Callable[[SystemState], Allocation],
    rounds: int,
    episodes: int,
    batch: int,
) -> Course:
    """Play all episodes at once, then time decisions in the states of such a batch."""
    delays, energy = _played(title, scenario, allocate, rounds, episodes)
    states = CollaPipeVectorEnv(batch, lasting(scenario, 60), IdleLearner(batch), autoreset_mode="Disabled")
    states.reset(seed=TEST_SEED)
    singles, batches = [], []
    for _ in range(TIMED_STATES):
        start = time.process_time()
        plan = allocate(states.state)
        batches.append(1e3 * (time.process_time() - start) / batch)
        alone = states.state[:1]
        start = time.process_time()
        allocate(alone)
        singles.append(1e3 * (time.process_time() - start))
        states.step_allocation(plan)
    return Course(delays.tolist(), energy, float(np.median(singles)), float(np.median(batches)))


def _played(
    title: str,
    scenario: Scenario,
    allocate: Callable[[SystemState], Allocation],
    rounds: int,
    episodes: int,
) -> tuple[FloatArray, float]:
    """Priced delays of the episodes (E,) and the worst node's energy."""
    env = CollaPipeVectorEnv(
        episodes,
        lasting(scenario, rounds),
        IdleLearner(episodes),
        reward="lyapunov",
        autoreset_mode="Disabled",
    )
    env.reset(seed=TEST_SEED)
    for _ in tqdm(range(rounds), desc=f"{scenario.name}, {title}", leave=False, disable=None):
        env.step_allocation(allocate(env.state))
    summaries = [env.summary(row) for row in range(episodes)]
    returns = np.array([summary["return"] for summary in summaries])
    energy = float(np.mean([summary["energy_ratio_max"] for summary in summaries]))
    return -returns * env.reference_delay / rounds, energy


def compare(options: Options) -> None:
    """Play, print the table as Markdown, and store it."""
    rows = []
    # All nets are loaded before anything is played, so that a wrong file is found at once.
    nets = {name: [_net(agent, load_scenario(name)) for agent in options.agent] for name in options.scenarios}
    references = {
        name: _deciding(_from_states(options.reference, load_scenario(name))) for name in options.scenarios
    }
    other = options.reference
    print(
        f"| scenario | run | {other} (s) | net | energy, {other} | net | "
        f"ms single, {other} | net | in a batch, {other} | net |"
    )
    print("|---|---|" + "---:|" * 8)
    for name in options.scenarios:
        scenario = load_scenario(name)
        few = name.startswith("xlarge")
        episodes = max(2, 2 * options.episodes // 5) if few else options.episodes
        batch = max(1, options.batch // 8) if few else options.batch
        size = (options.rounds, episodes, batch)
        reference = play(options.reference, scenario, references[name], *size)
        runs = []
        for run, (agent, net) in enumerate(zip(options.agent, nets[name], strict=True)):
            course = play(f"net {run}", scenario, _deciding(net), *size)
            runs.append(course)
            print(
                f"| `{name}` | {run} | {np.mean(reference.priced_s):.3f} | {_paired(course, reference)} | "
                f"{_excess(reference)} | {_excess(course)} | "
                f"{reference.single_ms:.2f} | {_faster(course.single_ms, reference.single_ms)} | "
                f"{reference.batch_ms:.3f} | {_faster(course.batch_ms, reference.batch_ms)} |",
                flush=True,
            )
            rows.append(
                {"scenario": name, "run": run, "agent": agent, "reference": vars(reference)}
                | {"net": vars(course)}
            )
        if len(runs) > 1:
            print(_over_runs(name, reference, runs), flush=True)
    store(options, "the graph net beside a reference", rows=rows)


def _deciding(scheduler: StateScheduler) -> Callable[[SystemState], Allocation]:
    """Its decisions from states alone."""
    return lambda state: scheduler.act(None, state)


def _from_states(name: str, scenario: Scenario) -> StateScheduler:
    """A scheduler that decides from states."""
    found = make_scheduler(name, scenario)
    if not isinstance(found, StateScheduler):
        raise ScenarioError(f"--reference {name} does not decide from states: choose another, such as dssra")
    return found


def _net(agent: str, scenario: Scenario) -> GraphScheduler:
    """The graph net of a file for a scenario."""
    net = load_agent(agent, scenario)
    if not isinstance(net, GraphScheduler):
        raise CheckpointError(f"{agent} is not a graph net: give one of collapipe train --algo graph")
    return net


def _over_runs(name: str, reference: Course, runs: Sequence[Course]) -> str:
    """A line of the table with means and standard deviations over training runs."""

    def spread(values: Sequence[float]) -> str:
        return f"{np.mean(values):+.2f} % (sd {np.std(values, ddof=1):.2f})"

    delay = spread([float(_changes(course, reference).mean()) for course in runs])
    energy = spread([100.0 * (course.worst_energy - 1.0) for course in runs])
    return (
        f"| `{name}` | all | {np.mean(reference.priced_s):.3f} | {delay} | {_excess(reference)} | {energy} "
        "| | | | |"
    )


def _changes(course: Course, reference: Course) -> FloatArray:
    """Relative differences of the delays by episode [%]."""
    changes: FloatArray = 100.0 * (np.array(course.priced_s) / np.array(reference.priced_s) - 1.0)
    return changes


def _paired(course: Course, reference: Course) -> str:
    """Mean relative difference of the delays, with its 95 % bootstrap interval over episodes."""
    change = estimate(_changes(course, reference))
    return f"{change.mean:+.2f} % ({change.low:+.2f}...{change.high:+.2f})"


def _excess(course: Course) -> str:
    return f"{100.0 * (course.worst_energy - 1.0):+.2f} %"


def _faster(own: float, reference: float) -> str:
    return f"{own:.3f} ({own / reference:.2f} times)"


main = command(Options, compare, __doc__)

if __name__ == "__main__":
    sys.exit(main())
