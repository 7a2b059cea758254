"""The native vector environment against Gymnasium's own: trajectories, information, wrappers, ownership."""

from __future__ import annotations

import copy
import pickle
import re
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from env_support import VARIANTS, make_actions, shortened
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
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
from state_ways_support import assert_same
from variants_support import mostly_slow

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.learners.factory import make_learner
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.learner import LearningReport

MODES = tuple(AutoresetMode)
ENVS = 3
ID = "CollaPipeSurrogate-Small-Classification-v0"
ENDINGS = {"base": "small", "dynamics": {"rounds": 5, "target_loss": 0.75}}
"""Rows reach the target after different rounds, or never: with :class:`SteadyLearner`."""


class SteadyLearner:
    """Loses 0.1 of its first loss a round, each row by itself: rows reach a target at different times."""

    def __init__(self, first):
        self.first = np.atleast_1d(np.asarray(first, dtype=np.float64))
        self.loss = self.first.copy()

    def reset(self, rngs, mask=None):  # noqa: ARG002
        rows = slice(None) if mask is None else mask
        self.loss = self.loss.copy()
        self.loss[rows] = self.first[rows]
        return self._report()

    def train_round(self, outcome):  # noqa: ARG002
        self.loss = self.loss - 0.1
        return self._report()

    def _report(self):
        return LearningReport(self.loss, metric=1.0 - 0.1 * self.loss, train_loss=self.loss)


def sync(scenario, mode, envs=ENVS, learner="surrogate", **kwargs) -> SyncVectorEnv:
    """Gymnasium's vector environment over our single ones."""
    return SyncVectorEnv(
        [lambda: CollaPipeEnv(scenario, learner, **kwargs) for _ in range(envs)], autoreset_mode=mode
    )


def native(scenario, mode, envs=ENVS, learner="surrogate", **kwargs) -> CollaPipeVectorEnv:
    return CollaPipeVectorEnv(envs, scenario, learner, autoreset_mode=mode, **kwargs)


def rows_of(env: VectorEnv, info: dict) -> list[dict]:
    """The information of each row, as Gymnasium's own wrapper reads it."""
    return DictInfoToList(env)._convert_info_to_list(info)


def check_masks(info: dict, envs: int) -> None:
    """Every entry has its mask, of the right type and shape; a value where the mask is False is no matter."""
    for key, value in info.items():
        if key.startswith("_"):
            assert key[1:] in info, f"{key} masks nothing"
            continue
        mask = info[f"_{key}"]
        assert mask.shape == (envs,), key
        assert mask.dtype == np.bool_, key
        if isinstance(value, dict):
            check_masks(value, envs)
        else:
            assert isinstance(value, np.ndarray), key
            assert len(value) == envs, key


def assert_same_info(ours: list[dict], theirs: list[dict], where: object = ()) -> None:
    for row, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        assert_same_row(one, other, (where, row))


def assert_same_row(one: dict, other: dict, where: object) -> None:
    assert set(one) == set(other), where
    for key, value in other.items():
        if isinstance(value, dict):
            assert_same_row(one[key], value, (where, key))
        else:
            assert np.asarray(one[key]).dtype == np.asarray(value).dtype, (where, key)
            np.testing.assert_array_equal(one[key], value, err_msg=f"{where}: {key}")


def assert_same_step(vector, reference, ours: tuple, theirs: tuple, where: object) -> None:
    for one, other in zip(ours[:-1], theirs[:-1], strict=True):
        assert_same(one, dict(other) if isinstance(one, dict) else other, str(where))
    check_masks(ours[-1], vector.num_envs)
    assert_same_info(rows_of(vector, ours[-1]), rows_of(reference, theirs[-1]), where)


