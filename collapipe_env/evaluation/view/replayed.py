"""Stored episodes, played again from their decisions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from collapipe_env.evaluation.episode import replayed_rounds
from collapipe_env.evaluation.episode_files import EpisodeFiles
from collapipe_env.evaluation.episode_result import REMEDY, EpisodeResult
from collapipe_env.evaluation.view.stored_run import AGAIN, StoredScenario
from collapipe_env.ground.errors import CollaPipeError, DataError, reason
from collapipe_env.rendering.chrome_trace import chrome_trace
from collapipe_env.rendering.round_view import RoundView, played_timeline
from collapipe_env.simulator.system import reach_of, walking_side

AGREES = 1e-6
"""Largest relative difference of a replayed round's delay from the stored one: other processors and libraries
may round differently."""


def replayed(stored: StoredScenario, result: EpisodeResult, last: int | None = None) -> Iterator[RoundView]:
    """Play an episode again, and yield its rounds.

    Args:
        last: Last round to play, counted from 1; all by default.

    Raises:
        DataError: If the decisions are missing or damaged, or lead to other delays than the stored ones.
    """
    scenario = stored.scenario
    files = EpisodeFiles(stored.folder, result.scheduler, result.episode, result.run)
    rounds = replayed_rounds(scenario, result.episode, files.read_decisions(scenario, stored.rounds)[:last])
    title, side_m, reach_m = f"{scenario.name}, {result.title}", walking_side(scenario), reach_of(scenario)
    which = f"episode {result.episode} of {result.scheduler!r}"
    for number, then in enumerate(result.delay[:last], 1):
        try:
            record = next(rounds)
        except CollaPipeError as error:
            raise DataError(
                f"{which} cannot be played again in {stored.file} ({reason(error)}): this file was changed "
                f"since then, or the stored decisions are damaged: {AGAIN}"
            ) from None
        now = float(record.costs.delay[0])
        if not abs(now - then) <= AGREES * max(abs(then), 1e-12):
            raise DataError(
                f"round {number} of {which} takes {now:.6g} s when it is played again, but took {then:.6g} "
                "s: another version of the package, or of a process of your own, played it, or its files "
                f"are damaged: {REMEDY}"
            )
        yield RoundView(record, title, 0, side_m, reach_m, result.loss[:number], result.delay[:number])


def traced(stored: StoredScenario, result: EpisodeResult, number: int) -> dict[str, Any]:
    """The Chrome trace of a round, counted from 1, with all local steps of all clusters."""
    *_, view = replayed(stored, result, number)
    clusters = range(stored.scenario.clusters)
    return chrome_trace((f"c{n}", 0.0, played_timeline(view.record, 0, n, None)) for n in clusters)
