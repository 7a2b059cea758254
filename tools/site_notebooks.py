"""Hook of the documentation site: notebooks become pages of it, with the outputs that are stored in them.

MkDocs calls it; see ``hooks`` in ``mkdocs.yml``. nbconvert turns a notebook into Markdown, so its page has
the theme of all others, its links are checked with theirs, and it loads nothing from elsewhere. Nothing is
run here: ``python -m tools.run_notebooks`` makes the outputs anew.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
from mkdocs.structure.files import File
from nbconvert import MarkdownExporter

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
PICTURES = "images/notebooks"
_LINK_TO_PAGE = re.compile(r"\]\(\.\./docs/")
_LINK_TO_NOTEBOOK = re.compile(r"\]\((?:\.\./notebooks/)?(\w+)\.ipynb\)")
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook, its pictures, and the notebook itself to be downloaded."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        text, pictures = page(path.stem, nbformat.read(path, as_version=4))
        files.append(File.generated(config, f"notebook_{path.stem}.md", content=text))
        files.append(File.generated(config, f"notebooks/{path.name}", content=path.read_bytes()))
        for name, content in pictures.items():
            files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to notebooks lead to their pages."""
    del page, config, files
    return _LINK_TO_NOTEBOOK.sub(r"](notebook_\1.md)", markdown)


def page(stem: str, notebook: nbformat.NotebookNode) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and its pictures by their place on the site."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            _for_markdown(output)
    exporter = MarkdownExporter()
    text, resources = exporter.from_notebook_node(
        notebook, resources={"unique_key": stem, "output_files_dir": PICTURES}
    )
    text = _LINK_TO_PAGE.sub("](", _LINK_TO_NOTEBOOK.sub(r"](notebook_\1.md)", text))
    download = f"[Download this notebook](notebooks/{stem}.ipynb){{ download }}"
    title, _, rest = text.lstrip().partition("\n")
    return f"{title}\n\n{download}\n{rest}", dict(resources["outputs"])


def _for_markdown(output: Any) -> None:
    """Mark printed text, which nbconvert indents like code, and keep titles of tables out of the menu."""
    data = output.get("data", {})
    if output.output_type == "stream":
        text = f"``` {{ .text .printed }}\n{output.pop('text').rstrip()}\n```"
        del output["name"]
        output.update(output_type="display_data", metadata={}, data={"text/markdown": text})
    elif "text/markdown" in data:
        data["text/markdown"] = _HEADING.sub(r"**\1**", data["text/markdown"])
