"""A step never passes more functions and files than it did: who shortens its way lowers the ceilings."""

import pytest
from step_trace import trace_size, traced_step

CEILINGS = {
    "medium": {"functions": 55, "files": 20, "returns": 16},
    "medium-wild": {"functions": 199, "files": 63, "returns": 207},
}


def test_a_return_is_an_entry_into_a_file_entered_before():
    calls = [("a", "f"), ("a", "g"), ("b", "f"), ("a", "g"), ("b", "f"), ("b", "f")]
    assert trace_size(calls) == {"functions": 3, "files": 2, "returns": 2}


@pytest.mark.parametrize("scenario", CEILINGS)
def test_a_step_stays_below_its_ceilings(scenario):
    found, ceilings = trace_size(traced_step(scenario)), CEILINGS[scenario]
    # No step at all would be the shortest.
    assert found["functions"] > 20
    assert {name: count for name, count in found.items() if count > ceilings[name]} == {}
