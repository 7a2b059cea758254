"""Processes: the parts of the system that change from round to round, one file each.

Shadowing, fading and load come with the package; :func:`register_process` adds one of your own.
"""

from collapipe_env.physics.recovery import RecoveryTerms
from collapipe_env.simulator.process import CarriedArray, Process
from collapipe_env.simulator.process_registry import PROCESSES, register_process
from collapipe_env.simulator.round import Events
from collapipe_env.simulator.system import System

__all__ = [
    "PROCESSES",
    "CarriedArray",
    "Events",
    "Process",
    "RecoveryTerms",
    "System",
    "register_process",
]