def assert_same_trajectory(vector, reference, steps: int, seed: int | list[int | None] = 7) -> int:
    """Play both with the same actions, done rows reset by mask where nothing else does; count the ends."""
    actions = make_actions(vector, steps, lead=(vector.num_envs,))
    assert_same_step(vector, reference, vector.reset(seed=seed), reference.reset(seed=seed), "reset")
    ends = 0
    for t, action in enumerate(actions):
        ours, theirs = vector.step(action), reference.step(action)
        assert_same_step(vector, reference, ours, theirs, t)
        done = ours[2] | ours[3]
        ends += int(done.sum())
        for row, env in enumerate(reference.envs):
            assert vector.summary(row) == env.unwrapped.summary()
            assert vector.ended_summary(row) == env.unwrapped.ended_summary()
        if done.any() and vector.metadata["autoreset_mode"] is AutoresetMode.DISABLED:
            # Gymnasium takes the mask out of the options that it is given, hence two dictionaries.
            resets = [env.reset(options={"reset_mask": done.copy()}) for env in (vector, reference)]
            assert_same_step(vector, reference, *resets, (t, "reset"))
    return ends


@pytest.mark.parametrize("mode", MODES, ids=lambda m: m.value)
@pytest.mark.parametrize(
    ("name", "observation"),
    [*((name, "flat") for name in VARIANTS), *((name, "graph") for name in ("small", "moving", "uneven"))],
)
def test_trajectories_equal_gymnasiums_vector_environment(name, observation, mode):
    vector, reference = (make(shortened(name, 3), mode, observation=observation) for make in (native, sync))
    assert vector.single_observation_space == reference.single_observation_space
    assert vector.observation_space == reference.observation_space
    assert assert_same_trajectory(vector, reference, 13) >= 3 * ENVS


@pytest.mark.parametrize("mode", MODES, ids=lambda m: m.value)
def test_rows_that_end_apart_equal_gymnasiums_vector_environment(mode):
    first = np.array([0.9, 1.1, 9.0])
    vector = native(ENDINGS, mode, learner=SteadyLearner(first))
    reference = SyncVectorEnv(
        [lambda f=f: CollaPipeEnv(ENDINGS, SteadyLearner(f)) for f in first], autoreset_mode=mode
    )
    assert assert_same_trajectory(vector, reference, 23) >= 3 * ENVS


@pytest.mark.parametrize("mode", mostly_slow(MODES, [1]), ids=lambda m: m.value)
def test_trajectories_with_the_torch_learner_equal_gymnasiums(mode, pair_of_torch_learners):
    ours, theirs = pair_of_torch_learners
    scenario = shortened("small", 2)
    vector = native(scenario, mode, 2, ours)
    reference = SyncVectorEnv([lambda t=t: CollaPipeEnv(scenario, t) for t in theirs], autoreset_mode=mode)
    assert assert_same_trajectory(vector, reference, 5) >= 2


@pytest.fixture(scope="module")
def pair_of_torch_learners():
    """A learner for two rows, and one for each: building them takes longer than playing."""
    scenario = load_scenario(shortened("small", 2))
    return make_learner("real", scenario, 2), [make_learner("real", scenario, 1) for _ in range(2)]


@pytest.mark.parametrize(
    "seed", [0, [5, 1, 5], (5, 1, 5), [1, None, 2], np.int64(3), np.array([2, 0, 1])], ids=repr
)
def test_seeds_mean_what_they_mean_to_gymnasium(seed):
    vector, reference = (make(shortened("moving", 2), AutoresetMode.SAME_STEP) for make in (native, sync))
    # Gymnasium takes no seeds of NumPy's types.
    given = seed.tolist() if isinstance(seed, np.generic | np.ndarray) else seed
    # Rows without a seed draw one from the system: what both do with them must not depend on that.
    known = [row for row in range(ENVS) if isinstance(given, int) or given[row] is not None]
    ours, theirs = vector.reset(seed=seed)[0], reference.reset(seed=given)[0]
    np.testing.assert_array_equal(ours[known], theirs[known])
    for action in make_actions(vector, 5, lead=(ENVS,)):
        np.testing.assert_array_equal(vector.step(action)[0][known], reference.step(action)[0][known])
    # An unseeded reset goes on with the generators of the rows.
    np.testing.assert_array_equal(vector.reset()[0][known], reference.reset()[0][known])


