"""Warnings on the command line: one line each, said once, without the source line that raised it."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator

from tqdm import tqdm


@contextlib.contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Print each warning as ``warning: ...`` on standard error, above the progress bar if there is one."""
    said: set[str] = set()

    def say(message: Warning | str, *_: object, **__: object) -> None:
        text = " ".join(str(message).split())
        if text not in said:
            said.add(text)
            tqdm.write(f"warning: {text}", file=sys.stderr)

    before = warnings.showwarning
    warnings.showwarning = say
    try:
        yield
    finally:
        warnings.showwarning = before
