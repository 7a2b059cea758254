"""Places in YAML text that errors and limits are about."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ruamel.yaml.error import MarkedYAMLError


def open_brackets(text: str) -> Iterator[tuple[int, int]]:
    """Yield each bracket's position, and how many are open after it; also of those in comments.

    The time of parsing grows with the square of that number.

    Args:
        text: YAML text.
    """
    depth = 0
    for bracket in re.finditer(r"[\[{\]}]", text):
        depth = depth + 1 if bracket[0] in "[{" else max(0, depth - 1)
        yield bracket.start(), depth


def line_of(error: MarkedYAMLError) -> str:
    """Return ``, line 3`` for what is wrong in a third line; nothing where the error names no place.

    Args:
        error: What the parser raised.
    """
    mark = error.problem_mark or error.context_mark
    return f", line {mark.line + 1}" if mark is not None else ""
