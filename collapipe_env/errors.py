"""The package's exceptions: every one names the value at fault, its place and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CollaPipeError(ValueError):
    """Base class of all errors that bad input raises."""


class ScenarioError(CollaPipeError):
    """A scenario has a misspelt, out-of-range or contradictory field, or cannot hold its model."""


class UnknownArgumentError(ScenarioError, TypeError):
    """A keyword argument or option that an environment does not know.

    Also a ``TypeError``, as for any function that is called with an argument it does not have: TorchRL, for
    one, tries arguments and goes on without those that are refused so.
    """


class AllocationError(CollaPipeError):
    """An allocation is infeasible or has the wrong shape."""


class DataError(CollaPipeError):
    """A data file is missing or malformed."""


class CheckpointError(CollaPipeError):
    """A checkpoint is missing, damaged or was written for something else."""


class RewardError(CollaPipeError):
    """A reward of one's own fails, or returns something else than a number for each environment."""


class StateError(CollaPipeError):
    """A state cannot be taken, is damaged, or belongs to another kind of environment."""


def nearest_name(name: str, valid: Iterable[str]) -> str:
    """Return a hint naming the valid name closest to ``name``.

    Args:
        name: The name that was not recognised.
        valid: All names that would have been.

    Returns:
        ``"did you mean 'x'?"`` when one is close, else ``"valid names: ..."``.
    """
    names = sorted(str(v) for v in valid)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    return "valid names: " + ", ".join(names)
