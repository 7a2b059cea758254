"""Parts of the documentation that tools write, between markers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from collapipe_env.evaluation.table import markdown_table as markdown_table
from collapipe_env.ground.errors import DataError
from collapipe_env.ground.files import write_text

BEGIN, END = "<!-- generated: {} -->", "<!-- end of generated: {} -->"


def replaced(text: str, name: str, content: str, page: object = "the page") -> str:
    """Return a page with new content between the markers of a part; the words around them stay.

    Args:
        text: The page.
        name: Name of the part.
        content: New content of the part.
        page: Path of the page, for the error.

    Raises:
        DataError: If the part's markers do not occur exactly once.
    """
    begin, end = BEGIN.format(name), END.format(name)
    if text.count(begin) != 1 or text.count(end) != 1:
        raise DataError(f"{page} must have '{begin}' and '{end}' once each: put them back")
    head, _, rest = text.partition(begin)
    return f"{head}{begin}\n{content}\n{end}{rest.partition(end)[2]}"


def parts_of(page: Path) -> dict[str, str]:
    """Contents of a page's parts by their names."""
    marks = re.escape(BEGIN).replace(r"\{\}", "(.+?)"), re.escape(END).replace(r"\{\}", r"\1")
    return dict(re.findall(r"{}\n(.*?){}".format(*marks), page.read_text(encoding="utf-8"), re.DOTALL))


def typed_command(words: Sequence[str], width: int = 100) -> str:
    """A command as it can be typed in a shell, broken into lines that fit a page.

    Args:
        words: The command and its arguments.
        width: Most characters a line may have, unless a single word is longer.
    """
    lines = [""]
    for word in map(shlex.quote, words):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if len(longer) + len(" \\") <= width or not lines[-1].strip():
            lines[-1] = longer
        else:
            lines.append(f"  {word}")
    return " \\\n".join(lines)


def write_parts(page: Path, parts: Mapping[str, str], target: Path | None = None) -> None:
    """Put contents between a page's markers; the words around them stay.

    Args:
        parts: Content of each part by its name.
        target: Where to write; the page itself by default.

    Raises:
        DataError: If a pair of markers does not occur exactly once; nothing is written then.
    """
    text = page.read_text(encoding="utf-8")
    for name, content in parts.items():
        text = replaced(text, name, content.strip(), page)
    write_text(target or page, text)
