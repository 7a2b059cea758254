"""DSSRA, the drift-plus-penalty scheduler of CollaPipe, and the solvers that it is made of."""

from .policy import DSSRA
from .pricing import PlanPrice, price_plan

__all__ = ["DSSRA", "PlanPrice", "price_plan"]
