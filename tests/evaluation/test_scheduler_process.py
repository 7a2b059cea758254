"""Schedulers of one's own in processes of their own, which play as here and reach nothing of this one."""

import json
import os
import sys
import time
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

SCENARIO = load_scenario({"base": "small", "dynamics": {"rounds": 3}})
SOURCE = """
import gc, os, pathlib, signal, sys, time
import numpy as np
from collapipe_env.evaluation.scheduler_loading import make_scheduler

class Mine:
    name = "mine"

    def __init__(self, scenario):
        self.inner = make_scheduler("dssra", scenario)

    def reset(self, seed=None):
        self.inner.reset(seed)

    def act(self, observation, state):
        return self.inner.act(observation, state)
"""


def written(folder: Path, more: str = "") -> str:
    file = folder / "mine.py"
    file.write_text(SOURCE + more)
    return f"{file}:Mine"


def play(reference: str, scenario=SCENARIO, rounds=3, **options):
    scheduler = make_scheduler(reference, scenario)
    return play_episode(reference, scheduler, scenario, 0, rounds, "surrogate", **options).result


ACTING = """
    def act(self, observation, state):
        {}
"""
PLAYED = {
    "DSSRA": "",
    "prints": ACTING.format("print('hello'); return self.inner.act(observation, state)"),
    "closes its output": ACTING.format("sys.stdout.close(); return self.inner.act(observation, state)"),
}


@pytest.mark.parametrize("case", PLAYED)
def test_it_plays_bit_by_bit_as_in_this_process(tmp_path: Path, case: str, capfd) -> None:
    own, here = play(written(tmp_path, PLAYED[case])), play("dssra")
    assert own.title == "mine"
    assert own.delay == here.delay
    assert own.energy_ratio == here.energy_ratio
    assert capfd.readouterr().out == ""  # what it prints goes to standard error


def test_it_says_what_it_reads_and_what_its_weights_are(tmp_path: Path) -> None:
    more = '    sees, observation = "truth", "graph"\n    fingerprint = lambda self: "weights 7"\n'
    more += "class Other(Mine):\n    sees, name = 'state', ' other '\n"
    reference = written(tmp_path, more)
    scheduler = make_scheduler(reference, SCENARIO)
    assert (scheduler.sees, scheduler.observation) == ("truth", "graph")
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


def test_it_neither_sees_nor_changes_what_measures_it(tmp_path: Path) -> None:
    from collapipe_env.simulator.build import action_codec

    before = set(sys.modules)
    size = action_codec(SCENARIO).action_size
    reference = written(tmp_path, ATTACKS.replace("SIZE", str(size)))
    blind = play(reference, blind=True)
    assert len(blind.delay) == 3
    assert not {name for name in set(sys.modules) - before if "mine" in name}


def test_files_in_the_current_folder_do_not_stand_in_for_the_standard_library(tmp_path, monkeypatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('a file of the user')")
    monkeypatch.chdir(tmp_path)
    assert make_scheduler(written(tmp_path, ACTING.format("return None")), SCENARIO).name == "mine"


FATES = {
    "exits": ("sys.exit(0)", r"failed in act: SystemExit: 0 \(.*mine\.py, line \d+\)"),
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
    "fails": ("raise ValueError('two\\nlines')", r"in act: ValueError: two \(.*mine\.py, line 19\)$"),
    "gives nothing": ("return None", "act returned None, which cannot be played .*: return an array"),
    "gives a tuple": ("return np.zeros(3), None", "act returned a tuple, which cannot be played"),
    "gives another shape": (
        "return np.zeros((3, 2))",
        r"returned an ndarray of shape \(3, 2\), which",
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
@pytest.mark.parametrize("fate", FATES)
def test_whatever_happens_to_it_is_one_clear_line(tmp_path: Path, fate: str, monkeypatch) -> None:
    what, message = FATES[fate]
    reference = written(tmp_path, ACTING.format(what) + WRITES)
    scheduler = make_scheduler(reference, SCENARIO)
    monkeypatch.setattr(scheduler_process, "LIMIT_S", 2.0)
    began = time.monotonic()
    with pytest.raises(SchedulerError, match=message) as caught:
        play_episode("mine", scheduler, SCENARIO, 0, 1, "surrogate")
    assert "\n" not in str(caught.value)
    assert time.monotonic() - began < 10.0
    assert str(caught.value).startswith(f"scheduler {reference!r}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import os\nos._exit(3)\n", "its process ended with exit code 3 in load"),
        ("1 / 0\n", r"cannot be imported: ZeroDivisionError: division by zero \(.*mine\.py, line 1\)"),
        ("def Mine():\n    pass\n", "cannot be built: TypeError: .*: it is called with the scenario alone"),
    ],
)
def test_code_that_gives_no_scheduler_is_one_clear_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(SchedulerError, match=message):
        make_scheduler(f"{tmp_path / 'mine.py'}:Mine", SCENARIO)


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
