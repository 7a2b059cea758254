"""The package's exceptions. Each names the value at fault, its place and the remedy."""

from __future__ import annotations

import difflib
import itertools
import reprlib
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

LARGEST_BITS = 1_000
"""Bits of the largest integer that is accepted as input: about the range of a float, and far below the
4,300 digits above which Python refuses to print an integer."""

_JOINERS = "\u200c\u200d"
"""Characters without width that words of Persian and Indian languages, and emoji, are written with."""
_LONGEST_NAME = 100
_SHORTEST_PART = 4
_MOST_COMPARED = 1_000
_MOST_LISTED = 40


class CollaPipeError(ValueError):
    """Base class of all errors that bad input raises."""


class ScenarioError(CollaPipeError):
    """A scenario has a misspelt, out-of-range or contradictory field, or cannot hold its model."""


class UnknownArgumentError(ScenarioError, TypeError):
    """An environment was given an unknown keyword argument or option.

    It is also a ``TypeError``, the usual error for an unexpected argument. TorchRL, for one, tries arguments
    and drops those that raise it.
    """


class NotResetError(ScenarioError, RuntimeError):
    """An environment was stepped before its first reset, or after a round that broke off.

    It is also a ``RuntimeError``, the usual error for calls in the wrong order.
    """


class AllocationError(CollaPipeError):
    """An allocation is infeasible or has the wrong shape."""


class DataError(CollaPipeError):
    """A data file is missing or malformed."""


class CheckpointError(CollaPipeError):
    """A checkpoint is missing, damaged or written for another purpose."""


class SchedulerError(CollaPipeError):
    """A user's own scheduler cannot be imported, built or played."""


class RewardError(CollaPipeError):
    """A user's own reward fails, or does not return one number for each environment.

    The round is not taken: queues, channels, loads, sums and the round's number are as before the step, which
    may be repeated. Real training is the exception: a reward sees the loss, so the learner has already
    trained by then and cannot go back. The environment then goes on after ``reset`` or ``set_state``.
    ``simulate`` restores the learner.
    """


class StateError(CollaPipeError):
    """A state cannot be taken, is damaged, or belongs to another kind of environment."""


class MissingPackageError(CollaPipeError, ModuleNotFoundError):
    """An optional package is not installed."""

    @classmethod
    def of(cls, use: str, package: str, extra: str) -> MissingPackageError:
        """Build the error, with the command that installs the package.

        Args:
            use: The use that needs it, in the plural.
            package: Name of the package.
            extra: Extra of this package that installs it.
        """
        return cls(f"{use} need {package}, which is not installed: pip install 'collapipe-env[{extra}]'")


def shown(value: object, longest: int = 300) -> str:
    """Return a value as messages show it: like ``repr``, but always short and without errors.

    However large or deep it is, about ``longest`` characters are kept; of an integer of very many digits, its
    size is given.
    """
    return shortened(_SHORT.repr(value), longest)


def shortened(text: str, longest: int = 300) -> str:
    """Return a text as messages show it, without its middle if it is much longer than ``longest``."""
    if len(text) <= longest:
        return text
    return f"{text[: longest // 2]} ... {text[-longest // 2 :]}"


def place_of(root: str, keys: Iterable[str | int]) -> str:
    """Return the place of a value in nested data, such as ``root.stages[2].shares``."""
    place = root
    for key in keys:
        place += f"[{key}]" if isinstance(key, int) else f".{key}" if place else str(key)
    return place


def fault_line(fault: Mapping[str, Any], root: str = "") -> str:
    """Return a fault that pydantic found as ``place is value: what is wrong``.

    Args:
        fault: One entry of a ``ValidationError``'s ``errors()``.
        root: Name of the data.
    """
    *above, name = fault["loc"] or ("",)
    if fault["type"] in {"missing", "missing_argument"}:
        return f"{place_of(root, above) or 'it'} lacks the field {shown(name)}"
    place = place_of(
        root, (key if isinstance(key, int) or key.isidentifier() else shown(key) for key in fault["loc"])
    )
    message = fault["msg"].replace("Input", "it").removeprefix("Value error, ")
    return f"{place} is {shown(fault['input'])}: {message}"


def fits_a_line(text: str) -> bool:
    """Return whether a name can stand in tables, pages, terminals and names of files.

    Line breaks, control characters, halves of surrogate pairs and marks that reverse the direction of writing
    cannot: they would act on the terminal or the page instead of being shown.
    """
    return text.isprintable() or all(
        c.isprintable() or c in _JOINERS or unicodedata.category(c) == "Zs" for c in text
    )


def reason(error: BaseException, lines: int = 1, longest: int = 300) -> str:
    """Return the beginning of an error's message, for quotation in another message.

    Args:
        lines: Number of its lines to keep, joined into one.

    Returns:
        The text; the name of the error's class if it has none.
    """
    try:
        text = str(error).strip() or type(error).__name__
    except Exception:  # an error of the user's own may not be able to say what it is
        text = f"its message cannot be shown: {type(error).__name__}.__str__ fails"
    kept = " ".join(line.strip() for line in text.splitlines()[:lines])
    # Control characters would act on the terminal that the message is shown on.
    return shortened("".join(c if c.isprintable() else "?" for c in kept), longest)


def nearest_name(name: object, valid: Iterable[str], likeness: float = 0.6) -> str:
    """Return a hint naming the valid name closest to ``name``.

    Args:
        name: The name that was not recognised. From a file it may be something other than text.
        valid: All valid names. If there are very many, only the first in order are compared and listed.
        likeness: Smallest ``difflib`` ratio, in [0, 1], of a name that counts as close.

    Returns:
        ``"did you mean 'x'?"`` when a name is close, otherwise ``"valid names: ..."``.
    """
    names = sorted(str(v) for v in valid)
    text = name if isinstance(name, str) else shown(name)
    if len(text) <= _LONGEST_NAME:  # comparing takes time with the product of both lengths
        compared = [v for v in itertools.islice(names, _MOST_COMPARED) if len(v) <= _LONGEST_NAME]
        ends = [v for v in compared if len(v) > _SHORTEST_PART and text.endswith(v)]
        close = sorted(ends, key=len)[-1:] or difflib.get_close_matches(text, compared, n=1, cutoff=likeness)
        if close:
            return f"did you mean {close[0]!r}?"
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return "valid names: " + ", ".join(v[:_LONGEST_NAME] for v in names[:_MOST_LISTED]) + more


class _Short(reprlib.Repr):
    """``reprlib``'s shortening, which here also handles integers above Python's limit of digits."""

    def repr_int(self, x: int, level: int) -> str:
        if x.bit_length() > LARGEST_BITS:
            return f"an integer of {x.bit_length():,} bits"
        return super().repr_int(x, level)


_SHORT = _Short()
_SHORT.maxstring = _LONGEST_NAME
_SHORT.maxother = _LONGEST_NAME
