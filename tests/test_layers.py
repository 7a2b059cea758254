"""The layers of CONTRIBUTING.md: each part has its row, imports point downwards and never in a circle."""

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import collapipe_env

PACKAGE = Path(collapipe_env.__file__).parent
CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"
FRONT = {"__init__", "__main__"}
"""Modules that hand on what others hold."""
parsed = cache(ast.parse)
_EXCEPTIONS = {
    "collapipe_env": "evaluation.evaluate evaluation.view.page_file",
    "cli.executed_rounds": "cli.execute",
    "cli.train": "cli.several_trainings",
    "dynamics.heat": "simulator.build simulator.running",
    "dynamics.presence": "simulator.build",
    "dynamics.process": "simulator.costs simulator.failed_records simulator.state",
    "dynamics.traces": "simulator.build",
    "evaluation.labels": "evaluation.comparison evaluation.statistics",
    "evaluation.travelling": "evaluation.runner",
    "evaluation.unit_progress": "evaluation.runner",
    "execution.cluster_round": "execution.control_unit",
    "execution.cluster_step": "execution.cluster_round execution.control_unit",
    "execution.device_round": "execution.device",
    "execution.phase_comparison": "execution.price_comparison",
    "execution.served_cluster": "execution.served_round",
    "execution.served_round": "execution.edge_server",
    "expressible": "codec",
    "learners": "training.real_learner",
    "learners.expected_progress": "simulator.costs",
    "physics.server": "simulator.costs",
    "scenario.block_prices": "scenario.schema",
    "scenario.cluster_centres": "scenario.schema",
    "scenario.consistency": "scenario.schema",
    "scenario.decisions": "scenario.schema",
    "scenario.layout": "scenario.schema",
    "scenario.memory_fields": "scenario.schema scenario.workload_section",
    "scenario.process_fields": "dynamics.process_registry",
    "scenario.schema": "scenario.loading",
    "scenario.server_section": "scenario.schema",
    "scenario.style_fields": "scenario.workload_section",
    "simulator.costs": "simulator.migration_costs simulator.replica_costs",
    "simulator.plans_left": "simulator.failed_rounds",
    "simulator.sitting_out": "simulator.costs",
    "task_registry": "tasks.base",
}
EXCEPTIONS = {(one, other) for one, others in _EXCEPTIONS.items() for other in others.split()}
"""Late imports and imports for types that point upwards or close a circle. This table only shrinks."""


def parts() -> set[str]:
    """Modules and folders of code at the top of the package."""
    modules = {path.stem for path in PACKAGE.glob("*.py")} - FRONT
    return modules | {path.parent.name for path in PACKAGE.glob("*/__init__.py")}


@pytest.fixture(scope="module")
def rows() -> dict[str, int]:
    """The row of each part, counted from the top."""
    table = re.search(r"^\| layer .*?\n\n", CONTRIBUTING.read_text(), re.DOTALL | re.MULTILINE)
    assert table is not None
    found = {}
    for number, line in enumerate(table[0].strip().splitlines()[2:]):
        where = line.split("|")[2]
        for name in re.findall(r"`(\w+)`", where):
            assert name not in found, f"{name} has two rows"
            found[name] = number
    return found


def test_every_part_has_a_row(rows: dict[str, int]) -> None:
    assert set(rows) == parts()


def modules(folder: Path, package: str) -> dict[str, Path]:
    """Files of a package by the names of their modules."""
    found = {}
    for top in (folder, *(part for part in folder.iterdir() if part.is_dir())):
        # The folders at the top may be links, into which a search does not go by itself.
        for path in top.glob("*.py") if top == folder else top.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join((package, *parts)).removesuffix(".__init__")] = path
    return found


