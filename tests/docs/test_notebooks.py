"""The notebooks run from top to bottom, only shorter; in full size in a kernel, if Jupyter is there."""

import ast
import importlib.util
import json
import math
import re
from dataclasses import replace
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pages_support as support
import pytest

from collapipe_env.baselines.even_split import PipeLine
from collapipe_env.schedulers import SCHEDULERS

NOTEBOOKS = sorted((support.ROOT / "notebooks").glob("*.ipynb"))
PAGE = support.DOCS / "notebooks.md"
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
    "own_scheduler": r"even \[\[",
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


@every
def test_a_notebook_is_listed_and_holds_no_outputs(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    names = [cell["id"] for cell in notebook["cells"]]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
    assert cells(path, "markdown")[0].startswith("# ")
    assert support.links(PAGE).count(f"../notebooks/{path.name}") == 1
    assert set(SMALLER[path.stem]) <= assigned(cells(path, "code")[0])


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
