"""Means with bootstrap intervals, and the summary of each scheduler's episodes.

Every scheduler plays the same held-out episodes, with the same channels, loads and data. Differences and
ranks are therefore taken episode by episode, where what the schedulers share cancels, and only then averaged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import bootstrap, rankdata, trim_mean

from collapipe_env.evaluation.episode import EpisodeResult
from collapipe_env.evaluation.labels import label_of
from collapipe_env.scenario import Scenario

Results = Mapping[str, Sequence[EpisodeResult]]
"""Each scheduler's episodes, in the same order for all."""

CONFIDENCE = 0.95
RESAMPLES = 9999
SEED = 0
"""Of the resampling, so that intervals are reproducible."""
TARGET_SHARE = 0.9
"""Share of the best scheduler's fall of the loss at which the target is set by default."""


@dataclass(frozen=True)
class Estimate:
    """A mean, or an interquartile mean, over held-out episodes.

    Attributes:
        mean: Its value; NaN if there is none.
        low: Lower end of its 95 % bootstrap interval; NaN for a single episode, which has none.
        high: Upper end.
    """

    mean: float
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class TargetTime:
    """Simulated time to the target loss.

    Attributes:
        reached: Episodes that reached the target.
        episodes: Episodes in all; one that did not reach it is censored at its end.
        seconds: Mean time of the episodes if all reached it, else NaN: a mean over those that did would
            favour schedulers that seldom do.
    """

    reached: int
    episodes: int
    seconds: Estimate


@dataclass(frozen=True)
class Summary:
    """One scheduler's line of the table; every estimate is over episodes.

    Attributes:
        scheduler: Name it was asked for by.
        title: Its own name.
        delay_mean: Mean round delay [s].
        delay_iqm: Interquartile mean, over episodes, of an episode's mean round delay [s].
        delay_iqm_rounds: Mean, over episodes, of the interquartile mean of an episode's round delays [s].
        difference: Mean round delay over the reference scheduler's in the same episode, less 1; NaN
            without a reference.
        rank: Rank by mean round delay among the schedulers in the same episode, 1 being the shortest.
        delay_p95: 95th percentile of the round delay [s].
        time_to_target: Simulated time to the target loss.
        energy_excess: Worst node's time-average energy over its budget, less 1; at most 0 if all budgets
            are met.
        final_backlog: Sum of the energy queues at the end.
        peak_memory_bytes: Most memory that any device needed [byte].
        final_loss: Smoothed evaluation loss at the end [nat].
        metric: The task's headline metric at the end, in [0, 1].
        metrics: All of the task's metrics at the end by name; empty where there are none.
        decision_s: Median wall-clock time of a decision [s].
        server_blocks: Most encoder blocks that the edge server ran for a cluster in any round.
    """

    scheduler: str
    title: str
    delay_mean: Estimate
    delay_iqm: Estimate
    delay_iqm_rounds: Estimate
    difference: Estimate
    rank: Estimate
    delay_p95: Estimate
    time_to_target: TargetTime
    energy_excess: Estimate
    final_backlog: Estimate
    peak_memory_bytes: Estimate
    final_loss: Estimate
    metric: Estimate
    metrics: dict[str, Estimate]
    decision_s: Estimate
    server_blocks: int = 0

    @property
    def label(self) -> str:
        """Its own name, marked if it uses the edge server's compute."""
        return label_of(self.title, self.server_blocks)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def interquartile_mean(values: npt.ArrayLike, axis: int = -1) -> Any:
    """Mean of the middle half: without the lowest and the highest quarter, rounded down in number."""
    return trim_mean(np.asarray(values, dtype=np.float64), 0.25, axis=axis)


def estimate(values: Sequence[float], statistic: Callable[..., Any] = np.mean) -> Estimate:
    """Mean of values with a percentile bootstrap interval, reproducible.

    The percentile method stays defined for a handful of episodes and for values that are all equal,
    where bias-corrected intervals do not exist.

    Args:
        values: One for each episode; NaN anywhere gives NaN.
        statistic: In place of the mean; takes an array and ``axis``.
    """
    return stratified_estimate([values], statistic)


def stratified_estimate(
    samples: Sequence[Sequence[float]], statistic: Callable[..., Any] = np.mean
) -> Estimate:
    """Like :func:`estimate` over all values of several samples, each resampled by itself.

    Args:
        samples: Values of each stratum, for instance of each scenario; NaN anywhere gives NaN.
        statistic: Taken of all values together; takes an array and ``axis``.
    """
    arrays = [np.asarray(values, dtype=np.float64) for values in samples]
    together = np.concatenate(arrays) if arrays else np.empty(0)
    if together.size == 0 or np.isnan(together).any():
        return Estimate(math.nan)
    mean = float(statistic(together, axis=-1))
    if max(array.size for array in arrays) == 1:
        return Estimate(mean)
    # One value says nothing of its spread: it is the same in every resample.
    drawn = [a if a.size > 1 else np.repeat(a, 2) for a in arrays]
    interval = bootstrap(
        drawn,
        lambda *resamples, axis: statistic(
            np.concatenate([r[..., : a.size] for r, a in zip(resamples, arrays, strict=True)], axis=axis),
            axis=axis,
        ),
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        vectorized=True,
        rng=np.random.default_rng(SEED),
    ).confidence_interval
    return Estimate(mean, float(interval.low), float(interval.high))


