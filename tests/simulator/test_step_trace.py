"""A step never passes more functions and files than it did: who shortens its way lowers the ceilings."""

import sys
from pathlib import Path

import gymnasium as gym
import pytest

import collapipe_env

PACKAGE = Path(collapipe_env.__file__).parent

CEILINGS = {
    "medium": {"functions": 59, "files": 23, "returns": 23},
    # Those who walk may lose sight of each other, so that hops have two losses.
    "medium-wild": {"functions": 177, "files": 58, "returns": 166},
}


def traced_step(scenario: str) -> list[tuple[str, str]]:
    """File and function of every call inside the package during one step, in order.

    An entry is a call from one file into another, a return one into a file that was entered before: a reader
    who follows the step has to come back to it.
    """
    env = gym.make("CollaPipeSurrogate-v0", scenario=scenario).unwrapped
    env.reset(seed=0)
    env.action_space.seed(0)
    action = env.action_space.sample()
    env.step(action)  # works out what all steps share
    calls: list[tuple[str, str]] = []

    def note(frame, event, _) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            calls.append((path.relative_to(PACKAGE).as_posix(), frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        env.step(action)
    finally:
        sys.setprofile(None)
    return calls


def files_entered(calls: list[tuple[str, str]]) -> list[str]:
    """File of every entry into another file, in order."""
    return [file for i, (file, _) in enumerate(calls) if i == 0 or calls[i - 1][0] != file]


def trace_size(calls: list[tuple[str, str]]) -> dict[str, int]:
    """Numbers of different functions and files of a trace, and of its returns."""
    entries = files_entered(calls)
    files = len(set(entries))
    return {"functions": len(set(calls)), "files": files, "returns": len(entries) - files}


def test_a_return_is_an_entry_into_a_file_entered_before():
    calls = [("a", "f"), ("a", "g"), ("b", "f"), ("a", "g"), ("b", "f"), ("b", "f")]
    assert trace_size(calls) == {"functions": 3, "files": 2, "returns": 2}


@pytest.mark.parametrize("scenario", CEILINGS)
def test_a_step_stays_below_its_ceilings(scenario):
    found, ceilings = trace_size(traced_step(scenario)), CEILINGS[scenario]
    # No step at all would be the shortest.
    assert found["functions"] > 20
    assert {name: count for name, count in found.items() if count > ceilings[name]} == {}
