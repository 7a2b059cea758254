"""Participation: which clusters take part in a round."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.physics.allocation import Allocation
from collapipe_env.simulator.decision import Decision, Part, nothing, plan_fields, stays_neutral
from collapipe_env.simulator.feature import Feature
from collapipe_env.simulator.refusal import refuse
from collapipe_env.simulator.state import Parameters, SystemState, able_clusters


def _encode(parameters: Parameters, plan: Allocation) -> FloatArray:  # noqa: ARG001
    return np.asarray(2.0 * plan.plays - 1.0, dtype=np.float64)


def _allowed(row: Decision, parameters: Parameters, plan: Allocation, slack: float) -> None:  # noqa: ARG001
    for name, given in row.values(plan):
        refuse(~np.isin(given, (0, 1)), given, name, "0 or 1")


def _closed(row: Decision, parameters: Parameters, plan: Allocation, slack: float) -> None:
    # Where devices come and go, clusters that cannot hold the encoder sit out, see below.
    check = _allowed if parameters.may_sit_out else stays_neutral
    check(row, parameters, plan, slack)


def _playable(parameters: Parameters, state: SystemState, plan: Allocation) -> None:
    """Refuse rounds in which nobody takes part, or others sit out than have to where that is not open."""
    given, able = np.asarray(plan.participates), able_clusters(parameters, state)
    if "participation" not in parameters.opened and parameters.may_sit_out:
        refuse(
            given != able,
            given,
            "participates",
            "1, or 0 for a cluster that cannot hold the encoder: this scenario's decisions do not list "
            "participation, so all others take part",
        )
    refuse(
        ~given.any(axis=-1) & able.any(axis=-1),
        given.sum(axis=-1),
        "participates (sum over clusters)",
        "at least 1, as some cluster can hold the encoder",
    )


PARTICIPATION = Decision(
    name="participation",
    fields=plan_fields("participates"),
    parts=(
        Part(
            "participation",
            "N",
            lambda _: (
                "participation: at 0 and above the cluster takes part in the round if its devices can hold "
                "its blocks, below 0 it sits the round out; if all are below 0, the highest takes part"
            ),
            lambda _: 2,
            _encode,
        ),
    ),
    otherwise=", so all clusters take part",
    allowed=_allowed,
    jumps=nothing,
    closed=_closed,
    playable=_playable,
    features=lambda scenario, _: (
        Feature(
            "cluster_absence",
            "N",
            "rounds",
            0.0,
            scenario.budgets.backlog_cap,
            "participation queue y",
            "absence",
            array="absence",
            log1p=True,
        ),
    ),
)
