"""Availability: the documented shape, a stateful walk as reference, and every fault."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapipe_env.errors import DataError
from collapipe_env.trace_files import Availability, available, read_availability

# The shape that FedScale's page of device traces documents, with times of our own.
CLIENT = {
    "duration": 500,
    "inactive": [300, 700],
    "finish_time": 1000,
    "active": [100, 400],
    "model": "phone",
}


def written(tmp_path, content):
    path = tmp_path / "clients.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_clients_are_read_in_order(tmp_path):
    first, second = read_availability(written(tmp_path, {"7": CLIENT, "3": {**CLIENT, "model": "tablet"}}))
    assert [first.client, second.client, second.model] == ["7", "3", "tablet"]
    np.testing.assert_array_equal(first.begin_s, [100.0, 400.0])
    np.testing.assert_array_equal(first.end_s, [300.0, 700.0])
    assert first.share == pytest.approx(0.5)


def test_windows_hold_their_ends_and_repeat(tmp_path):
    (client,) = read_availability(written(tmp_path, {"0": CLIENT}))
    times = np.array([0.0, 99.9, 100.0, 300.0, 300.1, 400.0, 700.0, 700.1, 999.9, 1000.0, 1100.0, 5250.0])
    expected = [False, False, True, True, False, True, True, False, False, False, True, True]
    assert available(client, times).tolist() == expected
    assert available(client, 150.0)
    assert available(client, times.reshape(3, 4)).shape == (3, 4)


@given(
    st.lists(st.integers(1, 50), min_size=2, max_size=12).filter(lambda gaps: len(gaps) % 2 == 0), st.data()
)
def test_it_agrees_with_a_walk_that_keeps_its_place(gaps, draw):
    """A simulator walks on through the windows second by second; the query knows no past."""
    edges = np.cumsum(gaps)
    begin, end = edges[::2].astype(float), edges[1::2].astype(float)
    period = float(edges[-1] + draw.draw(st.integers(0, 30)))
    client = Availability("x", begin, end, period, "phone")
    at, walked = 0, []
    seconds = range(2 * int(period))
    for second in seconds:
        now = second % period
        if now == 0:
            at = 0
        while at < len(begin) and now > end[at]:
            at += 1
        walked.append(at < len(begin) and begin[at] <= now <= end[at])
    assert available(client, np.array(seconds, dtype=float)).tolist() == walked


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"active": None}, "active is None, not a list of seconds"),
        ({"active": [100, "noon"]}, r"active\[1\] is 'noon', not a number of seconds; correct it"),
        ({"active": [100, True]}, r"active\[1\] is True"),
        ({"active": [100]}, "1 times in active and 2 in inactive; give one of each per window"),
        ({"active": [], "inactive": []}, "0 times in active"),
        ({"active": [100, 250]}, "window 0 from 100 to 300 s does not lie between its neighbours"),
        ({"active": [100, 800]}, "window 1 from 800 to 700 s"),
        ({"active": [-5, 400]}, "window 0 from -5 to 300 s"),
        ({"finish_time": 650}, "window 1 from 400 to 700 s .* within 0 to 650 s"),
        ({"finish_time": 0}, r"finish_time is 0 s; give the period, 1 to 1e\+09 s"),
        # Shorter or longer ones lose all digits of the time, or make states that cannot be set again.
        ({"finish_time": 1e-300, "active": [0], "inactive": [1e-301]}, "finish_time is 1e-300 s"),
        ({"finish_time": 1e308}, r"finish_time is 1e\+308 s"),
        ({"duration": "long"}, "duration is 'long'"),
        ({"model": 7}, "model is 7, not a string"),
        ({"modle": "x"}, "has a field 'modle'; did you mean 'model'"),
    ],
)
def test_every_fault_names_client_field_and_remedy(tmp_path, change, message):
    path = written(tmp_path, {"a": CLIENT, "17": {**CLIENT, **change}})
    with pytest.raises(DataError, match=rf"clients.json: client '17'.*{message}"):
        read_availability(path)


def test_what_is_no_json_of_clients_is_refused_and_nothing_is_unpickled(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    path = tmp_path / "clients.json"
    path.write_bytes(pickle.dumps({"0": Trap()}))
    with pytest.raises(
        DataError, match=r"is damaged .* docs/traces\.md shows; convert a pickle to JSON yourself"
    ):
        read_availability(path)
    assert not (tmp_path / "sprung").exists()
    for content, message in (
        ([CLIENT], "holds a list instead of an object"),
        (7, "holds a number instead of an object"),
        (None, "holds null instead of an object"),
        ('{"0": {"duration": 1}, "0": {"duration": 2}}', "the name '0' appears 2 times in an object"),
        ({}, "no clients"),
        ({"0": [1]}, r"client '0' is \[1\], not an object"),
        ({"0": {k: v for k, v in CLIENT.items() if k != "active"}}, "client '0' has no active"),
        ('{"0": {"duration": NaN}}', "client '0' has no inactive"),
    ):
        with pytest.raises(DataError, match=message):
            read_availability(written(tmp_path, content))
    with pytest.raises(DataError, match="cannot read"):
        read_availability(tmp_path / "none.json")
