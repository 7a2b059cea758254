"""The vector environments by themselves: made by id, wrapped by Gymnasium, called in order, reset by mask."""

import copy
import re

import environments_support as support
import gymnasium as gym
import numpy as np
import pytest
import torch
from environments_support import KINDS, MODES, Player, assert_close, make_actions
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import (
    ClipReward,
    DictInfoToList,
    FlattenObservation,
    NormalizeObservation,
    NormalizeReward,
    RecordEpisodeStatistics,
    RescaleAction,
    TransformReward,
)

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import AllocationError, ScenarioError

ID = "CollaPipeSurrogate-Small-v0"
every_kind = pytest.mark.parametrize("kind", ["vector", "on_tensors"])


@pytest.mark.parametrize("mode", MODES)
def test_made_by_id_it_is_the_native_one_and_says_its_mode(mode):
    """``make_vec`` without a mode takes the native class; TorchRL and the wrappers read the mode of it."""
    env = gym.make_vec(ID, num_envs=2, autoreset_mode=mode)
    assert type(env) is CollaPipeVectorEnv
    assert env.spec.kwargs["vectorization_mode"] == "vector_entry_point"
    # TorchRL's GymWrapper takes the attribute, Gymnasium's wrappers the metadata.
    for one in (env, gym.make_vec(env.spec)):
        assert one.autoreset_mode is one.metadata["autoreset_mode"] is AutoresetMode(mode)
    assert gym.make_vec(ID).metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert "autoreset_mode" not in CollaPipeEnv.metadata
    assert env.num_envs == env.action_space.shape[0] == env.observation_space.shape[0] == 2
    assert env.single_action_space == gym.make(ID).action_space
    assert re.fullmatch(rf"CollaPipeVectorEnv\({ID}, num_envs=2\)", str(env))
    env.close()
    assert env.closed


NEXT, SAME, DISABLED = MODES
WRAPPERS = {
    # Gymnasium's vector environment takes the mask away before the statistics look for it.
    "statistics": (RecordEpisodeStatistics, (NEXT, SAME)),
    # Gymnasium refuses to change observations of which some are in the information, and to normalise less
    # than all of them.
    "normalised observations": (NormalizeObservation, (NEXT,)),
    "flattened": (FlattenObservation, (NEXT, DISABLED)),
    "normalised rewards": (NormalizeReward, MODES),
    "clipped rewards": (lambda env: ClipReward(env, -1.0, 0.5), MODES),
    "transformed rewards": (lambda env: TransformReward(env, lambda r: 2.0 * r), MODES),
    "rescaled actions": (lambda env: RescaleAction(env, np.float32(-2.0), np.float32(2.0)), MODES),
    "lists of information": (DictInfoToList, MODES),
}


@pytest.mark.parametrize(
    ("name", "mode"), [(name, mode) for name, (_, modes) in WRAPPERS.items() for mode in modes]
)
def test_gymnasiums_wrappers_see_what_they_see_of_its_own(name, mode):
    builds = (support.vector, support.sync)
    ours, theirs = (WRAPPERS[name][0](build("small", 3, autoreset_mode=mode)) for build in builds)
    done = None
    for action in (None, *make_actions(ours, 10)):
        said = [env.reset(seed=3) if action is None else env.step(action) for env in (ours, theirs)]
        for one, other in zip(*(each[:-1] for each in said), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)
        assert_close(*(rows_of(env, each[-1]) for env, each in zip((ours, theirs), said, strict=True)))
        done = action is not None and said[0][2] | said[0][3]
        if mode == DISABLED and np.any(done):
            # Gymnasium takes the mask out of the options that it is given, hence two dictionaries.
            for env in (ours, theirs):
                env.reset(options={"reset_mask": done.copy()})


def rows_of(env, info):
    """Information by row, without the seconds that episode statistics hold."""
    info = copy.deepcopy(info)
    if "episode" in info:
        info["episode"].pop("t")
    return info if isinstance(info, list) else DictInfoToList(env)._convert_info_to_list(info)


@every_kind
def test_rows_that_are_reset_ignore_their_action(kind):
    env = KINDS[kind]("small", 3)
    actions = make_actions(env, 3)
    env.reset(seed=0)
    for action in actions:
        env.step(action)
    observation, reward, _, truncated, info = env.step(np.full_like(actions[0], np.nan))
    assert env.observation_space.contains(np.asarray(observation))
    assert not reward.any()
    assert not truncated.any()
    # As reset does, they say that no round has been played.
    assert info["_delay"].all()
    assert not info["delay"].any()


