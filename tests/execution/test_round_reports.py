"""Reports of rounds in files: every damage is one clear error, or harmless."""

import copy
import json
import math
from dataclasses import asdict, fields

import pytest
from executed_support import Changed, quick
from hypothesis import given, settings
from hypothesis import strategies as st
from threaded_execution import ThreadedExecution

from collapipe_env.execution.chrome_trace import chrome_trace
from collapipe_env.execution.comparison_page import comparison_page
from collapipe_env.execution.price_comparison import compare_round
from collapipe_env.execution.round_reports import RoundReport, checked_report
from collapipe_env.ground.errors import StateError
from collapipe_env.ground.files import parse_json

PLACE, REMEDY = "run/played/round-1.json", "start over with --fresh"
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 40),
    st.integers(2**53, 2**300),
    st.floats(),
    st.sampled_from(["", "x", "0", "1.5", "light", "state"]),
    st.sampled_from([[], {}, [[1]], [None], [[]], {"a": 1}]),
)


def written(value):
    """A value as it comes out of a file."""
    return parse_json(json.dumps(value).encode())


def require(report, planned):
    return checked_report(report, planned.script, PLACE, REMEDY)


@pytest.fixture(scope="module")
def played():
    """What was planned and the reports of two rounds; in the first one a device is lost."""
    scenario = quick(**{"cluster.devices": 2, "workload.batch_size": 8})
    execution = ThreadedExecution(scenario, Changed(scenario, micro_batches=2))
    rounds = [execution.play(faults=[(0, 2, 0.5)]), execution.play()]
    execution.close()
    return [(planned, written(result)) for planned, result in rounds]


def places(value, before=()):
    """Paths to everything in plain data."""
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, inner in entries:
        yield (*before, key)
        yield from places(inner, (*before, key))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damage_is_one_clear_error_or_harmless(played, data):
    planned, whole = played[data.draw(st.integers(0, 1))]
    report = copy.deepcopy(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        # Fields near the root are drawn as often as the many rows of events.
        field = data.draw(st.sampled_from(sorted(report) or ["delay_s"]))
        inner = data.draw(st.sampled_from([(), *places(report.get(field))]))
        *way, last = (field, *inner)
        container = report
        for key in way:
            container = container[key]
        if data.draw(st.booleans()):
            container[last] = data.draw(JUNK)
        elif isinstance(container, dict):
            container.pop(last, None)
        elif data.draw(st.booleans()):
            del container[last]
        else:
            container.append(copy.deepcopy(container[last]))
    report = written(report)
    try:
        report = require(report, planned)
    except StateError as error:
        said = str(error)
        assert PLACE in said
        assert REMEDY in said
        assert any(field.name in said for field in fields(RoundReport))
        assert len(said) < 1200
        return
    compared = compare_round(1, planned, report)
    numbers = asdict(compared)
    assert math.isfinite(numbers["delay_measured_s"])
    json.dumps(numbers, allow_nan=False)
    comparison_page("page", [compared], "virtual").markdown()
    json.dumps(chrome_trace([(planned, report)]), allow_nan=False)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("delay_s", float("nan"), "delay_s is nan: it should be a finite number"),
        ("delay_s", True, "delay_s is True"),
        ("figures", [], r"figures is \[\]: it should be a valid dictionary"),
        ("figures", {"loss": "low"}, "figures.loss is 'low'"),
        ("events", [[1]], r"events\[0\] lacks the field 1"),
        (
            "events",
            [[0, 0, 99, 0, 0, 0, *[1.0] * 6, 1]],
            "an element 99 that cluster 0 lacks",
        ),
        ("events", [[0, 9, 1, 0, 0, 0, *[1.0] * 6, 1]], r"events\[0\].step is 9, after the last local step"),
        ("events", [[0, 0, 1, 0, 3, 0, *[1.0] * 6, 1]], r"events\[0\]\[4\] is 3: it should be less than"),
        ("recoveries", [[{}], []], r"recoveries\[0\]\[0\] lacks the field 'device'"),
        ("cluster_s", [], "cluster_s has 0 entries instead of 2"),
        ("cluster_s", [1.0, None], r"cluster_s\[1\] is None, expected a time"),
        ("emulated", 1, "emulated is 1: it should be a valid boolean"),
        ("train_loss", [1.0], "train_loss is"),
    ],
)
def test_the_message_names_the_field(played, field, value, words):
    planned, report = played[1]
    with pytest.raises(StateError, match=words):
        require({**report, field: value}, planned)


def test_what_was_written_is_read_and_fields_that_are_missing_are_named(played):
    for planned, report in played:
        assert written(require(report, planned)) == report
    words = f"{PLACE} is not a report of a round: it lacks the field 'delay_s'"
    with pytest.raises(StateError, match=words):
        require({}, played[0][0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"delay_s": 0.0}, "has a delay_s of 0"),
        ({"stages": []}, "plays without stages"),
        ({"hop_forward_s": []}, "needs 2 hops"),
    ],
)
def test_scripts_of_recoveries_are_checked(change, words, played):
    planned, report = played[0]
    (one,) = report["recoveries"][0]
    changed = [[{**one, "script": {**one["script"], **change}}], []]
    with pytest.raises(StateError, match=rf"recoveries\[0\]\[0\].script {words}"):
        require({**report, "recoveries": changed}, planned)
