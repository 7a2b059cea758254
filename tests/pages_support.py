"""Pages of the documentation as a Markdown parser sees them, and their code run as it stands there."""

import functools
import re
import shlex
import sys
import unicodedata
from pathlib import Path

from markdown_it import MarkdownIt

from collapipe_env.cli.main import main

ROOT = Path(__file__).parents[1]
DOCS, README = ROOT / "docs", ROOT / "README.md"
QUICK = ("--episodes", "1", "--rounds", "2", "--processes", "1", "--no-figures")
ELSEWHERE = {"jupyter", "make", "pip", "python", "tensorboard"}
"""Programs of the pages that a test does not start."""


@functools.cache
def text_of(name):
    """Text of a page."""
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def tokens(page):
    """Blocks of a page, in order."""
    return MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8"))


def links(page):
    """Targets of a page's links and pictures."""
    parts = [part for token in tokens(page) if token.type == "inline" for part in token.children]
    return [str(part.attrs.get("href", part.attrs.get("src"))) for part in parts if part.attrs]


@functools.cache
def headings(page):
    """Tags and texts of a page's headings, without marks."""
    found = tokens(page)
    return [
        (token.tag, "".join(part.content for part in found[i + 1].children))
        for i, token in enumerate(found)
        if token.type == "heading_open"
    ]


def site_anchors(page):
    """Anchors of a page's headings on the site, as Python-Markdown makes them."""
    anchors = set()
    for _, text in headings(page):
        plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
        anchor = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())
        while anchor in anchors:
            anchor = re.sub(r"_(\d+)$", lambda n: f"_{int(n[1]) + 1}", anchor)
            anchor = anchor if anchor not in anchors else f"{anchor}_1"
        anchors.add(anchor)
    return anchors


def repository_anchors(page):
    """Anchors of the same headings where a forge shows the file: runs of hyphens stay."""
    return {re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-") for _, text in headings(page)}


def code(page):
    """Language and text of every block of code of a page that names its language."""
    return [(t.info.strip(), t.content) for t in tokens(page) if t.type == "fence" and t.info.strip()]


def lines(page):
    """Words of every line of a page's blocks for a shell, without comments."""
    for language, text in code(page):
        for line in text.replace("\\\n", " ").splitlines() if language == "bash" else ():
            if words := shlex.split(line, comments=True):
                yield words


def run_page(page, folder, shorter=(), without=()):
    """Run a page's code in a folder: files are written, Python is executed, commands are called.

    Args:
        page: The page.
        folder: Where to; it must be the current folder and on the path.
        shorter: Pairs of a text of the page and what is run in its place.
        without: Commands of ``collapipe`` that are passed over.

    Returns:
        Names that the page's code defines.
    """
    names, used = {"__name__": "__page__"}, set()
    for language, text in code(page):
        for shown, run in shorter:
            if shown in text:
                text, used = text.replace(shown, run), used | {shown}
        named = re.match(r"# (\w+)\.(py|yaml)\n", text)
        if named:
            (folder / f"{named[1]}.{named[2]}").write_text(text, encoding="utf-8")
            sys.modules.pop(named[1], None)
        elif language == "python":
            exec(compile(text, page.name, "exec"), names)
        elif language == "bash":
            for line in text.replace("\\\n", " ").splitlines():
                _call(line, without)
        else:
            assert language in {"yaml", "text", "toml", "json", "bibtex"}, (
                f"{page.name} has code in {language!r}, which nobody runs"
            )
    unused = {shown for shown, _ in shorter} - used
    assert not unused, f"{page.name} no longer has {unused}"
    return names


def _call(line, without):
    program, *arguments = shlex.split(line, comments=True) or ["make"]
    if program not in ELSEWHERE and arguments[0] not in without:
        assert program == "collapipe", line
        status = main([*arguments, *(QUICK if arguments[0] in ("evaluate", "compare") else ())])
        assert status == 0, f"{line}: exit status {status}"