@pytest.mark.parametrize("mode", MODES, ids=lambda m: m.value)
@pytest.mark.parametrize("observation", ["flat", "graph"])
def test_masked_resets_in_mid_episode_equal_gymnasiums(observation, mode):
    scenario = shortened("moving", 9)
    vector, reference = (make(scenario, mode, observation=observation) for make in (native, sync))
    rng = np.random.default_rng(0)
    assert_same_step(vector, reference, vector.reset(seed=4), reference.reset(seed=4), "reset")
    for t, action in enumerate(make_actions(vector, 8, lead=(ENVS,))):
        mask = rng.random(ENVS) < 0.5
        if mask.any():
            seed = [None, int(t), None] if t % 2 else None
            options = {"reset_mask": mask}
            ours = vector.reset(seed=seed, options=options)
            assert options == {"reset_mask": mask}  # Gymnasium takes it out
            theirs = reference.reset(seed=seed, options=options)
            assert_same_step(vector, reference, ours, theirs, (t, "reset"))
        assert_same_step(vector, reference, vector.step(action), reference.step(action), t)


@pytest.mark.parametrize(
    "mask", [np.ones(2, bool), np.ones(ENVS), np.zeros(ENVS, bool), [1, 0, 1], "all"], ids=repr
)
def test_masks_that_gymnasium_refuses_are_refused(mask):
    vector, reference = (make(shortened("small", 3), AutoresetMode.DISABLED) for make in (native, sync))
    for env, message in ((vector, "reset_mask.*3 booleans"), (reference, "reset_mask")):
        env.reset(seed=0)
        with pytest.raises((TypeError, ValueError), match=message):
            env.reset(options={"reset_mask": mask})


@pytest.mark.parametrize("mode", MODES, ids=lambda m: m.value)
def test_made_by_id_it_is_the_native_one_and_says_its_mode(mode):
    """``make_vec`` without a mode takes the native class; TorchRL and the wrappers read the mode of it."""
    env = gym.make_vec(ID, num_envs=2, autoreset_mode=mode.value)
    assert type(env) is CollaPipeVectorEnv
    assert env.spec.kwargs["vectorization_mode"] == "vector_entry_point"
    assert gym.make_vec(env.spec).autoreset_mode is mode
    # TorchRL's GymWrapper takes the attribute, Gymnasium's wrappers the metadata.
    assert env.autoreset_mode is mode
    assert env.metadata["autoreset_mode"] is mode
    assert gym.make_vec(ID).metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert "autoreset_mode" not in CollaPipeEnv.metadata
    assert env.num_envs == env.action_space.shape[0] == env.observation_space.shape[0] == 2
    assert env.single_action_space == gym.make(ID).action_space
    assert env.single_observation_space == gym.make(ID).observation_space
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
WRAPPED = [(name, mode) for name, (_, modes) in WRAPPERS.items() for mode in modes]


def play(env: VectorEnv, steps: int) -> list[tuple]:
    out = [env.reset(seed=3)]
    actions = make_actions(env, steps, lead=(env.num_envs,))
    for action in actions:
        out.append(env.step(action))
        done = out[-1][2] | out[-1][3]
        if done.any() and env.metadata["autoreset_mode"] is AutoresetMode.DISABLED:
            out.append(env.reset(options={"reset_mask": done}))
    return copy.deepcopy(out)


@pytest.mark.parametrize(("name", "mode"), WRAPPED, ids=lambda v: v if isinstance(v, str) else v.value)
def test_gymnasiums_wrappers_see_what_they_see_of_its_own(name, mode):
    scenario = shortened("small", 3)
    vector, reference = (WRAPPERS[name][0](make(scenario, mode)) for make in (native, sync))
    found, expected = play(vector, 10), play(reference, 10)
    for t, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        for one, other in zip(ours[:-1], theirs[:-1], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, err_msg=str(t))
        lists = [
            info if isinstance(info, list) else rows_of(env, _without_clock(info))
            for env, info in ((vector, ours[-1]), (reference, theirs[-1]))
        ]
        assert_same_info(*lists, t)


