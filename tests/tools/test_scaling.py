"""The scaling study: fits and memory against closed forms, and a command that fills its page."""

import warnings

import gymnasium as gym
import numpy as np
import pytest
from studies import scaling as study

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


def test_the_table_holds_every_size_and_the_picture_is_drawn(tmp_path, monkeypatch):
    """Two axes of few sizes; following all memory takes long beside so many objects and has its own test."""
    axes = {"blocks": ("encoder blocks L", (6, 12)), "environments": ("environments E", (1, 2, 4))}
    found = {}
    measured = study.measure
    monkeypatch.setattr(study, "AXES", axes)
    monkeypatch.setattr(study, "DSSRA", EvenSplit)
    monkeypatch.setattr(study, "memory", lambda scenario: 1e4 * scenario.workload.blocks)
    monkeypatch.setattr(study, "measure", lambda axis, *of: found.setdefault(axis, measured(axis, *of)))
    monkeypatch.setattr(study, "DOCS", tmp_path)
    text = study.growth({"slice_seconds": 0.002, "repeats": 2}, False)
    assert (tmp_path / "images" / "scaling_times.png").read_bytes().startswith(b"\x89PNG")
    assert list(found["blocks"]) == ["single", "vector", "decision", "memory"]
    assert list(found["environments"]["vector"]) == [1, 2, 4]
    assert f"| encoder blocks L | 12 | {1e6 * found['blocks']['single'][12]:.4g} |" in text
    assert text.count("| – | – |") == 4  # sizes of the vector environment have no memory
