"""A user's own scheduler, named as ``file.py:Name`` or ``package.module:Name``, in a process of its own.

This process never imports it. It sends observations and states, and reads back names, texts and plain arrays;
so the code can neither change nor see what measures it. A process serves all schedulers of one name, episode
after episode, and ends when it takes longer than :data:`LIMIT_S` for an answer.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pickle
import select
import signal
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

from collapipe_env.envs.observation_kinds import Observation
from collapipe_env.evaluation.own_code import ToldError, file_of
from collapipe_env.evaluation.own_parts import sources_of
from collapipe_env.evaluation.scheduler_worker import decoded
from collapipe_env.evaluation.torch_threads import threads_asked
from collapipe_env.ground.errors import reason
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import Decision
from collapipe_env.simulator.state import SystemState

LIMIT_S = 600.0
"""Longest time for one answer, such as a decision or the building of a scheduler [s]."""
MOST_BYTES = 2**26
"""Largest answer [byte]; a plan for a thousand devices has a thousandth of it."""
_LOOK_S = 0.2  # between two looks at a process that does not answer [s]
_MOST_PROCESSES = 8
"""Processes that are kept for further episodes."""
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); "
    "from collapipe_env.evaluation.scheduler_worker import serve; serve()"
)


class ProcessScheduler:
    """A user's own scheduler in a process of its own, as its factory; its errors say everything.

    Args:
        reference: ``package.module:Name`` or ``path/to/file.py:Name``.
        scenario: The scenario that it schedules.

    Raises:
        ToldError: If it cannot be imported or built, or is not a scheduler.
    """

    name: str
    sees: str
    observation: str

    def __init__(self, reference: str, scenario: Scenario) -> None:
        self._process = process_of(reference)
        self._number = next(self._process.numbers)
        try:
            played = pickle.dumps(scenario)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ToldError(
                f"scheduler {reference!r} decides in a process of its own, which cannot get this scenario "
                f"({reason(error)}): define what it uses at the top level of a file"
            ) from None
        told = self._asked("build", sources_of(scenario), threads_asked(), played)
        weakref.finalize(self, self._process.dropped.append, self._number)
        self.name, self.sees, self.observation = told["name"], told["sees"], told["observation"]

    def reset(self, seed: int | None = None) -> None:
        """Forget earlier episodes."""
        self._asked("reset", seed)

    def act(self, observation: Observation, state: SystemState) -> Decision:
        """Decide one round."""
        told = self._asked("act", observation, state)
        try:
            return decoded(told)
        except Exception:  # no answer of the worker's
            raise self._process.broken("act", "sent an answer that cannot be read") from None

    def fingerprint(self) -> str:
        """Text of its method of this name; empty without one."""
        return str(self._asked("fingerprint").get("text"))

    def _asked(self, method: str, *given: Any) -> dict[str, Any]:
        return self._process.ask(method, self._number, *given)


class SchedulerProcess:
    """The process of a scheduler's code.

    Attributes:
        numbers: Numbers for the schedulers that are built in it.
        dropped: Numbers of schedulers that nobody uses any more.
    """

    def __init__(self, reference: str) -> None:
        self.numbers, self.dropped, self._called = itertools.count(), list[int](), repr(reference)
        self._process = subprocess.Popen(  # noqa: S603 - the user named the code
            [sys.executable, "-B", "-P", "-c", _START, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches this process, which ends that one
        )
        self._talks = ThreadPoolExecutor(1)
        self._end = weakref.finalize(self, _ended, self._process)
        self.ask("load", reference)

    def ask(self, method: str, *given: Any) -> dict[str, Any]:
        """Return the answer to a request of a method of the worker.

        Raises:
            ToldError: Of the code's own, or if the process ended, takes too long, or sends something else
                than an answer.
        """
        dropped = [self.dropped.pop() for _ in range(len(self.dropped))]
        try:
            line = self._talks.submit(self._talk, pickle.dumps((method, given, dropped))).result(LIMIT_S)
        except TimeoutError:
            raise self.broken(method, f"took longer than {LIMIT_S:g} s, and was ended") from None
        except BaseException:
            self.stop()
            raise
        if not line.endswith(b"\n"):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
            code = self._process.returncode
            fate = "closed its connection" if code is None else f"ended with exit code {code}"
            if code is not None and code < 0:
                fate = f"was ended by signal {-code} ({signal.strsignal(-code)})"
                fate += ", perhaps because it ran out of memory" * (code == -9)
            raise self.broken(method, fate)
        try:
            told: dict[str, Any] = {**json.loads(line)}
        except Exception:  # whatever the user's code wrote there
            raise self.broken(method, "sent an answer that cannot be read") from None
        if "error" in told:
            # Whatever it sent, in one line.
            raise ToldError(reason(ToldError(str(told["error"])), longest=1500))
        return told

    def broken(self, method: str, fate: str) -> ToldError:
        """End the process, and return the error that says why.

        Args:
            method: What it was asked for.
            fate: What happened to the process.
        """
        self.stop()
        return ToldError(
            f"scheduler {self._called}: its process {fate} in {method}: see what it wrote above, and let it "
            "return its decisions without ending its process"
        )

    def stop(self) -> None:
        """End the process; the next scheduler of its name gets a new one."""
        self._end()
        _kept.cache_clear()

    def _talk(self, message: bytes) -> bytes:
        """Send a request and wait for the answer; empty or half a line if the process ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(message)
            self._process.stdin.flush()
            return self._line(self._process.stdout.fileno())
        except (OSError, ValueError):  # a broken pipe, or one that was closed meanwhile
            return b""

    def _line(self, pipe: int) -> bytes:
        """The next line of answers; half of it once the process has ended, whoever else holds the pipe."""
        line = bytearray()
        while not line.endswith(b"\n") and len(line) < MOST_BYTES:
            ended = self._process.poll() is not None
            if os.name == "posix" and not select.select([pipe], [], [], 0.0 if ended else _LOOK_S)[0]:
                if ended:
                    break
                continue
            part = os.read(pipe, 2**20)
            if not part:
                break
            line += part
        return bytes(line)


def process_of(reference: str) -> SchedulerProcess:
    """The process of a scheduler's code, which is kept as long as its file is the same.

    Raises:
        ToldError: If the code cannot be imported.
    """
    file, changed = file_of(reference), 0
    with contextlib.suppress(OSError, ValueError):
        changed = 0 if file is None else file.stat().st_mtime_ns
    return _kept(reference, os.getcwd(), changed)


@lru_cache(maxsize=_MOST_PROCESSES)
def _kept(reference: str, folder: str, changed: int) -> SchedulerProcess:  # noqa: ARG001 - they tell it apart
    return SchedulerProcess(reference)


def _ended(process: subprocess.Popen[bytes]) -> None:
    """End a process, and whatever it started in its session."""
    with contextlib.suppress(OSError, AttributeError):  # gone by now, or a system without sessions
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):  # it may still hold a request that nobody read
            assert pipe is not None
            pipe.close()
