"""Hyper-parameters of a task, chosen on its dev part.

One field after another is tried at every value of a short list, with
the others as chosen so far. A value replaces the present one only if its score, averaged over seeds, is
better by more than the standard error of the difference between runs of equal seeds. Scores are the headline
metric on the whole dev part, averaged over the last quarter of a run's evaluations, since single ones are
noisy.

The test part is left alone until the choice is made. Then the start and the choice are trained anew and
scored on it, once. An even split allocates: none of the chosen fields changes what a round costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from generated_parts import markdown_table

from collapipe_env.evaluation.episode_result import EpisodeResult
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.scenario import Scenario
from collapipe_env.tasks import get_task
from studies import learning_runs as kept
from studies.learning_runs import Training

EVALUATIONS = 20
Values = Mapping[str, object]


def both_rates(rate: float) -> Values:
    """The same step size on the clusters and on the server."""
    return {"learning.learning_rate": rate, "learning.server_learning_rate": rate}


FIELDS: Mapping[str, Sequence[Values]] = {
    "style": tuple({"learning.proxy.style": style} for style in ("pre-ln", "bert")),
    "hidden tokens": tuple({"learning.token_dropout": share} for share in (0.3, 0.5, 0.7)),
    "rates": tuple(both_rates(rate) for rate in (3e-3, 2e-3, 5e-3)),
    "clip": tuple({"learning.gradient_clip": norm} for norm in (0.0, 1.0)),
    "warm-up": tuple({"learning.warmup_steps": steps} for steps in (10, 30)),
}
"""Fields in the order in which they are chosen; the first value of each is the start."""


@dataclass(frozen=True)
class Trial:
    """A value of a field, tried together with the values chosen before.

    Attributes:
        field: Name of the field.
        value: The value, as text.
        scores: Headline metric of each seed (S,).
        losses: Held-out loss of each seed (S,) [nat].
        taken: Whether it was chosen.
    """

    field: str
    value: str
    scores: FloatArray
    losses: FloatArray
    taken: bool = False


def study(entry: Mapping[str, Any], quick: bool) -> str:
    """The table of what was tried, and the choice on the test part."""
    options, task = Training.of(entry, quick, "choice"), entry["task"]
    base = options.whole(task)
    start = {name: value for values in FIELDS.values() for name, value in values[0].items()}
    chosen = dict(start)
    trials: list[Trial] = []
    for field, candidates in FIELDS.items():
        best: tuple[Values, Trial] | None = None
        tried = []
        for values in candidates:
            trial = Trial(field, written(values), *scored(options, base, {**chosen, **values}, "dev"))
            print(f"{field} {trial.value}: {np.mean(trial.scores):.4f}, loss {np.mean(trial.losses):.4f}")
            if best is None or clearly_better(trial.scores, best[1].scores):
                best = values, trial
            tried.append(trial)
        assert best is not None
        chosen |= best[0]
        trials += [Trial(t.field, t.value, t.scores, t.losses, t is best[1]) for t in tried]
    text = table(trials, get_task(task).metrics[0], options)
    return kept.stamped(f"{text}\n\n{on_test(options, base, start, chosen)}")


def clearly_better(scores: FloatArray, present: FloatArray) -> bool:
    """Whether scores exceed others of the same seeds by more than the standard error of the difference.

    Args:
        scores: Scores of the tried value, seed by seed (S,).
        present: Scores of the present value (S,).
    """
    gain = scores - present
    error = np.std(gain, ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else 0.0
    return bool(np.mean(gain) > error)


def scored(
    options: Training, base: Scenario, values: Values, part: str, last: int = EVALUATIONS // 4
) -> tuple[FloatArray, FloatArray]:
    """Headline metric and loss of each seed (S,), averaged over a run's last evaluations.

    Args:
        options: Number of runs and their length.
        base: Scenario that is changed.
        values: Fields and their values.
        part: Held-out part that is evaluated.
        last: Evaluations that are averaged.
    """
    settings = {
        **kept.evaluations(options.rounds, EVALUATIONS),
        **values,
        "learning.evaluation_split": part,
        "learning.evaluation_samples": 1_000_000,
        "learning.metric_samples": 1_000_000,
    }
    scenario = base.with_overrides(settings)
    name = "_".join([part, *(str(value) for value in values.values())])
    plan = kept.planned(options, f"{base.workload.task}_{name}", scenario, "pipeline")
    runs: Sequence[EpisodeResult] = kept.train({name: plan}, options.processes)[name]
    curves = [kept.curve(one, scenario.learning.evaluate_every) for one in runs]
    metric = np.array([np.mean(one.metric[-last:]) for one in curves])
    return metric, np.array([np.mean(one.loss[-last:]) for one in curves])


def written(values: Values) -> str:
    """The value of a field as text; fields that change together have the same."""
    first, *others = values.values()
    assert all(other == first for other in others)
    return f"{first:g}" if isinstance(first, float) else str(first)


def table(trials: Sequence[Trial], metric: str, options: Training) -> str:
    """All trials in Markdown, the values that were taken in bold."""
    heads = ("field", "value", f"dev {metric}", "dev loss (nat)")
    rows = [
        (
            one.field,
            f"**{one.value}**" if one.taken else one.value,
            kept.interval(one.scores, ".3f"),
            kept.interval(one.losses, ".3f"),
        )
        for one in trials
    ]
    sizes = f"`{options.scenario}`, {options.rounds} rounds, {options.episodes} seeds"
    return (
        f"{markdown_table(heads, rows, left=2)}\n\n{sizes}; means over the last quarter of the evaluations, "
        "with 95 % bootstrap intervals over seeds. Bold values were taken."
    )


def on_test(options: Training, base: Scenario, start: Values, chosen: Values) -> str:
    """The start and the choice on the test part, in words."""
    found = [scored(options, base, values, "test") for values in (start, chosen)]
    metric = get_task(base.workload.task).metrics[0]
    before, after = (
        f"{metric} {kept.interval(scores, '.3f')}, loss {kept.interval(losses, '.3f')} nat"
        for scores, losses in found
    )
    return f"On the test part, looked at once: the start has {before}; the choice {after}."
