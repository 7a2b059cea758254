"""Compiled code on disk depends on all sources that are compiled."""

import io
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numba
import numpy as np
import pytest
from numba.core.errors import NumbaError
from numba.core.registry import CPUDispatcher

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.agents.dssra.round_solver import solve_rounds
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.episode import play_episode
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.ground.compiled import (
    _Announcement,
    _is_compiled,
    _source,
    _text,
    _warn_of_no_cache,
    called_from_python,
    compiled,
    compiled_inner,
    compiled_leaf,
    source_stamp,
)
from collapipe_env.physics.schedules.makespans import run_chain
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import scheduler_names


@compiled
def double(x: float) -> float:
    """Twice a number."""
    return 2.0 * x


@pytest.mark.parametrize("function", [double, run_chain, solve_rounds])
def test_numba_is_told_about_the_sources(function):
    _, stamp = function._cache._cache_file._version
    assert stamp == source_stamp(function.py_func.__module__)


def test_the_stamp_changes_with_every_compiled_source_that_is_imported(tmp_path, monkeypatch):
    # The last line of each import, with the ways in which a module can be named.
    texts = {
        "kernels.a": "from . import other\nfrom .b import (\n    f,  # why\n)\n",
        "kernels.b": "import collapipe_env.physics.formula\nfrom collapipe_env.rendering.plain import x\n",
        "physics.formula": "from collapipe_env.agents import loops\n",
        "agents.loops": "from collapipe_env.ground.compiled import compiled\n",
        "rendering.plain": "x = 1\n",
        "kernels.other": "y = 1\n",
        "kernels.alone": "z = 1\n",
    }
    paths = {}
    for name, text in texts.items():
        paths[name] = tmp_path / f"{name}.py"
        paths[name].write_text(text)
        module = SimpleNamespace(__file__=str(paths[name]), __package__=f"collapipe_env.{name.split('.')[0]}")
        monkeypatch.setitem(sys.modules, f"collapipe_env.{name}", module)

    def stamps():
        _source.cache_clear()
        _text.cache_clear()
        return {name: source_stamp(f"collapipe_env.{name}") for name in texts}

    def changed_by(name):
        before = stamps()
        paths[name].write_text(paths[name].read_text() + "w = 1\n")
        return {one for one, stamp in stamps().items() if stamp != before[one]}

    assert changed_by("agents.loops") == {"kernels.a", "kernels.b", "physics.formula", "agents.loops"}
    assert changed_by("kernels.other") == {"kernels.a", "kernels.other"}
    assert changed_by("kernels.a") == {"kernels.a"}
    assert changed_by("rendering.plain") == {"rendering.plain"}  # of no compiled source
    for cached in (_source, _is_compiled, _text):
        cached.cache_clear()


def test_what_an_earlier_version_kept_is_not_read():
    file = double._cache._cache_file
    double(2.0)
    path = Path(file._index_path)
    kept = path.read_bytes()
    assert kept.startswith(pickle.dumps(file._version, protocol=-1))
    # The reference to a class that does not exist any more, as after a rename.
    earlier = pickle.dumps((numba.__version__, "another stamp"), protocol=-1)
    path.write_bytes(earlier + b"ccollapipe_env.kernels.plain_round\nNoSuchClass\n.")
    try:
        assert file._load_index() == {}
    finally:
        path.write_bytes(kept)


def test_without_a_place_to_keep_code_it_is_compiled_all_the_same(monkeypatch):
    real = numba.njit

    def njit(**options):
        if options.pop("cache", False):
            raise RuntimeError("cannot cache function 'f': no locator available")
        return real(**options)

    monkeypatch.setattr(numba, "njit", njit)
    _warn_of_no_cache.cache_clear()
    with pytest.warns(UserWarning, match="NUMBA_CACHE_DIR to a folder that only you can write to"):
        function = compiled(lambda x: x + 1.0)
    assert function(1.0) == 2.0


def test_with_numba_switched_off_functions_stay_plain_and_quiet(monkeypatch):
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    inverse = compiled(lambda x: 1.0 / x)
    assert not isinstance(inverse, CPUDispatcher)
    assert inverse(np.float64(0.0)) == np.inf


@compiled_leaf
def _first(values):
    """The first number."""
    return values[0]


@compiled_inner
def _two_of_them(values):
    """An array with the first number twice."""
    pair = np.empty(2)
    pair[0] = pair[1] = _first(values)
    return pair


