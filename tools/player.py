"""Plays of the documentation's tables: what is played, kept between runs, and the figures that cells show."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from joblib import Memory
from round_figures import FIGURES, Seen

import collapipe_env
from collapipe_env.agents.link_filter import LinkFilter
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.declared_sight import seen_by, sees_truth
from collapipe_env.evaluation.resampling import estimate
from collapipe_env.evaluation.rounds import lasting
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.feasibility import energy_feasibility
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.scenario.decision_names import COLLAPIPE
from collapipe_env.schedulers import SCHEDULERS
from collapipe_env.simulator.build import node_budgets, system_parameters

KEPT = Path(__file__).parents[1] / "runs" / "docs"
"""Folder of finished plays."""
MARGIN = 0.9
"""Largest use over budget after a budget is raised, as in the shipped scenarios."""
Figures = Mapping[str, np.ndarray[Any, Any]]
"""Figures by name, one value for each episode or one in all."""


@dataclass(frozen=True)
class Play:
    """What is played, with the fields that an entry of ``experiments.yaml`` may set.

    Attributes:
        base: Name of a shipped scenario.
        changes: Fields of the scenario by their dotted names (``with``).
        opens: Decisions that are open beside CollaPipe's own.
        feasible: Changes of the scenario for which energy budgets are raised until they can be met.
        scheduler: Name of the scheduler; ``nothing`` sends the action of zeros.
        options: Arguments of the scheduler's class.
        v: Factor of the weight ``V`` that the scheduler is given; 0 leaves it.
        sees: What the scheduler decides from: ``state``, ``truth``, or ``filtered`` gains.
        episodes: Episodes, played at once.
        rounds: Rounds of an episode; 0 for the scenario's.
        seed: Seed of the first episode.
    """

    base: str = "medium"
    changes: Mapping[str, Any] | None = None
    opens: Sequence[str] = ()
    feasible: Mapping[str, Any] | None = None
    scheduler: str = "dssra"
    options: Mapping[str, Any] | None = None
    v: float = 0.0
    sees: str = "state"
    episodes: int = 1
    rounds: int = 0
    seed: int = 0

    def scenario(self) -> Scenario:
        """The scenario that is played.

        Raises:
            ScenarioError: If the changes do not fit each other.
        """
        changes = dict(self.changes or {})
        if self.opens:
            changes["decisions"] = [*COLLAPIPE, *self.opens]
        scenario = load_scenario(self.base).with_overrides(changes)
        if self.feasible is not None:
            scenario = scenario.with_overrides(feasible_budgets(scenario.with_overrides(dict(self.feasible))))
        return lasting(scenario, self.rounds or None)


def feasible_budgets(scenario: Scenario) -> dict[str, float]:
    """Energy budgets of a scenario, raised where they cannot be met with a margin of 10 % [J]."""
    ratio, found = energy_feasibility(scenario).energy_ratio, {}
    for name, use in (("cu_energy_j", ratio[..., 0].max()), ("device_energy_j", ratio[..., 1:].max())):
        found[f"budgets.{name}"] = getattr(node_budgets(scenario), name)
        if use > MARGIN + 1e-6:
            budget = getattr(node_budgets(scenario), name) * float(use) / MARGIN
            step = 10.0 ** (math.floor(math.log10(budget)) - 1)
            found[f"budgets.{name}"] = math.ceil(budget / step) * step
    return found


class Value(NamedTuple):
    """A figure in a cell; as text it is the mean over episodes, or what its figure says instead.

    Attributes:
        each: Value of every episode (E,), or one in all.
        pooled: What makes one number of them.
        base: The same of the play with which the cell is compared.
    """

    each: np.ndarray[Any, Any]
    pooled: Callable[[Any], Any] = np.mean
    base: np.ndarray[Any, Any] | None = None

    def __float__(self) -> float:
        return float(self.pooled(self.each))

    def __format__(self, spec: str) -> str:
        return format(float(self), spec)

    @property
    def percent(self) -> float:
        """A share in per cent."""
        return 100.0 * float(self)

    @property
    def bold(self) -> str:
        """The mark of bold text where the value is above 1."""
        return "**" if float(self) > 1.0 else ""

    @property
    def change(self) -> float:
        """Difference from the base [% of the base]."""
        return 100.0 * (float(self) / float(self.pooled(self.base)) - 1.0)

    @property
    def least(self) -> float:
        """Least difference over episodes [%]."""
        return float(np.min(100.0 * (self.each / self.base - 1.0)))

    @property
    def most(self) -> float:
        """Greatest difference over episodes [%]."""
        return float(np.max(100.0 * (self.each / self.base - 1.0)))

    @property
    def paired(self) -> Any:
        """Mean of the episodes' differences with its 95 % bootstrap interval [%]: ``mean, low, high``."""
        return estimate(100.0 * (self.each / self.base - 1.0))

    @property
    def half(self) -> float:
        """Half the 95 % interval of ``change`` by the normal law over episodes [%]."""
        parts = 100.0 * (self.each - self.base) / np.mean(self.base)
        return float(1.96 * parts.std(ddof=1) / np.sqrt(len(parts)))

    @property
    def low(self) -> float:
        """Lower end of that interval [%]."""
        return self.change - self.half

    @property
    def high(self) -> float:
        """Upper end of that interval [%]."""
        return self.change + self.half


