"""Whether any plans can meet the energy budgets (`system_model.md` section 5)."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from collapipe_env.feasibility.energy_search import EnergySearch
from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import budget_period, node_budgets
from collapipe_env.simulator.system import MOBILITY

HOPELESS = 1e6
"""Multiple of a budget above which raising it is no remedy, because some link hardly ever delivers."""


class EnergyBudgetWarning(UserWarning):
    """In some episodes of a scenario, no plans found by the search meet the energy budgets."""


@dataclass(frozen=True, eq=False)
class FeasibilityReport:
    """The least energy use, over budget, that a search ignoring delay found in a sample of episodes.

    Attributes:
        energy_ratio: Energy over budget of each node, averaged over an episode's rounds (E, N, K+1).
        budget_period_s: Period of a budget [s]; ``None`` where budgets are per round. Budgets per second can
            always be met: a round of ``e`` budgets may last ``e`` such periods.
    """

    energy_ratio: FloatArray
    budget_period_s: float | None = None

    @property
    def least_use(self) -> FloatArray:
        """Energy over budget of each cluster's worst node (E, N); at most 1 where budgets can be met."""
        use: FloatArray = self.energy_ratio.max(axis=-1)
        return use

    @property
    def worst_node(self) -> IntArray:
        """The node of :attr:`least_use` (E, N); 0 is the CU."""
        return np.asarray(self.energy_ratio.argmax(axis=-1))

    @property
    def episodes(self) -> int:
        """Sampled episodes ``E``."""
        return len(self.energy_ratio)

    @property
    def broken(self) -> BoolArray:
        """Episodes in which some budget cannot be met (E,)."""
        over = np.asarray((self.energy_ratio > 1.0).any(axis=(-2, -1)))
        return over if self.budget_period_s is None else np.zeros_like(over)

    @property
    def share(self) -> float:
        """Share of the episodes in which some budget cannot be met, 0 to 1."""
        return float(self.broken.mean())

    @property
    def feasible(self) -> bool:
        """True where every budget can be met in every sampled episode."""
        return not self.broken.any()

    @property
    def verdict(self) -> str:
        """Whether the budgets can be met, in a line."""
        if self.budget_period_s is not None:
            longest = self.budget_period_s * float(np.median(self.least_use.max(axis=-1)))
            return (
                "energy budgets are per second: plans of least energy meet them in rounds of "
                f"{longest:.3g} s (median episode) and longer"
            )
        if self.feasible:
            return f"energy budgets can be met in all {self.episodes} sampled episodes"
        return f"energy budgets cannot be met in {_part(int(self.broken.sum()), self.episodes)}"

    def of_kinds(self) -> list[LeastUse]:
        """Least use of each cluster's CU and of its devices, cluster by cluster."""
        found = []
        for cluster in range(self.energy_ratio.shape[1]):
            for kind in (slice(0, 1), slice(1, None)):
                of = self.energy_ratio[:, cluster, kind]
                # The node that is over budget most often; of equal ones that with the largest use.
                node = int(np.lexsort((of.max(axis=0), (of > 1.0).sum(axis=0)))[-1])
                use = of.max(axis=-1)
                over = int((use > 1.0).sum())
                found.append(
                    LeastUse(cluster, kind.start + node, float(np.median(use)), float(use.max()), over)
                )
        return found


class LeastUse(NamedTuple):
    """Least use of a cluster's CU, or of its device that is worst off in each sampled episode."""

    cluster: int
    node: int
    """The node that is over budget most often, or else uses most: 0 for the CU, ``k + 1`` for device k."""
    median: float
    """Energy over budget in the median episode."""
    worst: float
    """In the worst episode."""
    over: int
    """Episodes over budget."""


@lru_cache(maxsize=64)
def energy_feasibility(scenario: Scenario) -> FeasibilityReport:
    """Search the least energy use of a scenario in a sample of its episodes, ignoring delay.

    64 episodes are drawn; huge systems are sampled less. The seeds are the function's own; equal scenarios
    have equal reports. In these episodes the search minimises the largest time-average of energy over budget
    in each cluster: segments are the cheapest in each round, at prices that rise with the energy used so far.

    The report is about what plans can achieve, not about a policy, which begins with empty queues and has
    used a few per cent more than its budgets after 100 rounds: near the border a policy is over budget in far
    more episodes than :attr:`FeasibilityReport.share` says. The least use may come out a few per cent
    too high.

    Raises:
        ScenarioError: If a layout of the sample cannot be placed.
    """
    return FeasibilityReport(EnergySearch(scenario).least_use(), budget_period(scenario))


