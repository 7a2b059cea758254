"""The notebooks run from top to bottom, only shorter; in full size in a kernel, if Jupyter is there.

Their stored outputs are those of their code and show nothing of the machine, and their commands work.
"""

import ast
import base64
import importlib.util
import io
import json
import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pages_support as support
import pytest
from PIL import Image

import collapipe_env
from collapipe_env.baselines.even_split import PipeLine
from collapipe_env.cli import train
from collapipe_env.cli.main import COMMANDS
from collapipe_env.schedulers import SCHEDULERS

sys.path.insert(0, str(support.ROOT / "tools"))
import run_notebooks

NOTEBOOKS = sorted((support.ROOT / "notebooks").glob("*.ipynb"))
PAGE = support.DOCS / "install.md"
# DSSRA's loops take long to compile, the graph net long to import: others play in their place.
SMALLER = {
    "first_steps": {"ROUNDS": 3, "ROWS": 8, "CANDIDATES": 2},
    "own_scheduler": {"EPISODES": 2, "ROUNDS": 2, "KNOB": [0.0, 1.0], "OTHERS": ["random", "pipeline"]},
    "train_ppo": {
        "STEPS": 8, "ENVS": 2, "N_STEPS": 4, "BATCH": 8, "VALIDATE_EVERY": 1, "EPISODES": 2, "ROUNDS": 2,
        "SIZES": {"small": 1}, "OTHERS": ["random", "pipeline"], "REFERENCE": "random",
    },
    "failed_round": {"EPISODES": 2, "ROUNDS": 20, "EXECUTE": False},
    "time_to_target": {"EPISODES": 2, "ROUNDS": 40, "SCHEDULERS": ["two steps", "pipeline"]},
}  # fmt: skip
"""Parameters of each notebook in the fast test."""
FIGURES = {"first_steps": 2, "own_scheduler": 2, "train_ppo": 2, "failed_round": 2, "time_to_target": 3}
"""Figures that each notebook draws."""
PICTURES = {"first_steps": 1, "own_scheduler": 2, "train_ppo": 0, "failed_round": 1, "time_to_target": 0}
"""Rendered rounds that each notebook shows, without those of real processes."""
PRINTED = {
    "first_steps": r"even +\d+\.\d\d s",
    "own_scheduler": r"even split: blocks \[\[",
    "train_ppo": r"small +graph +\d",
    "failed_round": r"light +recovery +\d+\.\d s, round \d",
    "time_to_target": r"at the target after \d+ rounds",
}
every = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


class TwoSteps(PipeLine):
    """Even split with all clusters and two local steps each, where a plan decides them."""

    name = "two steps"

    def allocate(self, state):
        plan = super().allocate(state)
        all_of_them = np.ones_like(plan.micro_batches)
        return replace(plan, participates=all_of_them, local_steps=2 * all_of_them)


