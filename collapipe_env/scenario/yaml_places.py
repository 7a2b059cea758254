"""Places in YAML text, for errors and limits."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ruamel.yaml.error import MarkedYAMLError


def open_brackets(text: str) -> Iterator[tuple[int, int]]:
    """Yield each bracket's position and the number of brackets open after it, including those in comments.

    The time of parsing grows with the square of that number.
    """
    depth = 0
    for bracket in re.finditer(r"[\[{\]}]", text):
        depth = depth + 1 if bracket[0] in "[{" else max(0, depth - 1)
        yield bracket.start(), depth


def line_of(error: MarkedYAMLError) -> str:
    """Return ``, line 3`` for an error in the third line; nothing if the error names no place."""
    mark = error.problem_mark or error.context_mark
    return f", line {mark.line + 1}" if mark is not None else ""
