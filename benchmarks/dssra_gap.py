"""Gap of DSSRA's decisions to the optimum, on random instances small enough to know it.

Draws small systems (layout, fading, background load, queues from empty to heavy), decides each round with
DSSRA and with the oracle, which tries every plan and optimises powers and shares for each, and prints the
relative gaps of the objective, ``V T + L(t+1) - L(t)`` or the paper's bound ``V T + sum z e``. The delay of
the broadcast and the drift of a round without energy, which no decision changes, are left out of both
objectives: with them the gaps would look smaller. Passes and messages have no overheads here, so the largest
number of micro-batches is the best and the oracle need not try all. Run::

    python benchmarks/dssra_gap.py
    python benchmarks/dssra_gap.py --drift bound
    python benchmarks/dssra_gap.py --instances 20 --seed 7
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Literal

import numpy as np
from measuring import BenchmarkOptions, Figure, command, publish
from pydantic import Field
from tqdm import tqdm

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.baselines.oracle import Oracle
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.physics.queues import idle_drift
from collapipe_env.scenario import OverheadSpec, Scenario, draw_layout, load_scenario
from collapipe_env.simulator.build import mean_state
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split
from collapipe_env.simulator.state import SystemState

SHAPES = ((1, 4, 5), (2, 2, 4), (2, 3, 3), (3, 2, 2))
"""Clusters, devices of each, blocks: at most 100 combinations of plans."""
LINKS = ("drop", "arq")
BACKLOGS = (0.0, 0.3, 3.0, 30.0)
"""Mean normalised backlogs, from empty queues to heavy ones."""
GOAL_MEDIAN, GOAL_WORST = 0.5, 3.0
"""Largest median and worst gap wanted [%]."""
WHAT = "relative gap of DSSRA's objective, without the parts that no decision changes, to the oracle's"


class Options(BenchmarkOptions):
    """DSSRA's gap to the optimum on random small instances."""

    instances: Annotated[int, Field(ge=1)] = 200
    """Number of instances, at least 1; about a second each."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the instances, at least 0."""
    drift: Literal["exact", "bound"] = "exact"
    """The drift plus penalty itself, or the paper's bound of it."""
    restarts: Annotated[int, Field(ge=0)] = 2
    """Random starting points for the oracle's best plans."""


@dataclass(frozen=True)
class Instance:
    """One round decided twice.

    Attributes:
        shape: Clusters, devices and blocks.
        links: What packet errors do.
        backlog: Mean backlog of the queues that are not empty.
        oracle: The oracle's objective, without the broadcast.
        gap: DSSRA's objective over the oracle's, less 1.
        even_split: The even split's objective over the oracle's, less 1: what there is to lose.
        spread: Relative improvement by restarts over the oracle's first optima.
    """

    shape: tuple[int, int, int]
    links: str
    backlog: float
    oracle: float
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
            "overheads": dict.fromkeys(asdict(OverheadSpec()), 0.0),
        }
    )


def draw_state(scenario: Scenario, mean_backlog: float, rng: np.random.Generator) -> SystemState:
    """A random system before a round: layout, fading, background load, queues (no batch axis).

    Args:
        scenario: Ranges of the layout, diversity of the fading.
        mean_backlog: Mean of the exponential backlogs; a third of the nodes has none.
        rng: Source of all random numbers.
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
    """Decide all instances with both schedulers, showing progress."""
    schedulers = {
        (shape, links): (
            DSSRA(scenario_of(shape, links), drift=options.drift),
            Oracle(scenario_of(shape, links), drift=options.drift, restarts=options.restarts),
        )
        for shape in SHAPES
        for links in LINKS
    }
    results: list[Instance] = []
    # Every shape meets every load and kind of link in turn.
    kinds = list(itertools.product(BACKLOGS, LINKS, SHAPES))
    for index in tqdm(range(options.instances), unit="instance", disable=None):
        backlog, links, shape = kinds[index % len(kinds)]
        dssra, oracle = schedulers[shape, links]
        state = draw_state(dssra.scenario, backlog, np.random.default_rng([options.seed, index]))
        batch = state.map(lambda a: a[None])
        best, ours = oracle.solve(state), dssra.allocate(batch)
        even = even_split(dssra.parameters, batch)
        given = dssra.tradeoff_v * float(round_costs(dssra.parameters, batch, ours).broadcast[0])
        if options.drift == "exact":
            given += float(idle_drift(state.backlog))
        reached, plain = (float(oracle.objective(batch, plan)[0]) - given for plan in (ours, even))
        least = best.objective - given
        results.append(
            Instance(shape, links, backlog, least, reached / least - 1.0, plain / least - 1.0, best.spread)
        )
    return results


def figures(results: Sequence[Instance]) -> list[Figure]:
    """Gaps in percent, and figures to compare them with."""
    gaps = 100.0 * np.array([r.gap for r in results])
    worst = results[int(np.argmax(gaps))]
    clusters, devices, blocks = worst.shape
    where = f"N={clusters} K={devices} L={blocks}, links {worst.links}, backlog {worst.backlog:g}"
    return [
        Figure("median gap", float(np.median(gaps)), "%", goal=GOAL_MEDIAN),
        Figure("mean gap", float(gaps.mean()), "%"),
        Figure("95th percentile", float(np.percentile(gaps, 95)), "%"),
        Figure("worst gap", float(gaps.max()), "%", goal=GOAL_WORST, note=where),
        Figure("even split, median gap", 100.0 * float(np.median([r.even_split for r in results])), "%"),
        Figure("oracle, most that restarts improved", 100.0 * max(r.spread for r in results), "%"),
    ]


def _run(options: Options) -> None:
    results = measure(options)
    publish(options, WHAT, figures(results), instances=[asdict(r) for r in results])


main = command(Options, _run, __doc__)

if __name__ == "__main__":
    sys.exit(main())
