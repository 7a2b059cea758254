"""What states hold, and impossible contents of theirs, which are refused with nothing changed."""

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest
from environments_support import Player, assert_close, make_actions, single, vector
from state_damage_support import changed
from state_ways_support import assert_same

from collapipe_env.ground.backends import NUMPY
from collapipe_env.ground.errors import StateError


def played():
    """An environment two rounds into its episode, its state, and the actions that follow."""
    player = Player(single())
    actions = make_actions(player.env, 4)
    player.reset(0)
    player.go_on(actions[:2])
    return player, player.env.get_state(), actions[2:]


def part(tree, place):
    for name in place.split("/"):
        tree = tree[name]
    return tree


@pytest.mark.parametrize(
    ("place", "change", "message"),
    [
        ("env/np_random_seed", lambda _: "9" * 5000, "env/np_random_seed is"),
        ("env/np_random_seed", lambda _: "\u0663", "env/np_random_seed is"),
        ("env/np_random/pool_size", lambda _: 10**12, "pool_size is 10+, expected 4 to"),
        ("env/np_random/spawn_key", lambda _: "-1", "env/np_random is not"),
        ("env/np_random", lambda _: None, "no generator"),
        ("version", lambda version: np.array([version, 2]), "this environment 4"),
        ("mdp/simulator/learner/round", lambda rounds: rounds + 10**9, "learner/round does not agree"),
        ("mdp/simulator/system/round_index", lambda rounds: rounds + 10**9, "round_index holds 1000000002"),
        ("mdp/simulator/system/round_index", lambda rounds: rounds + 1, "does not agree with the system's"),
        ("mdp/simulator/last_round/state/uplink_gain", lambda gain: gain * np.nan, "uplink_gain holds nan"),
        ("mdp/simulator/last_round/state/d2d_gain", lambda gain: gain + np.inf, "d2d_gain holds inf"),
        ("mdp/simulator/system/backlog", lambda backlog: backlog - 1, "backlog holds -"),
        ("mdp/simulator/layout/full_speed", lambda speed: speed * 0, "full_speed holds 0.0"),
        ("mdp/simulator/layout/link_gain", lambda gain: gain * np.nan, "link_gain holds nan"),
        ("mdp/simulator/layout/flops_per_cycle", lambda cycle: -cycle, "flops_per_cycle holds -"),
        ("mdp/simulator/layout/active_power", lambda power: power + 1e31, "active_power holds 1e.31"),
        ("mdp/simulator/layout/present", lambda present: ~present, "device that is away has memory"),
        ("mdp/simulator/layout/memory_bytes", lambda size: size * 0, "a cluster lacks memory"),
        ("mdp/simulator/processes/fading/branches", lambda b: b * np.nan, "fading/branches holds nan"),
        ("mdp/simulator/processes/fading/branches", lambda b: b[:, :-1], "branches is float64 .*expected"),
        ("mdp/simulator/processes/fading/branches", lambda b: b * 0.0, "fading gives a gain below 1e-100"),
        ("mdp/simulator/processes/shadowing/gain", lambda gain: -gain, "shadowing/gain holds -"),
        ("mdp/simulator/processes/load/level", lambda level: level + 3, "load/level holds [345]"),
        ("mdp/simulator/processes/load/level", lambda level: level * 1.0, "level is float64 .*int64"),
        ("mdp/simulator/processes/load", lambda _: {}, "load/level is missing"),
        ("mdp/simulator/processes", lambda all_: {**all_, "wind": {}}, "processes/wind is unknown"),
        ("mdp/simulator/seeds/fading", lambda seeds: seeds.view(np.int64), "seeds/fading is int64 .*uint64"),
        ("mdp/simulator/seeds/arrivals", lambda seeds: seeds[:0], "seeds/arrivals is uint64 .0,.*.1,"),
        ("mdp/simulator/seeds", lambda seeds: {**seeds, "wind": seeds["load"]}, "seeds/wind is unknown"),
        ("mdp/simulator/was_reset", lambda was: ~was, "learner/round does not agree"),
        ("mdp/simulator/was_reset", lambda was: was.astype(np.uint8), "was_reset is uint8"),
        ("mdp/simulator/learner/progress", lambda progress: progress - 10, "learner/progress holds -"),
        ("mdp/simulator/last_round/state/speed", lambda speed: speed * 0, "last_round/state/speed holds 0"),
        ("mdp/sums/total_delay", lambda total: total * np.nan, "total_delay holds nan"),
        ("mdp/ended", lambda _: {5: np.zeros(1)}, "mdp/ended/5 is unknown"),
        ("version", 99, "version = 99, this environment 4"),
        ("mdp", ..., "mdp is missing"),
        ("mdp/extra", 1, "mdp/extra is unknown"),
        ("mdp/sums/total_delay", np.zeros(2), "total_delay is"),
        ("mdp/simulator/system/backlog", np.zeros((1, 2)), "backlog is"),
        ("mdp/simulator/processes/fading/branches", ..., "branches is missing"),
        ("mdp/simulator/processes/fading", {"gain": np.ones((1, 14))}, "fading/"),
        ("mdp/simulator/processes", None, "processes is"),
        ("mdp/simulator/seeds/fading", ..., "seeds/fading is missing"),
        ("mdp/simulator/layout/full_speed", ..., "full_speed is missing"),
        ("mdp/simulator/last_round/interruption", {"trained": np.ones((1, 2), dtype=bool)}, "interruption"),
        ("mdp/simulator/last_round/pick", None, "pick is"),
        ("mdp/simulator/learner", None, "learner is"),
        ("mdp/simulator/learning/loss", 1.0, "loss is"),
        ("mdp/simulator/last_round", 5, "last_round is"),
        ("mdp/simulator/last_round/allocation/blocks", "text", "blocks is str, expected an array"),
        ("mdp/simulator/last_round/allocation/foo", np.zeros(1), "allocation/foo is unknown"),
        ("env/np_random", {"bits": 1}, "np_random"),
        ("env/np_random/children", -1, "np_random"),
        ("env/np_random/bits/bit_generator", "os.system", "np_random"),
        ("env/np_random_seed", 1.5, "np_random_seed is"),
        ("env/delays", [1], "env/delays is"),
    ],
)
def test_impossible_state_is_refused_and_the_environment_goes_on(place, change, message):
    player, state, actions = played()
    twin = Player(single())
    twin.env.set_state(state)
    with pytest.raises(StateError, match=message):
        player.env.set_state(
            changed(state, place, change(part(state, place)) if callable(change) else change)
        )
    assert_same(player.env.get_state(), twin.env.get_state())
    assert_close(player.go_on(actions), twin.go_on(actions))


