"""Hook of the documentation site: notebooks are run when it is built, and become pages of it.

MkDocs calls it; see ``hooks`` in ``mkdocs.yml``. nbconvert turns a notebook into Markdown, so its page has
the theme of all others, its links are checked with theirs, and it loads nothing from elsewhere. The notebooks
in the repository hold no outputs. Notebooks that were run are kept in ``build/notebooks``, and run again once
their text or the package has changed. ``SITE_NOTEBOOKS=plain`` shows them without running them.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbconvert import MarkdownExporter

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "notebooks"
KEPT = ROOT / "build" / "notebooks"
PICTURES = "images/notebooks"
LONGEST_CELL_S = 1200
_SOURCES = (".py", ".yaml", ".json", ".safetensors")
_LINK_TO_PAGE = re.compile(r"\]\(\.\./docs/")
_LINK_TO_NOTEBOOK = re.compile(r"\]\((?:\.\./notebooks/)?(\w+)\.ipynb\)")
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
_log = logging.getLogger("mkdocs.hooks.site_notebooks")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook, its pictures, and the notebook itself to be downloaded."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        if os.environ.get("SITE_NOTEBOOKS") != "plain":
            notebook = run(path, notebook)
        text, pictures = page(path.stem, notebook)
        files.append(File.generated(config, f"notebook_{path.stem}.md", content=text))
        files.append(File.generated(config, f"notebooks/{path.name}", content=path.read_bytes()))
        for name, content in pictures.items():
            files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to notebooks lead to their pages."""
    del page, config, files
    return _LINK_TO_NOTEBOOK.sub(r"](notebook_\1.md)", markdown)


def run(path: Path, notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """A notebook with its outputs: the kept ones, or those of a run in a folder of its own.

    Raises:
        PluginError: If a cell fails.
    """
    kept = KEPT / f"{path.stem}-{digest(path)}.ipynb"
    if kept.exists():
        return nbformat.read(kept, as_version=4)
    _log.info("Running notebooks/%s (some minutes for all of them; kept in %s)", path.name, KEPT)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=LONGEST_CELL_S,
            kernel_name="python3",
            coalesce_streams=True,  # one block for what a cell printed, however it came
            resources={"metadata": {"path": folder}},
        )
        try:
            client.execute()
        except CellExecutionError as error:
            raise PluginError(f"notebooks/{path.name} does not run:\n{error}") from error
    KEPT.mkdir(parents=True, exist_ok=True)
    for former in KEPT.glob(f"{path.stem}-*.ipynb"):
        former.unlink()
    unfinished = kept.with_suffix(".part")
    nbformat.write(notebook, unfinished)
    unfinished.replace(kept)
    return notebook


def digest(path: Path) -> str:
    """Digest of what a notebook's outputs depend on: its own text and the package's files."""
    found = hashlib.sha256(path.read_bytes())
    folders = [ROOT / "collapipe_env", ROOT / "agents", ROOT / "baselines"]  # links are not followed
    for source in sorted(file for folder in folders for file in folder.rglob("*") if file.suffix in _SOURCES):
        found.update(str(source.relative_to(ROOT)).encode() + b"\0")
        found.update(hashlib.sha256(source.read_bytes()).digest())
    return found.hexdigest()[:24]


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
    elif "image/png" in data:
        data.pop("image/jpeg", None)  # the same picture again
    elif "text/markdown" in data:
        data["text/markdown"] = _HEADING.sub(r"**\1**", data["text/markdown"])
