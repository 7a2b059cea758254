"""The layers of CONTRIBUTING.md: each part of the package has its row, and imports point downwards."""

import ast
import re
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
