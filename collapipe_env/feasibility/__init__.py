"""Whether any plans can meet the energy budgets of a scenario: a quick bound, a search and its report."""

from __future__ import annotations

from collapipe_env.feasibility.feasibility_report import (
    EnergyBudgetWarning,
    FeasibilityReport,
    assumption,
    energy_feasibility,
    remedy,
    warn_if_infeasible,
)

__all__ = [
    "EnergyBudgetWarning",
    "FeasibilityReport",
    "assumption",
    "energy_feasibility",
    "remedy",
    "warn_if_infeasible",
]
