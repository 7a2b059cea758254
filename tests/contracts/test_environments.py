"""Contract of every way to be an environment: seeds, spaces, rows, resets, ownership, checkers, pictures."""

import pickle

import environments_support as support
import numpy as np
import pytest
import torch
from environments_support import (
    BATCHED,
    KINDS,
    MODES,
    ROWS,
    VARIANTS,
    Player,
    assert_close,
    make_actions,
    shortened,
)
from gymnasium.utils.env_checker import check_env
from settings_support import SETTINGS
from stable_baselines3.common.env_checker import check_env as sb3_check_env
from stable_baselines3.common.vec_env import VecEnv
from state_ways_support import assert_same
from variants_support import mostly_slow

from collapipe_env.simulator.record import RoundRecord

every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.mark.parametrize("observation", ["flat", "graph"])
@pytest.mark.parametrize("name", ["small", "uneven", "opened"])
def test_checkers_of_other_libraries(name, observation):
    """Stable-Baselines3's without its advice to flatten arrays, which MultiInputPolicy does by itself."""
    check_env(support.single(name, observation=observation), skip_render_check=True)
    sb3_check_env(support.single(name, observation=observation), warn=observation == "flat")


def played(env, actions, seed):
    """What an episode and the next say; every observation is in the space."""
    player = Player(env)
    said = [player.reset(seed), *player.go_on(actions)]
    assert all(player.space.contains(row["observation"]) for rows in said for row in rows)
    return said


@every_kind
def test_a_seed_decides_an_episode_and_what_follows_it(kind):
    env, other = KINDS[kind](), KINDS[kind]()
    actions = make_actions(env, 7)
    first = played(env, actions, 3)
    assert_close(played(other, actions, 3), first)
    unseeded = played(env, actions, None)
    assert_close(played(other, actions, None), unseeded)
    assert_close(played(env, actions, 3), first)
    for another in (unseeded, played(env, actions, 4), played(KINDS[kind](), actions, None)):
        for place, name in ((0, "observation"), (1, "reward")):
            assert not np.array_equal(another[place][0][name], first[place][0][name])


# Rows play what single environments play


def pair(kind, scenario, mode, **given):
    """An environment of several rows, what it should play, and whether bit for bit."""
    if kind == "adapted":
        return support.adapted(scenario, **given), support.dummy(scenario, **given)
    ours, theirs = (
        (support.vector, support.sync) if kind == "vector" else (support.on_tensors, support.vector)
    )
    return tuple(build(scenario, autoreset_mode=mode, **given) for build in (ours, theirs))


def assert_same_episodes(ours, theirs, steps, seed=7, exact=True):
    """Play both with the same actions; returns how many rows ended in each step."""
    one, two = Player(ours), Player(theirs)
    assert_close(said(one.reset(seed)), two.reset(seed), exact)
    ends = []
    for t, action in enumerate(make_actions(ours, steps)):
        mine, its = one.step(action), two.step(action)
        assert_close(said(mine), its, exact, f"step {t}")
        assert_close(one.summaries(), two.summaries(), exact, f"step {t} summaries")
        if not exact:
            assert_close(dict(arrays_of(ours)), dict(arrays_of(theirs)), exact, f"step {t} state")
        done = one.done(mine)
        ends.append(sum(done))
        if one.mode.value == "Disabled" and any(done):
            assert_close(one.reset(mask=done), two.reset(mask=done), exact, f"reset {t}")
    return ends


def said(rows):
    """Without what only the adapter adds to the last information of an episode."""
    for row in rows:
        row["info"] = {
            name: value for name, value in row["info"].items() if name not in ("summary", "episode")
        }
    return rows


def arrays_of(env):
    """Arrays of the state by name, those that processes show included."""
    for name, value in env.state.__getstate__().items():
        if name == "processes":
            yield from ((f"{name}/{key}", dict(arrays)) for key, arrays in value.items())
        elif value is not None:
            yield name, value


