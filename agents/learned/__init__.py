"""Learned schedulers: training, checkpoints, validation, and models of other libraries.

``LearnedScheduler`` is imported on first use, as reading a checkpoint needs fewer libraries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .sb3_models import LearnedScheduler

__all__ = ["LearnedScheduler"]


def __getattr__(name: str) -> Any:
    """Import what needs Stable-Baselines3 on first use."""
    if name == "LearnedScheduler":
        from .sb3_models import LearnedScheduler

        return LearnedScheduler
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
