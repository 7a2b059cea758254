"""Hyper-parameters of a task, chosen on its dev part.

One field after another of the entry is tried at every value of a short list, with the others as chosen so
far. A value replaces the present one only if its score, averaged over seeds, is better by more than the
standard error of the difference between runs of equal seeds. Scores are the headline metric on the whole dev
part, averaged over the last quarter of a run's evaluations, since single ones are noisy.

The test part is left alone until the choice is made. Then the start and the choice are trained anew and
scored on it, once. An even split allocates: none of the chosen fields changes what a round costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from generated_parts import markdown_table

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.scenario import Scenario
from collapipe_env.tasks import get_task
from studies import learning_runs as kept
from studies.learning_runs import Training

EVALUATIONS = 20


def candidates(names: Sequence[str], values: Sequence[Any]) -> list[dict[str, Any]]:
    """The changes of a field: its names, which have equal values, at every value."""
    return [dict.fromkeys(names, value) for value in values]


def study(entry: Mapping[str, Any], quick: bool) -> str:
    """The table of what was tried, and the choice on the test part."""
    options, task = Training.of(entry, quick, "choice"), entry["task"]
    base, metric, rows = options.whole(task), get_task(task).metrics[0], []
    fields = {field: candidates(of["names"], of["values"]) for field, of in entry["fields"].items()}
    start = {name: value for first, *_ in fields.values() for name, value in first.items()}
    chosen = dict(start)
    for field, listed in fields.items():
        tried = [scored(options, base, {**chosen, **changes}, "dev") for changes in listed]
        taken = 0
        for place, (scores, _) in enumerate(tried):
            if place and clearly_better(scores, tried[taken][0]):
                taken = place
        chosen |= listed[taken]
        for place, (scores, losses) in enumerate(tried):
            value = next(iter(listed[place].values()))
            text = f"{value:g}" if isinstance(value, float) else str(value)
            shown = f"**{text}**" if place == taken else text
            rows.append((field, shown, kept.interval(scores, ".3f"), kept.interval(losses, ".3f")))
    table = markdown_table(("field", "value", f"dev {metric}", "dev loss (nat)"), rows, left=2)
    sizes = f"`{options.scenario}`, {options.rounds} rounds, {options.episodes} seeds"
    before, after = (
        f"{metric} {kept.interval(scores, '.3f')}, loss {kept.interval(losses, '.3f')} nat"
        for scores, losses in (scored(options, base, values, "test") for values in (start, chosen))
    )
    return kept.stamped(
        f"{table}\n\n{sizes}; means over the last quarter of the evaluations, with 95 % bootstrap intervals "
        f"over seeds. Bold values were taken.\n\nOn the test part, looked at once: the start has {before}; "
        f"the choice {after}."
    )


def clearly_better(scores: FloatArray, present: FloatArray) -> bool:
    """Whether scores exceed others of the same seeds by more than the standard error of the difference."""
    gain = scores - present
    error = np.std(gain, ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else 0.0
    return bool(np.mean(gain) > error)


def scored(
    options: Training, base: Scenario, values: Mapping[str, Any], part: str
) -> tuple[FloatArray, FloatArray]:
    """Headline metric and loss on a held-out part of each seed (S,), means over a run's last evaluations."""
    settings = {
        **kept.evaluations(options.rounds, EVALUATIONS),
        **values,
        **kept.WHOLE_TEST,
        "learning.evaluation_split": part,
    }
    scenario, last = base.with_overrides(settings), slice(-(EVALUATIONS // 4), None)
    name = "_".join([part, *(str(value) for value in values.values())])
    plan = kept.planned(options, f"{base.workload.task}_{name}", scenario, "pipeline")
    runs = kept.train({name: plan}, options.processes)[name]
    curves = [kept.curve(one, scenario.learning.evaluate_every) for one in runs]
    metric, loss = ([np.mean(getattr(one, what)[last]) for one in curves] for what in ("metric", "loss"))
    return np.array(metric), np.array(loss)
