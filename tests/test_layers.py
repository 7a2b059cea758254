"""The layers of CONTRIBUTING.md: each part has its row, imports point downwards and never in a circle.

Names: no two modules of one name with two meanings, and docstrings that begin with the thing's name.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
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
    """Modules of a package, and which others of it each imports, also in functions and for annotations."""
    files = modules(folder, package)
    found: dict[str, set[str]] = {}
    for name, path in files.items():
        named = set()
        for node in ast.walk(ast.parse(path.read_text())):
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


def upwards(rows: dict[str, int], pair: tuple[str, str]) -> bool:
    """Whether the second module of a pair stands in a higher row than the first, which imports it."""
    one, other = (name.removeprefix("collapipe_env.").split(".")[0] for name in pair)
    return one in rows and other in rows and rows[other] < rows[one]


def circle(imports: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in turn, the first one again at the end; empty where there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_imports_point_downwards(rows: dict[str, int]) -> None:
    pairs = {(one, other) for one, others in graph(PACKAGE, "collapipe_env").items() for other in others}
    assert len(pairs) > 1000
    # The package's own face imports names of all rows; nobody inside may import it.
    assert [pair for pair in pairs if upwards(rows, pair)] == []


def test_no_modules_import_each_other() -> None:
    imports = graph(PACKAGE, "collapipe_env")
    assert {part.split(".")[1] for part in imports if "." in part} - FRONT == parts()
    assert circle(imports) == []


SHARED = {
    "arrivals": "the draw of arrivals, and its compiled loop",
    "base": "the interface of what the folder holds: backends, learners, tasks",
    "evaluate": "the evaluation, and its command",
    "even_split": "the even split, and the baseline that plays it",
    "leaderboard": "the leaderboard, and its command",
    "observation": "the observation, and its compiled loop",
    "participation": "who takes part in a round, and the decision about it",
    "queues": "energy queues, and their compiled loop",
    "scenario": "scenarios, and their command",
    "surrogate": "the surrogate learner, and its compiled loop",
    "zoo": "agents that come with the package, and their command",
    "view": "the page of a run, and its command",
}
"""Names that several modules or folders have, with the one meaning that they share."""

RIDDLE = re.compile(r"(What|Which|Who|Whose|How|When|Where)\b")
"""Openings of a docstring that ask for the thing instead of naming it."""


def sources() -> list[Path]:
    """All source files of the package; agents and baselines may be links, which a search does not follow."""
    linked = [path for name in ("agents", "baselines") for path in (PACKAGE / name).rglob("*.py")]
    return sorted({*PACKAGE.rglob("*.py"), *linked})


def test_no_two_modules_share_a_name() -> None:
    files = [path for path in sources() if not path.stem.startswith("__")]
    folders = {path.parent for path in sources() if path.stem == "__init__"} - {PACKAGE}
    counts = Counter([path.stem for path in files] + [folder.name for folder in folders])
    assert len(files) > 200
    shared = {name for name, count in counts.items() if count > 1}
    assert shared - set(SHARED) == set(), "rename one of each, or say in SHARED what both are"
    assert set(SHARED) - shared == set(), "no longer shared: remove from SHARED"


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring: of modules, classes and functions, and of what is assigned."""
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        before: ast.AST | None = None
        for statement in body:
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))) if before is None or isinstance(
                    before, ast.Assign | ast.AnnAssign
                ):
                    yield statement.lineno, text.strip()
            before = statement


def test_docstrings_begin_with_the_name_of_the_thing() -> None:
    found, seen = [], 0
    for path in sources():
        for line, text in docstrings(path.read_text(encoding="utf-8")):
            seen += 1
            if RIDDLE.match(text):
                found.append(f"{path.relative_to(PACKAGE).as_posix()}:{line}")
    assert not found
    assert seen > 1000