def graph(folder: Path, package: str, whole: bool = True) -> dict[str, set[str]]:
    """Modules of a package, and which others of it each imports: at its head, or as a whole anywhere.

    The whole includes what functions import when they run, and what is imported for annotations only.
    """
    files = modules(folder, package)
    found: dict[str, set[str]] = {}
    for name, path in files.items():
        named = set()
        tree = parsed(path.read_text())
        for node in ast.walk(tree) if whole else tree.body:
            if isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    above = name.split(".")[: len(name.split(".")) - node.level + (path.stem == "__init__")]
                    base = ".".join((*above, *filter(None, (base,))))
                # What is imported is a module, or something in one.
                named |= {
                    module if (module := f"{base}.{alias.name}") in files else base for alias in node.names
                }
        found[name] = named & set(files)
    return found


def short(name: str) -> str:
    """A module's name below the package."""
    return name.removeprefix("collapipe_env.")


def upwards(rows: dict[str, int], pair: tuple[str, str]) -> bool:
    """Whether the second module of a pair stands in a higher row than the first, which imports it."""
    one, other = (name.split(".")[0] for name in pair)
    return one in rows and other in rows and rows[other] < rows[one]


def circle(imports: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in turn, the first one again at the end; empty where there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize("whole", [False, True])
def test_imports_point_downwards(rows: dict[str, int], whole: bool) -> None:
    imports = graph(PACKAGE, "collapipe_env", whole)
    known = EXCEPTIONS if whole else set()
    pairs = {(short(one), short(other)) for one, others in imports.items() for other in others}
    assert len(pairs) > 1000
    assert {pair for pair in pairs if upwards(rows, pair)} - known == set()


def without(imports: dict[str, set[str]], pairs: set[tuple[str, str]]) -> dict[str, set[str]]:
    """Imports but for some."""
    return {
        one: {to for to in others if (short(one), short(to)) not in pairs} for one, others in imports.items()
    }


def test_no_modules_import_each_other() -> None:
    heads = graph(PACKAGE, "collapipe_env", whole=False)
    assert {part.split(".")[1] for part in heads if "." in part} - FRONT == parts()
    assert sum(map(len, heads.values())) > 1000
    assert circle(heads) == []
    assert circle(without(graph(PACKAGE, "collapipe_env"), EXCEPTIONS)) == []


def test_exceptions_are_still_needed(rows: dict[str, int]) -> None:
    imports = graph(PACKAGE, "collapipe_env")
    # In the graph's own order: an entry is needed where the others do not open all circles.
    pairs = {(short(one), short(to)) for one, others in imports.items() for to in others} & EXCEPTIONS
    needed = {pair for pair in pairs if upwards(rows, pair) or circle(without(imports, EXCEPTIONS - {pair}))}
    assert needed == EXCEPTIONS, "take the others out of the table"


def test_circles_are_found(tmp_path: Path) -> None:
    files = {
        "__init__": "from own.low import nothing",
        "low": "import os\n\n\ndef late():\n    import own.folder.one",
        "folder/__init__": "from . import one",
        "folder/one": "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    import own.folder",
        "folder/two": "from ..low import late\nfrom .one import thing",
    }

    def write(whole: bool = False) -> dict[str, set[str]]:
        for name, text in files.items():
            path = tmp_path / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return graph(tmp_path, "own", whole)

    assert write() == {
        "own": {"own.low"},
        "own.low": set(),
        "own.folder": {"own.folder.one"},
        "own.folder.one": set(),
        "own.folder.two": {"own.low", "own.folder.one"},
    }
    assert circle(write()) == []
    assert write(whole=True)["own.low"] == {"own.folder.one"}
    assert write(whole=True)["own.folder.one"] == {"own.folder"}
    assert set(circle(write(whole=True))) == {"own.folder", "own.folder.one"}
    files["folder/one"] = "from .two import late"
    assert set(circle(write())) == {"own.folder.one", "own.folder.two"}
    files["folder/one"] = "from own import folder"
    assert set(circle(write())) == {"own.folder", "own.folder.one"}
