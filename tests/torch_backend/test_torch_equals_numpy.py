"""With the same seeds the torch backend plays the NumPy environment's episodes."""

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from settings_support import SETTINGS
from torch_support import NAMES, ROUNDS, arrays_of, make_pair, random_actions, scenario_of
from variants_support import mostly_slow

from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv

EXACT = {"rtol": 1e-9, "atol": 1e-12}
SINGLE = {"rtol": 1e-6, "atol": 1e-7}
TIGHT = 21
"""Rounds in which some rows reach the target below and others do not."""
TARGET = 0.6225


def assert_same(numpy_value, torch_value, place=""):
    """Equal nested infos; values count where their mask says so."""
    assert set(numpy_value) == set(torch_value), place
    for key, expected in numpy_value.items():
        found = torch_value[key]
        if isinstance(expected, dict):
            assert_same(expected, found, f"{place}{key}.")
        elif key.startswith("_"):
            np.testing.assert_array_equal(found.numpy(), expected, err_msg=place + key)
        else:
            mask = numpy_value[f"_{key}"]
            if expected.dtype != object:
                np.testing.assert_allclose(found.numpy()[mask], expected[mask], err_msg=place + key, **EXACT)
                continue
            rows, parts = expected[mask], parts_of(found)  # final_obs
            assert_same_observation(
                {name: np.stack([parts_of(row)[name] for row in rows]) for name in parts},
                {name: array[torch.from_numpy(mask)] for name, array in parts.items()},
                place + key,
            )


def parts_of(observation):
    return observation if isinstance(observation, dict) else {"": observation}


def assert_same_observation(expected, found, message=""):
    expected, found = parts_of(expected), parts_of(found)
    assert set(expected) == set(found)
    for name, array in found.items():
        assert array.dtype == torch.float32
        tolerance = {"rtol": 1e-6 if name else 1e-7, "atol": 1e-6}
        np.testing.assert_allclose(array.numpy(), expected[name], err_msg=f"{message} {name}", **tolerance)


def assert_same_step(expected, found, message):
    assert_same_observation(expected[0], found[0], message)
    np.testing.assert_allclose(found[1].numpy(), expected[1], err_msg=message, **SINGLE)
    np.testing.assert_array_equal(found[2].numpy(), expected[2], err_msg=message)
    np.testing.assert_array_equal(found[3].numpy(), expected[3], err_msg=message)
    assert_same(expected[4], found[4], message)


def assert_same_state(one, two):
    for (name, expected), (same, found) in zip(arrays_of(one.state), arrays_of(two.state), strict=True):
        assert same == name
        assert found.shape == expected.shape
        np.testing.assert_allclose(found.numpy(), expected, err_msg=name, **EXACT)


def assert_same_episodes(scenario, mode, steps, num_envs=3, **kwargs):
    one, two = make_pair(scenario, num_envs, autoreset_mode=mode, **kwargs)
    assert one.reference_delay == two.reference_delay
    assert one.observation_space == two.observation_space
    expected, found = one.reset(seed=11), two.reset(seed=11)
    assert_same_observation(expected[0], found[0])
    assert_same(expected[1], found[1])
    ends = []
    for t, action in enumerate(random_actions(one, steps)):
        expected, found = one.step(action), two.step(torch.from_numpy(action))
        assert_same_step(expected, found, f"step {t} ")
        assert_same_state(one, two)
        # The sums of rewards among them, which are not rounded to single precision.
        assert_same(one.ended_summaries, two.ended_summaries, f"step {t} ")
        ends.append(expected[2].sum() if kwargs.get("reward") else expected[3].sum())
    return ends


@pytest.mark.parametrize("observation", ["flat", "graph"])
@pytest.mark.parametrize("mode", mostly_slow(["NextStep", "SameStep"], [1]))
@pytest.mark.parametrize("name", NAMES)
def test_whole_episodes_with_resets(name, mode, observation):
    steps = 2 * (ROUNDS + 1)
    assert sum(assert_same_episodes(scenario_of(name), mode, steps, observation=observation)) == 6


