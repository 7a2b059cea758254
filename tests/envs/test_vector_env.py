"""The native vector environment: each row is a single environment, bit for bit, in every autoreset mode."""

import dataclasses
import pickle

import gymnasium as gym
import numpy as np
import pytest
from env_support import VARIANTS, ConstantLearner, make_actions, make_env, shortened
from gymnasium.vector import AutoresetMode

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import AllocationError, ScenarioError

ROUNDS = 3


def make_vector(name="small", num_envs=3, mode="NextStep", rounds=ROUNDS, **kwargs):
    kwargs = {"learner": "surrogate", **kwargs}
    return CollaPipeVectorEnv(num_envs, shortened(name, rounds), autoreset_mode=mode, **kwargs)


def row_info(info, row):
    """One row of a vector environment's infos, masks applied; dictionaries nest."""
    out = {}
    for key, value in info.items():
        if key.startswith("_"):
            continue
        if isinstance(value, dict):
            if info[f"_{key}"][row]:
                out[key] = row_info(value, row)
        elif info[f"_{key}"][row]:
            out[key] = value[row].item()
    return out


def follow_next_step(env, actions, seed):
    """What a single environment gives when it is reset in the step after an episode's end."""
    observation, info = env.reset(seed=seed)
    out, done = [(observation, 0.0, False, False, info)], False
    for action in actions:
        if done:
            observation, info = env.reset()
            step = (observation, 0.0, False, False, info)
        else:
            step = env.step(action)
        done = step[2] or step[3]
        out.append(step)
    return out


@pytest.mark.parametrize("name", VARIANTS)
def test_rows_equal_single_environments_next_step(name):
    E, steps, seed = 3, 3 * (ROUNDS + 1), 11
    vector = make_vector(name, E)
    actions = make_actions(vector, steps, lead=(E,))
    expected = [follow_next_step(make_env(name, ROUNDS), actions[:, row], seed + row) for row in range(E)]
    observation, info = vector.reset(seed=seed)
    for row in range(E):
        np.testing.assert_array_equal(observation[row], expected[row][0][0])
        assert row_info(info, row) == expected[row][0][4]
    ends = 0
    for t in range(steps):
        observation, reward, terminated, truncated, info = vector.step(actions[t])
        for row in range(E):
            single = expected[row][t + 1]
            np.testing.assert_array_equal(observation[row], single[0])
            assert (reward[row], terminated[row], truncated[row]) == single[1:4]
            assert row_info(info, row) == single[4]
        ends += truncated.sum()
    assert ends == 3 * E


@pytest.mark.parametrize("name", VARIANTS)
def test_rows_equal_single_environments_same_step(name):
    E, steps, seed = 3, 3 * ROUNDS, 5
    vector = make_vector(name, E, "SameStep")
    singles = [make_env(name, ROUNDS) for _ in range(E)]
    actions = make_actions(vector, steps, lead=(E,))
    observation, _ = vector.reset(seed=seed)
    for row, env in enumerate(singles):
        np.testing.assert_array_equal(observation[row], env.reset(seed=seed + row)[0])
    ends = 0
    for t in range(steps):
        observation, reward, terminated, truncated, info = vector.step(actions[t])
        for row, env in enumerate(singles):
            own = env.step(actions[t, row])
            assert (reward[row], terminated[row], truncated[row]) == own[1:4]
            assert ("final_obs" in info and info["_final_obs"][row]) == (own[2] or own[3])
            if own[2] or own[3]:
                ends += 1
                np.testing.assert_array_equal(info["final_obs"][row], own[0])
                assert row_info(info["final_info"], row) == own[4]
                assert vector.ended_summary(row) == env.summary()
                own = env.reset()
            else:
                assert row_info({k: v for k, v in info.items() if "final" not in k}, row) == own[4]
            np.testing.assert_array_equal(observation[row], own[0])
    assert ends == 3 * E


def test_rows_end_at_different_times():
    """With a target loss, terminations fall where they do in the single environments."""
    scenario = {"base": "small", "dynamics": {"rounds": 40, "target_loss": 0.66}}
    E = 4
    vector = CollaPipeVectorEnv(E, scenario, "surrogate", autoreset_mode="SameStep")
    singles = [make_env() for _ in range(E)]
    singles = [type(env)(scenario, "surrogate") for env in singles]
    vector.reset(seed=0)
    for row, env in enumerate(singles):
        env.reset(seed=row)
    # Different numbers of micro-batches lose differently many samples, so rows learn at different speeds.
    actions = make_actions(vector, 60, lead=(E,))
    actions[:] = -1.0
    actions[:, :, -2] = np.linspace(-1, 1, E)
    times = [[] for _ in range(E)]
    for t in range(60):
        _, _, terminated, truncated, info = vector.step(actions[t])
        for row, env in enumerate(singles):
            own = env.step(actions[t, row])
            assert (terminated[row], truncated[row]) == own[2:4]
            if own[2] or own[3]:
                times[row].append(t)
                assert row_info(info["final_info"], row) == own[4]
                env.reset()
            # Rows end at their own times: each keeps its own last episode.
            assert vector.ended_summary(row) == env.ended_summary()
    assert all(times), "the target was never reached"


