"""Hooks of the documentation site: formulas as MathML, links to files outside ``docs/``, unbroken code.

MkDocs calls them; see ``hooks`` in ``mkdocs.yml``.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import TYPE_CHECKING

from latex2mathml.converter import convert

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
_OUTSIDE = re.compile(r"\[(?P<text>[^\]]+)\]\(\.\./(?P<target>[^)#\s]+)\)")
_FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)
_SHORT_CODE = re.compile(r"<code>(?P<code>[^<]{1,30})</code>")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace a link to a file of the repository by its path, as the site does not hold the file."""
    del page, config, files
    return _OUTSIDE.sub(_named_file, markdown)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Render formulas when the site is built, so that a reader needs neither scripts nor a network.

    Short code in a line of text gets a class that the style sheet keeps from breaking at its hyphens.
    """
    del page, config, files
    return _SHORT_CODE.sub(r'<code class="short">\g<code></code>', _FORMULA.sub(_rendered, content))


def _named_file(link: re.Match[str]) -> str:
    text, target = link["text"], link["target"]
    if not (ROOT / target).exists():
        return link[0]  # left for the strict build to complain about
    if target.endswith(text.strip("`")):
        return f"`{target}`"
    return text if target in text else f"{text} (`{target}`)"


def _rendered(formula: re.Match[str]) -> str:
    display = "block" if formula["tag"] == "div" else "inline"
    return str(convert(html.unescape(formula["latex"]), display=display))
