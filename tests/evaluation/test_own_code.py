"""Schedulers named as ``file.py:Name`` and ``package.module:Name``: found, run and told apart."""

import os
import signal
import sys
from pathlib import Path

import even_support  # noqa: F401 - stays imported
import pytest

import collapipe_env
from collapipe_env.evaluation.episode import play_episode
from collapipe_env.evaluation.episode_files import file_stem
from collapipe_env.evaluation.own_code import import_factory
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.evaluation.sudden_end import no_sudden_end
from collapipe_env.ground.errors import SchedulerError
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import scheduler_names

SCENARIO = load_scenario({"base": "small", "dynamics": {"rounds": 2}})
PLAIN = "from even_support import Even\nclass Mine(Even):\n    name = 'mine'\n"


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


def play(reference: str) -> str:
    return play_episode(
        reference, make_scheduler(reference, SCENARIO), SCENARIO, 0, 2, "surrogate"
    ).result.title


def test_a_file_is_played_under_its_own_name_and_leaves_others_alone(tmp_path: Path) -> None:
    import statistics

    file = write(tmp_path / "statistics.py", PLAIN)
    assert play(f"{file}:Mine") == "mine"
    assert sys.modules["statistics"] is statistics
    assert not (tmp_path / "__pycache__").exists()


def test_a_file_imports_its_neighbours_early_and_late_and_two_may_not_be_mixed_up(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        write(tmp_path / folder / "own_helper.py", f"TITLE = {folder!r}\n")
        text = PLAIN.replace("'mine'", "own_helper.TITLE") + (
            "    def act(self, observation, state):\n"
            "        from own_late import SEEN\n"
            "        return super().act(observation, state)\n"
        )
        text = f"import own_helper\n{text}"
        write(tmp_path / folder / "policy.py", text)
    write(tmp_path / "one" / "own_late.py", "SEEN = 1\n")
    assert play(f"{tmp_path / 'one' / 'policy.py'}:Mine") == "one"
    message = r"two/own_helper\.py has the name of .*one/own_helper\.py, which is imported already: rename"
    with pytest.raises(SchedulerError, match=message):
        make_scheduler(f"{tmp_path / 'two' / 'policy.py'}:Mine", SCENARIO)


def test_a_module_of_the_current_folder_is_found(tmp_path: Path, monkeypatch) -> None:
    write(tmp_path / "ours" / "__init__.py", "")
    write(tmp_path / "ours" / "base.py", "TITLE = 'ours'\n")
    write(tmp_path / "ours" / "best.py", "from .base import TITLE\n" + PLAIN.replace("'mine'", "TITLE"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(tmp_path))])
    assert play("ours.best:Mine") == "ours"


REFERENCES = {
    "no name": ("{file}", r"names no class or function: write .*mine\.py:Name"),
    "no file": ("nowhere.py:Mine", r"nowhere\.py does not exist: give the path of a Python file"),
    "a folder": ("{folder}/:Mine", "is not a file: give the path"),
    "a long name": ("x" * 5000 + ".py:Mine", r" \.\.\. x+\.py cannot be read \(File name too long\)"),
    "a null byte": ("x\0.py:Mine", r"cannot be read \(embedded null byte\)"),
    "nobody's home": ("~no-such-user/a.py:Mine", "cannot be read .*home directory"),
    "a colon more": ("{file}:T:", r"write path/to/file\.py:Name or package"),
    "a long module": ("x" * 3000 + ":T", "^.{300,900}$"),
    "a prose": ("my scheduler:Mine", "names no class or function: write path"),
    "no module": ("no_such_pack.module:Mine", "there is no module 'no_such_pack' here"),
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
    "its helper fails": ("import helper\n", r"ValueError: bad \(.*mine\.py, line 1\)"),
    "takes nothing": (
        "def Mine():\n    pass\n",
        "cannot be built: TypeError: .*: it is called with the scenario alone",
    ),
    "gives nothing": ("def Mine(scenario):\n    pass\n", "is None, which has no reset: a scheduler has name"),
    "cannot act": (
        "class Mine:\n    name = 'x'\n    def __init__(self, s): pass\n    reset = print\n",
        "is a Mine, which has no act",
    ),
    "nameless": (PLAIN.replace("'mine'", "None"), "has no name: give it one line"),
    "odd name": (PLAIN.replace("'mine'", "3"), "has name = 3"),
    "two lines": (PLAIN.replace("'mine'", "'a\\nb'"), "has name = 'a.*b': give it one line"),
    "fails when built": (
        "class Mine:\n    def __init__(self, scenario):\n        self.x = scenario['x']\n",
        r"cannot be built: TypeError: .*mine\.py, line 3\)",
    ),
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
        make_scheduler(reference, SCENARIO)
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


def test_another_copy_of_the_package_beside_a_file_stays_out(tmp_path: Path) -> None:
    """As in a clone of the sources, while an installed package plays."""
    write(tmp_path / "collapipe_env" / "__init__.py", "raise ImportError('the other copy')\n")
    file = write(tmp_path / "mine.py", f"import collapipe_env as package\n{PLAIN}")
    factory = import_factory(f"{file}:Mine").factory
    assert sys.modules[factory.__module__].package is collapipe_env
    assert play(f"{file}:Mine") == "mine"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system forks no processes")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_code_may_end_processes_of_its_own() -> None:
    before = os._exit
    with no_sudden_end():
        child = os.fork()
        if child == 0:
            try:
                os._exit(7)
            finally:
                os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises(SystemExit, match=r"os._exit\(3\)"):
            os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert os._exit is before
