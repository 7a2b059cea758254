"""Schedulers of one's own in processes of their own, which play as here and reach nothing of this one."""

import gc
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from collapipe_env.evaluation import scheduler_process
from collapipe_env.evaluation.episode import play_episode
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.evaluation.scheduler_process import ProcessScheduler
from collapipe_env.evaluation.scheduler_worker import decoded, encoded
from collapipe_env.ground.errors import SchedulerError
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import action_codec

SMALL = {"base": "small", "dynamics": {"rounds": 3}}
SCENARIO = load_scenario(SMALL)
SURVIVED = {
    "exits": ("sys.exit(0)", r"failed in act: SystemExit: 0 \(.*mine\.py, line \d+\)"),
    "fails": ("raise ValueError('two\\nlines')", r"in act: ValueError: two \(.*mine\.py, line \d+\)$"),
    "nothing": ("return None", "act returned None, which cannot be played .*: return an array"),
    "pair": ("return np.zeros(3), None", "act returned a tuple, which cannot be played"),
    "shape": ("return np.zeros((3, 2))", r"returned an ndarray of shape \(3, 2\), which"),
}
OTHER_ACTS = {
    "prints": "print('hello')",
    "closes": "sys.stdout.close()",
    "attacks": "return self.attack(state)",
    "closes all": "os.closerange(3, 100); time.sleep(100)",
}
ACTS = {**OTHER_ACTS, **{name: what for name, (what, _) in SURVIVED.items()}}
SOURCE = """
import gc, os, pathlib, signal, sys, time
import numpy as np
import own_helper
from collapipe_env.evaluation.scheduler_loading import make_scheduler

class Mine:
    def __init__(self, scenario):
        self.played = scenario.name
        self.sees, self.name = ("state", " other ") if self.played == "other" else ("truth", own_helper.TITLE)
        self.inner, self.size = make_scheduler("pipeline", scenario), SIZE
        if self.played == "unbuilt":
            raise ValueError("no")

    observation = "graph"

    def fingerprint(self):
        return f"{os.getpid()} {sum(type(o) is Mine for o in gc.get_objects())}"

    def reset(self, seed=None):
        self.inner.reset(seed)

    def attack(self, state):
        from collapipe_env.envs.vector import CollaPipeVectorEnv
        from collapipe_env.evaluation import episode
        frame, names = sys._getframe(), []
        while frame:
            names += [frame.f_code.co_name, *frame.f_locals]
            frame = frame.f_back
        assert not {"env", "play_episode", "seed"} & set(names), names
        assert not [o for o in gc.get_objects() if type(o) is CollaPipeVectorEnv]
        assert state is None
        CollaPipeVectorEnv.step = episode.play_episode = None
        return np.zeros((1, self.size), dtype=np.float32)

    def act(self, observation, state):
""".replace("SIZE", str(action_codec(SCENARIO).action_size))
SOURCE += "".join(f"        if self.played == {name!r}: {what}\n" for name, what in ACTS.items())
SOURCE += "        return self.inner.act(observation, state)\n"
"""What it does follows from the scenario's name, so one process serves many cases."""


@pytest.fixture(autouse=True)
def no_process_of_an_earlier_case() -> Iterator[None]:
    """End processes that nobody uses after the case that began them, which then counts their seconds."""
    yield
    gc.collect()


def written(folder: Path, title: str) -> str:
    """A scheduler, beside a module that says its name, and one named as one of the standard library."""
    (folder / "mine.py").write_text(SOURCE)
    (folder / "own_helper.py").write_text(f"TITLE = {title!r}\n")
    (folder / "json.py").write_text("raise SystemExit('a file of the user')")
    return f"{folder / 'mine.py'}:Mine"


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Iterator[tuple[str, ProcessScheduler]]:
    """A scheduler, and one in its process, which is kept with it; begun in the folder of its file."""
    folder = tmp_path_factory.mktemp("kept")
    scheduler_process._kept.cache_clear()  # ends those of earlier files, whose seconds no case here spent
    reference = written(folder, "mine")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        yield reference, ProcessScheduler(reference, SCENARIO)


@pytest.fixture
def mine(kept, monkeypatch) -> str:
    """The scheduler whose process is kept."""
    reference, _ = kept
    monkeypatch.chdir(Path(reference).parent)
    return reference


def built(reference: str, scenario: str = "small"):
    return make_scheduler(reference, load_scenario({"name": scenario, **SMALL}))


def play(reference: str, scenario: str = "small", rounds=3, **options):
    return play_episode(
        reference, built(reference, scenario), SCENARIO, 0, rounds, "surrogate", **options
    ).result


def refused(reference: str, message: str, scenario: str = "small") -> None:
    with pytest.raises(SchedulerError, match=message) as caught:
        play(reference, scenario, 1)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"scheduler {reference!r}")


def test_it_plays_bit_by_bit_as_in_this_process(mine: str, capfd) -> None:
    """Also if it prints or closes its output; and it says what it reads."""
    here = play("pipeline")
    for scenario in ("small", "other", "prints", "closes"):
        own = play(mine, scenario)
        assert own.delay == here.delay
        assert own.energy_ratio == here.energy_ratio
    assert capfd.readouterr().out == ""  # what it prints goes to standard error
    scheduler = built(mine)
    assert (scheduler.name, scheduler.sees, scheduler.observation) == ("mine", "truth", "graph")
    other = built(mine, "other")
    assert (other.name, other.sees) == ("other", "state")


