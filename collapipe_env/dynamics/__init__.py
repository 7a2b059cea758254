"""Processes: everything that moves from round to round, one file each.

Shadowing, fading and load come with the package; :func:`register_process` adds one of your own.
"""

from collapipe_env.dynamics.process import (
    Interruption,
    Limits,
    Price,
    Process,
    process_names,
    register_process,
)
from collapipe_env.dynamics.system import System

__all__ = ["Interruption", "Limits", "Price", "Process", "System", "process_names", "register_process"]
