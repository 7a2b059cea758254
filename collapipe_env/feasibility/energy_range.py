"""Range of sensible energy budgets of a system, and the budgets of a tightness within it ([X])."""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from collapipe_env.feasibility.energy_search import EnergySearch
from collapipe_env.feasibility.sampled_rounds import sample_rounds
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.sections import BudgetSpec
from collapipe_env.simulator.build import Joules, system_parameters
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split

LARGEST = 1e12
"""Largest budget that a scenario may state [J]."""
ROUNDS = 100
"""Rounds of an episode for which a range is found, so that it stays the same however long one plays."""
DIGITS = 3
"""Digits of a budget, which is rounded up: what is printed is then the budget itself."""


class EnergyRange(NamedTuple):
    """Ends of the sensible budgets of a system.

    A budget is one number for all nodes of a kind, so both are about the node that uses most.
    """

    least: Joules
    """What plans of least energy need in the worst sampled episode, delay ignored."""
    full: Joules
    """What the even split at full power uses in a typical episode, at least ``least``."""

    def at(self, tightness: float) -> Joules:
        """Budgets ``least + tightness (full - least)``, rounded up to three digits.

        Args:
            tightness: 0 to 1.
        """
        pairs = zip(self.least, self.full, strict=True)
        return Joules(*(_rounded_up(least + tightness * (full - least)) for least, full in pairs))


def energy_range(scenario: Scenario) -> EnergyRange:
    """Find least and full energy in the sampled episodes of a scenario, whatever budgets it has.

    Systems that differ only in budgets, name, or length of an episode have the same range. Devices stand
    where the layout puts them, and all are there (:func:`~.feasibility_report.energy_feasibility`).

    Raises:
        ScenarioError: If some link hardly ever delivers, so that the energy is beyond every budget.
    """
    plain = dataclasses.replace(
        scenario,
        name="",
        budgets=BudgetSpec(bandwidth_floor=scenario.budgets.bandwidth_floor),
        dynamics=dataclasses.replace(scenario.dynamics, rounds=ROUNDS),
    )
    found = _range_of(plain)
    device, cu = found.least
    if not all(value < LARGEST for value in (*found.least, *found.full)):
        raise ScenarioError(
            f"scenario {scenario.name!r}: there are no budgets of a tightness, because a device needs "
            f"{device:.3g} J a round and a CU {cu:.3g} J: some links hardly ever deliver; improve them "
            "(radio.noise_dbm_per_hz, devices.power_max_w), or state budgets.device_energy_j and "
            "budgets.cu_energy_j"
        )
    return found


@lru_cache(maxsize=64)
def _range_of(scenario: Scenario) -> EnergyRange:
    """The range of a scenario with any stated budgets."""
    sample, parameters = sample_rounds(scenario), system_parameters(scenario)
    joules = round_costs(parameters, sample.state, even_split(parameters, sample.state)).energy
    of_systems = joules.reshape(sample.systems, sample.rounds, *joules.shape[1:]).mean(axis=1)
    typical = [float(np.median(of.max(axis=(1, 2)))) for of in (of_systems[..., 1:], of_systems[..., :1])]
    # The search lowers the largest use over budget: these budgets make uses of devices and CUs comparable.
    if not all(0.0 < value <= LARGEST for value in typical):
        return EnergyRange(Joules(*typical), Joules(*typical))
    budgets = dataclasses.replace(scenario.budgets, device_energy_j=typical[0], cu_energy_j=typical[1])
    use = EnergySearch(dataclasses.replace(scenario, budgets=budgets)).least_use()
    least = Joules(float(use[..., 1:].max()) * typical[0], float(use[..., 0].max()) * typical[1])
    return EnergyRange(least, Joules(*map(max, least, typical)))


def _rounded_up(value: float) -> float:
    """The next number of :data:`DIGITS` digits; values that differ from one only by rounding stay it."""
    step = math.floor(math.log10(value)) - DIGITS + 1
    count = math.ceil(value / 10.0**step * (1.0 - 1e-9))
    return float(f"{count}e{step}")
