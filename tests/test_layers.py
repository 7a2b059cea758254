"""The layers of CONTRIBUTING.md: each part has its row, imports point downwards and never in a circle."""

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import collapipe_env

PACKAGE = Path(collapipe_env.__file__).parent
CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"
FRONT = {"__init__", "__main__"}
"""Modules that hand on what others hold."""


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


def imported(path: Path) -> set[str]:
    """Parts that a file imports at its head."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "collapipe_env":
            names |= {f"collapipe_env.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            # Relative to the file's folder, which a link may hold outside the package.
            here = ["collapipe_env", *path.relative_to(PACKAGE).parent.parts]
            base = here[: len(here) - node.level + 1]
            names.add(".".join([*base, *([node.module] if node.module else [node.names[0].name])]))
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return {name.split(".")[1] for name in names if name.startswith("collapipe_env.")}


def test_imports_point_downwards(rows: dict[str, int]) -> None:
    wrong, seen = [], 0
    for part in parts():
        files = (
            [PACKAGE / f"{part}.py"] if (PACKAGE / f"{part}.py").is_file() else (PACKAGE / part).rglob("*.py")
        )
        for path in files:
            for other in imported(path) & set(rows):
                seen += 1
                if rows[other] < rows[part]:
                    wrong.append(f"{path.relative_to(PACKAGE)} imports {other}")
    assert not wrong
    assert seen > 500


def modules(folder: Path, package: str) -> dict[str, Path]:
    """Files of a package by the names of their modules."""
    found = {}
    for top in (folder, *(part for part in folder.iterdir() if part.is_dir())):
        # The folders at the top may be links, into which a search does not go by itself.
        for path in top.glob("*.py") if top == folder else top.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join((package, *parts)).removesuffix(".__init__")] = path
    return found


def graph(folder: Path, package: str) -> dict[str, set[str]]:
    """Modules of a package, and which others of it each imports at its head."""
    files = modules(folder, package)
    found: dict[str, set[str]] = {}
    for name, path in files.items():
        named = set()
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    above = name.split(".")[: len(name.split(".")) - node.level + (path.stem == "__init__")]
                    base = ".".join((*above, *filter(None, (base,))))
                # What is imported is a module, or something in one.
                named |= {
                    whole if (whole := f"{base}.{alias.name}") in files else base for alias in node.names
                }
        found[name] = named & set(files)
    return found


def circle(imports: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in turn, the first one again at the end; empty where there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other() -> None:
    imports = graph(PACKAGE, "collapipe_env")
    assert {part.split(".")[1] for part in imports if "." in part} - FRONT == parts()
    assert sum(map(len, imports.values())) > 1000
    assert circle(imports) == []


def test_circles_are_found(tmp_path: Path) -> None:
    files = {
        "__init__": "from own.low import nothing",
        "low": "import os\n\n\ndef late():\n    import own.folder.one",
        "folder/__init__": "from . import one",
        "folder/one": "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    import own.folder",
        "folder/two": "from ..low import late\nfrom .one import thing",
    }

    def write() -> dict[str, set[str]]:
        for name, text in files.items():
            path = tmp_path / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return graph(tmp_path, "own")

    assert write() == {
        "own": {"own.low"},
        "own.low": set(),
        "own.folder": {"own.folder.one"},
        "own.folder.one": set(),
        "own.folder.two": {"own.low", "own.folder.one"},
    }
    assert circle(graph(tmp_path, "own")) == []
    files["folder/one"] = "from .two import late"
    assert set(circle(write())) == {"own.folder.one", "own.folder.two"}
    files["folder/one"] = "from own import folder"
    assert set(circle(write())) == {"own.folder", "own.folder.one"}
