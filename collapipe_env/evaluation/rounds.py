"""Length of episodes: the scenario's rounds, or more where more are asked for."""

from __future__ import annotations

from collapipe_env.scenario import Scenario

LARGEST_ROUNDS = 1_000_000
"""Rounds that an episode may be asked for."""


def lasting(scenario: Scenario, rounds: int | None) -> Scenario:
    """Return the scenario with episodes of at least the rounds asked for.

    Args:
        scenario: The scenario.
        rounds: Rounds of an episode; ``None`` asks for none.
    """
    if rounds is None or rounds <= scenario.dynamics.rounds:
        return scenario
    return scenario.with_overrides({"dynamics.rounds": rounds})
