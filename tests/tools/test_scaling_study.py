"""The scaling study: fits and memory against closed forms, and a command that fills its page."""

import json
import shutil
import sys
import warnings
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import generated_parts
import make_scaling_study as study

from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.even_split import even_split


def test_exponent_is_that_of_the_upper_half():
    """A power law above a fixed cost that hides it at small sizes only."""
    exponent, error = study.power_law({n: 1e-6 * max(n, 8) ** 1.5 for n in (2, 4, 8, 16, 32, 64)})
    assert exponent == pytest.approx(1.5)
    assert error == pytest.approx(0.0, abs=1e-9)


def test_error_is_that_of_least_squares():
    rng = np.random.default_rng(3)
    sizes = np.array([16, 20, 25, 32, 40, 50, 64])
    values = sizes**0.7 * np.exp(0.1 * rng.standard_normal(7))
    found = study.power_law({2: 1.0, **dict(zip(sizes.tolist(), values.tolist(), strict=True))})
    (slope, _), covariance = np.polyfit(np.log(sizes), np.log(values), 1, cov=True)
    assert found == pytest.approx((slope, np.sqrt(covariance[0, 0])))
    exponent, error = study.power_law({1: 1.0, 100: 10.0})
    assert exponent == pytest.approx(0.5)
    assert np.isnan(error)


@pytest.mark.parametrize("axis", study.AXES)
def test_every_size_is_a_feasible_system(axis):
    sizes = {"clusters": 4, "devices": 5, "blocks": 12, "samples": 64}
    values = study.AXES[axis][1]
    assert list(values) == sorted(set(values))
    for value in (values[0], values[-1]):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # no budget that cannot be met, no cluster that is too small
            scenario = study.scenario_at(axis, value)
            env = gym.make(study.ID, scenario=scenario, disable_env_checker=True)
            study.stepper(env)(2)
        wanted = sizes | ({axis: value} if axis in sizes else {})
        assert scenario.clusters == wanted["clusters"]
        assert scenario.max_devices == wanted["devices"]
        assert scenario.workload.blocks == wanted["blocks"]
        assert scenario.workload.batch_size == wanted["samples"]


@pytest.mark.slow
def test_memory_is_that_of_one_environment(monkeypatch):
    """Each environment keeps 80 kB, and the batch a fixed 5 MB."""

    class Batch:
        def __init__(self, size):
            self.kept = np.zeros(625_000), np.zeros((size, 10_000))
            self.action_space = gym.spaces.Discrete(2)

        reset = step = lambda *_, **__: None

    monkeypatch.setattr(gym, "make_vec", lambda *_, num_envs, **__: Batch(num_envs))
    assert study.memory(load_scenario("small")) == pytest.approx(80_000, rel=0.01)


class EvenSplit:
    """In place of DSSRA, whose search takes long to compile: the even split, and what it was asked."""

    def __init__(self, scenario, **_):
        self.parameters, self.asked = system_parameters(scenario), []

    def allocate(self, state):
        self.asked.append(state)
        return even_split(self.parameters, state)


def test_decisions_go_through_the_states_of_an_episode(monkeypatch):
    made = []
    monkeypatch.setattr(study, "DSSRA", lambda *a, **k: made.append(EvenSplit(*a, **k)) or made[-1])
    play = study.decider(load_scenario("small"))
    assert len(made[0].asked) == study.STATES  # the episode itself
    made[0].asked.clear()
    play(2)
    rounds = [int(state.round_index[0]) for state in made[0].asked]
    assert rounds == 2 * list(range(study.STATES))
    # The stored states are copies: playing on has not changed them.
    assert len({float(state.uplink_gain.sum()) for state in made[0].asked}) == study.STATES


