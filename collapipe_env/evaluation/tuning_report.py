"""Report of a tuning: the table of candidates, the check of the best one, and the lines for a scenario."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from collapipe_env.evaluation.columns import Column, cell
from collapipe_env.evaluation.gate import gate_note
from collapipe_env.evaluation.labels import counted
from collapipe_env.evaluation.resampling import Estimate, estimate
from collapipe_env.evaluation.table import Page
from collapipe_env.evaluation.tuning import Tuned, TuningPlan
from collapipe_env.evaluation.tuning_trial import Trial, scalars_text

SHOWN = 10
"""Number of candidates in the table: the best ones, in addition to the neutral one."""
FEWEST = 5
"""Smallest number of episodes with which a check judges whether a difference is due to chance."""
CAPTION = (
    "Priced delay: mean delay of a round with the energy queues left at the end, (V sum T + L(end)) / (V "
    "rounds), by which candidates are ranked. Differences are to the neutral scalars (candidate 0) in the "
    "same episodes, with 95 % bootstrap intervals over episodes."
)

UNITS = {"heat_price": "s/J", "failure_price": "s"}
"""Units of scalars that have one."""
DELAYS = (
    Column("score", "s", ".3f", name="priced delay"),
    Column("priced", "%", "+.2f", 100.0, name="difference"),
    Column("delay", "s", ".3f"),
    Column("of_delay", "%", "+.2f", 100.0),
    Column("energy_excess", "%", "+.1f", 100.0, name="over budget"),
)


def tuning_page(plan: TuningPlan, tuned: Tuned) -> Page:
    """The table of the best candidates."""
    trials, neutral = tuned.trials, tuned.trials[0]
    order = sorted(range(len(trials)), key=lambda index: trials[index].rank)
    shown = [index for place, index in enumerate(order) if place < SHOWN or index == 0]
    columns = [Column("candidate"), *(Column(name, UNITS.get(name, "")) for name in plan.names), *DELAYS]
    title = (
        f"{plan.scheduler} on {plan.scenario.name}: the best of {counted(len(trials), 'candidate')}, "
        f"{counted(plan.episodes, 'episode')} of {counted(plan.rounds, 'round')} each"
    )
    rows = [
        {
            "candidate": f"{index}" if index else "0, neutral",
            **{name: f"{value:g}" for name, value in trials[index].scalars.items()},
            "score": trials[index].score,
            "priced": against(trials[index], neutral) if index else 0.0,
            "delay": estimate(trials[index].delay).mean,
            "of_delay": against(trials[index], neutral, "delay") if index else 0.0,
            "energy_excess": estimate(trials[index].energy_excess).mean,
        }
        for index in shown
    ]
    counting = sum(not trials[index].gate.failed for index in shown)
    below = [CAPTION, gate_note(plan.rounds, plan.scenario.dynamics.rounds), *check_lines(plan, tuned)]
    return Page(title, columns, rows, below, ("candidate", *plan.names, "score", "priced"), counting)


def against(trial: Trial, other: Trial, of: str = "priced") -> Estimate:
    """Relative difference of the priced or mean delay to another candidate's in the same episodes."""
    return estimate(np.asarray(getattr(trial, of)) / np.asarray(getattr(other, of)) - 1.0)


def check_lines(plan: TuningPlan, tuned: Tuned) -> list[str]:
    """The check of the best candidate in sentences."""
    if tuned.check is None:
        return ["No candidate is better than the neutral scalars, with which dssra-plus equals dssra."]
    best, neutral = tuned.check
    found = f"candidate {tuned.best}: {scalars_text(best.scalars)}"
    if plan.check_episodes < FEWEST:
        verdict = "too few episodes to tell"
    elif best.gate.failed and not neutral.gate.failed:
        verdict = "it is over its energy budget there: the neutral scalars stay"
    else:
        better = against(best, neutral).high < 0.0
        verdict = "better beyond chance" if better else "no difference beyond chance"
        if tuned.chosen != best.scalars:
            verdict += "; the neutral scalars stay"
    return [
        f"Check of {found} on {counted(plan.check_episodes, 'fresh episode')}: priced delay "
        f"{_percent(against(best, neutral))}, mean delay {_percent(against(best, neutral, 'delay'))}; "
        f"{verdict}. In the episodes used for the choice: priced delay "
        f"{_percent(against(tuned.trials[tuned.best], tuned.trials[0]))}."
    ]


def _percent(value: Estimate) -> str:
    number, interval = cell(value, "+.2f", 100.0)
    return f"{number} % ({interval})" if interval else f"{number} %"


def tuning_record(tuned: Tuned) -> dict[str, Any]:
    """Plain data of a tuning."""

    def plain(trial: Trial) -> dict[str, Any]:
        return {**dataclasses.asdict(trial), "gate": trial.gate.verdict, "score": trial.score}

    return {
        "candidates": [plain(trial) for trial in tuned.trials],
        "best": tuned.best,
        "check": None if tuned.check is None else [plain(trial) for trial in tuned.check],
        "chosen": tuned.chosen,
    }
