"""A row of figures from each scheduler's episodes.

Every scheduler plays the same held-out episodes, with the same channels, loads and data. Differences and
ranks are therefore taken episode by episode, where the shared effects cancel, and only then averaged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from collapipe_env.evaluation.columns import METRICS
from collapipe_env.evaluation.episode_result import EpisodeResult
from collapipe_env.evaluation.gate import Gate, is_whole, judge
from collapipe_env.evaluation.labels import label_of
from collapipe_env.evaluation.resampling import (
    Estimate,
    Floats,
    estimate,
    probability_of_improvement,
)
from collapipe_env.scenario import Scenario

Results = Mapping[str, Sequence[EpisodeResult]]
"""Each scheduler's episodes, in the same order for all; several training runs follow one another."""

TARGET_SHARE = 0.9
"""Share of the best scheduler's fall of the loss at which the target is set by default."""


class Summary(dict[str, Any]):
    """A row of a table: values by key, which are attributes too, as in ``row.priced_delay.mean``.

    The row of a scheduler in a scenario holds its requested name ``scheduler``, its own name ``title``, the
    number of training ``runs``, and over runs and episodes the estimates of

    * the figures of :data:`~collapipe_env.evaluation.columns.METRICS` [s, J, byte, nat, budgets], and the
      task's ``metrics`` at the end by name;
    * ``difference``: :attr:`measure` over the reference's in the same episode, less 1; ``improvement``:
      probability that it is the smaller one, ties counting half; NaN without a reference, the latter also for
      the reference itself;
    * ``rank`` by :attr:`measure` in the same episode, 1 being the shortest; NaN if it is over its budget;

    and ``time_to_target`` of :func:`time_to_target`, the :class:`~collapipe_env.evaluation.gate.Gate` as
    ``gate``, and the largest number of encoder blocks on the edge server in any round as ``server_blocks``.
    """

    def __getattr__(self, key: str) -> Any:
        try:
            return self[key]
        except KeyError:
            raise AttributeError(f"no {key!r}: there are {', '.join(self)}") from None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]

    @property
    def by_progress(self) -> bool:
        """Whether :attr:`measure` is the priced time per unit of progress."""
        return not math.isnan(self.seconds_per_progress.mean)

    @property
    def measure(self) -> Estimate:
        """The number by which schedulers are sorted and compared [s], the lower the better."""
        found: Estimate = self.seconds_per_progress if self.by_progress else self.priced_delay
        return found

    @property
    def label(self) -> str:
        """Its own name, with the number of training runs and a mark if it uses the edge server's compute."""
        return label_of(self.title, self.server_blocks, self.runs)


def measure_name(rows: Iterable[Summary]) -> str:
    """Name of :attr:`Summary.measure` in sentences and on axes; its unit is the second."""
    return "priced time per unit of progress" if any(row.by_progress for row in rows) else "priced delay"


def by_run(results: Sequence[EpisodeResult], value: Callable[[EpisodeResult], float]) -> Floats:
    """One value of each episode, (R, E): a row for each training run, episodes by number.

    Args:
        results: Episodes of one scheduler, the same for all runs.
        value: Function of an episode.
    """
    runs = [[r for r in results if r.run == run] for run in dict.fromkeys(r.run for r in results)]
    return np.array([[value(r) for r in sorted(run, key=lambda r: r.episode)] for run in runs], dtype=float)


measure: Callable[[EpisodeResult], float] = attrgetter("measure")
"""An episode's :attr:`~collapipe_env.evaluation.episode_result.EpisodeResult.measure` [s]."""


def relative_differences(results: Sequence[EpisodeResult], reference: Sequence[EpisodeResult]) -> Floats:
    """:func:`measure` over the reference's in the same episode, less 1, (R, E).

    Args:
        results: Episodes of one scheduler.
        reference: The same episodes of the reference; the mean over its runs counts.
    """
    difference: Floats = by_run(results, measure) / by_run(reference, measure).mean(axis=0) - 1.0
    return difference


def ranks(results: Results) -> dict[str, list[float]]:
    """Rank of each scheduler by :func:`measure` in each episode, 1 being the shortest; ties share a rank.

    The mean over several training runs counts.
    """
    if not results:
        return {}
    measures = np.array([by_run(episodes, measure).mean(axis=0) for episodes in results.values()])
    others = measures[:, None]
    # Those of the same measure share the mean of their places.
    placed = (others < measures).sum(axis=0) + ((others == measures).sum(axis=0) + 1) / 2
    return dict(zip(results, placed.tolist(), strict=True))


