"""Length of episodes: the scenario's rounds, or more on request."""

from __future__ import annotations

from collapipe_env.scenario import Scenario

LARGEST_ROUNDS = 1_000_000
"""Largest number of rounds of an episode."""


def lasting(scenario: Scenario, rounds: int | None) -> Scenario:
    """Return the scenario with episodes of at least the requested rounds.

    Args:
        rounds: Rounds of an episode; ``None`` for the scenario's own.
    """
    if rounds is None or rounds <= scenario.dynamics.rounds:
        return scenario
    return scenario.with_overrides({"dynamics.rounds": rounds})