def test_a_caller_may_write_into_the_metric_it_is_told():
    env = CollaPipeVectorEnv(2, "small", support.SteadyLearner(np.ones(2)))
    for _, info in (env.reset(seed=0), env.step(make_actions(env, 1)[0])[3:]):
        assert (info["metric"] == 0.5).all()
        info["metric"][:] = 7.0
        assert [env.summary(row)["metric"] for row in range(2)] == [0.5, 0.5]


@every_kind
def test_order_of_calls_is_checked(kind):
    env = KINDS[kind]("small", 3, autoreset_mode=DISABLED)
    actions = make_actions(env, 4)
    with pytest.raises(ScenarioError, match="environment 0 was stepped before its first reset"):
        env.step(actions[0])
    with pytest.raises(ScenarioError, match=r"\[0, 2\] were never reset"):
        env.reset(options={"reset_mask": np.array([False, True, False])})
    env.reset(seed=0)
    for action in actions[:-1]:
        env.step(action)
    with pytest.raises(ScenarioError, match=r"environments \[0, 1, 2\] are done.*reset_mask"):
        env.step(actions[-1])
    env.reset(options={"reset_mask": np.array([True, True, False])})
    with pytest.raises(ScenarioError, match=r"\[2\] are done"):
        env.step(actions[-1])


MASKS = [
    *(np.ones(2, bool), np.ones(3), np.zeros(3, bool), [1, 0, 1], "all"),
    *([True], torch.zeros(3, dtype=torch.bool)),
]


@every_kind
def test_bad_resets_are_refused_and_good_options_kept(kind):
    env = KINDS[kind]("small", 3)
    env.reset(seed=0)
    for mask in MASKS:
        with pytest.raises(ScenarioError, match=r"reset_mask.*3 booleans with at least one True"):
            env.reset(options={"reset_mask": mask})
    with pytest.raises(ScenarioError, match="did you mean 'reset_mask'"):
        env.reset(options={"reset_maks": None})
    with pytest.raises(ScenarioError, match=r"seed = \[1, 2\] lists 2 entries for 3 .* give one for each"):
        env.reset(seed=[1, 2])
    mask = np.array([True, False, True])
    options = {"reset_mask": mask}
    env.reset(options=options)
    assert options == {"reset_mask": mask}  # Gymnasium takes it out


def test_an_infeasible_plan_of_one_row_is_named_by_it():
    env = support.vector("small")
    env.reset(seed=0)
    plan = env.codec.decode(np.zeros(env.action_space.shape), env.state.memory_cap)
    plan.cu_power[2, 1] = 9.0
    state = env.state
    with pytest.raises(AllocationError, match=r"cu_power of environment 2, cluster 1 is 9\.0"):
        env.step_allocation(plan)
    assert env.state is state


@pytest.mark.parametrize("kind", ["single", "vector", "on_tensors", "adapted"])
@pytest.mark.parametrize("name", ["small", "uneven"])
def test_plans_play_as_the_actions_that_they_decode(kind, name):
    one, two = (Player(KINDS[kind](name)) for _ in range(2))
    assert_close(one.reset(2), two.reset(2))
    for t, action in enumerate(make_actions(one.env, 5)):
        actions = torch.from_numpy(action).double() if kind == "on_tensors" else action
        caps = two.inner.state.memory_cap
        plan = two.inner.codec.decode(actions, caps[0] if kind == "single" else caps)
        if kind == "single" and t % 2:  # with the batch axis of one, too
            plan = plan.map(lambda a: a[None])
        if kind == "on_tensors" and t % 2:
            plan = plan.map(lambda a: a.numpy())
        assert_close(two.step(plan, two.env.step_allocation), one.step(action))
        # What the giver goes on writing to is not what was played.
        kept = copy.deepcopy(two.inner.last_round.allocation.blocks)
        plan.blocks[...] = 0
        np.testing.assert_array_equal(two.inner.last_round.allocation.blocks, kept)


@every_kind
def test_channels_and_loads_do_not_depend_on_actions(kind):
    one, two = KINDS[kind](), KINDS[kind]()
    for env in (one, two):
        env.reset(seed=1)
    for a, b in zip(make_actions(one, 3), make_actions(two, 3, seed=1), strict=True):
        one.step(a)
        two.step(b)
        for name in ("uplink_gain", "d2d_gain", "speed"):
            np.testing.assert_array_equal(getattr(one.state, name), getattr(two.state, name))
    assert (np.asarray(one.state.backlog) != np.asarray(two.state.backlog)).any()
