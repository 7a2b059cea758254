"""Schedulers that are not part of this package: their errors name the scheduler, the file and the line."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from collapipe_env.envs.observation_kinds import Observation, observation_kind
from collapipe_env.evaluation.declared_sight import SIGHTS, sees_truth
from collapipe_env.evaluation.own_code import blamed
from collapipe_env.ground.errors import SchedulerError, fits_a_line, reason, shown
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import Decision, Factory, Scheduler
from collapipe_env.simulator.state import SystemState

LONGEST_NAME = 60
"""Longest scheduler name for which tables and figures have room."""


class OwnScheduler:
    """A scheduler that is not part of this package.

    Args:
        label: Name that the user gave it.
        factory: Makes the scheduler.

    Attributes:
        name: Its name in tables.
        sees: ``"state"``, or ``"truth"`` for a declared oracle.
        observation: Kind of observation that it reads.

    Raises:
        SchedulerError: If it cannot be built, or the result is not a scheduler.
    """

    def __init__(self, label: str, factory: Factory, scenario: Scenario) -> None:
        self._called = repr(label)
        with self._blamed("cannot be built", "it is called with the scenario alone"):
            self._inner: Scheduler = factory(scenario)
            self.observation = observation_kind(self._inner)
            self.sees = SIGHTS[sees_truth(self._inner)]
            missing = [m for m in ("reset", "act") if not callable(getattr(self._inner, m, None))]
            name = getattr(self._inner, "name", None)
            policy = bool(missing) and is_policy(self._inner)
        if missing:
            remedy = "a scheduler has name, reset(seed) and act(observation, state)"
            if policy:
                remedy = "wrap a policy in collapipe_env.PolicyScheduler"
            raise SchedulerError(
                f"scheduler {label!r} is {_described(self._inner)}, which has no {missing[0]}: {remedy}"
            )
        if not fits_a_line(label):
            raise SchedulerError(f"scheduler {label!r}: tables cannot show this; give it a name of one line")
        if not isinstance(name, str) or not 1 <= len(name.strip()) <= LONGEST_NAME or not fits_a_line(name):
            has = "no name" if name is None else f"name = {shown(name)}"
            raise SchedulerError(
                f"scheduler {label!r} has {has}: give it one line of 1 to "
                f"{LONGEST_NAME} characters for tables and figures"
            )
        self.name = name.strip()
        if self.name != label:
            self._called += f" (name {self.name!r})"  # which the tables show

    def reset(self, seed: int | None = None) -> None:
        """Forget earlier episodes."""
        with self._blamed("failed in reset", "it is called as reset(seed)"):
            self._inner.reset(seed)

    def act(self, observation: Observation, state: SystemState) -> Decision:
        """Decide one round."""
        with self._blamed("failed in act", "it is called as act(observation, state)"):
            return self._inner.act(observation, state)

    def fingerprint(self) -> str:
        """Text for everything on which its decisions depend besides its source, such as a policy's weights.

        Empty if the scheduler has no method of this name.
        """
        with self._blamed("failed in fingerprint", "it is called without arguments"):
            asked = getattr(self._inner, "fingerprint", None)
            return str(asked()) if callable(asked) else ""

    def refused(
        self, decision: object, error: Exception, shape: tuple[int, ...] | None = None
    ) -> SchedulerError:
        """The error for a decision that cannot be played.

        Args:
            decision: Result of ``act``.
            error: Error raised when playing it.
            shape: Shape of actions, where it is known.
        """
        wanted = "an array of actions" if shape is None else f"actions of shape {shape}"
        return SchedulerError(
            f"scheduler {self._called}: act returned {_described(decision)}, which cannot be played "
            f"({reason(error)}): return {wanted} or an Allocation"
        )

    def _blamed(self, what: str, hint: str) -> AbstractContextManager[None]:
        return blamed(SchedulerError, f"scheduler {self._called} {what}", hint)


def is_policy(value: object) -> bool:
    """Whether something looks like a trained policy, which is not a scheduler by itself."""
    return any(callable(getattr(value, method, None)) for method in ("predict", "state_dict"))


def _described(value: Any) -> str:
    """A value's type, and its shape where it has one."""
    if value is None:
        return "None"
    kind = type(value).__name__
    text = f"{'an' if kind[0] in 'AEIOaeio' or kind == 'ndarray' else 'a'} {kind}"
    try:
        shape = getattr(value, "shape", None)
        return text if shape is None else f"{text} of shape {tuple(shape)}"
    except Exception:  # objects of the user's code may raise anything
        return text
