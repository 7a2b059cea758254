"""Choose the hyper-parameters of a task on its dev part, for ``docs/learning.md``.

Run ``python tools/choose_learning.py``. One field after another is tried at every value of a short list, with
the others as chosen so far. A value replaces the present one only if its score, averaged over seeds, is
better by more than the standard error of the difference between runs of equal seeds. Scores are the headline
metric on the whole dev part, averaged over the last quarter of a run's evaluations, since single ones are
noisy.

The test part is left alone until the choice is made. Then the start and the choice are trained anew and
scored on it, once. An even split allocates: none of the chosen fields changes what a round costs. Finished
runs are kept: run the command again after Ctrl-C.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

# The modules of this folder import each other as they would in the command's own process.
sys.path.insert(0, str(Path(__file__).parent))
import learning_runs as kept
from generated_parts import markdown_table
from learning_runs import RunOptions

from collapipe_env.evaluation.episode_result import EpisodeResult
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.files import write_text
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.tasks import get_task

SCRIPT = Path(__file__).name
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


class Options(RunOptions):
    """Choose the hyper-parameters of a task on its dev part, then score the choice on its test part."""

    processes: int = 1
    """Worker processes, with one thread each."""
    work: Path = Path("runs/choice")
    """Folder of the finished runs and the table."""
    scenario: str = "small"
    """A shipped scenario or a YAML file."""
    task: str = "classification"
    """Task to train."""
    rounds: Annotated[int, kept.Field(ge=1)] = 100
    """Rounds of a run."""
    no_test: bool = False
    """Leave the test part alone at the end as well."""


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Train what is missing, then write table and page; returns the exit status."""
    return kept.main(Options, run, __doc__, arguments)


def run(options: Options, given: Sequence[str]) -> None:
    """Do what the options ask for."""
    base = load_scenario(options.scenario).with_task(options.task)
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
    text = table(trials, get_task(options.task).metrics[0], options)
    if not options.no_test:
        text += "\n\n" + on_test(options, base, start, chosen)
    write_text(options.work / "table.md", text + "\n")
    print(text)
    if not options.no_page:
        kept.write_page("choice", text, [f"tools/{SCRIPT}", *given])


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
    options: Options, base: Scenario, values: Values, part: str, last: int = EVALUATIONS // 4
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
    plan = kept.planned(options, f"{options.task}_{name}", scenario, "pipeline")
    runs: Sequence[EpisodeResult] = kept.train({name: plan}, options.processes)[name]
    curves = [kept.curve(one, scenario.learning.evaluate_every) for one in runs]
    metric = np.array([np.mean(one.metric[-last:]) for one in curves])
    return metric, np.array([np.mean(one.loss[-last:]) for one in curves])


def written(values: Values) -> str:
    """The value of a field as text; fields that change together have the same."""
    first, *others = values.values()
    assert all(other == first for other in others)
    return f"{first:g}" if isinstance(first, float) else str(first)


def table(trials: Sequence[Trial], metric: str, options: Options) -> str:
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


def on_test(options: Options, base: Scenario, start: Values, chosen: Values) -> str:
    """The start and the choice on the test part, in words."""
    found = [scored(options, base, values, "test") for values in (start, chosen)]
    metric = get_task(options.task).metrics[0]
    before, after = (
        f"{metric} {kept.interval(scores, '.3f')}, loss {kept.interval(losses, '.3f')} nat"
        for scores, losses in found
    )
    return f"On the test part, looked at once: the start has {before}; the choice {after}."


if __name__ == "__main__":
    sys.exit(main())