def relative_differences(results: Sequence[EpisodeResult], reference: Sequence[EpisodeResult]) -> list[float]:
    """Mean round delay over the reference's in the same episode, less 1, for each episode.

    Args:
        results: Episodes of one scheduler.
        reference: The same episodes of the reference.
    """
    delays = {episode.episode: float(np.mean(episode.delay)) for episode in reference}
    return [float(np.mean(r.delay)) / delays[r.episode] - 1.0 for r in results]


def ranks(results: Results) -> dict[str, list[float]]:
    """Rank of each scheduler by mean round delay in each episode, 1 being the shortest; ties share theirs."""
    delays = np.array([[float(np.mean(e.delay)) for e in episodes] for episodes in results.values()])
    return dict(zip(results, rankdata(delays, axis=0).tolist(), strict=True))


def target_of(scenario: Scenario, results: Results) -> tuple[float, str]:
    """The target loss [nat] and a sentence about it: the scenario's own, else :func:`default_target`."""
    target = scenario.dynamics.target_loss
    origin = "set by the scenario"
    if target is None:
        target = default_target(results)
        origin = f"{100 * TARGET_SHARE:.0f} % of the way from the untrained model's to the best final loss"
    if math.isnan(target):
        return target, "No target loss: no scheduler ended below the untrained model's; play more rounds."
    return target, f"Target loss {target:.4f} ({origin})."


def default_target(episodes: Results) -> float:
    """A target loss that every useful scheduler can reach and none starts at.

    Of the fall from the untrained model's loss to the lowest final (smoothed) loss of any scheduler,
    both means over episodes, ``TARGET_SHARE`` has been done there.

    Args:
        episodes: Each scheduler's episodes.

    Returns:
        The target [nat]; NaN, which nothing reaches, if no scheduler ends below the untrained model.
    """
    initial = float(np.mean([e.initial_loss for results in episodes.values() for e in results]))
    final = min(float(np.mean([e.smoothed_loss[-1] for e in results])) for results in episodes.values())
    return initial - TARGET_SHARE * (initial - final) if final < initial else math.nan


def time_to_target(results: Sequence[EpisodeResult], target: float) -> TargetTime:
    """Simulated time until the smoothed loss is first at or below a target, at the end of the round.

    Args:
        results: Episodes of one scheduler.
        target: The target loss [nat].
    """
    times = []
    for result in results:
        below = np.flatnonzero(np.asarray(result.smoothed_loss) <= target)
        times.append(float(np.cumsum(result.delay)[below[0]]) if below.size else math.nan)
    reached = sum(not math.isnan(time) for time in times)
    return TargetTime(reached, len(times), estimate(times))


def summarise_all(results: Results, target: float, reference: str | None) -> list[Summary]:
    """The summaries of schedulers that played the same episodes.

    Args:
        results: Each scheduler's episodes.
        target: Target loss [nat].
        reference: Name of the scheduler that the others are held against, if it is among them.
    """
    places = ranks(results)
    base = results.get(reference, ()) if reference is not None else ()
    return [summarise(episodes, target, base, places[name]) for name, episodes in results.items()]


def summarise(
    results: Sequence[EpisodeResult],
    target: float,
    reference: Sequence[EpisodeResult] = (),
    places: Sequence[float] = (),
) -> Summary:
    """The summary of one scheduler's episodes.

    Args:
        results: At least one.
        target: Target loss [nat].
        reference: The same episodes of the reference scheduler; none for no differences.
        places: The scheduler's rank in each; none for no ranks.
    """
    delays = [float(np.mean(r.delay)) for r in results]
    if results is reference:  # no difference to itself, and no interval of it
        difference = Estimate(0.0)
    else:
        difference = estimate(relative_differences(results, reference) if reference else [])
    return Summary(
        scheduler=results[0].scheduler,
        title=results[0].title,
        delay_mean=estimate(delays),
        delay_iqm=estimate(delays, statistic=interquartile_mean),
        delay_iqm_rounds=estimate([float(interquartile_mean(r.delay)) for r in results]),
        difference=difference,
        rank=estimate(places),
        delay_p95=estimate([float(np.percentile(r.delay, 95)) for r in results]),
        time_to_target=time_to_target(results, target),
        energy_excess=estimate([r.worst_energy_ratio - 1.0 for r in results]),
        final_backlog=estimate([r.backlog[-1] for r in results]),
        peak_memory_bytes=estimate([r.peak_memory_bytes for r in results]),
        final_loss=estimate([r.smoothed_loss[-1] for r in results]),
        metric=estimate([r.metric[-1] for r in results]),
        metrics={name: estimate([r.metrics[name] for r in results]) for name in results[0].metrics},
        decision_s=estimate([float(np.median(r.decision_s)) for r in results]),
        server_blocks=max(r.server_blocks for r in results),
    )
