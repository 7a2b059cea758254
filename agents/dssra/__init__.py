"""DSSRA, the drift-plus-penalty scheduler of CollaPipe, and the solvers that it is made of."""

from .policy import DSSRA, DSSRABound
from .pricing import PlanPrice, price_plan

__all__ = ["DSSRA", "DSSRABound", "PlanPrice", "price_plan"]
