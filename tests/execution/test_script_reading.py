"""Scripts from JSON: what comes in is checked, and every message names the field."""

import copy
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from script_support import chain_script

from collapipe_env.execution.script_reading import ScriptError, from_json, to_json
from collapipe_env.execution.scripts import LARGEST, ClusterScript, Move, RecoveryScript, RoundScript
from collapipe_env.physics.schedules.simulation import ChainTimes

ONE = np.ones(3)
TIMES = ChainTimes(ONE, 2.0 * ONE, ONE, np.ones(5), np.ones(5), 0.1 * np.ones(5), np.ones((3, 1)))
CLUSTER = chain_script(TIMES, "1f1b", [2, 1], 3, local_steps=2)
ROUND = RoundScript(4, (CLUSTER,), -1, 0.5, 7.25, 7.75)
MOVE = Move(0, 2, 3, 5, "weights", 0.0, 0.1)
RECOVERY = RecoveryScript(1, 1.5, False, 0, True, 2.0, 0.1, 0.1, 3.7, (MOVE,), (0, 1), CLUSTER)


@pytest.mark.parametrize("script", [ROUND, CLUSTER, RECOVERY], ids=lambda s: type(s).__name__)
def test_scripts_come_back_as_they_were(script):
    assert from_json(json.loads(json.dumps(to_json(script))), type(script)) == script


def changed(path, value):
    """The round's JSON with one field changed; ``...`` takes it away."""
    data = copy.deepcopy(json.loads(json.dumps(to_json(ROUND))))
    place = data
    for key in path[:-1]:
        place = place[key]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return data


C, S = ("clusters", 0), ("clusters", 0, "stages", 0)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("delay_s",), ..., "script lacks the field 'delay_s'"),
        (("dealy_s",), 1.0, "did you mean 'delay_s'"),
        (("delay_s",), float("nan"), "script.delay_s is nan"),
        (("delay_s",), -1.0, "script.delay_s is -1.0"),
        (("delay_s",), True, "script.delay_s is True"),
        (("round_index",), 10**4000, "script.round_index is an integer of"),
        (("round_index",), LARGEST + 1, "or equal to 9007199254740992"),
        ((*C, "cluster"), 3, r"script.clusters\[0\].cluster is 3"),
        ((*C, "schedule"), "fastest", r"clusters\[0\].schedule is 'fastest': it should be 'gpipe'"),
        ((*C, "plays"), 1, "plays is 1: it should be a valid boolean"),
        ((*C, "plays"), False, "stages.*none, as plays is false"),
        ((*C, "micro_batches"), 0, "1 or more"),
        ((*C, "micro_batches"), 4, "arrived"),
        ((*C, "local_steps"), -1, "local_steps is -1"),
        ((*C, "hosts"), [0, 1, 2], "hosts is 3 entries"),
        ((*C, "stages", 1, "devices"), [1], r"stages\[1\].devices"),
        ((*S, "devices"), [0], r"stages\[0\].devices"),
        ((*S, "shares"), [0.5], r"stages\[0\].shares"),
        ((*S, "chunks"), [[3, 2]], "an end not before it"),
        ((*S, "chunks"), [], r"stages\[0\].chunks is 0"),
        ((*S, "chunk_share"), [0.5], "chunk_share"),
        ((*S, "order", 0), [1, 0, 0], r"stages\[0\].order\[0\] is \(1, 0, 0\)"),
        ((*S, "order", 0), [0, 9, 0], r"order\[0\]"),
        ((*S, "order", 1), [0, 0, 0], r"order\[1\]"),
        ((*S, "weight_limit"), 0, "weight_limit is 0"),
        ((*C, "server", "order"), [], "server.order"),
    ],
)
def test_bad_fields_are_named(path, value, message):
    with pytest.raises(ScriptError, match=message):
        from_json(changed(path, value), RoundScript)


@pytest.mark.parametrize("data", [None, 3, "script", [], {}])
def test_what_is_no_script_is_refused(data):
    for kind in (RoundScript, ClusterScript, RecoveryScript):
        with pytest.raises(ScriptError, match="script"):
            from_json(data, kind)


def places(data, path=()):
    """Paths of all values in JSON."""
    yield path
    pairs = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in pairs:
        yield from places(value, (*path, key))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_scripts_raise_nothing_else(data):
    path = data.draw(st.sampled_from([p for p in places(to_json(ROUND)) if p]))
    try:
        found = from_json(changed(path, data.draw(JSON)), RoundScript)
    except ScriptError:
        return
    assert from_json(json.loads(json.dumps(to_json(found))), RoundScript) == found
