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
from collapipe_env.evaluation.scheduler_worker import decoded, encoded
from collapipe_env.ground.errors import SchedulerError
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import action_codec

pytestmark = pytest.mark.process
SCENARIO = load_scenario({"base": "small", "dynamics": {"rounds": 3}})
SOURCE = """
import gc, os, pathlib, signal, sys, time
import numpy as np
from collapipe_env.evaluation.scheduler_loading import make_scheduler

class Mine:
    name = "mine"

    def __init__(self, scenario):
        self.inner = make_scheduler("pipeline", scenario)

    def reset(self, seed=None):
        self.inner.reset(seed)

    def act(self, observation, state):
        return self.inner.act(observation, state)
"""


@pytest.fixture(autouse=True)
def no_process_of_an_earlier_case():
    """End processes that nobody uses after the case that began them, which then counts their seconds."""
    yield
    gc.collect()


def written(folder: Path, more: str = "") -> str:
    file = folder / "mine.py"
    file.write_text(SOURCE + more)
    return f"{file}:Mine"


def acting(what: str) -> str:
    return f"    def act(self, observation, state):\n        {what}\n"


def play(reference: str, rounds=3, **options):
    scheduler = make_scheduler(reference, SCENARIO)
    return play_episode(reference, scheduler, SCENARIO, 0, rounds, "surrogate", **options).result


def test_it_plays_bit_by_bit_as_in_this_process(tmp_path: Path, capfd) -> None:
    """Also if it prints or closes its output; and it says what it reads and what its weights are."""
    more = '    sees, observation = "truth", "graph"\n    fingerprint = lambda self: "weights 7"\n'
    more += "class Other(Mine):\n    sees, name = 'state', ' other '\n"
    for name, what in (("Prints", "print('hello')"), ("Closes", "sys.stdout.close()")):
        more += f"class {name}(Mine):\n{acting(f'{what}; return self.inner.act(observation, state)')}"
    reference, here = written(tmp_path, more), play("pipeline")
    for name in ("Mine", "Other", "Prints", "Closes"):
        own = play(reference.replace(":Mine", f":{name}"))
        assert own.delay == here.delay
        assert own.energy_ratio == here.energy_ratio
    assert capfd.readouterr().out == ""  # what it prints goes to standard error
    scheduler = make_scheduler(reference, SCENARIO)
    assert (scheduler.name, scheduler.sees, scheduler.observation) == ("mine", "truth", "graph")
    assert scheduler.fingerprint() == "weights 7"
    assert make_scheduler(reference.replace(":Mine", ":Other"), SCENARIO).name == "other"


def test_one_process_serves_all_schedulers_of_a_file_until_it_changes(tmp_path: Path) -> None:
    more = (
        "    fingerprint = lambda self: f'{os.getpid()} {sum(type(o) is Mine for o in gc.get_objects())}'\n"
    )
    reference = written(tmp_path, more)
    first, second = (make_scheduler(reference, SCENARIO) for _ in range(2))
    (one, alive), (other, _) = first.fingerprint().split(), second.fingerprint().split()
    assert one == other != str(os.getpid())
    assert alive == "2"
    del first
    assert second.fingerprint().split() == [one, "1"]
    os.utime(tmp_path / "mine.py", ns=(1, 1))
    assert make_scheduler(reference, SCENARIO).fingerprint().split()[0] != one


def test_two_files_may_have_neighbours_of_one_name(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "own_helper.py").write_text(f"TITLE = {folder!r}\n")
        reference = written(tmp_path / folder, "    import own_helper\n    name = own_helper.TITLE\n")
        assert make_scheduler(reference, SCENARIO).name == folder


ATTACKS = """
    def act(self, observation, state):
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
        return np.zeros((1, SIZE), dtype=np.float32)
"""


