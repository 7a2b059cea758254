"""Failures of a user's own code while a command runs, for instance of the user's own process."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from collapipe_env.evaluation.neighbours import is_within
from collapipe_env.evaluation.own_code import blame, named_places
from collapipe_env.evaluation.sudden_end import no_sudden_end
from collapipe_env.ground.errors import CollaPipeError, ScenarioError


@contextmanager
def own_failures_blamed() -> Iterator[None]:
    """Inside this context, errors of a user's own code are blamed on it, and it cannot end the process.

    Raises:
        ScenarioError: If code from a file or module that was named on the command line, or from a file beside
            it, raised anything but an interrupt or an error of this package. Names the error, file and line.
    """
    try:
        with no_sudden_end(_own_code_runs):
            yield
    except (CollaPipeError, KeyboardInterrupt, BrokenPipeError):
        raise
    except BaseException as error:  # SystemExit, too, which would end the run with a status of its own
        file = _last_own_file(error)
        if file is None:
            raise
        raise ScenarioError(f"your own code failed: {blame(error, file)}") from error


def _own_code_runs() -> bool:
    """Whether a user's own code is on the stack; other code, such as a rank that must end, may exit."""
    places, frame = named_places(), sys._getframe()
    while frame is not None and places:
        if is_within(Path(frame.f_code.co_filename), places):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _last_own_file(error: BaseException) -> str | None:
    """The user's file in which an error was raised or passed last; ``None`` if it did not come from one."""
    places = named_places()
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)] if places else []
    return next((file for file in reversed(files) if is_within(Path(file), places)), None)
