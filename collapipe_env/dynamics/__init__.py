"""Processes: the parts of the system that change from round to round, one file each.

Shadowing, fading and load come with the package; :func:`register_process` adds one of your own.
"""

from collapipe_env.dynamics.process import (
    PROCESSES,
    Interruption,
    Limits,
    Observed,
    Price,
    Process,
    register_process,
)
from collapipe_env.dynamics.system import System

__all__ = [
    "PROCESSES",
    "Interruption",
    "Limits",
    "Observed",
    "Price",
    "Process",
    "System",
    "register_process",
]
