"""Damaged states and files of states: refused with nothing changed, or harmless."""

import json
import pickle
import struct
import time
import tracemalloc

import numpy as np
import pytest
from env_support import make_actions, shortened
from state_damage_support import as_bytes, changed, damaged, damaged_bytes, state_of, with_text
from state_ways_support import assert_same, go_on
from test_snapshot import single, vector

from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv
from collapipe_env.ground import state_files
from collapipe_env.ground.errors import StateError
from collapipe_env.ground.state_files import read_tree, tree_bytes, write_tree
from collapipe_env.ground.state_trees import generator_of, generator_tree


def played(build=single, lead=()):
    """An environment two rounds into its episode, its state, and the actions that follow."""
    env = build()
    actions = make_actions(env, 4, lead=lead)
    env.reset(seed=0)
    go_on(env, actions[:2])
    return env, env.get_state(), actions[2:]


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
    env, state, actions = played()
    twin = single()
    twin.set_state(state)
    with pytest.raises(StateError, match=message):
        env.set_state(changed(state, place, change(part(state, place)) if callable(change) else change))
    assert_same(env.get_state(), twin.get_state())
    assert_same(go_on(env, actions), go_on(twin, actions))


@pytest.mark.parametrize("component", ["arrivals", "fading", "load", "shadowing"])
def test_other_seeds_change_the_luck_to_come_and_nothing_else(component):
    env, state, actions = played()
    twin = single()
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
    one, other = env.reset(seed=3)[0], twin.reset(seed=3)[0]
    np.testing.assert_array_equal(one, other)


def test_place_outside_of_a_generators_buffer_is_refused():
    # NumPy itself takes it, and reads far beyond the buffer.
    for kind, place in ((np.random.MT19937, "bits/state/pos"), (np.random.Philox, "bits/buffer_pos")):
        tree = generator_tree(np.random.Generator(kind(0)))
        expected = np.random.Generator(kind(0)).integers(2**40, size=9)
        np.testing.assert_array_equal(generator_of(tree, "rng").integers(2**40, size=9), expected)
        for value in (-1, 10**6):
            with pytest.raises(StateError, match="rng is not the state of a generator"):
                generator_of(changed(tree, place, value), "rng")


LONG = "x" * 10**6


@pytest.mark.parametrize("place", ["kind", "format", "version", "mdp/simulator/learner/round", f"mdp/{LONG}"])
def test_messages_stay_short(place):
    env, state, _ = played()
    with pytest.raises(StateError) as caught:
        env.set_state(changed(state, place, LONG))
    assert len(str(caught.value)) < 1000


def test_names_that_are_no_files_are_refused(tmp_path):
    for name in ("a" * 300, "null\0byte", tmp_path, tmp_path / "missing"):
        with pytest.raises(StateError, match="cannot read"):
            read_tree(name)


def file_of(header, data=b""):
    """A file of safetensors with this list of arrays."""
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(header)) + header + data


def entry(kind="U8", shape=(0,), end=0):
    return {"dtype": kind, "shape": list(shape), "data_offsets": [0, end]}


GOOD = tree_bytes({"a": np.arange(3.0)})
BAD_FILES = {
    "nothing": (b"", "header too small"),
    "pickle": (pickle.dumps([1]), "list of arrays is longer"),
    "archive": (b"PK\x03\x04" + b"\0" * 100, "list of arrays is longer"),
    "cut": (GOOD[:-1], "not fully covered|invalid|incomplete"),
    "longer": (GOOD + b"\0", "not fully covered|invalid|incomplete"),
    "other numbers": (GOOD.replace(np.float64(2).tobytes(), np.float64(4).tobytes()), "sha256"),
    "other name": (GOOD.replace(b"/a", b"/b"), "sha256"),
    "no sum": (file_of({}), "sha256"),
    "deep": (file_of(b"[" * 10**6), "header"),
    "many arrays": (file_of({f"{i:0100}": entry() for i in range(60_000)}), "list of arrays is longer than"),
    "array of exabytes": (
        file_of({"tree": entry(shape=(2**60,), end=2**60)}),
        "fully|offset|overflow",
    ),
    "shape that overflows": (file_of({"tree": entry(shape=(2**62, 8))}), "overflow"),
    "shape of many axes": (file_of({"sha256": entry(shape=[0] * 70)}), "dimension"),
    "type that NumPy lacks": (file_of({"tree": entry("BF16", (1,), 2)}, b"\0\0"), "BF16"),
    "arrays that overlap": (
        file_of({"tree": entry(shape=(5,), end=5), "a": entry(shape=(5,), end=5)}, b"\0" * 5),
        "offset",
    ),
    "truth values of other bytes": (
        state_of({"tree": as_bytes('{"tree": {"a": {"array": "/a"}}}'), "/a": np.uint8([2]).view(bool)}),
        "True and False",
    ),
    "an array too many": (state_of({"tree": as_bytes('{"tree": {}}'), "/a": np.ones(2)}), "do not agree"),
    "an array too few": (state_of({"tree": as_bytes('{"tree": {"a": {"array": "/a"}}}')}), "/a"),
    **{
        text: (state_of({"tree": as_bytes(text)}), "")
        for text in ('{"tree": [1]}', '{"array": [1]}', '{"tree": {"a": {}}}', "[1]", '{"a": 1}', "[" * 10**5)
    },
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_files_that_are_no_state_are_refused_at_once(name, tmp_path):
    content, message = BAD_FILES[name]
    path = tmp_path / "state.safetensors"
    path.write_bytes(content)
    start = time.perf_counter()
    tracemalloc.start()
    with pytest.raises(
        StateError, match=rf"state.safetensors is damaged or not a state \(.*({message})"
    ) as told:
        read_tree(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * len(content) + 10**7
    assert time.perf_counter() - start < 2.0
    assert len(str(told.value)) < 600


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (
            {"many": {f"{i:0100}": np.zeros(0) for i in range(60_000)}},
            "has 60,002 arrays, a list of",
        ),
        ({"a": np.array(["text"])}, "not of plain numbers"),
        ({"a": np.array([None])}, "not of plain numbers"),
    ],
)
def test_states_that_could_not_be_read_are_not_written(tree, message, tmp_path):
    with pytest.raises(StateError, match=message):
        write_tree(tmp_path / "state.safetensors", tree)
    assert not list(tmp_path.iterdir())