@pytest.mark.parametrize("component", ["arrivals", "fading", "load", "shadowing"])
def test_other_seeds_change_the_luck_to_come_and_nothing_else(component):
    player, state, actions = played()
    env, twin = player.env, single()
    twin.set_state(state)
    place = f"mdp/simulator/seeds/{component}"
    env.set_state(changed(state, place, part(state, place) ^ np.uint64(1)))
    mine, its = env.step(actions[0]), twin.step(actions[0])
    assert_same(mine[4]["delay"], its[4]["delay"])
    drawn = env.last_round.arrivals.pick == twin.last_round.arrivals.pick
    assert drawn.all() == (component != "arrivals")
    for name, field in (("fading", "uplink_gain"), ("load", "speed")):
        same = (getattr(env.state, field) == getattr(twin.state, field)).all()
        assert same == (component != name), name
    # The next episode has seeds of its own.
    np.testing.assert_array_equal(env.reset(seed=3)[0], twin.reset(seed=3)[0])


LONG = "x" * 10**6


@pytest.mark.parametrize("place", ["kind", "format", "version", "mdp/simulator/learner/round", f"mdp/{LONG}"])
def test_messages_stay_short(place):
    player, state, _ = played()
    with pytest.raises(StateError) as caught:
        player.env.set_state(changed(state, place, LONG))
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "change",
    [
        lambda columns: columns.pop("_return"),
        lambda columns: columns.update({"return": columns["return"][:1]}),
        lambda columns: columns.update({"_return": columns["return"]}),
        lambda columns: columns.update({"return": "much"}),
    ],
)
def test_a_state_with_damaged_summaries_is_refused(change):
    env = vector(rounds=1)
    env.reset(seed=0)
    env.step(make_actions(env, 1)[0])
    state = env.get_state()
    change(state["mdp"]["ended"])
    with pytest.raises(StateError, match=r"mdp/ended/_?return"):
        env.set_state(state)


def test_an_impossible_last_round_is_refused_before_it_is_computed_with():
    player, state, _ = played()
    blocks = state["mdp"]["simulator"]["last_round"]["allocation"]["blocks"] + 1000
    player.env.set_state(changed(state, "mdp/simulator/last_round/allocation/blocks", blocks))
    with pytest.raises(StateError, match="cannot have been played"):
        _ = player.env.last_round


def test_a_whole_environment_of_gymnasium_can_be_pickled():
    env = gym.make("CollaPipeSurrogate-v0", scenario="small", max_episode_steps=5)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    other = pickle.loads(pickle.dumps(env))
    assert_same(other.action_space.sample(), action := env.action_space.sample())
    assert_same(other.step(action), env.step(action))


def test_copies_go_on_with_the_compiled_loops():
    env = vector()
    env.reset(seed=0)
    for other in (pickle.loads(pickle.dumps(env)), copy.deepcopy(env)):
        assert other._mdp.backend is NUMPY
        assert other._mdp.world.learner._backend is NUMPY
