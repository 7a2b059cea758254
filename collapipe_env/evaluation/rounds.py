"""Length of episodes: the scenario's rounds, or more on request."""

from __future__ import annotations

from collapipe_env.scenario import Scenario

LARGEST_ROUNDS = 1_000_000
"""Largest number of rounds of an episode."""


def lasting(scenario: Scenario, rounds: int | None) -> Scenario:
    """Return the scenario with episodes of at least the requested rounds; of its own for ``None``."""
    if rounds is None or rounds <= scenario.dynamics.rounds:
        return scenario
    return scenario.with_overrides({"dynamics.rounds": rounds})