def test_it_neither_sees_nor_changes_what_measures_it(tmp_path: Path, monkeypatch) -> None:
    """Nor do files in the current folder stand in for the standard library."""
    (tmp_path / "json.py").write_text("raise SystemExit('a file of the user')")
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    reference = written(tmp_path, ATTACKS.replace("SIZE", str(action_codec(SCENARIO).action_size)))
    assert len(play(reference, blind=True).delay) == 3
    assert not {name for name in set(sys.modules) - before if "mine" in name}


SURVIVED = {
    "Exits": ("sys.exit(0)", r"failed in act: SystemExit: 0 \(.*mine\.py, line \d+\)"),
    "Fails": ("raise ValueError('two\\nlines')", r"in act: ValueError: two \(.*mine\.py, line \d+\)$"),
    "Nothing": ("return None", "act returned None, which cannot be played .*: return an array"),
    "Pair": ("return np.zeros(3), None", "act returned a tuple, which cannot be played"),
    "Shape": ("return np.zeros((3, 2))", r"returned an ndarray of shape \(3, 2\), which"),
}


@pytest.fixture(scope="module")
def faulty(tmp_path_factory) -> Iterator[str]:
    """A file with a scheduler for each fault that its process survives, and something else."""
    classes = [f"class {name}(Mine):\n{acting(what)}" for name, (what, _) in SURVIVED.items()]
    classes.append("def Unbuilt():\n    pass\n")
    reference = written(tmp_path_factory.mktemp("faulty"), "\n".join(classes))
    kept = make_scheduler(reference, SCENARIO)  # and with it the process, which serves them all
    yield reference
    del kept


@pytest.mark.parametrize("name", SURVIVED)
def test_whatever_it_does_is_one_clear_line(faulty: str, name: str) -> None:
    refused(faulty.replace(":Mine", f":{name}"), SURVIVED[name][1])


def test_what_is_no_scheduler_is_one_clear_line(faulty: str) -> None:
    message = "cannot be built: TypeError: .*: it is called with the scenario alone"
    refused(faulty.replace(":Mine", ":Unbuilt"), message)


def refused(reference: str, message: str) -> None:
    with pytest.raises(SchedulerError, match=message) as caught:
        play(reference, 1)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"scheduler {reference!r}")


ENDED = {
    "ends": ("os._exit(0)", "its process ended with exit code 0 in act: see"),
    "is killed": ("os.kill(os.getpid(), signal.SIGKILL)", "was ended by signal 9 .* in act"),
    "leaves a child": ("os._exit(3) if os.fork() else time.sleep(30)", "ended with exit code 3 in act"),
    "leaves a stranger": (
        "os._exit(3) if os.fork() else (os.setsid(), time.sleep(30))",
        "ended with exit code 3 in act",
    ),
    "hangs": ("time.sleep(100)", "took longer than 2 s, and was ended in act"),
    "closes all": ("os.closerange(3, 100); time.sleep(100)", "closed its connection in act|ended with exit"),
    "writes nonsense": (
        "[os.write(fd, b'x\\n') for fd in range(3, 20) if writes(fd)]",
        "sent an answer that cannot be read in act",
    ),
}
WRITES = """
def writes(fd):
    import fcntl
    try:
        return fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
    except OSError:
        return False
"""


@pytest.mark.skipif(os.name != "posix", reason="signals and file descriptors")
@pytest.mark.parametrize("fate", ENDED)
def test_its_end_is_one_clear_line(tmp_path: Path, fate: str, monkeypatch) -> None:
    what, message = ENDED[fate]
    reference = written(tmp_path, acting(what) + WRITES)
    make_scheduler(reference, SCENARIO)
    monkeypatch.setattr(scheduler_process, "LIMIT_S", 2.0)
    began = time.monotonic()
    refused(reference, message)
    assert time.monotonic() - began < 10.0


def test_a_file_that_ends_its_process_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import os\nos._exit(3)\n")
    refused(f"{tmp_path / 'mine.py'}:Mine", "its process ended with exit code 3 in load")


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
