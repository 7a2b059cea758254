"""Files of states: arrays come back to the bit, and what is no state is refused at once."""

import json
import pickle
import struct
import tracemalloc

import numpy as np
import pytest
from state_damage_support import as_bytes, changed, state_of
from state_ways_support import assert_same

from collapipe_env.ground import state_files
from collapipe_env.ground.errors import StateError
from collapipe_env.ground.state_files import read_tree, tree_bytes, write_tree
from collapipe_env.ground.state_trees import generator_of, generator_tree


def test_place_outside_of_a_generators_buffer_is_refused():
    # NumPy itself takes it, and reads far beyond the buffer.
    for kind, place in ((np.random.MT19937, "bits/state/pos"), (np.random.Philox, "bits/buffer_pos")):
        tree = generator_tree(np.random.Generator(kind(0)))
        expected = np.random.Generator(kind(0)).integers(2**40, size=9)
        np.testing.assert_array_equal(generator_of(tree, "rng").integers(2**40, size=9), expected)
        for value in (-1, 10**6):
            with pytest.raises(StateError, match="rng is not the state of a generator"):
                generator_of(changed(tree, place, value), "rng")


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
    "many arrays": (file_of({f"{i:02000}": entry() for i in range(6_000)}), "list of arrays is longer than"),
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
    tracemalloc.start()
    with pytest.raises(
        StateError, match=rf"state.safetensors is damaged or not a state \(.*({message})"
    ) as told:
        read_tree(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * len(content) + 10**7
    assert len(str(told.value)) < 600


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (
            {"many": {f"{i:02000}": np.zeros(0) for i in range(6_000)}},
            "has 6,002 arrays, a list of",
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
