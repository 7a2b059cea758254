"""Warnings about old names and forms, which point at the line of the user's code that uses them."""

from __future__ import annotations

import sys
import warnings

_BETWEEN = ("collapipe_env.", "gymnasium.", "stable_baselines3.")
"""This package, and the libraries that call it for the user."""


def warn_deprecated(message: str) -> None:
    """Warn about something that still works but has a better form.

    Args:
        message: The old form, and the form to use instead.
    """
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and f"{frame.f_globals.get('__name__')}.".startswith(_BETWEEN):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, DeprecationWarning, stacklevel=level)
