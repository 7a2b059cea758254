"""Gap of DSSRA's decisions to the optimum, on random instances small enough to know it.

Draws small systems (layout, fading, background load, queues from empty to heavy), decides each round with
DSSRA and with the oracle, which tries every plan and optimises powers and shares for each, and prints the
relative gaps of the objective ``V T + sum z e``. The delay of the broadcast, which nothing decides, is left
out of both objectives: with it the gaps would look smaller. Run::

    python benchmarks/dssra_gap.py
    python benchmarks/dssra_gap.py --instances 20 --seed 7
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from measuring import RESULTS, command, store, within
from tqdm import tqdm

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.arrays import FloatArray
from collapipe_env.baselines.oracle import Oracle
from collapipe_env.scenario import Scenario, draw_layout, load_scenario
from collapipe_env.simulator.build import mean_state
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split
from collapipe_env.simulator.state import SystemState

SHAPES = ((1, 4, 5), (2, 2, 4), (2, 3, 3), (3, 2, 2))
"""Clusters, devices of each, blocks: at most 100 combinations of plans."""
LINKS = ("drop", "arq")
BACKLOGS = (0.0, 0.3, 3.0, 30.0)
"""Mean normalised backlogs, from empty queues to heavy ones."""
GOAL_MEDIAN, GOAL_WORST = 0.005, 0.03


@dataclass(frozen=True)
class Options:
    """DSSRA's gap to the optimum on random small instances."""

    instances: int = 200
    """Number of instances, 1 to 100,000; about a second each."""
    seed: int = 0
    """Seed of the instances, at least 0."""
    restarts: int = 2
    """Random starting points for the oracle's best plans, 0 to 100."""
    output: Path = RESULTS / "dssra_gap.json"
    """JSON file to write."""

    def check(self) -> None:
        """Refuse what cannot be run."""
        within(
            ("--instances", self.instances, 1, 100_000),
            ("--seed", self.seed, 0, 2**32),
            ("--restarts", self.restarts, 0, 100),
        )


@dataclass(frozen=True)
class Instance:
    """One round decided twice.

    Attributes:
        clusters: ``N``.
        devices: ``K``.
        blocks: ``L``.
        links: What packet errors do.
        backlog: Mean backlog of the queues that are not empty.
        combinations: Plans that the oracle tried.
        oracle: Its objective, without the broadcast.
        dssra: DSSRA's, likewise.
        gap: ``dssra / oracle - 1``.
        even_split: The even split's ``/ oracle - 1``: what there is to lose.
        spread: What restarts improved on the oracle's first optima, relative.
    """

    clusters: int
    devices: int
    blocks: int
    links: str
    backlog: float
    combinations: int
    oracle: float
    dssra: float
    gap: float
    even_split: float
    spread: float


def scenario_of(shape: tuple[int, int, int], links: str) -> Scenario:
    """A small scenario of a shape (clusters, devices, blocks)."""
    clusters, devices, blocks = shape
    return load_scenario(
        {
            "base": "small",
            "name": f"{clusters}x{devices} devices, {blocks} blocks, {links}",
            "workload": {"blocks": blocks},
            "cluster": {"clusters": clusters, "devices": devices, "layout": "per_episode"},
            "radio": {"link_errors": links, "waterfall_threshold": 2.0 if links == "arq" else 0.023},
        }
    )


def draw_state(scenario: Scenario, mean_backlog: float, rng: np.random.Generator) -> SystemState:
    """A random system before a round: layout, fading, background load, queues (no batch axis).

    Args:
        scenario: Ranges of the layout, diversity of the fading.
        mean_backlog: Mean of the exponential backlogs; a third of the nodes has none.
        rng: Source of all of it.
    """
    state = mean_state(scenario, draw_layout(scenario, rng))
    diversity = scenario.radio.diversity

    def fading(shape: tuple[int, ...]) -> FloatArray:
        return rng.gamma(diversity, 1.0 / diversity, shape)

    between = np.triu(fading(state.d2d_gain.shape), 1)
    load = rng.choice([0.5, 0.75, 1.0], state.speed.shape)
    backlog = rng.exponential(1.0, state.backlog.shape) * (rng.random(state.backlog.shape) > 1.0 / 3.0)
    backlog[:, 1:] *= state.present
    return replace(
        state,
        uplink_gain=state.uplink_gain * fading(state.uplink_gain.shape),
        d2d_gain=state.d2d_gain * (between + np.swapaxes(between, -1, -2)),
        speed=state.speed * load,
        compute_power=state.compute_power * load**3,  # kappa f^3
        backlog=mean_backlog * backlog,
    )