DRIFT = "drift_plus_penalty"
FLAT, GRAPH = {"observation": "flat"}, {"observation": "graph"}
LARGE = [{"base": size, "dynamics": {"rounds": 3}} for size in ("large", "xlarge")]
PAIRS = [
    *(("vector", name, "NextStep", FLAT) for name in ("medium", "uneven", "opened", "walking", "arq")),
    *(("vector", "moving", mode, FLAT) for mode in MODES),
    *(("vector", "migrating", mode, GRAPH) for mode in MODES),
    *(("adapted", name, "SameStep", FLAT) for name in ("small", "moving", "medium")),
    ("adapted", "migrating", "SameStep", GRAPH),
    *(("on_tensors", scenario, "SameStep", FLAT) for scenario in (*VARIANTS, *LARGE)),
    *(("on_tensors", name, "NextStep", GRAPH) for name in VARIANTS),
    *(("on_tensors", "absent_common", "SameStep", {"reward": form}) for form in ("lyapunov", DRIFT)),
    ("on_tensors", "contended", "SameStep", {"reward": DRIFT}),
]


@pytest.mark.parametrize(("kind", "name", "mode", "given"), PAIRS)
def test_rows_play_what_others_play(kind, name, mode, given):
    """Arrays what other libraries make of single environments, tensors what arrays play."""
    ours, theirs = pair(kind, name, mode, rounds=3, **given)
    spaces = ("observation_space", "action_space", "single_observation_space")
    for space in spaces if kind != "adapted" else spaces[:2]:
        assert getattr(ours, space) == getattr(theirs, space)
    assert sum(assert_same_episodes(ours, theirs, 8, exact=kind != "on_tensors")) == 2 * ROWS


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("kind", "alone", "given"),
    [
        ("vector_objectives", "objectives", {}),
        ("vector_cost_apart", "cost_apart", {}),
        ("vector_cost_apart", "cost_apart", {"kind": support.CollaPipeTorchVectorEnv}),
    ],
)
def test_rows_of_views_are_single_views(kind, alone, given, mode):
    player = Player(KINDS[kind](rounds=3, autoreset_mode=mode, **given))
    player.reset(7)
    actions = make_actions(player.env, 8)
    singles = (by_hand(KINDS[alone](rounds=3), mode, 7 + row, actions[:, row]) for row in range(ROWS))
    rows = zip(*singles, strict=True)
    ended = 0
    for action, expected in zip(actions, rows, strict=True):
        found = player.step(action)
        for mine, its in zip(found, expected, strict=True):
            for name in mine.keys() - {"info", "terminated"}:
                assert_close(mine[name], its[name], exact=False, place=name)
        ended += sum(done := player.done(found))
        if mode == "Disabled" and any(done):
            player.reset(mask=done)
    assert ended == 2 * ROWS


def by_hand(env, mode, seed, actions):
    """What a row should say: a single environment that is reset when the mode wants it."""
    player, over = Player(env), False
    player.reset(seed)
    for action in actions:
        if over and mode == "Disabled":
            player.reset()
        if over and mode == "NextStep":
            begun = player.reset()[0]["observation"]
            row = {"observation": begun, "reward": 0.0, "cost": 0.0, "truncated": False}
        else:
            (row,) = player.step(action)
            if row["truncated"] and mode == "SameStep":
                row["observation"] = player.reset()[0]["observation"]
        over = bool(row["truncated"])
        yield row


@pytest.mark.parametrize("mode", MODES)
def test_rows_that_end_apart(mode):
    first, scenario = [0.9, 1.1, 9.0], shortened("small", 5, target_loss=0.75)
    learners = [support.SteadyLearner(loss) for loss in first]
    ours = support.vector(scenario, learner=support.SteadyLearner(first), autoreset_mode=mode)
    ends = assert_same_episodes(ours, support.sync(scenario, autoreset_mode=mode, learners=learners), 23)
    assert max(ends) < ROWS * 3 <= sum(ends)


