"""The adapter to Stable-Baselines3: the same as its own DummyVecEnv over single environments."""

import copy
import dataclasses

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
from env_support import make_actions, shortened
from sb3_support import TARGET, TINY, assert_same_info, assert_same_step, make_adapter, make_dummy, make_pair
from stable_baselines3.common.monitor import Monitor

from collapipe_env.envs.sb3 import CollaPipeVecEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import AllocationError, NotResetError, ScenarioError


@pytest.mark.parametrize("info", ["sparse", "full"])
@pytest.mark.parametrize(
    ("scenario", "observation"),
    [
        *((shortened(name, 4), "flat") for name in ("small", "moving", "medium")),
        (TARGET, "flat"),
        (TINY, "flat"),
        *((shortened(name, 4), "graph") for name in ("small", "moving")),
    ],
    ids=["small", "moving", "medium", "target", "real", "small graph", "moving graph"],
)
def test_equals_dummy_vec_env(scenario, observation, info):
    learner = "real" if scenario is TINY else "surrogate"
    ours = make_adapter(scenario, 3, info, learner, observation=observation)
    theirs = make_dummy(scenario, 3, learner, observation=observation)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.metadata == theirs.metadata
    for env in (ours, theirs):
        env.seed(7)
    np.testing.assert_equal(ours.reset(), theirs.reset())
    assert ours.reset_infos == theirs.reset_infos
    assert ("metric" in ours.reset_infos[0]) == (learner == "real")
    truncations = []
    for actions in make_actions(ours.env, 14, lead=(3,)):
        a, b = ours.step(actions), theirs.step(actions)
        assert_same_step(a, b)
        summaries = ours.env_method("ended_summary")
        assert summaries == theirs.env_method("ended_summary")
        for mine, other, done, summary in zip(a[3], b[3], a[2], summaries, strict=True):
            assert ("terminal_observation" in mine) == ("terminal_observation" in other) == done
            if done:
                assert mine["episode"]["r"] == mine["summary"]["return"]
                assert mine["summary"] == summary
                truncations.append(mine["TimeLimit.truncated"])
            if done or info == "full":
                assert_same_info(mine, other, without=["episode", "summary"])
            else:
                assert mine == {}
        assert ours.reset_infos == theirs.reset_infos
    assert truncations
    assert all(truncations) == (scenario is not TARGET)


def test_seeds_are_used_once_and_unseeded_resets_go_on():
    ours, theirs = make_pair(seed=3)
    assert ours.seed(3) == theirs.seed(3) == [3, 4, 5]
    seen = []
    for seeds in ("three", "none", "of the global generator", "of one row"):
        for env in (ours, theirs):
            if seeds == "of the global generator":
                np.random.seed(5)  # noqa: NPY002 - what VecEnv.seed draws from
                env.seed()
            elif seeds == "of one row":
                env._seeds = [9, None, None]
        seen.append(ours.reset())
        np.testing.assert_array_equal(seen[-1], theirs.reset())
    assert len(np.unique(seen, axis=0)) == 4


@pytest.mark.parametrize("info", ["sparse", "full"])
def test_what_a_call_returns_is_never_written_to_again(info):
    ours, _ = make_pair(rounds=2, info=info)
    kept = [ours.reset()]
    copies = copy.deepcopy(kept)
    infos = []
    for actions in make_actions(ours.env, 5, lead=(3,)):
        observation, reward, done, found = ours.step(actions)
        kept += [observation, reward, done, dict(ours.last_info)]
        infos += [found, [dict(one) for one in ours.reset_infos]]
        kept += [one["terminal_observation"] for one in found if "terminal_observation" in one]
        copies += copy.deepcopy(kept[len(copies) :])
    np.testing.assert_equal(kept, copies)
    rows = [row for found in infos for row in found]
    assert len({id(row) for row in rows}) == len(rows)


def test_allocations_play_as_the_actions_that_they_decode():
    one, two = make_pair(rounds=3)[0], make_pair(rounds=3)[0]
    one.reset()
    two.reset()
    for actions in make_actions(one.env, 4, lead=(3,)):
        allocation = two.env.codec.decode(actions, two.env.state.memory_cap)
        a, b = one.step(actions), two.step_allocation(allocation)
        assert_same_step(a, b)
        for mine, other in zip(a[3], b[3], strict=True):
            assert_same_info(mine, other, without=["episode"])


def equal_structures(mine, other):
    """Two records of one row are equal, array by array."""
    if dataclasses.is_dataclass(mine):
        fields = [field.name for field in dataclasses.fields(mine)]
        return all(equal_structures(getattr(mine, name), getattr(other, name)) for name in fields)
    if isinstance(mine, np.ndarray):
        return mine.dtype == other.dtype and np.array_equal(mine, other, equal_nan=mine.dtype.kind == "f")
    return mine == other


@pytest.mark.parametrize("variant", ["small", "uneven"])
def test_rows_show_themselves_as_single_environments(variant):
    scenario = shortened(variant, 3)
    ours, theirs = make_adapter(scenario), make_dummy(scenario)
    for env in (ours, theirs):
        env.seed(0)
        env.reset()
    assert ours.get_attr("last_round") == theirs.get_attr("last_round") == [None] * 3
    for actions in make_actions(ours.env, 2, lead=(3,)):
        ours.step(actions)
        theirs.step(actions)
    for name in ("reference_delay", "render_mode", "metadata", "spec", "action_space", "observation_space"):
        assert ours.get_attr(name) == theirs.get_attr(name), name
        assert ours.has_attr(name)
    assert ours.get_attr("scenario", [1]) == theirs.get_attr("scenario", [1])
    for name in ("state", "last_round"):
        for mine, other in zip(ours.get_attr(name, [2, 0]), theirs.get_attr(name, [2, 0]), strict=True):
            assert equal_structures(mine, other), name
    ours_played, theirs_played = ours.get_attr("last_round", 1)[0], theirs.get_attr("last_round", 1)[0]
    np.testing.assert_array_equal(ours_played.arrivals.survived, theirs_played.arrivals.survived)
    np.testing.assert_array_equal(ours_played.costs.graph.active, theirs_played.costs.graph.active)
    assert ours.get_attr("unwrapped", 1)[0].summary() == theirs.get_attr("unwrapped", 1)[0].summary()
    assert ours.env_method("summary") == theirs.env_method("summary")
    assert ours.env_method("summary", indices=[2, 0]) == theirs.env_method("summary", indices=[2, 0])
    for name in ("reference_delay", "nothing"):
        arguments = ("has_wrapper_attr", name)
        assert ours.env_method(*arguments) == theirs.env_method(*arguments)
    assert ours.env_method("get_wrapper_attr", "reference_delay") == ours.get_attr("reference_delay")
    for env in (ours, theirs):
        assert not env.has_attr("nothing")
        assert env.env_is_wrapped(Monitor) == [False] * 3
        env.close()
        env.close()


@pytest.mark.parametrize("observation", ["flat", "graph"])
def test_single_rows_reset_as_single_environments_do(observation):
    ours, theirs = make_pair(rounds=4, observation=observation)
    for env in (ours, theirs):
        env.reset()
    assert ours.get_attr("observation_space") == theirs.get_attr("observation_space")
    actions = make_actions(ours.env, 4, lead=(3,))
    assert_same_step(ours.step(actions[0]), theirs.step(actions[0]))
    for arguments in ({"seed": 11, "indices": [1]}, {"indices": 2}):
        (mine, mine_info), (other, other_info) = (
            env.env_method("reset", **arguments)[0] for env in (ours, theirs)
        )
        np.testing.assert_equal(mine, other)
        assert mine_info == other_info
    for action in actions[1:]:
        assert_same_step(ours.step(action), theirs.step(action))


def test_attributes_that_are_set_stay_with_their_row():
    ours, theirs = make_pair()
    for env in (ours, theirs):
        env.set_attr("level", 3)
        env.set_attr("level", 5, indices=[1])
        env.set_attr("only", "here", indices=2)
        assert env.get_attr("level") == [3, 5, 3]
        assert env.get_attr("only", 2) == ["here"]
        assert not env.has_attr("only")
        with pytest.raises(AttributeError):
            env.set_attr("scenario", "medium")
    ours.set_attr("render_mode", "rgb_array")
    assert ours.render_mode == ours.env.render_mode == "rgb_array"
    assert ours.get_attr("render_mode") == ["rgb_array"] * 3


def test_pictures(monkeypatch):
    ours = make_adapter("small", 2, render_mode="rgb_array")
    ours.seed(0)
    ours.reset()
    images = ours.env.render()
    monkeypatch.setattr(ours.env, "render", lambda: images)  # drawing is slow
    assert ours.get_images() is images
    np.testing.assert_array_equal(ours.env_method("render", indices=[1])[0], images[1])
    np.testing.assert_array_equal(ours.get_attr("unwrapped", 0)[0].render(), images[0])
    monkeypatch.undo()
    ours.step(np.zeros((2, 18)))
    ours.seed(0)
    ours.reset()
    np.testing.assert_array_equal(ours.env.render()[1], images[1])  # not the round before
    monkeypatch.setattr(ours.env, "render", lambda: images)
    height, width, _ = images[0].shape
    assert ours.render().shape == (2 * height, width, 3)
    assert make_adapter("small").get_images() == [None] * 3
    assert make_adapter("small").get_attr("unwrapped", 0)[0].render() is None


@pytest.mark.parametrize(
    "duplicate",
    [copy.deepcopy, lambda env: cloudpickle.loads(cloudpickle.dumps(env))],
    ids=["copy", "pickle"],
)
def test_copies_go_their_own_way(duplicate):
    ours, _ = make_pair(rounds=3)
    ours.reset()
    actions = make_actions(ours.env, 5, lead=(3,))
    ours.step(actions[0])
    other = duplicate(ours)
    mine = [ours.step(action) for action in actions[1:]]
    for action, expected in zip(actions[1:], mine, strict=True):
        assert_same_step(expected, other.step(action))
    assert other.get_attr("reference_delay") == ours.get_attr("reference_delay")


@pytest.mark.parametrize("mode", ["NextStep", "Disabled"])
def test_other_autoreset_modes_are_refused(mode):
    with pytest.raises(ScenarioError, match=f"{mode}.*SameStep"):
        CollaPipeVecEnv(CollaPipeVectorEnv(2, "small", "surrogate", autoreset_mode=mode))


def test_other_environments_are_refused():
    with pytest.raises(ScenarioError, match=r"not SyncVectorEnv.*make_vec_env"):
        CollaPipeVecEnv(gym.make_vec("CartPole-v1", 2, vectorization_mode="sync"))


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda env: env.step(np.zeros((2, 18))), AllocationError, r"\(2, 18\), expected \(3, 18\)"),
        (lambda env: env.step(np.zeros(18)), AllocationError, "one action for each environment"),
        (lambda env: env.step(np.full((3, 18), np.nan)), AllocationError, r"action\[0, 0\] is nan"),
        (lambda env: (env.set_options({"mask": 1}), env.reset()), ScenarioError, "'mask' = 1: none"),
        (lambda env: env.env_method("reset", options={"a": 1}), ScenarioError, "'a' = 1: none are known"),
        (lambda env: env.set_attr("render_mode", None, [0]), ScenarioError, "rows share one environment"),
        (lambda env: env.set_attr("render_mode", "human"), ScenarioError, "'human' is not known"),
        (lambda env: env.set_attr("num_envs", 4), AttributeError, "num_envs.*fixed when it is built"),
        (lambda env: env.get_attr("refrence_delay"), AttributeError, "did you mean 'reference_delay'"),
        (lambda env: env.get_attr("np_random"), AttributeError, "set by seed"),
        (lambda env: env.get_attr("scenario", [3]), IndexError, "out of range"),
        (lambda env: env.env_method("sumary"), AttributeError, "did you mean 'summary'"),
        (lambda env: env.env_method("step", np.zeros(18), indices=2), ScenarioError, "row 2.*step together"),
        (lambda env: env.env_method("step_allocation", None), ScenarioError, "rows step together"),
        (lambda env: CollaPipeVecEnv(env.env, "ful"), ScenarioError, "did you mean 'full'"),
    ],
)
def test_bad_use_is_refused(use, error, message):
    env = make_adapter("small")
    env.reset()
    with pytest.raises(error, match=message):
        use(env)


def test_a_step_before_the_first_reset_is_refused():
    with pytest.raises(NotResetError, match="before its first reset: call reset"):
        make_adapter("small").step(np.zeros((3, 18)))