def cells(path, kind):
    """Sources of a notebook's cells of one kind."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


def assigned(source):
    """Names that a cell of plain assignments sets."""
    names = set()
    for statement in ast.parse(source).body:
        assert isinstance(statement, ast.Assign), "the first cell holds parameters only"
        names |= {node.id for node in ast.walk(statement.targets[0]) if isinstance(node, ast.Name)}
    return names


def play(path, smaller):
    """Run the code cells of a notebook in one namespace, and collect what a reader would see."""
    from matplotlib import pyplot

    figures, shown = [], []

    def keep():
        for number in pyplot.get_fignums():
            figure = pyplot.figure(number)
            figure.set_layout_engine("none")  # which takes longer than all else here
            figure.set_dpi(20)
            figure.canvas.draw()
            figures.append(figure)
        pyplot.close("all")

    namespace = {"__name__": "__main__"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pyplot, "show", keep)
        for number, source in enumerate(cells(path, "code")):
            tree = ast.parse(source)
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, f"{path.name}, code cell {number + 1}", "exec"), namespace)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), path.name, "eval"), namespace)
                shown.extend([] if value is None else [value])
            if number == 0:
                namespace.update(smaller)
    assert not pyplot.get_fignums(), "a figure was not shown"
    return SimpleNamespace(figures=figures, shown=shown)


def drawn(axes):
    """Heights of lines, bars and images of a diagram, those that are numbers."""
    values = [np.asarray(line.get_ydata(), dtype=float) for line in axes.lines]
    values += [np.array([patch.get_height(), patch.get_width()], dtype=float) for patch in axes.patches]
    values += [np.ma.compressed(image.get_array()) for image in axes.images]
    return np.concatenate([part.ravel() for part in values]) if values else np.empty(0)


def content(path):
    """A notebook as plain data."""
    return json.loads(path.read_text(encoding="utf-8"))


@every
def test_a_notebook_is_listed_and_made_for_every_reader(path):
    notebook = content(path)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    names = [cell["id"] for cell in notebook["cells"]]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names)
    assert cells(path, "markdown")[0].startswith("# ")
    assert support.links(PAGE).count(f"../notebooks/{path.name}") == 1
    assert set(SMALLER[path.stem]) <= assigned(cells(path, "code")[0])


@every
def test_the_outputs_are_those_of_the_code(path):
    """After a change of a code cell: ``python -m tools.run_notebooks NAME``."""
    notebook = content(path)
    assert notebook["metadata"] == {
        "code_digest": run_notebooks.code_digest(notebook),
        "kernelspec": run_notebooks.KERNEL,
        "language_info": {"name": "python"},
    }
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert all(output["output_type"] in {"stream", "display_data", "execute_result"} for output in outputs)
    assert all(output.get("name", "stdout") == "stdout" for output in outputs)
    pictures = [output["data"] for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == FIGURES[path.stem] + PICTURES[path.stem] + (path.stem == "failed_round")
    for data in pictures:
        assert data.keys() == {"image/png"}
        with Image.open(io.BytesIO(base64.b64decode(data["image/png"]))) as picture:
            assert not picture.info.keys() & {"Software", "Creation Time"}
            assert picture.width <= 1600
    assert path.stat().st_size < 600_000
    text = "\n".join(str(output) for output in outputs if output.get("data", {}).keys() != {"image/png"})
    assert not re.search(r"(?<![\w.])/(?:home|root|tmp|work|Users)/|0x[0-9a-f]{6}|\x1b", text)


def test_the_digest_is_of_code_cells_only():
    def digest(*sources):
        cells = [{"cell_type": kind, "source": source} for kind, source in sources]
        return run_notebooks.code_digest({"cells": cells})

    first = digest(("markdown", "# T"), ("code", ["x = 1\n", "y = 2"]), ("code", "z"))
    assert first == digest(("code", "x = 1\ny = 2"), ("code", ["z"]), ("markdown", "other"))
    assert first != digest(("code", "x = 1\ny = 2z"))
    assert first != digest(("code", "x = 1\ny = 3"), ("code", "z"))


@every
def test_links_of_a_notebook_lead_somewhere(path, tmp_path):
    text = tmp_path / "text.md"
    text.write_text("\n\n".join(cells(path, "markdown")), encoding="utf-8")
    targets = support.links(text)
    assert targets
    for target in targets:
        name, _, anchor = target.partition("#")
        there = (path.parent / name).resolve()
        assert there.exists(), target
        assert not anchor or anchor in support.repository_anchors(there), target


@every
def test_a_short_notebook_draws_and_counts(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(SCHEDULERS, "_added", {"two steps": TwoSteps})
    with mpl.rc_context({"backend": "agg"}):
        seen = play(path, SMALLER[path.stem])
    assert len(seen.figures) == FIGURES[path.stem]
    for figure in seen.figures:
        for axes in figure.axes:
            if axes.get_label() != "<colorbar>":
                values = drawn(axes)
                assert np.isfinite(values).any(), axes.get_title()
                assert not np.isinf(values).any(), axes.get_title()
    pictures = [value for value in seen.shown if hasattr(value, "getextrema")]
    assert len(pictures) == PICTURES[path.stem]
    assert all(low < high for picture in pictures for low, high in picture.convert("RGB").getextrema())
    tables = [value for value in seen.shown if hasattr(value, "_repr_markdown_")]
    for table in tables:
        assert len(table) > 1
        assert all(math.isfinite(summary.delay_mean.mean) for summary in table.values())
    printed = "\n".join([capsys.readouterr().out, *(table._repr_markdown_() for table in tables)])
    assert re.search(PRINTED[path.stem], printed), printed
    assert not re.search(r"\b(nan|inf|none)\b", printed, re.IGNORECASE), printed


@pytest.fixture
def folder(tmp_path, monkeypatch, few_rounds):
    """The current folder of commands that train nobody and check budgets by few rounds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(train.Job, "run", lambda job: print("would train", job._scenario.name))
    return tmp_path


SHORTER = {"own_scheduler": {"--scenarios small medium": "--scenarios small"}}
"""Parts of commands, and what is run in their place."""


@every
def test_the_commands_of_a_notebook_run(path, folder):
    """With the files that its cells write, and those that it tells the reader to save."""
    for source in cells(path, "code"):
        if named := re.match(r"# (\w+\.py)\n", source):
            Path(named[1]).write_text(source, encoding="utf-8")
        elif "write_text(" in source:
            exec(source, {"Path": Path, "collapipe_env": collapipe_env})
    text = Path("text.md")
    text.write_text("\n\n".join(cells(path, "markdown")), encoding="utf-8")
    for program, command, *_ in support.lines(text):
        assert program != "collapipe" or command in COMMANDS, command
    support.run_page(text, folder, SHORTER.get(path.stem, {}).items(), {"execute"})


NEEDED = ("nbclient", "nbformat", "ipykernel")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {MISSING}; pip install -e '.[notebooks]'")
@every
def test_a_notebook_runs_in_a_kernel(path, tmp_path, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(support.ROOT))  # for the kernel, which starts in another folder
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    NotebookClient(
        notebook, timeout=1500, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == FIGURES[path.stem] + PICTURES[path.stem] + (path.stem == "failed_round")
    assert not [output for output in outputs if output.output_type == "error"]