def target_of(scenario: Scenario, results: Results) -> tuple[float, str]:
    """The target loss [nat] and a sentence about it: the scenario's own, or :func:`default_target`."""
    target = scenario.dynamics.target_loss
    if target is not None:
        return target, f"Target loss {target:.4f} (set by the scenario)."
    target = default_target(results)
    if math.isnan(target):
        nothing = "No target loss: no scheduler ended below the untrained model's loss; play more rounds."
        return target, nothing
    share = f"{100 * TARGET_SHARE:.0f} % of the way from the untrained model's to the best final loss"
    return target, f"Target loss {target:.4f} ({share})."


def default_target(results: Results) -> float:
    """A target loss that every useful scheduler can reach and none starts at [nat].

    It lies at ``TARGET_SHARE`` of the fall from the untrained model's loss to the lowest final (smoothed)
    loss of any scheduler, both means over episodes. Without a fall it is NaN, which nothing reaches.
    """
    initial = float(np.mean([e.initial_loss for episodes in results.values() for e in episodes]))
    final = min(float(np.mean([e.smoothed_loss[-1] for e in episodes])) for episodes in results.values())
    return initial - TARGET_SHARE * (initial - final) if final < initial else math.nan


def time_to_target(results: Sequence[EpisodeResult], target: float) -> dict[str, Any]:
    """Simulated time until the smoothed loss is first at or below a target, at the end of the round.

    Args:
        results: Episodes of one scheduler.
        target: The target loss [nat].

    Returns:
        ``reached``, the number of episodes that reached it, ``episodes``, their number in all, and
        ``seconds``, the mean time of the episodes if all reached it, otherwise NaN: a mean over those that
        did would favour schedulers that rarely do.
    """

    def time_of(result: EpisodeResult) -> float:
        below = np.flatnonzero(np.asarray(result.smoothed_loss) <= target)
        return float(np.cumsum(result.delay)[below[0]]) if below.size else math.nan

    times = by_run(results, time_of)
    return {
        "reached": int(np.sum(~np.isnan(times))),
        "episodes": times.size,
        "seconds": estimate(times),
    }


def summarise_all(results: Results, target: float, reference: str | None, own_rounds: int) -> list[Summary]:
    """The rows of schedulers that played the same episodes.

    Args:
        results: Each scheduler's episodes; for several training runs, the same ones of each.
        target: Target loss [nat].
        reference: Name of the scheduler with which the others are compared, if it is among them.
        own_rounds: Rounds of the scenario, from which on schedulers may be marked as over budget.
    """
    gates = {
        name: judge(
            is_whole(len(episodes[0].delay), own_rounds),
            by_run(episodes, lambda e: e.worst_energy_ratio - 1.0),
            by_run(episodes, lambda e: e.backlog_slope),
        )
        for name, episodes in results.items()
    }
    places = ranks({name: episodes for name, episodes in results.items() if not gates[name].failed})
    base = results.get(reference or "", ())
    return [
        _summary(episodes, target, gates[name], base, places.get(name, ()))
        for name, episodes in results.items()
    ]


def _summary(
    results: Sequence[EpisodeResult],
    target: float,
    gate: Gate,
    reference: Sequence[EpisodeResult],
    places: Sequence[float],
) -> Summary:
    difference = improvement = Estimate(math.nan)
    if results is reference:  # no difference from itself, and no interval
        difference = Estimate(0.0)
    elif reference:
        difference = estimate(relative_differences(results, reference))
        improvement = probability_of_improvement(by_run(results, measure), by_run(reference, measure))
    return Summary(
        scheduler=results[0].scheduler,
        title=results[0].title,
        **{one.key: estimate(by_run(results, one.of)) for one in METRICS if one.key and one.of},
        metrics={name: estimate(by_run(results, partial(_metric, name=name))) for name in results[0].metrics},
        difference=difference,
        improvement=improvement,
        rank=estimate(places),
        time_to_target=time_to_target(results, target),
        gate=gate,
        runs=len({result.run for result in results}),
        server_blocks=max(result.server_blocks for result in results),
    )


def _metric(result: EpisodeResult, name: str) -> float:
    return result.metrics[name]