@cache
def sources() -> str:
    """Digest of the package's sources: what is kept belongs to them."""
    folder = Path(collapipe_env.__file__).parent
    links = [folder, *(part for part in folder.iterdir() if part.is_symlink())]
    files = sorted(
        file for top in links for kind in ("*.py", "*.yaml", "*.safetensors") for file in top.rglob(kind)
    )
    own = [Path(__file__), Path(__file__).with_name("round_figures.py")]
    return hashlib.sha256(b"".join(file.read_bytes() for file in (*files, *own))).hexdigest()


def played(play: Play, names: Sequence[str]) -> dict[str, Value]:
    """Figures of a play by name; finished plays are kept.

    Raises:
        CollaPipeError: If the scenario is none, or the scheduler cannot play it.
    """
    play.scenario()  # a refusal is no play
    kept = Memory(KEPT, verbose=0).cache(figures_of, ignore=["play"])
    found = kept(play, sorted(names), repr(play), sources())
    return {name: Value(found[name], FIGURES[name].pooled) for name in names}


def figures_of(
    play: Play,
    names: Sequence[str],
    what: str,  # noqa: ARG001 - these two are what a finished play is kept by
    of: str,  # noqa: ARG001
) -> Figures:
    """Play, and reduce every figure over rounds."""
    rows = [[FIGURES[name].each(seen) for name in names] for seen in rounds(play)]
    each = zip(*rows, strict=True)
    return {
        name: np.asarray(FIGURES[name].over(list(taken))) for name, taken in zip(names, each, strict=True)
    }


def rounds(play: Play) -> Iterator[Seen]:
    """Play from the beginning of the episodes, and hand out every round when it is over."""
    scenario, scheduler = play.scenario(), None
    if play.options or play.v:
        weight = {"tradeoff_v": play.v * system_parameters(scenario).tradeoff_v} if play.v else {}
        scheduler = SCHEDULERS.get(play.scheduler)(scenario, **(play.options or {}), **weight)
    elif play.scheduler != "nothing":
        scheduler = make_scheduler(play.scheduler, scenario)
    form = getattr(scheduler, "observation", "flat")
    env = CollaPipeVectorEnv(play.episodes, scenario, "surrogate", reward="delay", observation=form)
    oracle = play.sees == "truth" or sees_truth(scheduler)
    links = LinkFilter(scenario) if play.sees == "filtered" else None
    observation, _ = env.reset(seed=play.seed)
    if scheduler is not None:
        scheduler.reset()
    for _ in range(play.rounds or scenario.dynamics.rounds):
        known, truth = seen_by(env, oracle=oracle), env.truth
        known = known if links is None else links.update(known)
        begun = time.perf_counter()
        plan = (
            np.zeros(env.action_space.shape or ()) if scheduler is None else scheduler.act(observation, known)
        )
        seconds = time.perf_counter() - begun
        observation = (env.step_allocation if isinstance(plan, Allocation) else env.step)(plan)[0]
        yield Seen(env, scenario, env.last_round, known, truth, seconds)