def test_a_file_above_the_limit_is_neither_written_nor_read(tmp_path, monkeypatch):
    monkeypatch.setattr(state_files, "STATE_BYTES", 1000)
    with pytest.raises(StateError, match=r"a file of 1,\d\d\d bytes, above the limit of 1,000"):
        write_tree(tmp_path / "a", {"a": np.zeros(120)})
    (tmp_path / "b").write_bytes(bytes(1001))
    with pytest.raises(StateError, match=r"cannot read .*b"):
        read_tree(tmp_path / "b")


ARRAYS = [
    *(np.arange(6.0).reshape(2, 3), np.asfortranarray(np.eye(3)[:, :2]), np.arange(12.0)[::5]),
    *(np.array(4), np.zeros((0, 2)), np.array([0.0, -0.0, np.inf, np.nan]), np.array(2**53, dtype=">f8")),
]


@pytest.mark.parametrize("values", ARRAYS)
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.uint64, np.uint8, np.bool_])
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_arrays_of_all_kinds_come_back_to_the_bit(values, kind, tmp_path):
    array = values.astype(kind)
    tree = {"a": {"b": array, "c": None, "d": 2**128, "e": "text \ud800", "f": True}, "g": {}}
    write_tree(tmp_path / "state.safetensors", tree)
    found = read_tree(tmp_path / "state.safetensors")
    assert_same(found, tree)
    assert found["a"]["b"].tobytes() == array.tobytes()
    assert found["a"]["b"].flags.writeable


def set_or_refused(env, good, twin_state, actions, attempt, what):
    """Whether a damaged state was refused; one that was not is played."""
    start = time.perf_counter()
    try:
        attempt()
    except StateError as error:
        size = len(str(error))
        assert size < 1500, what
        assert_same(env.get_state(), twin_state)
        return True
    with np.errstate(all="ignore"):  # wild numbers may overflow; they only must not stop anything
        go_on(env, actions)
    assert time.perf_counter() - start < 20.0, what
    env.set_state(good)
    return False


def on_tensors():
    return CollaPipeTorchVectorEnv(3, shortened("moving", 4), dtype="float32")


KINDS = {
    "moving": (single, ()),
    "arq": (lambda: single("arq"), ()),
    "vector": (lambda: vector(mode="SameStep"), (3,)),
    "tensors": (on_tensors, (3,)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [80, pytest.param(800, marks=pytest.mark.slow)])
def test_random_damages_of_states_are_refused_or_harmless(kind, count):
    build, lead = KINDS[kind]
    env, good, actions = played(build, lead)
    twin = build()
    twin.set_state(good)
    twin_state = twin.get_state()
    rng = np.random.default_rng(len(kind) + count)
    refused = 0
    for _ in range(count):
        tree, what = damaged(rng, good)
        refused += set_or_refused(env, good, twin_state, actions, lambda tree=tree: env.set_state(tree), what)
    assert count / 2 < refused < count
    assert_same(go_on(env, actions), go_on(twin, actions))


@pytest.mark.parametrize("count", [80, pytest.param(800, marks=pytest.mark.slow)])
def test_random_damages_of_files_are_refused_or_harmless(count, tmp_path):
    env, good, actions = played()
    twin = single()
    twin.set_state(good)
    twin_state = twin.get_state()
    path = tmp_path / "state.safetensors"
    env.save_state(path)
    content = path.read_bytes()
    path.write_bytes(with_text(content, lambda text: text))  # the way of damaging alone does no harm
    env.load_state(path)
    rng = np.random.default_rng(count)
    refused = 0
    for _ in range(count):
        spoilt, what = damaged_bytes(rng, content)
        path.write_bytes(spoilt)
        refused += set_or_refused(env, good, twin_state, actions, lambda: env.load_state(path), what)
    assert refused > count / 2
    assert_same(go_on(env, actions), go_on(twin, actions))
