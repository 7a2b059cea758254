"""Draw the front between delay and energy that DSSRA traces as V changes, from vector rewards.

Each scheduler plays the environment with vector rewards, and its point is the mean of their sums over an
episode. Writes the table of ``docs/views.md`` and a picture beside it. Run::

    python tools/make_pareto_front.py
    python tools/make_pareto_front.py --scenarios large --factors 0.1 1 10 --out front
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import tyro
from generated_parts import markdown_table, write_parts
from tqdm import tqdm

from collapipe_env.envs.views.objectives import MultiObjectiveVectorEnv
from collapipe_env.evaluation.plotting import COLOURS, MUTED, RC, new_figure, save
from collapipe_env.ground.errors import CollaPipeError
from collapipe_env.ground.files import write_text
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import SCHEDULERS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
PAGE, PICTURE = ROOT / "docs" / "views.md", ROOT / "docs" / "images" / "pareto.png"
FACTORS = tuple(4.0**power for power in range(-4, 5))
OTHERS = {"pipeline": "even split", "random": "random"}
"""Schedulers that are played beside DSSRA, with their names."""
HEADS = (
    "scheduler",
    "delay (T_ref a round)",
    "energy (budgets a round)",
    "fall of the loss (nat)",
    "round delay (s)",
    "worst node's energy over budget (%)",
    "on the front of delay and energy",
)


@dataclass(frozen=True)
class Options:
    """Fronts between delay and energy."""

    scenarios: tuple[str, ...] = ("small", "medium")
    """Scenarios, a panel and a table each."""
    factors: tuple[float, ...] = FACTORS
    """Factors by which V is multiplied."""
    episodes: int = 10
    """Episodes of each scheduler, the same for all."""
    out: Path | None = None
    """Folder for table and picture; by default the documentation."""


@dataclass(frozen=True)
class Point:
    """Means of a scheduler over episodes.

    Attributes:
        name: Name of the scheduler.
        factor: Factor by which ``V`` was multiplied; ``None`` for schedulers without ``V``.
        vector: Sums of the vector rewards over an episode (3,).
        rounds: Rounds of an episode.
        delay: Mean delay of a round [s].
        excess: Worst node's energy over its budget, less 1.
    """

    name: str
    factor: float | None
    vector: npt.NDArray[np.float64]
    rounds: int
    delay: float
    excess: float


def play(env: MultiObjectiveVectorEnv, scheduler: Any, name: str, factor: float | None) -> Point:
    """Play one episode in every row, from seed 0 on.

    Args:
        env: The environment, with automatic resets disabled.
        factor: Factor by which its ``V`` was multiplied.
    """
    observation, _ = env.reset(seed=0, options={})
    scheduler.reset()
    sums = np.zeros((env.num_envs, 3))
    over = np.zeros(env.num_envs, dtype=np.bool_)
    while not over.all():
        plan = scheduler.act(observation, env.state)
        step = env.step_allocation(plan) if isinstance(plan, Allocation) else env.step(plan)
        observation, rewards, terminated, truncated, _ = step
        sums += rewards
        over = terminated | truncated
    ended = env.ended_summaries
    return Point(
        name,
        factor,
        sums.mean(axis=0),
        env.rounds,
        float(ended["mean_delay"].mean()),
        float(ended["energy_ratio_max"].mean()) - 1.0,
    )


def points_of(name: str, factors: Sequence[float], episodes: int) -> list[Point]:
    """Points of a scenario: DSSRA with every ``V``, and the other schedulers.

    Args:
        name: The scenario.
        factors: Factors by which ``V`` is multiplied.
    """
    scenario = load_scenario(name)
    env = MultiObjectiveVectorEnv(episodes, scenario, learner="surrogate", autoreset_mode="Disabled")
    V = scenario.budgets.tradeoff_v
    found = []
    for factor in tqdm(factors, desc=f"{name}, DSSRA"):
        scheduler = SCHEDULERS.get("dssra")(scenario, tradeoff_v=factor * V)
        found.append(play(env, scheduler, f"DSSRA, {written(factor)} V", factor))
    for other, title in OTHERS.items():
        found.append(play(env, SCHEDULERS.get(other)(scenario), title, None))
    return found


def written(factor: float) -> str:
    """A factor as a short fraction or number."""
    fraction = Fraction(factor).limit_denominator(1000)
    return f"1/{fraction.denominator}" if fraction.numerator == 1 < fraction.denominator else f"{factor:g}"


def on_the_front(vectors: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Return which vectors (P, O) are on the front (P,): none other is as good in all and better in one.

    Args:
        vectors: Returns of each point, more is better.
    """
    better_or_equal = (vectors[:, None] >= vectors[None]).all(axis=-1)
    better = (vectors[:, None] > vectors[None]).any(axis=-1)
    dominated: npt.NDArray[np.bool_] = (better_or_equal & better).any(axis=0)
    return ~dominated


