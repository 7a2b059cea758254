"""DSSRA, the drift-plus-penalty scheduler of CollaPipe, and the solvers that it is made of."""

from .policy import DSSRA

__all__ = ["DSSRA"]