def test_summaries_hold_only_what_a_row_reached():
    scenario = {"base": "small", "dynamics": {"rounds": 2, "target_loss": 0.96}}
    learner = ConstantLearner(first=np.array([1.0, 9.0]), step=0.1)
    vector = CollaPipeVectorEnv(2, scenario, learner)
    vector.reset(seed=0)
    for action in make_actions(vector, 2, lead=(2,)):
        _, _, terminated, truncated, _ = vector.step(action)
    assert terminated.tolist() == [True, False]
    assert truncated.tolist() == [True, True]
    assert vector.ended_summary(0)["time_to_target"] == vector.summary(0)["total_delay"]
    assert "time_to_target" not in vector.ended_summary(1)
    assert vector.ended_summary(1) == vector.summary(1)
    assert vector.ended_summaries["_time_to_target"].tolist() == [True, False]


@pytest.mark.parametrize("num_envs", [1, 2, 7])
def test_a_row_does_not_depend_on_its_neighbours(num_envs):
    wide = make_vector("moving", 7)
    vector = make_vector("moving", num_envs)
    actions = make_actions(wide, 6, lead=(7,))
    a, b = wide.reset(seed=2)[0], vector.reset(seed=2)[0]
    np.testing.assert_array_equal(a[:num_envs], b)
    for t in range(6):
        a, b = wide.step(actions[t]), vector.step(actions[t, :num_envs])
        for one, other in zip(a[:4], b[:4], strict=True):
            np.testing.assert_array_equal(one[:num_envs], other)


def test_disabled_autoreset_waits_for_the_mask():
    vector = make_vector(mode="Disabled")
    actions = make_actions(vector, 2 * ROUNDS, lead=(3,))
    vector.reset(seed=0)
    for t in range(ROUNDS):
        observation, _, _, truncated, _ = vector.step(actions[t])
    assert truncated.all()
    with pytest.raises(ScenarioError, match=r"environments \[0, 1, 2\] are done.*reset_mask"):
        vector.step(actions[ROUNDS])
    mask = np.array([True, False, True])
    fresh, info = vector.reset(options={"reset_mask": mask})
    np.testing.assert_array_equal(fresh[1], observation[1])
    assert not np.array_equal(fresh[0], observation[0])
    np.testing.assert_array_equal(info["_loss"], mask)
    with pytest.raises(ScenarioError, match=r"environments \[1\] are done"):
        vector.step(actions[ROUNDS])
    single = make_env(rounds=ROUNDS)
    single.reset(seed=2)
    np.testing.assert_array_equal(fresh[2], single.reset()[0])


def test_reset_mask_restarts_only_its_rows():
    vector, other = make_vector("moving", rounds=9), make_vector("moving", rounds=9)
    actions = make_actions(vector, 6, lead=(3,))
    for env in (vector, other):
        env.reset(seed=0)
        env.step(actions[0])
    vector.reset(seed=[None, 8, None], options={"reset_mask": np.array([False, True, False])})
    single = make_env("moving", 9)
    single.reset(seed=8)
    for t in range(1, 6):
        a, b = vector.step(actions[t]), other.step(actions[t])
        np.testing.assert_array_equal(a[0][[0, 2]], b[0][[0, 2]])
        np.testing.assert_array_equal(a[0][1], single.step(actions[t, 1])[0])
        assert not np.array_equal(a[0][1], b[0][1])


@pytest.mark.parametrize(
    "mask", [np.ones(2, bool), np.ones(3), np.zeros(3, bool), [1, 0, 1], "all"], ids=repr
)
def test_bad_masks_are_refused(mask):
    vector = make_vector()
    vector.reset(seed=0)
    with pytest.raises(ScenarioError, match=r"reset_mask.*3 booleans"):
        vector.reset(options={"reset_mask": mask})


def test_seed_lists_seed_row_by_row():
    vector = make_vector()
    listed = vector.reset(seed=[4, 9, 4])[0]
    np.testing.assert_array_equal(listed[0], listed[2])
    np.testing.assert_array_equal(listed[1], make_env().reset(seed=9)[0])
    again = make_vector().reset(seed=9)[0]
    np.testing.assert_array_equal(listed[1], again[0])
    with pytest.raises(ScenarioError, match="2 entries for 3"):
        vector.reset(seed=[1, 2])


