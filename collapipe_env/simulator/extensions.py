"""Old module of schedules and split training, now in ``physics.schedules``."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

_NEW = {
    "Crossings": "crossings",
    "flat_chains": "chains",
    "interleaved_crossings": "crossings",
    "memory_terms": "storage",
    "pipeline_blocks": "segments",
    "scheduled_steps": "chains",
    "server_times": "split",
    "split_steps": "split",
    "stored_micro_batches": "storage",
    "update_payloads": "split",
    "version_gaps": "segments",
    "with_weight_gradients": "chains",
}


def __getattr__(name: str) -> Any:
    if name not in _NEW:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = f"collapipe_env.physics.schedules.{_NEW[name]}"
    warnings.warn(f"{__name__}.{name} has moved: import it from {module}", DeprecationWarning, stacklevel=2)
    return getattr(import_module(module), name)
