"""Array libraries that the environments run on: NumPy, with compiled loops, and PyTorch.

A backend is an object of five methods (:class:`~collapipe_env.ground.backends.base.Backend`); the world, the
MDP and the vector environment are the same code on each. PyTorch's is imported on first use.
"""

from collapipe_env.ground.backends.base import Backend, Rows
from collapipe_env.ground.backends.numpy_backend import NUMPY

__all__ = ["NUMPY", "Backend", "Rows"]
