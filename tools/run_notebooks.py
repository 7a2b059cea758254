"""Run the notebooks anew and store their outputs in them: ``python -m tools.run_notebooks [NAME...]``.

All of them without names, one after the other: some minutes on one core. It needs the extra ``docs``. Run it
after a change of code cells or of what they show, and commit what it stores. A notebook that fails stays as
it was. Outputs are what cells print, tables, and figures as small PNGs. They hold nothing of the
machine: no paths, dates, warnings or versions. Each notebook has a digest of its code cells, by which a test
sees that its outputs are theirs.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbformat import NotebookNode

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
LONGEST_CELL_S = 1200
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def code_digest(notebook: Mapping[str, Any]) -> str:
    """Digest of a notebook's code cells, in order."""
    sources = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return hashlib.sha256("\0".join(sources).encode()).hexdigest()[:16]


def run(path: Path) -> None:
    """Run a notebook in a folder of its own, and store its outputs in it.

    Raises:
        CellExecutionError: If a cell fails.
        ValueError: If an output names a folder of this machine.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=LONGEST_CELL_S,
            kernel_name=KERNEL["name"],
            coalesce_streams=True,  # one block for what a cell printed, however it came
            record_timing=False,
            resources={"metadata": {"path": folder}},
        )
        client.execute()
    notebook.metadata = {
        "code_digest": code_digest(notebook),
        "kernelspec": KERNEL,
        "language_info": {"name": "python"},
    }
    machine = [str(NOTEBOOKS.parent), str(Path.home()), tempfile.gettempdir() + os.sep]
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [_portable(output) for output in cell.outputs if _is_shown(output)]
            for place in machine:
                if place in str(cell.outputs):
                    raise ValueError(f"{path.name}: cell {cell.id} shows {place}")
    nbformat.write(notebook, path)


def _is_shown(output: NotebookNode) -> bool:
    if output.get("name") != "stderr":
        return True
    print(output.text.rstrip(), file=sys.stderr)  # the author reads it, the reader of the notebook does not
    return False


def _portable(output: NotebookNode) -> NotebookNode:
    """An output with a picture as one small PNG, without its other forms and without metadata."""
    if "data" in output:
        output.metadata = {}
        if png := output.data.get("image/png"):
            output.data = {"image/png": _with_palette(png)}
    return output


def _with_palette(png: str) -> str:
    from PIL import Image

    small = io.BytesIO()
    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    picture.quantize(256, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return base64.b64encode(small.getvalue()).decode("ascii")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the notebooks that are named, or all."""
    names = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all without names: {', '.join(names)}")
    chosen = parser.parse_args(arguments).names or names
    if unknown := set(chosen) - set(names):
        parser.error(f"no notebook named {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the kernel: its arrays are small
    for name in chosen:
        began = time.monotonic()
        run(NOTEBOOKS / f"{name}.ipynb")
        print(f"notebooks/{name}.ipynb: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