@pytest.mark.parametrize(
    ("kind", "mode", "rounds", "target", "reward", "reached"),
    [
        ("adapted", "SameStep", 12, 0.69, "lyapunov", "all"),
        ("on_tensors", "NextStep", 40, 0.64, "time_to_target", "all"),
        ("on_tensors", "SameStep", 21, 0.6225, "lyapunov", "some"),
        ("on_tensors", "SameStep", 4, 0.01, DRIFT, "none"),
    ],
)
def test_targets_that_rows_reach_one_after_the_other(kind, mode, rounds, target, reward, reached):
    scenario = shortened("small" if kind == "adapted" else "moving", rounds, target_loss=target)
    ours, theirs = pair(kind, scenario, mode, num_envs=6, reward=reward)
    ends = assert_same_episodes(ours, theirs, min(rounds, 25) + 1, 11, exact=kind == "adapted")
    times = ["time_to_target" in row["ended"] for row in Player(ours).summaries()]
    assert max(ends) < 6 or (kind, reached) != ("on_tensors", "all")
    assert {"all": all(times), "some": any(times) and not all(times), "none": not any(times)}[reached], times


@pytest.mark.parametrize(
    ("kind", "mode"), [("vector", "SameStep"), ("vector", "Disabled"), ("adapted", "SameStep")]
)
def test_rows_that_train_models(kind, mode):
    ours, theirs = pair(kind, support.TINY, mode, num_envs=2, learner="real")
    assert sum(assert_same_episodes(ours, theirs, 5)) >= 2
    keep_everything(ours, 5)


def test_what_is_trained_changes_nothing_of_the_system():
    real, surrogate = (Player(support.single(support.TINY, learner=name)) for name in ("real", "surrogate"))
    for action in (None, *make_actions(real.env, 3)):
        (mine,), (its,) = (one.reset(5) if action is None else one.step(action) for one in (real, surrogate))
        assert mine["info"]["loss"] != its["info"]["loss"]
        for said in (mine, its):
            del said["info"]["loss"], said["observation"]
            said["info"].pop("metric", None)
        assert_close(mine, its)


@pytest.mark.parametrize("observation", ["flat", "graph"])
@pytest.mark.parametrize(
    ("kind", "mode"), [*(("vector", mode) for mode in MODES), ("on_tensors", "Disabled")]
)
def test_masked_resets_in_mid_episode(kind, mode, observation):
    ours, theirs = map(Player, pair(kind, "moving", mode, rounds=9, observation=observation))
    exact, rng = kind == "vector", np.random.default_rng(0)
    assert_close(ours.reset(4), theirs.reset(4), exact)
    for t, action in enumerate(make_actions(ours.env, 8)):
        mask = rng.random(ROWS) < 0.5
        if mask.any():
            seed = [None, t, None] if t % 2 else None
            assert_close(ours.reset(seed, mask), theirs.reset(seed, mask), exact, f"reset {t}")
        assert_close(ours.step(action), theirs.step(action), exact, f"step {t}")


@pytest.mark.parametrize("name", mostly_slow(VARIANTS, [3, 6]))  # migrating and opened
def test_settings_of_the_program_around_change_nothing_on_tensors(name):
    with SETTINGS["all at once"]():
        ours, theirs = pair("on_tensors", name, "SameStep", rounds=3)
        assert sum(assert_same_episodes(ours, theirs, 4, exact=False)) == ROWS


# Seeds


@pytest.mark.parametrize(
    "seed", [0, 2**31, 2**128, [5, 1, 5], (5, 1, 5), [1, None, 2], np.int64(3), np.arange(3)]
)
def test_seeds_mean_what_they_mean_to_gymnasium(seed):
    # Gymnasium takes no seeds of NumPy's types.
    given = seed.tolist() if isinstance(seed, np.generic | np.ndarray) else seed
    # Rows without a seed draw one from the system: what others do must not depend on that.
    known = [row for row in range(ROWS) if isinstance(given, int) or given[row] is not None]
    players = [Player(build(rounds=2)) for build in (support.sync, support.vector, support.on_tensors)]
    seeds = [given, seed, seed]
    said = [[player.reset(one) for player, one in zip(players, seeds, strict=True)]]
    said += [[player.step(action) for player in players] for action in make_actions(players[0].env, 5)]
    said.append([player.reset() for player in players])  # goes on with the generators of the rows
    for theirs, ours, tensors in said:
        for row in known:
            assert_close(ours[row], theirs[row])
            assert_close(tensors[row], theirs[row], exact=False)


# Nobody writes to what was returned, and whoever does changes nothing


