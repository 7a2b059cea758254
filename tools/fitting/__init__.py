"""Fitting the surrogate's constants: conditions of the real runs, the runs, and least squares."""
