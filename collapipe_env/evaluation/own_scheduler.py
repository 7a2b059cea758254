"""A scheduler of the user's own while it plays: whatever goes wrong in it names it, the file and the line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from collapipe_env.errors import SchedulerError
from collapipe_env.evaluation.own_code import Factory, OwnCode, blame
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import Decision, Scheduler
from collapipe_env.simulator.state import SystemState

LONGEST_NAME = 60
"""Characters of a scheduler's name that tables and figures have room for."""


class OwnScheduler:
    """A scheduler that this package did not write.

    Args:
        label: What the user calls it.
        factory: Makes it.
        scenario: What it is to schedule.
        code: Where the factory came from; ``None`` if it was handed over in Python.

    Raises:
        SchedulerError: If it cannot be built, or what is built is no scheduler.
    """

    def __init__(self, label: str, factory: Factory, scenario: Scenario, code: OwnCode | None = None) -> None:
        self._label, self._code = label, code
        with self._blamed("cannot be built", "it is called with the scenario alone"):
            self._inner: Scheduler = factory(scenario)
        for method in ("reset", "act"):
            if not callable(getattr(self._inner, method, None)):
                raise SchedulerError(
                    f"scheduler {label!r} is {_described(self._inner)}, which has no {method}: a scheduler "
                    "has name, reset(seed) and act(observation, state)"
                )
        name = getattr(self._inner, "name", None)
        if (
            not isinstance(name, str)
            or not name.strip()
            or not name.isprintable()
            or len(name) > LONGEST_NAME
        ):
            raise SchedulerError(
                f"scheduler {label!r} has name = {name!r}: give it one line of 1 to {LONGEST_NAME} "
                "characters for tables and figures"
            )
        self.name = name

    def reset(self, seed: int | None = None) -> None:
        """Forget earlier episodes."""
        with self._blamed("failed in reset", "it is called as reset(seed)"):
            self._inner.reset(seed)

    def act(self, observation: npt.NDArray[np.float32], state: SystemState) -> Decision:
        """Decide one round."""
        with self._blamed("failed in act", ""):
            return self._inner.act(observation, state)

    def refused(self, decision: object, expected: tuple[int, ...], error: Exception) -> SchedulerError:
        """The error for a decision that cannot be played.

        Args:
            decision: What ``act`` returned.
            expected: Shape of actions.
            error: What playing it raised.
        """
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        return SchedulerError(
            f"scheduler {self._label!r}: act returned {_described(decision)}, which cannot be played "
            f"({reason}): return actions of shape {expected} or an Allocation"
        )

    def fingerprint(self) -> str:
        """What its decisions depend on besides its source, if it says so; for instance a policy's weights."""
        asked = getattr(self._inner, "fingerprint", None)
        if not callable(asked):
            return ""
        with self._blamed("failed in fingerprint", ""):
            return str(asked())

    @contextmanager
    def _blamed(self, what: str, hint: str) -> Iterator[None]:
        surroundings: AbstractContextManager[None]
        surroundings = nullcontext() if self._code is None else self._code.running()
        try:
            with surroundings:
                yield
        except (Exception, SystemExit) as error:
            file = None if self._code is None else self._code.file
            # Only a call that did not fit has no line of the user's own code in it.
            remedy = f": {hint}" if hint and isinstance(error, TypeError) else ""
            raise SchedulerError(f"scheduler {self._label!r} {what}: {blame(error, file)}{remedy}") from error


def _described(value: Any) -> str:
    """A value's type, and its shape where it has one."""
    if value is None:
        return "None"
    shape = getattr(value, "shape", None)
    kind = type(value).__name__
    text = f"{'an' if kind[0] in 'AEIOaeio' else 'a'} {kind}"
    return text if shape is None else f"{text} of shape {tuple(shape)}"