@pytest.mark.parametrize("name", mostly_slow(NAMES, [NAMES.index("moments"), NAMES.index("opened")]))
def test_settings_of_the_program_around_change_nothing(name):
    with SETTINGS["all at once"]():
        assert_same_episodes(scenario_of(name), "SameStep", ROUNDS + 1)


@pytest.mark.parametrize("name", ["large", "xlarge"])
def test_a_few_steps_of_the_large_ones(name):
    scenario = {"base": name, "dynamics": {"rounds": 2}}
    assert sum(assert_same_episodes(scenario, "NextStep", 3, num_envs=2)) == 2


@pytest.mark.parametrize("reward", ["lyapunov", "drift_plus_penalty", "delay", "time_to_target"])
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_a_target_ends_rows_at_their_own_time(mode, reward):
    scenario = scenario_of("moving", rounds=40, target_loss=TARGET)
    reached = assert_same_episodes(scenario, mode, 25, num_envs=6, reward=reward)
    # Rows get there one after the other.
    assert sum(reached) == 6
    assert max(reached) < 6


@pytest.mark.parametrize("reward", ["lyapunov", "drift_plus_penalty"])
def test_budgets_per_second(reward):
    scenario = scenario_of("moving", rounds=6)
    scenario = {**scenario, "budgets": {**scenario["budgets"], "per": "second"}}
    assert sum(assert_same_episodes(scenario, "SameStep", 8, reward=reward)) == 0


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("target", [0.01, TARGET], ids=["by_none", "by_some"])
def test_a_target_that_is_not_reached_in_time(mode, target):
    scenario = scenario_of("moving", rounds=TIGHT, target_loss=target)
    reached = assert_same_episodes(scenario, mode, TIGHT + 1, num_envs=6, reward="time_to_target")
    assert sum(reached) < 6
    assert (sum(reached) > 0) == (target == TARGET)


@pytest.mark.parametrize("observation", ["flat", "graph"])
def test_masked_resets_with_autoreset_disabled(observation):
    options = {"autoreset_mode": AutoresetMode.DISABLED, "observation": observation}
    one, two = make_pair(scenario_of("moving"), 3, **options)
    for env in (one, two):
        env.reset(seed=[3, 1, 4])
    actions = random_actions(one, 6)
    mask = np.array([True, False, True])
    for t in range(2):
        assert_same_step(one.step(actions[t]), two.step(actions[t]), f"step {t} ")
    for given, seed in ((mask, None), (~mask, [5, 9, 2])):
        expected = one.reset(seed=seed, options={"reset_mask": given})
        found = two.reset(seed=seed, options={"reset_mask": torch.from_numpy(given)})
        assert_same_observation(expected[0], found[0])
        assert_same(expected[1], found[1])
        assert_same_state(one, two)
        assert_same_step(one.step(actions[3]), two.step(actions[3]), "after the reset ")


def test_shorter_episodes():
    assert sum(assert_same_episodes(scenario_of("small", 5), "NextStep", 6, max_episode_steps=2)) == 6


def test_single_precision_is_close():
    """Over a whole episode of a hundred rounds, in which every step is compared."""
    scenario = {"base": "small"}
    fine, coarse = (CollaPipeTorchVectorEnv(8, scenario, dtype=dtype) for dtype in ("float64", "float32"))
    worst = torch.zeros(4, dtype=torch.float64)
    for env in (fine, coarse):
        env.reset(seed=0)
    for action in random_actions(fine, 100):
        a, b = fine.step(action), coarse.step(action)
        assert b[1].dtype == torch.float32
        assert a[0].dtype == b[0].dtype == torch.float32
        # Segments are whole blocks: a score at the edge may fall to the other side, which nothing here does.
        assert torch.equal(fine.last_round.costs.allocation.blocks, coarse.last_round.costs.allocation.blocks)
        found = (
            (a[0] - b[0]).abs().max(),
            ((a[1] - b[1]) / a[1]).abs().max(),
            ((a[4]["delay"] - b[4]["delay"]) / a[4]["delay"]).abs().max(),
            ((a[4]["loss"] - b[4]["loss"]) / a[4]["loss"]).abs().max(),
        )
        worst = torch.maximum(worst, torch.stack([x.double() for x in found]))
    assert (worst < torch.tensor([1e-5, 1e-4, 1e-5, 1e-5])).all(), worst