def walk(env, steps):
    """What comes back from resets and steps, with rows reset where they must be and now and then."""
    rng, mode, adapter = np.random.default_rng(1), Player(env).mode.value, isinstance(env, VecEnv)
    if adapter:
        env.seed(0)
    yield env.reset() if adapter else env.reset(seed=0)
    for t, action in enumerate(make_actions(env, steps)):
        result = env.step(action)
        ends = np.asarray(result[-2] if adapter else result[-2] | result[-3]).copy()
        for info in result[-1] if adapter else ():
            info.get("episode", {}).pop("t", None)  # seconds that have passed
        mask = rng.random(ends.shape) < 0.5
        yield result, env.env.last_round if adapter else env.unwrapped.last_round
        if mode == "Disabled" and ends.any():
            yield env.reset(options={"reset_mask": ends}) if ends.ndim else env.reset()
        elif t % 41 == 40 and mask.any() and not adapter:
            yield env.reset(options={"reset_mask": mask})
    yield env.reset()


def keep_everything(env, steps):
    kept = [(value, pickle.dumps(value)) for value in walk(env, steps)]
    for value, before in kept:
        assert pickle.dumps(value) == before


OWNED = [
    ("single", "Disabled", FLAT, 60),
    ("adapted", "SameStep", GRAPH, 20),
    *((kind, mode, given, steps) for kind, given, steps in (
        *(("vector", FLAT, 100), ("vector", GRAPH, 45), ("on_tensors", FLAT, 20)),
        ("vector_objectives", FLAT, 20),
    ) for mode in MODES),
]  # fmt: skip
owned = pytest.mark.parametrize(("kind", "mode", "given", "steps"), OWNED)


def built(kind, mode, rounds, given):
    rows = {} if kind == "single" else {"autoreset_mode": mode}
    return KINDS[kind]("moving", rounds, **rows, **given)


@owned
def test_nothing_that_was_returned_is_ever_written_again(kind, mode, given, steps):
    keep_everything(built(kind, mode, 7, given), steps)


@owned
def test_what_the_caller_does_to_returned_arrays_changes_nothing(kind, mode, given, steps):
    env, untouched = (built(kind, mode, 4, given) for _ in range(2))
    for mine, other in zip(walk(env, min(steps, 11)), walk(untouched, min(steps, 11)), strict=True):
        if isinstance(mine, tuple) and isinstance(mine[-1], RoundRecord):  # which may share arrays with it
            mine, other = mine[0], other[0]
        assert_same(mine, other)
        written = []
        scribble(mine, written)
        assert len(set(written)) == len(written), "one array stands in two places"


def scribble(value, written):
    """Write over every array within, and note where each lies in memory."""
    if isinstance(value, dict | tuple | list):
        for item in value.values() if isinstance(value, dict) else value:
            scribble(item, written)
    elif isinstance(value, torch.Tensor):
        written.append(value.data_ptr())
        value.fill_(1)
    elif isinstance(value, np.ndarray) and value.flags.writeable:
        if value.dtype == object:
            scribble(list(value), written)
        else:
            written.append(value.ctypes.data)
            value[...] = np.ones((), value.dtype)


# Pictures and the end


@pytest.mark.parametrize("kind", ["single", "agents", "vector", "adapted"])
def test_pictures_are_those_of_the_last_round_and_need_no_display(kind, monkeypatch):
    for variable in ("DISPLAY", "WAYLAND_DISPLAY", "MPLBACKEND"):
        monkeypatch.delenv(variable, raising=False)
    rows = {"num_envs": 1} if kind in BATCHED else {}
    player = Player(KINDS[kind](render_mode="rgb_array", **rows))
    pictures = []
    for action in (None, *make_actions(player.env, 1), *([None] if kind == "vector" else [])):
        player.reset(0) if action is None else player.step(action)
        drawn = player.env.render()
        pictures.append(drawn[0] if isinstance(drawn, tuple) else drawn)
        assert (pictures[-1].dtype, pictures[-1].ndim, pictures[-1].shape[-1]) == (np.uint8, 3, 3)
        assert pictures[-1].std() > 5.0
    assert not np.array_equal(*pictures[:2])
    if kind == "vector":
        np.testing.assert_array_equal(pictures[0], pictures[2])


@every_kind
def test_closing_twice_is_harmless(kind):
    env = KINDS[kind]()
    env.close()
    env.close()