@compiled
def sum_of_two(values: np.ndarray) -> float:
    """Twice the first number, by way of inner functions."""
    pair = _two_of_them(values)
    return pair[0] + pair[1]


def test_inner_functions_are_part_of_their_caller_and_make_no_machine_code_themselves():
    values = np.array([3.0, 4.0])
    assert sum_of_two(values) == 6.0
    assert list(called_from_python(_two_of_them)(values)) == [3.0, 3.0]
    caller = numba.njit(sum_of_two.py_func)  # not kept on disk: compiled here, with all that it calls
    assert caller(values) == 6.0
    outer, inner = (f.overloads[f.signatures[0]] for f in (caller, _two_of_them))
    assert outer.library.get_pointer_to_function(outer.fndesc.mangled_name) != 0
    assert inner.library.get_pointer_to_function(inner.fndesc.mangled_name) == 0


def test_a_leaf_that_creates_an_array_is_refused_when_it_is_compiled():
    @compiled_leaf
    def maker(x):
        return np.full(2, x).sum()

    @compiled
    def caller(x: float) -> float:
        return maker(x)

    with pytest.raises(NumbaError):
        caller(1.0)


def signatures():
    """Signatures of all compiled functions of the package so far."""
    modules = [module for name, module in sys.modules.items() if name.startswith("collapipe_env")]
    found = [
        value for module in modules for value in vars(module).values() if isinstance(value, CPUDispatcher)
    ]
    return {f"{one.__module__}.{one.__name__}": len(one.signatures) for one in found}


def played(scenario, rows):
    env = gymnasium.make("CollaPipeSurrogate-v0", scenario=scenario)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    batch = CollaPipeVectorEnv(scenario=scenario, num_envs=rows, learner="surrogate")
    batch.reset(seed=0)
    batch.step(batch.action_space.sample())
    batch.step_allocation(DSSRA(batch.scenario, threads=2).allocate(batch.state))


def test_no_function_is_compiled_again_for_layouts_sizes_or_batches():
    played("small", 1)
    before = signatures()
    assert before["collapipe_env.agents.dssra.round_solver.solve_rounds"] == 1
    assert before["collapipe_env.kernels.decode.decode_rows"] == 1
    for scenario, rows in (("small", 3), ("medium", 1), ("medium", 3)):
        played(scenario, rows)
    assert signatures() == before


COLD = """
import json, sys
sys.path[:0] = ["tests/ground"]
from test_compiled import played, signatures
for scenario, rows in (("small", 1), ("small", 3), ("medium", 1), ("medium", 3)):
    played(scenario, rows)
print(json.dumps(signatures()))
"""


@pytest.mark.slow
def test_where_nothing_is_kept_each_function_is_compiled_once(tmp_path):
    """Then the inner functions are there to be seen as well."""
    command, environment = (
        [sys.executable, "-W", "error", "-c", COLD],
        {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
    )
    root = Path(__file__).parents[2]
    result = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, check=True)
    found = json.loads(result.stdout.splitlines()[-1])
    assert {name: count for name, count in found.items() if count > 1} == {}


def test_what_is_compiled_is_announced_once_for_each_part(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    listener = _Announcement()
    for dispatcher in (run_chain, run_chain, solve_rounds, solve_rounds, double):
        listener.on_start(SimpleNamespace(data={"dispatcher": dispatcher}))
    simulator, search = terminal.getvalue().splitlines()
    assert "compiling the simulator's loops" in simulator
    assert "compiling DSSRA's search" in search
    assert "collapipe warm-up" in search


UNCOMPILED = """
import json, sys
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.episode import play_episode
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.scenario import load_scenario
small = load_scenario("small")
print(json.dumps([
    play_episode(name, make_scheduler(name, small), small, 0, 1, "surrogate").result.delay
    for name in sys.argv[1:]
]))
"""


EVERYBODY = (*scheduler_names(), "zoo:graph", "zoo:small-ppo", "zoo:small-sac")


@pytest.mark.timeout(1800)  # minutes where nothing is compiled yet
@pytest.mark.parametrize("names", [("dssra",), pytest.param(EVERYBODY, marks=pytest.mark.slow)])
def test_schedulers_decide_alike_where_nothing_is_compiled(names):
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", UNCOMPILED, *names],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    small = load_scenario("small")
    compiled_delays = [
        play_episode(name, make_scheduler(name, small), small, 0, 1, "surrogate").result.delay
        for name in names
    ]
    np.testing.assert_allclose(json.loads(result.stdout), compiled_delays, rtol=1e-6)
