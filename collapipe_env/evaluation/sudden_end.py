"""Keep a user's own code from ending the process silently."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import NoReturn


@contextlib.contextmanager
def no_sudden_end(applies: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """While this lasts, ``os._exit`` raises ``SystemExit``, as ``sys.exit`` does.

    It would end the whole run, without results, without a message, and with the status that the code chose.
    Processes that the code forks may end as they like.

    Args:
        applies: Whether a call of ``os._exit`` in this process is refused; called at that moment.
    """
    end, process = os._exit, os.getpid()

    def refused(status: int) -> NoReturn:
        if os.getpid() != process or not applies():
            end(status)
        raise SystemExit(f"os._exit({status}) would end the whole run")

    os._exit = refused
    try:
        yield
    finally:
        os._exit = end
