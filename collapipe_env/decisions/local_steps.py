"""Local steps: the number of steps that each cluster takes in a round."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from collapipe_env.ground.arrays import Array, FloatArray
from collapipe_env.physics.allocation import SEQUENTIAL, Allocation
from collapipe_env.simulator.decision import Decision, Part, nearest_of, nothing, plan_fields, spread
from collapipe_env.simulator.refusal import refuse
from collapipe_env.simulator.state import Parameters, SystemState


def _taken(parameters: Parameters, plan: Allocation) -> Array:
    """Local steps of clusters (..., N), the workload's where a plan names none."""
    given = plan.said("local_steps")
    return np.where(given < 0, parameters.costs.local_steps, given)


def _encode(parameters: Parameters, plan: Allocation) -> FloatArray:
    choices = parameters.local_steps_choices
    return spread(np.searchsorted(choices, _taken(parameters, plan)), len(choices))


def _decode(parameters: Parameters, entries: Mapping[str, Array]) -> dict[str, Array]:
    return {"local_steps": nearest_of(parameters.local_steps_choices, entries["local_steps"])}


def _allowed(row: Decision, parameters: Parameters, plan: Allocation, slack: float) -> None:  # noqa: ARG001
    choices, own = parameters.local_steps_choices, parameters.costs.local_steps
    for name, given in row.values(plan):
        expected = f"one of {list(choices)}, or -1 for the workload's {own}"
        refuse(~np.isin(given, (-1, *choices)), given, name, expected)


def _playable(parameters: Parameters, state: SystemState, plan: Allocation) -> None:  # noqa: ARG001
    own = parameters.costs.local_steps
    refuse(
        (_taken(parameters, plan) != own) & (np.asarray(plan.server.server_mode) == SEQUENTIAL)[..., None],
        plan.local_steps,
        "local_steps",
        f"-1 or the workload's {own} under a sequential server",
    )


LOCAL_STEPS = Decision(
    name="local_steps",
    fields=plan_fields("local_steps"),
    parts=(
        Part(
            "local_steps",
            "N",
            lambda p: (
                f"local steps of the cluster: the nearest of {', '.join(map(str, p.local_steps_choices))}, "
                "spaced evenly over [-1, 1]"
            ),
            lambda p: len(p.local_steps_choices),
            _encode,
        ),
    ),
    decode=_decode,
    otherwise=", so workload.local_steps settles them",
    allowed=_allowed,
    jumps=nothing,
    playable=_playable,
)
