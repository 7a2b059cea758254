"""Learners: sources of the loss.

``TorchLearner`` trains a model; it is imported, together with PyTorch, on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collapipe_env.simulator.learner import Learner, LearningReport, RoundOutcome

if TYPE_CHECKING:
    from collapipe_env.training.real_learner import TorchLearner

__all__ = ["Learner", "LearningReport", "RoundOutcome", "TorchLearner"]


def __getattr__(name: str) -> Any:
    """Import the learner that needs PyTorch on first use."""
    if name == "TorchLearner":
        from collapipe_env.training.real_learner import TorchLearner

        return TorchLearner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