def _without_clock(info: dict) -> dict:
    """Episode statistics hold the seconds that passed."""
    if "episode" in info:
        info = {**info, "episode": {k: v for k, v in info["episode"].items() if k != "t"}}
    return info


BUILDS = {
    "flat": (native, 300),
    "graph": (partial(native, observation="graph"), 60),
    "tensors": (lambda scenario, mode: CollaPipeTorchVectorEnv(ENVS, scenario, autoreset_mode=mode), 60),
}
"""How each is built, and steps to keep what it returns."""


@pytest.mark.parametrize("mode", MODES, ids=lambda m: m.value)
@pytest.mark.parametrize("name", BUILDS)
def test_nothing_that_was_returned_is_ever_written_again(name, mode):
    build, steps = BUILDS[name]
    keep_everything(build(shortened("moving", 7), mode), steps)


@pytest.mark.parametrize("mode", mostly_slow(MODES, [1]), ids=lambda m: m.value)
def test_nothing_is_written_again_with_the_torch_learner(mode, pair_of_torch_learners):
    keep_everything(native(shortened("small", 2), mode, 2, pair_of_torch_learners[0]), 5)


def keep_everything(vector: CollaPipeVectorEnv, steps: int) -> None:
    """Play with resets in between, and compare all that was ever returned with its copy."""
    envs, mode = vector.num_envs, vector.autoreset_mode
    kept: list[tuple[object, bytes]] = []

    def keep(*values: object) -> None:
        kept.extend((value, pickle.dumps(value)) for value in values)

    rng = np.random.default_rng(1)
    keep(*vector.reset(seed=0), vector.state)
    for t, action in enumerate(make_actions(vector, steps, lead=(envs,))):
        keep(action)
        result = vector.step(action)
        keep(*result, vector.state, vector.last_round)
        done = np.asarray(result[2] | result[3])
        if mode is AutoresetMode.DISABLED and done.any():
            keep(*vector.reset(options={"reset_mask": done}), vector.state, vector.last_round)
        elif t % 41 == 40:
            mask = rng.random(envs) < 0.5
            mask[rng.integers(envs)] = True
            keep(*vector.reset(options={"reset_mask": mask}), vector.state)
    keep(*vector.reset())
    vector.step(make_actions(vector, 1, lead=(envs,))[0])
    for value, before in kept:
        assert pickle.dumps(value) == before


@pytest.mark.parametrize("mode", MODES, ids=lambda m: m.value)
@pytest.mark.parametrize("name", BUILDS)
def test_what_the_caller_does_to_returned_arrays_changes_nothing(name, mode):
    """The other way round: writing over all that came back leaves the trajectory as it was."""
    vector, untouched = (BUILDS[name][0](shortened("moving", 4), mode) for _ in range(2))
    for action in [None, *make_actions(vector, 11, lead=(ENVS,))]:
        results = [
            env.reset(seed=0) if action is None else env.step(action.copy()) for env in (vector, untouched)
        ]
        assert_same(*results)
        done = np.asarray(results[1][2] | results[1][3]) if action is not None else np.zeros(ENVS, bool)
        if mode is AutoresetMode.DISABLED and done.any():
            for env in (vector, untouched):
                env.reset(options={"reset_mask": done.copy()})
        written: list[int] = []
        scribble(results[0], written)
        assert len(set(written)) == len(written), "one array stands in two places"


def scribble(value: object, written: list[int]) -> None:
    """Write over every array within, and note where each lies in memory."""
    if isinstance(value, dict | tuple | list):
        for item in value.values() if isinstance(value, dict) else value:
            scribble(item, written)
    elif isinstance(value, torch.Tensor):
        written.append(value.data_ptr())
        value.fill_(1)
    elif isinstance(value, np.ndarray) and value.flags.writeable:
        if value.dtype == object:
            for item in value:
                scribble(item, written)
        else:
            written.append(value.ctypes.data)
            value[...] = np.ones((), value.dtype)
