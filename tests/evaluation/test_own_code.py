"""Code of one's own, named as ``file.py:Name`` and ``package.module:Name``: found, imported, or refused."""

import sys
from pathlib import Path

import pytest

from collapipe_env.evaluation.episode_files import file_stem
from collapipe_env.evaluation.own_code import import_own
from collapipe_env.ground.errors import SchedulerError
from collapipe_env.schedulers import SCHEDULERS, scheduler_names

PLAIN = "class Mine:\n    name = 'mine'\n"


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch):
    """Leaves paths and modules as they were before the test."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = dict(sys.modules)
    yield
    for name in set(sys.modules) - set(before):
        if not name.startswith(("collapipe_env", "numpy", "scipy", "torch", "numba")):
            del sys.modules[name]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_file_runs_once_with_its_neighbours_and_leaves_namesakes_alone(tmp_path: Path) -> None:
    import statistics

    write(tmp_path / "own_helper.py", "TITLE = 'mine'\n")
    file = write(tmp_path / "statistics.py", "from own_helper import TITLE\n" + PLAIN)
    found = import_own(f"{file}:Mine", SCHEDULERS)
    assert found is import_own(f"{tmp_path}/../{tmp_path.name}/statistics.py:Mine", SCHEDULERS)
    assert sys.modules["statistics"] is statistics
    assert not (tmp_path / "__pycache__").exists()


def test_a_module_of_the_current_folder_is_found(tmp_path: Path, monkeypatch) -> None:
    write(tmp_path / "ours" / "__init__.py", "")
    write(tmp_path / "ours" / "base.py", PLAIN)
    write(tmp_path / "ours" / "best.py", "from .base import Mine\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(tmp_path))])
    assert import_own("ours.best:Mine", SCHEDULERS).name == "mine"


REFERENCES = {
    "no name": ("{file}", r"names no class or function: write .*mine\.py:Name"),
    "no file": ("nowhere.py:Mine", r"there is no file 'nowhere\.py': give the path of a Python file"),
    "a folder": ("{folder}:Mine", "names no class or function: write path"),
    "a long name": ("x" * 5000 + ".py:Mine", r"^.{300,900}there is no file 'x+ \.\.\. x+\.py'"),
    "a null byte": ("x\0.py:Mine", "there is no file"),
    "nobody's home": ("~no-such-user/a.py:Mine", "there is no file '~no"),
    "a colon more": ("{file}:T:", r"write path/to/file\.py:Name or package"),
    "a long module": ("x" * 3000 + ":T", "^.{300,900}$"),
    "a prose": ("my scheduler:Mine", "names no class or function: write path"),
    "no module": ("no_such_pack.module:Mine", "No module named 'no_such_pack': check its spelling"),
    "misspelt": ("{file}:Mien", r"there is no 'Mien' in .*mine\.py: did you mean 'Mine'"),
}
SOURCES = {
    "no answer": (
        "def __getattr__(name):\n    raise RuntimeError(name)\n",
        r"cannot be imported: RuntimeError: Mine \(.*mine\.py, line 2",
    ),
    "nothing there": ("x = 1\n", "it defines no class or function"),
    "no callable": ("Mine = 3\n", "Mine is an object of type int, which cannot be called"),
    "no Python": ("x = 1\ndef (:\n", r"SyntaxError: .*mine\.py, line 2\)"),
    "fails": ("x = 1\nx / 0\n", r"ZeroDivisionError: division by zero \(.*mine\.py, line 2\)"),
    "leaves": ("import sys\nsys.exit(0)\n", r"SystemExit: 0 \(.*mine\.py, line 2\)"),
    "lacks a library": (
        "\n\nimport no_such_library\n",
        r"No module named 'no_such_library' \(.*mine\.py, line 3\)",
    ),
    "its helper fails": ("import helper\n", r"ValueError: bad \(.*helper\.py, line 1\)"),
}
FAULTS = {name: (PLAIN, *fault) for name, fault in REFERENCES.items()}
FAULTS |= {name: (text, "{file}:Mine", message) for name, (text, message) in SOURCES.items()}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_one_clear_line(tmp_path: Path, fault: str) -> None:
    text, reference, message = FAULTS[fault]
    write(tmp_path / "helper.py", "raise ValueError('bad\\nworse')\n")
    file = write(tmp_path / "mine.py", text)
    reference = reference.format(file=file, folder=tmp_path)
    before = set(sys.modules)
    with pytest.raises(SchedulerError, match=message) as caught:
        import_own(reference, SCHEDULERS)
    assert "\n" not in str(caught.value)
    left = {name for name in set(sys.modules) - before if "mine" in name or "helper" in name}
    assert len(left) <= 1  # the file itself, where it could be run


def test_every_name_has_a_file_name_of_its_own() -> None:
    assert [file_stem(name) for name in scheduler_names()] == list(scheduler_names())
    names = ["a/b.py:C", "a.b.py:C", "a/b_py:C", "A/b.py:C", "a\\b.py:C", "ü.py:X"]
    names += ["c:d", "Half", "half", "half power", "../x"]
    names += ["x" * 300 + ".py:Name", "y" + "x" * 300 + ".py:Name"]
    stems = [file_stem(name) for name in names]
    assert len({stem.lower() for stem in stems}) == len(names)
    for stem in stems:
        assert set(stem) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
        assert len(stem) < 60
