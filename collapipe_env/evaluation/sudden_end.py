"""Keep a user's own code from ending the process silently."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import NoReturn


@contextlib.contextmanager
def no_sudden_end() -> Iterator[None]:
    """Inside this context, ``os._exit`` raises ``SystemExit``, as ``sys.exit`` does.

    Otherwise it would end the whole run without results or a message, with a status of the code's choice.
    Processes that the code forks may still call it.
    """
    end, process = os._exit, os.getpid()

    def refused(status: int) -> NoReturn:
        if os.getpid() != process:
            end(status)
        raise SystemExit(f"os._exit({status}) would end the whole run")

    os._exit = refused
    try:
        yield
    finally:
        os._exit = end