@pytest.fixture
def small_study(tmp_path, monkeypatch):
    """Two axes of few sizes on a copy of the page; returns how to run the command."""
    axes = {"blocks": ("encoder blocks L", (6, 12)), "environments": ("environments E", (1, 2, 4))}
    monkeypatch.setattr(study, "AXES", axes)
    monkeypatch.setattr(study, "DSSRA", EvenSplit)
    # Following all memory takes long in a process with as many objects; it has its own test.
    monkeypatch.setattr(study, "memory", lambda scenario: 1e4 * scenario.workload.blocks)
    (tmp_path / "docs").mkdir()
    shutil.copy(study.DOCS / "scaling.md", tmp_path / "docs")
    monkeypatch.setattr(study, "DOCS", tmp_path / "docs")

    def run(*more):
        places = ("--output", str(tmp_path / "scaling.json"), "--peers", str(tmp_path / "peers.json"))
        return study.main(["--slice-seconds", "0.002", "--repeats", "2", *places, *more])

    return tmp_path, run


PEERS = {
    "options": {"slice_seconds": 0.25, "repeats": 7},
    "interpreters": {"ours": {"gymnasium": "1.4.0"}, "peers": {"mobile-env": "2.1.0"}},
    "environments": {
        "CartPole-v1": {"package": "gymnasium", "about": "pole on a cart", "mine": True},
        "mobile-env small": {"package": "mobile-env", "about": "3 stations", "mine": False},
        "highway-v0": {"package": "highway-env", "about": "motorway", "mine": False},
    },
    "figures": [
        {"name": "CartPole-v1", "value": 1.0, "low": 1.0, "high": 1.0, "note": "100,000 steps/s"},
        {"name": "mobile-env small", "value": 160.2, "low": 150.0, "high": 170.0, "note": "600 steps/s"},
        {"name": "highway-v0", "value": None, "low": None, "high": None, "note": "no network"},
    ],
}


def test_command_fills_the_page(small_study):
    folder, run = small_study
    (folder / "peers.json").write_text(json.dumps(PEERS))
    before = (folder / "docs" / "scaling.md").read_text()
    assert run() == 0
    page = (folder / "docs" / "scaling.md").read_text()
    assert words_of(page) == words_of(before)
    assert "python tools/make_scaling_study.py --slice-seconds 0.002" in page
    assert "| mobile-env small | mobile-env 2.1.0 | 3 stations | 600 | 160 (150…170) |" in page
    assert "Skipped: highway-v0: no network." in page
    assert (folder / "docs" / "images" / "scaling_times.png").read_bytes().startswith(b"\x89PNG")
    stored = json.loads((folder / "scaling.json").read_text())["growth"]
    assert list(stored["blocks"]) == ["single", "vector", "decision", "memory"]
    assert list(stored["environments"]["vector"]) == ["1", "2", "4"]
    assert f"| encoder blocks L | 12 | {1e6 * stored['blocks']['single']['12']:.4g} |" in page
    assert page.count("| – | – |") == 4  # sizes of the vector environment have no memory


def test_quick_leaves_the_documentation_alone(small_study, capsys):
    folder, run = small_study
    before = (folder / "docs" / "scaling.md").read_text()
    assert run("--quick") == 0
    assert "the page keeps its peers" in capsys.readouterr().out
    assert (folder / "docs" / "scaling.md").read_text() == before
    assert not (folder / "docs" / "images").exists()
    assert (folder / "scaling.md").exists()


@pytest.mark.parametrize("arguments", [["--slice-seconds", "nan"], ["--repeats", "0"], ["--output", "."]])
def test_bad_options_are_refused(arguments, capsys):
    assert study.main(arguments) == 2
    assert arguments[0] in capsys.readouterr().err


def test_damaged_peers_are_refused_before_anything_is_measured(small_study, monkeypatch, capsys):
    folder, run = small_study
    (folder / "peers.json").write_text("{")
    monkeypatch.setattr(study, "measure", lambda *_: pytest.fail("measured"))
    assert run() == 2
    assert "peers.json" in capsys.readouterr().err


def words_of(page):
    """The page without its generated parts."""
    words, inside = [], False
    for line in page.splitlines():
        inside = inside or line.startswith(generated_parts.BEGIN[:15])
        if not inside:
            words.append(line)
        inside = inside and not line.startswith("<!-- end")
    return words
