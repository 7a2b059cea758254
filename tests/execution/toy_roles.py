"""Roles without training, for tests of the engines."""

from __future__ import annotations

import os
import time
from typing import Any

from collapipe_env.execution.engine import Lost


class OddError(Exception):
    """An error of a role's own."""


class Toy:
    """Remembers what it was asked.

    Args:
        name: Its name.
        fails: Whether its constructor fails.
    """

    def __init__(self, name: str, fails: bool = False) -> None:
        if fails:
            raise OddError(f"{name} cannot be built")
        self.name, self.seen = name, list[Any]()

    def note(self, *values: Any) -> Any:
        """Remember values; return the last."""
        self.seen.append(values)
        return values[-1]

    def all(self) -> list[Any]:
        """Return everything remembered."""
        return self.seen

    def slow(self, seconds: float, *_: Any) -> float:
        """Take a time [s]; return it."""
        time.sleep(seconds)
        return seconds

    def pid(self) -> int:
        """Return the process."""
        return os.getpid()

    def fail(self, *_: Any) -> None:
        """Fail with an error of its own."""
        raise OddError("on request")

    def leave(self) -> None:
        """Be lost, as by the virtual clock."""
        raise Lost([self.name])


class SlowToBuild(Toy):
    """Its constructor holds the interpreter's lock, as imports do."""

    def __init__(self, seconds: float) -> None:
        super().__init__("slow")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass
