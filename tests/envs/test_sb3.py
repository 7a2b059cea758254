"""The adapter to Stable-Baselines3 by itself: styles of information, rows, attributes, pictures, ways in."""

import copy

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
from environments_support import (
    ROWS,
    VARIANTS,
    adapted,
    adapter_and_dummy,
    assert_close,
    dummy,
    make_actions,
    shortened,
    vector,
)
from record_support import leaves
from stable_baselines3.common.monitor import Monitor

from collapipe_env.envs.sb3 import CollaPipeVecEnv, make_sb3_vec_env
from collapipe_env.ground.errors import AllocationError, NotResetError, ScenarioError
from collapipe_env.scenario import load_scenario

NAME = "CollaPipeSurrogate-Small-v0"


def test_information_is_complete_at_the_end_of_episodes_and_sparse_or_complete_before():
    full, theirs = adapter_and_dummy()
    sparse = adapted("small", 3, info="sparse")
    sparse.seed(0)
    for env in (sparse, full, theirs):
        env.reset()
    assert full.metadata == theirs.metadata
    ended = []
    for actions in make_actions(full, 7):
        few, all_of_it, expected = (env.step(actions) for env in (sparse, full, theirs))
        for one, mine, its, done in zip(few[3], all_of_it[3], expected[3], all_of_it[2], strict=True):
            if not done:
                assert one == {}
            else:
                assert mine["episode"]["r"] == mine["summary"]["return"]
                assert mine["episode"]["l"] == mine["summary"]["rounds"] == 3
                ended += [(mine["summary"], mine["TimeLimit.truncated"], "terminal_observation" in mine)]
                extra = {name: mine.pop(name) for name in ("summary", "episode")}
                assert one.pop("summary") == extra["summary"]
                assert one.pop("episode").keys() == extra["episode"].keys() == {"r", "l", "t"}
                assert_close(one, mine)
            assert_close(mine, its)
        assert full.reset_infos == sparse.reset_infos == theirs.reset_infos
        assert len({id(info) for info in few[3]}) == ROWS
        assert set(full.last_info) == set(all_of_it[3][0]) - {"TimeLimit.truncated", "terminal_observation"}
    assert [one[1:] for one in ended] == [(True, True)] * 2 * ROWS
    assert full.env_method("ended_summary") == [one[0] for one in ended[-ROWS:]]


def test_seeds_are_used_once_and_unseeded_resets_go_on():
    ours, theirs = adapter_and_dummy(seed=3)
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


@pytest.mark.parametrize("variant", ["small", "uneven"])
def test_rows_show_themselves_as_single_environments(variant):
    ours, theirs = adapted(variant, 3), dummy(variant, 3)
    for env in (ours, theirs):
        env.seed(0)
        env.reset()
    assert ours.get_attr("last_round") == theirs.get_attr("last_round") == [None] * 3
    for actions in make_actions(ours, 2):
        ours.step(actions)
        theirs.step(actions)
    for name in ("reference_delay", "render_mode", "metadata", "spec", "action_space", "observation_space"):
        assert ours.get_attr(name) == theirs.get_attr(name), name
        assert ours.has_attr(name)
    assert ours.get_attr("scenario", [1]) == theirs.get_attr("scenario", [1])
    for name in ("state", "last_round"):
        for mine, other in zip(ours.get_attr(name, [2, 0]), theirs.get_attr(name, [2, 0]), strict=True):
            np.testing.assert_equal(dict(leaves(mine)), dict(leaves(other)))
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
    ours, theirs = adapter_and_dummy(4, observation=observation)
    for env in (ours, theirs):
        env.reset()
    assert ours.get_attr("observation_space") == theirs.get_attr("observation_space")
    actions = make_actions(ours, 4)
    assert_close(ours.step(actions[0])[:3], theirs.step(actions[0])[:3])
    for arguments in ({"seed": 11, "indices": [1]}, {"indices": 2}):
        (mine, mine_info), (other, other_info) = (
            env.env_method("reset", **arguments)[0] for env in (ours, theirs)
        )
        np.testing.assert_equal(mine, other)
        assert mine_info == other_info
    for action in actions[1:]:
        assert_close(ours.step(action)[:3], theirs.step(action)[:3])


def test_attributes_that_are_set_stay_with_their_row():
    ours, theirs = adapter_and_dummy()
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
    ours = adapted("small", num_envs=2, render_mode="rgb_array")
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
    assert adapted("small").get_images() == [None] * 3
    assert adapted("small").get_attr("unwrapped", 0)[0].render() is None


@pytest.mark.parametrize(
    "duplicate",
    [copy.deepcopy, lambda env: cloudpickle.loads(cloudpickle.dumps(env))],
    ids=["copy", "pickle"],
)
def test_copies_go_their_own_way(duplicate):
    ours = adapted("small", 3)
    ours.reset()
    actions = make_actions(ours, 5)
    ours.step(actions[0])
    other = duplicate(ours)
    mine = [ours.step(action) for action in actions[1:]]
    for action, expected in zip(actions[1:], mine, strict=True):
        assert_close(other.step(action)[:3], expected[:3])
    assert other.get_attr("reference_delay") == ours.get_attr("reference_delay")


@pytest.mark.parametrize("mode", ["NextStep", "Disabled"])
def test_other_autoreset_modes_are_refused(mode):
    with pytest.raises(ScenarioError, match=f"{mode}.*SameStep"):
        CollaPipeVecEnv(vector(autoreset_mode=mode))


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
    env = adapted("small")
    env.reset()
    with pytest.raises(error, match=message):
        use(env)


def test_a_step_before_the_first_reset_is_refused():
    with pytest.raises(NotResetError, match="before its first reset: call reset"):
        adapted("small").step(np.zeros((3, 18)))


# Ways in


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (NAME, VARIANTS["small"]),
        ("collapipe_env:CollaPipeSurrogate-v0", VARIANTS["medium"]),
        ("small", VARIANTS["small"]),
        (shortened("uneven"), shortened("uneven")),
        (load_scenario("small"), VARIANTS["small"]),
    ],
)
def test_the_short_way_in(given, expected):
    learner = {} if str(given).endswith("-v0") else {"learner": "surrogate"}
    ours = make_sb3_vec_env(given, num_envs=2, seed=5, reward="delay", **learner)
    theirs = dummy(expected, num_envs=2, reward="delay")
    theirs.seed(5)
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    actions = np.array([ours.action_space.sample() for _ in range(2)])
    assert_close(ours.step(actions)[:3], theirs.step(actions)[:3])
    theirs.action_space.seed(5)
    np.testing.assert_array_equal(actions[0], theirs.action_space.sample())
    name = None if learner else given.removeprefix("collapipe_env:")
    assert (ours.spec and ours.spec.id) == name
    assert [spec and spec.id for spec in ours.get_attr("spec")] == [name] * 2


def test_the_short_way_in_takes_every_option():
    env = make_sb3_vec_env(
        NAME, num_envs=2, learner="surrogate", render_mode="rgb_array", max_episode_steps=1, info="full"
    )
    assert env.render_mode == "rgb_array"
    env.reset()
    _, _, done, infos = env.step(make_actions(env, 1)[0])
    assert done.all()
    assert env.get_attr("rounds") == [1, 1]
    assert all("delay" in info for info in infos)


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ("CollaPipeSurogate-v0", {}, "not registered: did you mean 'CollaPipeSurrogate-v0'"),
        ("CartPole-v1", {}, "not an environment of this package.*make_vec_env"),
        ("smal", {}, "small"),
        ("small", {"num_envs": 0}, "num_envs = 0: use a whole number of at least 1"),
        (NAME, {"num_envs": 0}, "num_envs = 0: use a whole number of at least 1"),
        ("small", {"leaner": "surrogate"}, "did you mean 'learner'"),
        (NAME, {"rewards": "delay"}, "did you mean 'reward'"),
        ("small", {"learner": "surrogate", "info": "all"}, "info = 'all' is not known"),
        ("small", {"learner": "surrogate", "autoreset_mode": "NextStep"}, "SameStep"),
    ],
)
def test_bad_ways_in_are_refused(given, options, message):
    with pytest.raises(ScenarioError, match=message):
        make_sb3_vec_env(given, **options)


@pytest.mark.parametrize("first", [NAME, "medium", load_scenario("medium")])
def test_two_scenarios_are_one_clear_error(first):
    with pytest.raises(ScenarioError, match="and scenario = 'small' are two scenarios for one environment"):
        make_sb3_vec_env(first, scenario="small")
    with pytest.raises(ScenarioError, match="no scenario: give an id"):
        make_sb3_vec_env(num_envs=2)
    assert make_sb3_vec_env(scenario=NAME, num_envs=2).num_envs == 2