@lru_cache(maxsize=64)
def warn_if_infeasible(scenario: Scenario) -> None:
    """Warn once for each scenario with episodes whose budgets no plans meet, whatever links devices have.

    Only a bound is worked out (:meth:`EnergySearch.bound`), unless it is above some budget: then the warning
    takes its numbers from the search. :func:`energy_feasibility` also finds budgets that links between
    devices use up. Budgets of a tightness can always be met.

    Warns:
        EnergyBudgetWarning: Names the node that is most often over budget, the share of the episodes, the
            field and a remedy. Where devices walk, it says that the estimate has them stand still.
    """
    stated = scenario.budgets.tightness is None and budget_period(scenario) is None
    if stated and (EnergySearch(scenario).bound() > 1.0).any():
        text = _warning(scenario, energy_feasibility(scenario))
        warnings.warn(text, EnergyBudgetWarning, stacklevel=4)


def _warning(scenario: Scenario, report: FeasibilityReport) -> str:
    over = report.energy_ratio > 1.0
    often = over.sum(axis=0)
    # Of equally frequent nodes, the one with the largest use.
    cluster, node = np.unravel_index(
        int(np.lexsort((report.energy_ratio.max(axis=0).ravel(), often.ravel()))[-1]), often.shape
    )
    count, total = int(often[cluster, node]), int(report.broken.sum())
    where = "" if count == report.episodes else f" in {_part(count, report.episodes)}"
    others = "" if count == total else f", and some node's in {_part(total, report.episodes)}"
    use = np.median(report.energy_ratio[over[:, cluster, node], cluster, node])
    walks = assumption(scenario)
    grows = f"would grow under every policy. {walks}" if walks else "grows under every policy."
    return (
        f"scenario {scenario.name!r}: the energy budget of {node_name(int(node))} of cluster {cluster} "
        f"cannot be met{where}{others}. Even ignoring delay it typically uses {use:.3g} times its budget "
        f"then, and its queue {grows} {remedy(scenario, report)}"
    )


def assumption(scenario: Scenario) -> str:
    """Assumption of the report about devices that move, in a sentence or two; empty where none does."""
    walks = dict(scenario.dynamics.processes).get(MOBILITY)
    if walks is None:
        return ""
    text = "This is an estimate with all devices there, where the layout puts them; here they walk"
    if walks.area != "open":
        return f"{text}, and what a round uses changes with their places."
    return (
        f"{text}, leave and come back: while one is away its queue stays constant, and the others of its "
        "cluster hold its blocks and use more."
    )


def remedy(scenario: Scenario, report: FeasibilityReport) -> str:
    """Remedy of budgets that cannot be met, in one sentence."""
    ratios = {
        "cu_energy_j": float(report.energy_ratio[..., 0].max()),
        "device_energy_j": float(report.energy_ratio[..., 1:].max()),
    }
    budgets, tightness = node_budgets(scenario), scenario.budgets.tightness
    raised = [
        f"budgets.{name} from {given:g} to {_rounded_up(ratio * given):g}"
        for name, ratio in ratios.items()
        if 1.0 < ratio <= HOPELESS and (given := getattr(budgets, name))
    ]
    advice = []
    if tightness is not None:
        advice.append(f"raise budgets.tightness above {tightness:g}")
    elif raised:
        advice.append(f"raise {' and '.join(raised)}, which is enough in all sampled episodes")
    if ratios["device_energy_j"] > 1.0:
        advice.append("offer more memory")
    if ratios["cu_energy_j"] > 1.0:
        advice.append("bring the CUs nearer (cluster.cu_distance_max_m)")
        if scenario.radio.shadowing_db[0] > 0.0:
            advice.append("lower radio.d2e_shadowing_db")
    if scenario.cluster.layout == "fixed":
        advice.append("take another layout_seed")
    if max(ratios.values()) > HOPELESS:
        advice.append(
            "improve the links (radio.noise_dbm_per_hz, devices.power_max_w): some hardly ever deliver"
        )
    text = ", or ".join(advice)
    return text[0].upper() + text[1:]


def _rounded_up(value: float) -> float:
    """The next larger number of two digits; numbers that differ only by rounding count as equal."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return (math.floor(value / step * (1.0 + 1e-9)) + 1) * step


def _part(count: int, whole: int) -> str:
    return f"{count} of {whole} sampled episodes ({100.0 * count / whole:.0f} %)"


def node_name(node: int) -> str:
    """Name of a node by its index: 0 is the CU."""
    return "the CU" if node == 0 else f"device {node - 1}"
