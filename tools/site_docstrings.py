"""Docstrings for the site's reference: roles and tables of reStructuredText become Markdown.

A Griffe extension; see ``extensions`` in ``mkdocs.yml``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe

PAGES = Path(__file__).parents[1] / "docs"
_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|obj|exc):`(?P<short>~?)(?P<name>[^`]+)`")
_PAGE = re.compile(r"(?<!`)(?P<quote>`{1,2})(?:docs/)?(?P<name>[a-z_]+)\.md(?P=quote)(?!`)")
_RULE = re.compile(r"^(?P<indent> *)=+(?: +=+)+$")


class MarkdownDocstrings(griffe.Extension):
    """Rewrites the docstring of every object that Griffe loads."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite one docstring."""
        del kwargs
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value, obj.path)


def markdown(text: str, path: str = "") -> str:
    """Return a docstring with Markdown in place of roles, simple tables and ``::``.

    Args:
        text: The docstring.
        path: Dotted name of the docstring's object, for names in the text that begin with a dot.
    """
    text = _ROLE.sub(lambda role: _link(role, path), text)
    text = _PAGE.sub(_page, text)
    text = re.sub(r"^Class attributes:$", "Attributes: Class attributes:", text, flags=re.MULTILINE)
    return re.sub(r"::$", ":", _tables(text), flags=re.MULTILINE)


def _link(role: re.Match[str], path: str) -> str:
    """A link if the reference has the object, otherwise its name; ``~`` shows only the last part."""
    name = role["name"].lstrip("~").lstrip(".")
    shown = name.rpartition(".")[2] if role["short"] or role["name"] != name else name
    target = name if name.startswith("collapipe_env.") else f"{path}.{name}"
    return f'<autoref identifier="{target}" optional><code>{shown}</code></autoref>'


def _page(found: re.Match[str]) -> str:
    """A link to a page of the site, by its name in words."""
    name = found["name"]
    if not (PAGES / f"{name}.md").exists():
        return found[0]
    return f'<a href="{name}.html">{name.replace("_", " ")}</a>'


def _tables(text: str) -> str:
    """Simple tables without heads: two rules of ``=`` around rows whose columns begin where the rule's do."""
    lines, made = text.splitlines(), []
    rows: list[list[str]] | None = None
    columns: list[int] = []
    for line in lines:
        if _RULE.match(line):
            if rows is None:
                rows, columns = [], [part.start() for part in re.finditer("=+", line)]
                continue
            heads = " | ".join([" "] * len(columns))
            made += [f"| {heads} |", "|" + "---|" * len(columns)]
            made += [f"| {' | '.join(row)} |" for row in rows]
            rows = None
        elif rows is None:
            made.append(line)
        else:
            ends = [*columns[1:], None]
            cells = [line[a:b].strip() for a, b in zip(columns, ends, strict=True)]
            if cells[0] or not rows:
                rows.append(cells)
            else:  # the row goes on
                rows[-1] = [f"{old} {more}".strip() for old, more in zip(rows[-1], cells, strict=True)]
    return "\n".join(made)
