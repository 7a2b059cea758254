"""A step never passes more functions and files than it did: who shortens its way lowers the ceilings."""

import pytest
from step_trace import trace_size, traced_step

CEILINGS = {
    "medium": {"functions": 54, "files": 22, "returns": 20},
    "medium-wild": {"functions": 158, "files": 54, "returns": 137},
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
