"""The process of a user's own scheduler: it imports the code, gets states, and returns plain numbers.

Requests come as pickles on standard input. Answers go out as JSON and raw arrays: whatever the user's code
writes there, the measuring process never unpickles or runs anything of it.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import signal
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import fields
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from collapipe_env.evaluation.own_code import OwnCode, import_own, import_source
from collapipe_env.evaluation.own_scheduler import OwnScheduler
from collapipe_env.evaluation.torch_threads import TorchThreads
from collapipe_env.ground.errors import CollaPipeError, SchedulerError, reason
from collapipe_env.physics.allocation import Allocation
from collapipe_env.schedulers import SCHEDULERS

Arrays = dict[str, npt.NDArray[Any]]
LENGTH = struct.Struct("<Q")
"""Number of bytes of an answer, in front of it."""
MOST_BYTES = 2**30
"""Largest answer [byte]."""
ACTION = "action"
"""Name of an array of actions; the arrays of an allocation have the names of its fields."""
OTHER = "other "
"""Beginning of the names of an allocation's other values."""


def serve() -> None:
    """Answer requests until standard input ends, or the process that asks."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the measuring process's
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the user's code prints
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    worker = _Worker()
    while True:
        try:
            request = pickle.load(requests)  # noqa: S301 - of the process that started this one
        except EOFError:
            return
        try:
            answers.write(worker.answer(*request))
            answers.flush()
        except BrokenPipeError:
            return


def _end_with(parent: int) -> None:
    """End this process with its parent, even amid a decision."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(0)


class _Worker:
    """The scheduler's code, and the schedulers that it made, by number."""

    def __init__(self) -> None:
        self._label, self._code = "", OwnCode(None, None)
        self._made: dict[int, OwnScheduler] = {}
        self._threads: TorchThreads | None = None

    def answer(self, method: str, given: tuple[Any, ...], dropped: list[int]) -> bytes:
        """Answer one request.

        Args:
            dropped: Numbers of schedulers that are no longer used.
        """
        for number in dropped:
            self._made.pop(number, None)
        if self._threads is not None:
            self._threads.apply()
        try:
            return encoded(*getattr(self, method)(*given))
        except CollaPipeError as error:
            return encoded({"error": str(error)}, {})

    def load(self, reference: str) -> tuple[dict[str, str], Arrays]:
        """Import the scheduler's code."""
        self._label, self._code = reference, import_own(reference, SCHEDULERS)
        return {}, {}

    def build(
        self, number: int, sources: list[str], threads: int | None, scenario: bytes
    ) -> tuple[dict[str, str], Arrays]:
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
        made = OwnScheduler(self._label, self._code.found, self._code.file, played)
        self._made[number] = made
        return {"name": made.name, "sees": made.sees, "observation": made.observation}, {}

    def reset(self, number: int, seed: int | None) -> tuple[dict[str, str], Arrays]:
        """Forget earlier episodes."""
        self._made[number].reset(seed)
        return {}, {}

    def act(self, number: int, observation: Any, state: Any) -> tuple[dict[str, str], Arrays]:
        """Decide one round."""
        decision = self._made[number].act(observation, state)
        try:
            arrays = _arrays(decision)
        except Exception as error:  # objects of the user's code may raise anything
            raise self._made[number].refused(decision, error) from error
        return {}, arrays

    def fingerprint(self, number: int) -> tuple[dict[str, str], Arrays]:
        """Text for everything on which its decisions depend besides its source."""
        return {"text": self._made[number].fingerprint()}, {}


def _arrays(decision: object) -> Arrays:
    """The arrays of a decision."""
    if not isinstance(decision, Allocation):
        return {ACTION: _numbers(decision)}
    given = {f.name: getattr(decision, f.name) for f in fields(decision) if f.name != "others"}
    given |= {f"{OTHER}{name}": value for name, value in decision.others.items()}
    return {name: _numbers(value) for name, value in given.items() if value is not None}


def _numbers(value: Any) -> npt.NDArray[Any]:
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise TypeError("it holds no numbers")
    return array


def encoded(told: Mapping[str, str], arrays: Arrays) -> bytes:
    """An answer as bytes: its length, a line of JSON, and the arrays' raw numbers."""
    kinds = [[name, array.dtype.str, array.shape] for name, array in arrays.items()]
    head = json.dumps({**told, "arrays": kinds}).encode()
    body = b"\n".join((head, b"".join(array.tobytes() for array in arrays.values())))
    return LENGTH.pack(len(body)) + body


def decoded(body: bytes) -> tuple[dict[str, Any], Arrays]:
    """An answer's texts and arrays; nothing of it is executed, and no number is trusted.

    Raises:
        Exception: Of some kind, if it is malformed.
    """
    head, _, raw = body.partition(b"\n")
    told, offset = json.loads(head), 0
    arrays: Arrays = {}
    for name, kind, shape in told.pop("arrays"):
        dtype = np.dtype(str(kind))
        if dtype.kind not in "biuf":
            raise TypeError("it holds no numbers")
        flat = np.frombuffer(raw, dtype, math.prod(shape), offset)
        arrays[name] = flat.reshape(shape).copy()
        offset += flat.nbytes
    return told, arrays


def decision_of(arrays: Arrays) -> npt.NDArray[Any] | Allocation:
    """The decision whose arrays these are.

    Raises:
        TypeError: If the names are not those of an allocation.
    """
    if arrays.keys() == {ACTION}:
        return arrays[ACTION]
    others = {name.removeprefix(OTHER): arrays[name] for name in arrays if name.startswith(OTHER)}
    return Allocation(**{n: a for n, a in arrays.items() if not n.startswith(OTHER)}, others=others)


def read_answer(pipe: IO[bytes]) -> bytes:
    """The next answer; empty at the end, or where it is too long."""
    (length,) = LENGTH.unpack(pipe.read(LENGTH.size))
    return pipe.read(length) if length <= MOST_BYTES else b""