def test_unseeded_reset_goes_on():
    vector = make_vector()
    first = vector.reset(seed=0)[0]
    second = vector.reset()[0]
    assert not np.array_equal(first, second)
    single = make_env()
    single.reset(seed=1)
    np.testing.assert_array_equal(second[1], single.reset()[0])


def test_stepping_before_the_first_reset_is_refused():
    vector = make_vector()
    with pytest.raises((ScenarioError, RuntimeError), match="reset"):
        vector.step(make_actions(vector, 1, lead=(3,))[0])
    with pytest.raises(ScenarioError, match=r"\[0, 2\] were never reset"):
        vector.reset(options={"reset_mask": np.array([False, True, False])}, seed=[None, 1, None])


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("name", ["small", "moving"])
def test_returned_arrays_are_never_written_again(name, mode):
    vector = make_vector(name, mode=mode)
    kept = []

    def keep(*values):
        kept.extend((value, pickle.dumps(value)) for value in values)

    keep(*vector.reset(seed=0))
    for action in make_actions(vector, 3 * (ROUNDS + 1), lead=(3,)):
        keep(*vector.step(action), vector.state, vector.last_round.backlog, vector.last_round.state)
    keep(*vector.reset(options={"reset_mask": np.array([True, False, True])}))
    vector.step(make_actions(vector, 1, lead=(3,))[0])
    for value, before in kept:
        assert pickle.dumps(value) == before


def test_actions_are_not_written():
    vector = make_vector()
    vector.reset(seed=0)
    for action in make_actions(vector, ROUNDS + 2, lead=(3,)):
        before = action.copy()
        action.flags.writeable = False
        vector.step(action)
        np.testing.assert_array_equal(action, before)


def test_rows_that_are_reset_ignore_their_action():
    vector = make_vector()
    actions = make_actions(vector, ROUNDS, lead=(3,))
    vector.reset(seed=0)
    for action in actions:
        vector.step(action)
    observation, reward, _, truncated, info = vector.step(np.full_like(actions[0], np.nan))
    assert vector.observation_space.contains(observation)
    assert not reward.any()
    assert not truncated.any()
    # As reset does, they say that no round has been played.
    assert info["_delay"].all()
    assert not info["delay"].any()


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_autoreset_mode_stands_in_the_metadata(mode):
    for given in (mode, mode.value):
        vector = make_vector(mode=given)
        assert vector.metadata["autoreset_mode"] is mode
    assert "autoreset_mode" not in type(make_env()).metadata


def test_step_allocation_equals_step():
    one, two = make_vector("medium"), make_vector("medium")
    actions = make_actions(one, ROUNDS + 2, lead=(3,))
    for env in (one, two):
        env.reset(seed=0)
    for action in actions:
        allocation = two.codec.decode(
            np.where(two._episodes.done[:, None], 0.0, action), two.state.memory_cap
        )
        a, b = one.step(action), two.step_allocation(allocation)
        for x, y in zip(a[:4], b[:4], strict=True):
            np.testing.assert_array_equal(x, y)


def test_infeasible_allocation_leaves_the_rows_as_they_were():
    vector = make_vector()
    vector.reset(seed=0)
    allocation = vector.codec.decode(np.zeros((3, vector.codec.action_size)), vector.state.memory_cap)
    power = allocation.cu_power.copy()
    power[2, 1] = 9.0
    state = vector.state
    with pytest.raises(AllocationError, match=r"cu_power of environment 2, cluster 1 is 9\.0"):
        vector.step_allocation(dataclasses.replace(allocation, cu_power=power))
    assert vector.state is state


def test_render_gives_one_picture_a_row():
    vector = make_vector(num_envs=1, render_mode="rgb_array")
    vector.reset(seed=0)
    before = vector.render()
    vector.step(make_actions(vector, 1, lead=(1,))[0])
    after = vector.render()
    assert len(before) == len(after) == 1
    assert all(picture.dtype == np.uint8 and picture.std() > 5.0 for picture in before + after)
    assert not np.array_equal(before[0], after[0])
    vector.reset(seed=0)
    np.testing.assert_array_equal(vector.render()[0], before[0])


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_statistics_wrapper_of_gymnasium_works_on_top(mode):
    vector = gym.wrappers.vector.RecordEpisodeStatistics(make_vector(mode=mode))
    actions = make_actions(vector, ROUNDS, lead=(3,))
    vector.reset(seed=0)
    total = np.zeros(3)
    for action in actions:
        _, reward, _, _, info = vector.step(action)
        total += reward
    found = info["final_info"]["episode"] if "episode" in info.get("final_info", {}) else info["episode"]
    np.testing.assert_allclose(found["r"], total)
    np.testing.assert_array_equal(found["l"], ROUNDS)
