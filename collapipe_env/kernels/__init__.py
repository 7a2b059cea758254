"""Compiled loops over the rows of a batch, behind the functions of the same name for NumPy arrays.

The formulas are written once, in :mod:`collapipe_env.physics`: see :mod:`collapipe_env.kernels.formulas`.
Every row of a batch is computed on its own, so its numbers do not depend on the other rows.
"""

# Registers the formulas for compiled code.
import collapipe_env.kernels.formulas  # noqa: F401
