"""DSSRA, the drift-plus-penalty scheduler of CollaPipe, and its solvers."""

from .policy import DSSRA, DSSRABound
from .pricing import PlanPrice, price_plan

__all__ = ["DSSRA", "DSSRABound", "PlanPrice", "price_plan"]
