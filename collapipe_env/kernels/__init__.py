"""Compiled loops over the rows of a batch, behind the functions of the same name for NumPy arrays.

The formulas stand in :mod:`collapipe_env.physics`, once: see :mod:`collapipe_env.kernels.formulas`.
Every row of a batch is computed by itself, so its numbers do not depend on the other rows.
"""