def measure(options: Options) -> list[Instance]:
    """Decide all instances with both, showing progress."""
    schedulers = {
        (shape, links): (
            DSSRA(scenario_of(shape, links)),
            Oracle(scenario_of(shape, links), restarts=options.restarts),
        )
        for shape in SHAPES
        for links in LINKS
    }
    results: list[Instance] = []
    bar = tqdm(range(options.instances), unit="instance", disable=not sys.stderr.isatty())
    for index in bar:
        rng = np.random.default_rng([options.seed, index])
        # Every shape meets every load and kind of link in turn.
        shape = SHAPES[index % len(SHAPES)]
        links = LINKS[index // len(SHAPES) % len(LINKS)]
        mean_backlog = BACKLOGS[index // (len(SHAPES) * len(LINKS)) % len(BACKLOGS)]
        dssra, oracle = schedulers[shape, links]
        state = draw_state(dssra.scenario, mean_backlog, rng)
        batch = state.map(lambda a: a[None])
        best = oracle.solve(state)
        ours = dssra.allocate(batch)
        even = even_split(dssra.parameters, batch)
        broadcast = dssra.tradeoff_v * float(round_costs(dssra.parameters, batch, ours).broadcast[0])
        least, reached, plain = (
            value - broadcast
            for value in (
                best.objective,
                float(oracle.objective(batch, ours)[0]),
                float(oracle.objective(batch, even)[0]),
            )
        )
        results.append(
            Instance(
                *shape,
                links,
                mean_backlog,
                best.combinations,
                least,
                reached,
                reached / least - 1.0,
                plain / least - 1.0,
                best.spread,
            )
        )
        bar.set_postfix_str(f"worst gap {100.0 * max(r.gap for r in results):.3f} %", refresh=False)
    return results


def statistics(results: Sequence[Instance]) -> dict[str, float]:
    """Median, mean, 95th percentile, greatest and least gap, and what they are to be compared with."""
    gaps = np.array([r.gap for r in results])
    return {
        "median": float(np.median(gaps)),
        "mean": float(gaps.mean()),
        "percentile_95": float(np.percentile(gaps, 95)),
        "worst": float(gaps.max()),
        "least": float(gaps.min()),
        "even_split_median": float(np.median([r.even_split for r in results])),
        "largest_spread_of_the_oracle": float(max(r.spread for r in results)),
    }


def report(results: Sequence[Instance]) -> str:
    """The table as text, by shape and by load, in percent."""
    groups: list[tuple[str, list[Instance]]] = [("all", list(results))]
    for clusters, devices, blocks in SHAPES:
        chosen = [r for r in results if (r.clusters, r.devices, r.blocks) == (clusters, devices, blocks)]
        groups.append((f"N={clusters} K={devices} L={blocks}", chosen))
    groups += [(f"links {links}", [r for r in results if r.links == links]) for links in LINKS]
    groups += [(f"backlog {mean:g}", [r for r in results if r.backlog == mean]) for mean in BACKLOGS]
    lines = ["instances        count  median %    mean %   95th %   worst %   even split, median %"]
    for name, chosen in groups:
        if chosen:
            s = {key: 100.0 * value for key, value in statistics(chosen).items()}
            lines.append(
                f"{name:15s} {len(chosen):6d} {s['median']:9.4f} {s['mean']:9.4f} {s['percentile_95']:8.4f} "
                f"{s['worst']:9.4f} {s['even_split_median']:22.1f}"
            )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and store; returns the exit status."""
    return command(Options, _run, __doc__, arguments)


def _run(options: Options) -> None:
    start = time.perf_counter()
    results = measure(options)
    seconds = time.perf_counter() - start
    figures = statistics(results)
    met = figures["median"] < GOAL_MEDIAN and figures["worst"] < GOAL_WORST
    print(report(results))
    print(
        f"goal (median < {100 * GOAL_MEDIAN:g} %, worst < {100 * GOAL_WORST:g} %): "
        f"{'met' if met else 'missed'}; worst: instance {int(np.argmax([r.gap for r in results]))}\n"
        f"the oracle's restarts improved on its first optima by at most "
        f"{100.0 * figures['largest_spread_of_the_oracle']:.4f} %; {seconds:.0f} s"
    )
    store(
        options.output,
        "relative gap of DSSRA's V T + sum z e, without the broadcast, to the oracle's",
        options,
        seconds=seconds,
        statistics=figures,
        goal_met=met,
        instances=[asdict(r) for r in results],
    )


if __name__ == "__main__":
    sys.exit(main())
