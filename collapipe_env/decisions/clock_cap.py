"""Caps on clocks: an upper limit on each device's clock, as a share of its full clock."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from collapipe_env.ground.arrays import Array, FloatArray, at_least, namespace
from collapipe_env.physics.allocation import Allocation
from collapipe_env.simulator.decision import Decision, Part, nothing, plan_fields
from collapipe_env.simulator.feature import Feature
from collapipe_env.simulator.refusal import refuse
from collapipe_env.simulator.state import Parameters, SystemState


def _encode(parameters: Parameters, plan: Allocation) -> FloatArray:
    caps, least = plan.said("clock_cap"), parameters.clock_cap_min
    if least == 1.0:
        return np.ones(np.shape(caps))
    entries: FloatArray = 1.0 - 2.0 * np.log(caps) / math.log(least)
    return entries


def _decode(parameters: Parameters, entries: Mapping[str, Array]) -> dict[str, Array]:
    """Caps (..., N, K), exactly 1 for entries of 1."""
    least, xp = parameters.clock_cap_min, namespace(entries["clock_cap"])
    unit = 0.5 * (xp.clip(entries["clock_cap"], -1.0, 1.0) + 1.0)
    # Rounding must not lead below the least cap.
    return {"clock_cap": at_least(xp.exp(math.log(least) * (1.0 - unit)), least)}


def _allowed(row: Decision, parameters: Parameters, plan: Allocation, slack: float) -> None:
    least = parameters.clock_cap_min
    for name, given in row.values(plan):
        outside = ~((given >= least * (1.0 - slack)) & (given <= 1.0))
        refuse(outside, given, name, f"a share of the full clock in [{least:g}, 1]")


def _settled(parameters: Parameters, state: SystemState, plan: Allocation) -> dict[str, Array]:  # noqa: ARG001
    """No caps on devices without blocks."""
    return {"clock_cap": np.where(np.asarray(plan.blocks) > 0, plan.said("clock_cap"), 1.0)}


def _clock_share(state: SystemState) -> Array:
    """Share of the full clock (..., N, K), in (0, 1]; a cap above it changes nothing."""
    return state.speed / state.full_speed


CLOCK_CAP = Decision(
    name="clock_cap",
    fields=plan_fields("clock_cap"),
    parts=(
        Part(
            "clock_cap",
            "N K",
            lambda p: (
                "cap on the device's clock as a share of its full clock, on a geometric scale: "
                f"-1 for {p.clock_cap_min:g}, 1 for no cap"
            ),
            lambda _: 0,
            _encode,
        ),
    ),
    decode=_decode,
    otherwise=", so all clocks run free",
    allowed=_allowed,
    jumps=nothing,
    slides=lambda p: {"clock_cap": (p.clock_cap_min, 1.0)},
    settled=_settled,
    features=lambda *_: (
        Feature(
            "device_clock_share",
            "N K",
            "1",
            0.0,
            1.0,
            "share of its full clock that load and governor leave the device",
            _clock_share,
            array="opened",
        ),
    ),
)
