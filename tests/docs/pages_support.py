"""Pages of the documentation as a Markdown parser sees them, and their code run as it stands there."""

import re
import shlex
import sys
import unicodedata
from pathlib import Path

from markdown_it import MarkdownIt

from collapipe_env.cli.main import main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
QUICK = ("--episodes", "1", "--rounds", "2", "--processes", "1", "--no-figures")
ELSEWHERE = {"make", "pip", "python", "tensorboard"}
"""Programs of the pages that a test does not start."""


def tokens(page):
    """Blocks of a page, in order."""
    return MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8"))


def links(page):
    """Targets of a page's links and pictures."""
    parts = [part for token in tokens(page) if token.type == "inline" for part in token.children]
    return [str(part.attrs.get("href", part.attrs.get("src"))) for part in parts if part.attrs]


def headings(page):
    """Texts of a page's headings, without marks."""
    found = tokens(page)
    return [
        "".join(part.content for part in found[i + 1].children)
        for i, token in enumerate(found)
        if token.type == "heading_open"
    ]


def site_anchors(page):
    """Anchors of a page's headings on the site, as Python-Markdown makes them."""
    anchors = set()
    for text in headings(page):
        plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
        anchor = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())
        while anchor in anchors:
            anchor = re.sub(r"_(\d+)$", lambda n: f"_{int(n[1]) + 1}", anchor)
            anchor = anchor if anchor not in anchors else f"{anchor}_1"
        anchors.add(anchor)
    return anchors


def repository_anchors(page):
    """Anchors of the same headings where a forge shows the file: runs of hyphens stay."""
    return {re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-") for text in headings(page)}


def code(page):
    """Language and text of every block of code of a page that names its language."""
    return [(t.info.strip(), t.content) for t in tokens(page) if t.type == "fence" and t.info.strip()]


def run_page(page, folder, shorter=(), without=()):
    """Run a page's code in a folder: files are written, Python is executed, commands are called.

    Args:
        page: The page.
        folder: Where to; it must be the current folder and on the path.
        shorter: Pairs of a text of the page and what is run in its place.
        without: Commands of ``collapipe`` that are passed over.

    Returns:
        The commands that were called.
    """
    names, commands, used = {"__name__": "__page__"}, [], set()
    for language, text in code(page):
        for shown, run in shorter:
            if shown in text:
                text, used = text.replace(shown, run), used | {shown}
        named = re.match(r"# (\w+)\.(py|yaml)\n", text)
        if named:
            (folder / f"{named[1]}.{named[2]}").write_text(text, encoding="utf-8")
            sys.modules.pop(named[1], None)
        elif language == "python":
            exec(compile(text, f"{page.name}", "exec"), names)
        elif language == "bash":
            lines = text.replace("\\\n", " ").splitlines()
            commands += [_called(line, without) for line in lines if line.strip()]
        else:
            assert language in {"yaml", "text"}, f"{page.name} has code in {language!r}, which nobody runs"
    unused = {shown for shown, _ in shorter} - used
    assert not unused, f"{page.name} no longer has {unused}"
    return [command for command in commands if command]


def _called(line, without):
    program, *arguments = shlex.split(line, comments=True)
    if program in ELSEWHERE:
        return None
    assert program == "collapipe", line
    if arguments[0] in without:
        return None
    status = main([*arguments, *(QUICK if arguments[0] in ("evaluate", "compare") else ())])
    assert status == 0, f"{line}: exit status {status}"
    return arguments
