"""The process of a user's own scheduler: it imports the code, gets states, and returns plain numbers.

Requests come as pickles on standard input. Answers go out as lines of JSON: whatever the user's code writes
there, the measuring process never unpickles or runs anything of it.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import threading
import time
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from collapipe_env.evaluation.own_code import import_own, import_source
from collapipe_env.evaluation.own_scheduler import OwnScheduler
from collapipe_env.evaluation.torch_threads import TorchThreads
from collapipe_env.ground.errors import CollaPipeError, SchedulerError, reason
from collapipe_env.physics.allocation import Allocation
from collapipe_env.schedulers import SCHEDULERS, Factory

ACTION = "action"
"""Name of an array of actions; the arrays of an allocation have the names of its fields."""
OTHER = "other "
"""Beginning of the names of an allocation's other values."""


def serve() -> None:
    """Answer requests until standard input ends, or the process that asks."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the measuring process's
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the user's code prints
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    worker = _Worker()
    while True:
        try:
            request = pickle.load(requests)  # noqa: S301 - of the process that started this one
            print(json.dumps(worker.answer(*request)), file=answers, flush=True)
        except (EOFError, BrokenPipeError):
            return


def _end_with(parent: int) -> None:
    """End this process with its parent, even amid a decision."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(0)


class _Worker:
    """The scheduler's code, and the schedulers that it made, by number."""

    _label: str
    _factory: Factory

    def __init__(self) -> None:
        self._made: dict[int, OwnScheduler] = {}
        self._threads: TorchThreads | None = None

    def answer(self, method: str, given: tuple[Any, ...], dropped: list[int]) -> dict[str, Any]:
        """Answer one request.

        Args:
            dropped: Numbers of schedulers that are no longer used.
        """
        for number in dropped:
            del self._made[number]
        if self._threads is not None:
            self._threads.apply()
        try:
            told: dict[str, Any] | None = getattr(self, method)(*given)
            return told or {}
        except CollaPipeError as error:
            return {"error": str(error)}

    def load(self, reference: str) -> None:
        """Import the scheduler's code."""
        self._label, self._factory = reference, import_own(reference, SCHEDULERS)

    def build(self, number: int, sources: list[str], threads: int | None, scenario: bytes) -> dict[str, Any]:
        """Build a scheduler.

        Args:
            sources: Files and modules with what the scenario uses.
            threads: Threads of PyTorch.
            scenario: The scenario, pickled.
        """
        if threads is not None:
            self._threads = TorchThreads(threads)
            self._threads.apply()
        try:
            for source in sources:
                import_source(source)
            played = pickle.loads(scenario)  # noqa: S301
        except Exception as error:
            raise SchedulerError(
                f"scheduler {self._label!r} decides in a process of its own, which cannot import what the "
                f"scenario uses ({type(error).__name__}: {reason(error)}): define that in a file of its own, "
                "or give the scheduler as a Python object"
            ) from error
        made = self._made[number] = OwnScheduler(self._label, self._factory, played)
        return {"name": made.name, "sees": made.sees, "observation": made.observation}

    def reset(self, number: int, seed: int | None) -> None:
        """Forget earlier episodes."""
        self._made[number].reset(seed)

    def act(self, number: int, observation: Any, state: Any) -> dict[str, Any]:
        """Decide one round."""
        decision = self._made[number].act(observation, state)
        try:
            return encoded(decision)
        except Exception as error:  # objects of the user's code may raise anything
            raise self._made[number].refused(decision, error) from error

    def fingerprint(self, number: int) -> dict[str, Any]:
        """Text for everything on which its decisions depend besides its source."""
        return {"text": self._made[number].fingerprint()}


def encoded(decision: object) -> dict[str, Any]:
    """The arrays of a decision by name, each as its type and nested lists of numbers.

    Raises:
        Exception: Of some kind, if it holds anything else than real numbers.
    """
    given: dict[str, Any] = {ACTION: decision}
    if isinstance(decision, Allocation):
        own = {f.name: getattr(decision, f.name) for f in fields(decision) if f.name != "others"}
        own |= {f"{OTHER}{name}": value for name, value in decision.others.items()}
        given = {name: value for name, value in own.items() if value is not None}
    arrays = {name: np.asarray(value) for name, value in given.items()}
    return {name: [_real(array.dtype).str, array.tolist()] for name, array in arrays.items()}


def decoded(told: dict[str, Any]) -> npt.NDArray[Any] | Allocation:
    """The inverse of :func:`encoded`; no type and no number is trusted.

    Raises:
        Exception: Of some kind, if it is malformed.
    """
    arrays = {name: np.array(value, _real(np.dtype(kind))) for name, (kind, value) in told.items()}
    if arrays.keys() == {ACTION}:
        return arrays[ACTION]
    others = {name.removeprefix(OTHER): arrays.pop(name) for name in [*arrays] if name.startswith(OTHER)}
    return Allocation(**arrays, others=others)


def _real(kind: np.dtype[Any]) -> np.dtype[Any]:
    if kind.kind not in "biuf" or kind.itemsize > 8:
        raise TypeError("it holds no numbers")
    return kind