def test_it_neither_sees_nor_changes_what_measures_it(mine: str) -> None:
    """Nor do files in the current folder stand in for the standard library."""
    assert len(play(mine, "attacks", blind=True).delay) == 3
    own = str(Path(mine).parent)
    assert not [name for name, m in sys.modules.items() if str(getattr(m, "__file__", "")).startswith(own)]


def test_one_process_serves_all_schedulers_of_a_file(mine: str, kept) -> None:
    gc.collect()
    first, second = built(mine), built(mine)
    (one, alive), (other, _) = first.fingerprint().split(), second.fingerprint().split()
    assert one == other != str(os.getpid())
    assert kept[1].fingerprint().split() == [one, alive]
    del first
    assert second.fingerprint().split() == [one, str(int(alive) - 1)]


@pytest.mark.parametrize("scenario", SURVIVED)
def test_whatever_it_does_is_one_clear_line(mine: str, scenario: str) -> None:
    refused(mine, SURVIVED[scenario][1], scenario)


def test_what_is_no_scheduler_is_one_clear_line(mine: str) -> None:
    refused(mine, r"cannot be built: ValueError: no \(.*mine\.py, line \d+\)", "unbuilt")


def test_two_files_may_have_neighbours_of_one_name(mine: str, tmp_path: Path) -> None:
    """And a process that closes its connection is told in one line."""
    two = written(tmp_path, "two")
    assert (built(mine).name, built(two).name) == ("mine", "two")
    refused(two, "closed its connection in act|ended with exit", "closes all")


LIGHT = """
import json, os, pickle, signal, sys, time

class Whatever:
    def __new__(cls, *given):
        return object.__new__(cls)

    def __setstate__(self, state):
        pass

class Requests(pickle.Unpickler):
    def find_class(self, *name):
        return Whatever

def writes(fd):
    import fcntl
    try:
        return fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
    except OSError:
        return False

sys.argv.pop()
answers = os.fdopen(os.dup(1), "w")
while True:
    method, given, _ = Requests(sys.stdin.buffer).load()
    if method == "METHOD":
        WHAT
    told = {"name": "light", "sees": "state", "observation": "flat"} if method == "build" else {}
    print(json.dumps({**told, "text": str(os.getpid())}), file=answers, flush=True)
"""
"""A worker that imports no library: what is told of its end is the measuring process's affair."""


@pytest.fixture
def light(tmp_path: Path, monkeypatch):
    """Scheduler in a worker that does something when it is asked for something."""

    def made(method: str, what: str) -> str:
        monkeypatch.setattr(
            scheduler_process, "_START", LIGHT.replace("METHOD", method).replace("WHAT", what)
        )
        (tmp_path / "mine.py").write_text("")
        return f"{tmp_path / 'mine.py'}:Mine"

    return made


def test_a_file_that_changed_is_played_by_another_process(light, tmp_path: Path) -> None:
    reference = light("none", "pass")
    first, same = (built(reference).fingerprint() for _ in range(2))
    os.utime(tmp_path / "mine.py", ns=(1, 1))
    assert first == same != built(reference).fingerprint()


ENDED = {
    "ends": ("os._exit(0)", "its process ended with exit code 0 in act: see"),
    "is killed": ("os.kill(os.getpid(), signal.SIGKILL)", "was ended by signal 9 .* in act"),
    "leaves a child": ("os._exit(3) if os.fork() else time.sleep(30)", "ended with exit code 3 in act"),
    "leaves a stranger": (
        "os._exit(3) if os.fork() else (os.setsid(), time.sleep(30))",
        "ended with exit code 3 in act",
    ),
    "hangs": ("time.sleep(100)", "took longer than 2 s, and was ended in act"),
    "writes nonsense": (
        "[os.write(fd, b'x\\n') for fd in range(3, 20) if writes(fd)]",
        "sent an answer that cannot be read in act",
    ),
}


@pytest.mark.skipif(os.name != "posix", reason="signals and file descriptors")
@pytest.mark.parametrize("fate", ENDED)
def test_its_end_is_one_clear_line(light, fate: str, monkeypatch) -> None:
    what, message = ENDED[fate]
    reference = light("act", what)
    kept = built(reference)
    monkeypatch.setattr(scheduler_process, "LIMIT_S", 2.0)
    began = time.monotonic()
    refused(reference, message)
    assert time.monotonic() - began < 10.0
    del kept


def test_a_file_that_ends_its_process_is_one_clear_line(light) -> None:
    refused(light("load", "os._exit(3)"), "its process ended with exit code 3 in load")


def test_answers_are_plain_numbers_and_nothing_else() -> None:
    arrays = {"blocks": np.arange(6).reshape(1, 2, 3), "device_power": np.full((1, 2, 3), 0.1, np.float32)}
    arrays |= {name: np.array([[1 / 3, np.nan]]) for name in ("micro_batches", "bandwidth", "cu_power")}
    plan = decoded(json.loads(json.dumps(encoded(Allocation(**arrays, others={"own": np.array([True])})))))
    for name, array in {**arrays, "own": np.array([True])}.items():
        assert plan.given(name).dtype == array.dtype
        np.testing.assert_array_equal(plan.given(name), array)
    for kind in ("|O", "<U3", "V8", "no such"):
        with pytest.raises(TypeError):
            decoded({"action": [kind, [1]]})
    with pytest.raises(TypeError):
        decoded({"no field": ["<f8", [1.0]]})
