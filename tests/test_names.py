"""Names: no two modules of one name with two meanings, and docstrings that begin with the thing's name."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import collapipe_env

PACKAGE = Path(collapipe_env.__file__).parent

SHARED = {
    "arrivals": "the draw of arrivals, and its compiled loop",
    "base": "the interface of what the folder holds: backends, learners, tasks",
    "evaluate": "the evaluation, and its command",
    "even_split": "the even split, and the baseline that plays it",
    "leaderboard": "the leaderboard, and its command",
    "observation": "the observation, and its compiled loop",
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