def table(points: Sequence[Point]) -> str:
    """Return the table of a scenario's points."""
    front = on_the_front(np.array([point.vector[:2] for point in points]))
    rows = [
        (
            point.name,
            f"{-point.vector[0] / point.rounds:.3f}",
            f"{-point.vector[1] / point.rounds:.3f}",
            f"{point.vector[2]:.4f}",
            f"{point.delay:.2f}",
            f"{100.0 * point.excess:+.1f}",
            "yes" if optimal else "no",
        )
        for point, optimal in zip(points, front, strict=True)
    ]
    return markdown_table(HEADS, rows)


def draw(found: dict[str, list[Point]]) -> Figure:
    """One panel for each scenario: energy above the budgets against the delay.

    Args:
        found: Points of each scenario.
    """
    with mpl.rc_context(RC):
        figure = new_figure(5.0 * len(found), 4.2)
        for axes, (name, points) in zip(
            figure.subplots(1, len(found), squeeze=False)[0], found.items(), strict=True
        ):
            places = np.array([-point.vector[:2] / point.rounds for point in points])
            walked = np.array([point.factor is not None for point in points])
            line = places[walked]
            axes.plot(*line.T, color=COLOURS[0], marker="o", markersize=4.5, label="DSSRA over V")
            height, labelled = float(line[:, 1].max()), -np.inf
            for point, place in zip(points, places, strict=True):
                if point.factor is not None and abs(place[1] - labelled) > 0.045 * height:
                    labelled = place[1]
                    text = f"{written(point.factor)} V"
                    axes.annotate(text, place, (6, 3), textcoords="offset points", fontsize=8, color=MUTED)
            # Random plans are so far off that the line would look upright: they are in the table only.
            right = 1.7 * float(line[:, 0].max())
            for index, (point, place) in enumerate(zip(points, places, strict=True)):
                if point.factor is None and place[0] <= right:
                    colour = COLOURS[1 + index - int(walked.sum())]
                    axes.plot(*place, "s", color=colour, label=point.name)
            axes.set_ylim(bottom=-0.03 * height)
            axes.margins(x=0.14)
            axes.set_title(name)
            axes.set_xlabel("delay of a round (T_ref)")
            axes.set_ylabel("energy above the budgets a round, all nodes (budgets)")
            axes.legend(loc="upper right")
    return figure


def main(options: Options) -> None:
    """Play everything, draw, and write the table."""
    found = {name: points_of(name, options.factors, options.episodes) for name in options.scenarios}
    parts = "\n\n".join(f"`{name}`:\n\n{table(points)}" for name, points in found.items())
    picture = PICTURE if options.out is None else options.out / "pareto.png"
    picture.parent.mkdir(parents=True, exist_ok=True)
    save(draw(found), picture)
    if options.out is None:
        write_parts(PAGE, {"front": parts})
        print(f"wrote {PAGE} and {picture}")
    else:
        write_text(options.out / "pareto.md", f"{parts}\n")
        print(f"wrote {options.out / 'pareto.md'} and {picture}")


if __name__ == "__main__":
    try:
        main(tyro.cli(Options, description=__doc__))
    except CollaPipeError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
