"""Engines: both keep the same promises; Ray finds processes that end or hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from toy_roles import OddError, SlowToBuild, Toy
from twin_support import descendants, wait_until_gone

from collapipe_env.execution.engine import Engine, Inline, Lost
from collapipe_env.execution.ray_engine import Ray
from collapipe_env.ground.errors import CollaPipeError

PATHS = os.pathsep.join(map(str, (Path(__file__).parent, Path(__file__).parents[2])))
"""Where other processes find the roles and the package."""


@pytest.fixture(scope="module")
def processes() -> Iterator[Ray]:
    pytest.importorskip("ray")
    others = descendants(os.getpid())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", PATHS)
        engine = Ray(object_store_memory=200_000_000)
    with engine:
        yield engine
        hanging = engine.spawn("hanging", Toy, "hanging")
        engine.ready([hanging])
        engine.kill(hanging, signal.SIGSTOP)
        started = descendants(os.getpid()).keys() - others.keys()
        assert len(started) > 3
    wait_until_gone(started, 5.0)


@pytest.fixture(params=["inline", "ray"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return Inline() if request.param == "inline" else request.getfixturevalue("processes")


def test_calls_run_in_their_order_and_take_results_of_others(engine: Engine) -> None:
    a, b = (engine.spawn(name, Toy, name) for name in ("a", "b"))
    late = engine.call(b, "slow", 0.2)
    shared = engine.put([1, 2])
    refs = [
        engine.call(a, "note", late),
        engine.call(a, "note", 1, shared),
        *(engine.call(a, "note", n) for n in range(20)),
    ]
    passed = engine.call(b, "note", refs[3])
    assert engine.get([*refs[:3], passed, passed], watch=[a, b]) == [0.2, [1, 2], 0, 1, 1]
    assert engine.get([engine.call(a, "all")])[0] == [(0.2,), (1, [1, 2]), *((n,) for n in range(20))]


def test_an_error_reaches_the_caller_with_its_own_type_and_ends_its_role(engine: Engine) -> None:
    a, b = (engine.spawn(name, Toy, name) for name in ("a", "b"))
    failed = engine.call(a, "fail")
    needs_it = engine.call(b, "note", engine.call(b, "note", failed))
    later = engine.call(a, "note", 1)
    for ref in (failed, needs_it, later):
        with pytest.raises(OddError, match="on request") as caught:
            engine.get([ref], watch=[a, b])
        assert type(caught.value) is OddError
    assert engine.get([engine.call(b, "all")], watch=[b]) == [[]]
    assert engine.lost([a, b]) == []


def test_an_error_of_a_constructor_has_its_own_type(engine: Engine) -> None:
    role = engine.spawn("a", Toy, "a", True)
    with pytest.raises(OddError, match="a cannot be built"):
        engine.ready([role])
    with pytest.raises(OddError):
        engine.get([engine.call(role, "pid")])


def test_a_role_that_says_that_it_is_lost_counts_as_lost_until_it_comes_back(engine: Engine) -> None:
    a, b = (engine.spawn(name, Toy, name) for name in ("a", "b"))
    needs_it = engine.call(b, "note", engine.call(a, "leave"))
    with pytest.raises(Lost) as caught:
        engine.get([needs_it], watch=[a, b])
    assert caught.value.names == ("a",)
    assert engine.lost([a, b]) == ["a"]
    a = engine.spawn("a", Toy, "a")
    assert engine.get([engine.call(a, "note", 1)], watch=[a, b]) == [1]
    assert engine.lost([a, b]) == []


def test_a_killed_role_is_noticed_within_a_second(engine: Engine) -> None:
    a, b = (engine.spawn(name, Toy, name) for name in ("a", "b"))
    engine.ready([a, b])
    engine.kill(a)
    begun = time.monotonic()
    with pytest.raises(Lost, match="lost: a"):
        engine.get([engine.call(b, "slow", 3.0 if isinstance(engine, Ray) else 0.0)], watch=[a, b])
    assert time.monotonic() - begun < 1.0
    assert engine.lost([a, b]) == ["a"]


def test_a_killed_role_is_noticed_without_watching_by_whoever_needs_it(processes: Ray) -> None:
    processes.prepare(2, "toy_roles")
    a, b = (processes.spawn(name, Toy, name) for name in ("a", "b"))
    pid = processes.get([processes.call(a, "pid")])[0]
    assert not processes._spare
    needs_it = processes.call(b, "note", processes.call(a, "slow", 30.0))
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(Lost) as caught:
        processes.get([needs_it])
    assert caught.value.names == ("a",)


@pytest.mark.slow
def test_a_stopped_role_is_noticed_within_its_limit_and_ended(processes: Ray) -> None:
    a, b = (processes.spawn(name, Toy, name, patience_s=1.0) for name in ("a", "b"))
    pid, _ = processes.get([processes.call(role, "pid") for role in (a, b)])
    processes.kill(a, signal.SIGSTOP)
    begun = time.monotonic()
    with pytest.raises(Lost, match="lost: a"):
        processes.get([processes.call(b, "slow", 5.0)], watch=[a, b])
    assert 1.0 <= time.monotonic() - begun < 3.0
    wait_until_gone([pid], 15.0)


@pytest.mark.slow
def test_a_role_that_is_being_constructed_is_not_silent(processes: Ray) -> None:
    a = processes.spawn("a", SlowToBuild, 2.5)
    assert processes.lost([a]) == []
    assert processes.get([processes.call(a, "pid")], watch=[a])


def test_of_several_waits_the_first_that_is_over_is_named(processes: Ray) -> None:
    a, b = (processes.spawn(name, Toy, name) for name in ("a", "b"))
    processes.ready([a, b])
    long, short = processes.call(a, "slow", 30.0), processes.call(b, "slow", 0.1)
    assert processes.first({"a": ([long], [a]), "b": ([short, processes.put(1)], [b])}) == "b"
    processes.kill(a)
    later = processes.call(b, "slow", 30.0)
    for refs in ([long], []):  # without any, only a loss ends it
        assert processes.first({"a": (refs, [a]), "b": ([later], [b])}) == "a"
        with pytest.raises(Lost, match="lost: a"):
            processes.get(refs, [a])


def test_two_roles_of_one_process_do_not_wait_for_each_other(processes: Ray) -> None:
    a = processes.spawn("a", Toy, "a")
    b = processes.spawn("b", Toy, "b", beside=a)
    assert len(set(processes.get([processes.call(role, "pid") for role in (a, b)]))) == 1
    blocked = processes.call(a, "slow", 1.0)
    begun = time.monotonic()
    assert processes.get([processes.call(b, "note", 1)]) == [1]
    assert time.monotonic() - begun < 0.8
    processes.get([blocked])


HANGING = """
import signal, time
from toy_roles import Toy
from collapipe_env.execution.ray_engine import Ray
engine = Ray(object_store_memory=200_000_000)
a, b = (engine.spawn(name, Toy, name) for name in "ab")
engine.ready([a, b])
engine.kill(a, signal.SIGSTOP)
engine.call(b, "slow", 1000.0)
print("ready", flush=True)
time.sleep(1000.0)
"""


@pytest.mark.slow
def test_nothing_is_left_of_a_driver_that_is_killed() -> None:
    pytest.importorskip("ray")
    driver = subprocess.Popen(
        [sys.executable, "-c", HANGING], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": PATHS}
    )
    with driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"ready\n"
        there = descendants(driver.pid)
        assert len(there) > 5
        driver.kill()
        wait_until_gone(there, 10.0)


WITHOUT_MODULES = """
from toy_roles import Toy
from collapipe_env.execution.ray_engine import Ray
with Ray(object_store_memory=200_000_000) as engine:
    engine.ready([engine.spawn("a", Toy, "a")])
"""


@pytest.mark.slow
def test_a_process_that_cannot_import_the_package_says_so(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nif any('default_worker' in word for word in sys.orig_argv):\n"
        "    sys.modules['collapipe_env'] = None\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), PATHS])}
    driver = [sys.executable, "-c", WITHOUT_MODULES]
    found = subprocess.run(driver, capture_output=True, text=True, env=env, timeout=200)
    last = found.stderr.splitlines()[-1]
    cause = "ModuleNotFoundError: No module named 'collapipe_env"
    assert f"a process of Ray cannot run this package ({cause}" in last


def test_without_the_package_one_error_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(CollaPipeError, match=r"pip install 'collapipe-env\[ray\]'"):
        Ray()
