"""Fit of a machine's constants to measurements of processes on it ([X]).

The law is that of the simulator. A forward pass of ``d`` blocks over ``b`` samples takes
``d (o + b F / v)`` and a backward pass twice that; a message of ``n`` bits arrives after ``l + n / r``. Both
are linear in the unknowns (``o`` and ``1 / v``, ``l`` and ``1 / r``), which are fitted by non-negative least
squares of the relative errors to the medians over all passes, or messages, of the same size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from collapipe_env.execution.calibration_plans import CalibrationError, CalibrationPlan
from collapipe_env.execution.round_reports import Recorded
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.physics.workload import WorkloadCosts

FASTEST = 1e15
"""Rate that stands for any rate too fast to measure [bit/s or FLOP/s]."""
LEAST_SHARE = 0.01
"""Least share of the largest pass that its samples must explain."""


@dataclass(frozen=True)
class Measured:
    """A round of a calibration.

    Attributes:
        plan: The plan that was played.
        step_s: ``T_step`` by the machine's clock [s].
        load: Load average of the machine before the round.
        events: All events of its local step.
    """

    plan: CalibrationPlan
    step_s: float
    load: float
    events: tuple[Recorded, ...]


class Line(NamedTuple):
    """One size of passes or messages, compared with the fitted law.

    Attributes:
        what: ``pass``, ``message``, ``edge message`` or ``head``.
        blocks: Blocks of a pass; 0 for messages and the head.
        samples: Samples.
        backward: Whether it goes backward.
        number: Number of measurements.
        measured_s: Median of the measurements [s].
        law_s: Time by the law [s].
    """

    what: str
    blocks: int
    samples: int
    backward: bool
    number: int
    measured_s: float
    law_s: float


@dataclass(frozen=True)
class Constants:
    """Constants of a machine.

    Attributes:
        flops: Speed of a device, ``v`` [FLOP/s].
        block_s: Launch time of a block's forward pass; twice that for the backward pass [s].
        rate: Rate of a message between devices [bit/s].
        message_s: Part of a message's fixed time in which its sender is busy [s].
        latency_s: Rest of a message's fixed time [s].
        edge_rate: Rate of a message between control unit and server [bit/s].
        edge_latency_s: Fixed time of such a message, including the relay by the control unit [s].
        server_flops: Speed of the server [FLOP/s].
        server_s: Launch time of the server's forward pass; twice that for the backward pass [s].
    """

    flops: float
    block_s: float
    rate: float
    message_s: float
    latency_s: float
    edge_rate: float
    edge_latency_s: float
    server_flops: float
    server_s: float

    def to_dict(self) -> dict[str, float]:
        """Plain data."""
        return asdict(self)


class _Row(NamedTuple):
    """A pass or a message: what it is, and its length [s]."""

    what: str
    blocks: int
    samples: int
    direction: int
    seconds: float


def fit(rounds: Sequence[Measured], costs: WorkloadCosts) -> tuple[Constants, list[Line]]:
    """Fit constants to rounds.

    Args:
        rounds: Rounds, at least of two sizes of micro-batches.
        costs: Prices of the scenario in which they were measured: FLOPs and bits of a sample.

    Returns:
        The constants, and each size compared with the law.

    Raises:
        CalibrationError: If the rounds do not determine the constants.
    """
    rows: list[_Row] = []
    busy: list[float] = []
    for one in rounds:
        found, gaps = _rows(one)
        rows += found
        busy += gaps
    passes, heads = _grouped(rows, "pass"), _grouped(rows, "head")
    between, edge = _grouped(rows, "message"), _grouped(rows, "edge message")
    if len({samples for _, samples, _ in passes}) < 2:
        sizes = ", ".join(sorted({str(samples) for _, samples, _ in passes})) or "no"
        raise CalibrationError(
            f"there are passes over {sizes} samples only: the law needs two sizes, so measure plans with "
            "several numbers of micro-batches"
        )

    def work(key: tuple[int, int, int]) -> tuple[float, float]:
        blocks, samples, direction = key
        passes = blocks * (1 + direction)
        return passes, passes * samples * costs.block_forward_flops

    def bits(key: tuple[int, int, int]) -> tuple[float, float]:
        _, samples, direction = key
        each = costs.gradient_bits if direction else costs.activation_bits
        return 1.0, samples * each

    def decoding(key: tuple[int, int, int]) -> tuple[float, float]:
        _, samples, direction = key
        return 1.0 + direction, (1 + direction) * samples * costs.decoder_forward_flops

    block_s, per_flop = _law(passes, work)
    largest = max(passes, key=work)
    if per_flop * work(largest)[1] < LEAST_SHARE * float(np.median(passes[largest])):
        raise CalibrationError(
            "passes over more samples did not take longer: the machine was busy with other things, or the "
            "blocks are too small to be measured; measure more --rounds, or a larger workload"
        )
    fixed, per_bit = _law(between, bits)
    edge_fixed, per_edge_bit = _law(edge, bits)
    server_s, per_server_flop = _law(heads, decoding)
    message_s = min(max(float(np.median(busy)), 0.0), fixed) if busy else 0.0
    constants = Constants(
        flops=1.0 / per_flop,
        block_s=block_s,
        rate=_rate(per_bit),
        message_s=message_s,
        latency_s=fixed - message_s,
        edge_rate=_rate(per_edge_bit),
        edge_latency_s=edge_fixed,
        server_flops=_rate(per_server_flop),
        server_s=server_s,
    )
    lines: list[Line] = []
    for what, groups, terms, (first, second) in (
        ("pass", passes, work, (block_s, per_flop)),
        ("message", between, bits, (fixed, per_bit)),
        ("edge message", edge, bits, (edge_fixed, per_edge_bit)),
        ("head", heads, decoding, (server_s, per_server_flop)),
    ):
        for key, seconds in sorted(groups.items()):
            a, b = terms(key)
            middle = float(np.median(seconds))
            lines.append(
                Line(what, key[0], key[1], bool(key[2]), len(seconds), middle, a * first + b * second)
            )
    return constants, lines


def _law(groups: Mapping[tuple[int, int, int], Sequence[float]], terms: Any) -> tuple[float, float]:
    """Return the two factors, neither below 0, of least relative error against the medians."""
    from scipy.optimize import nnls

    if not groups:
        return 0.0, 0.0
    medians = np.array([float(np.median(seconds)) for seconds in groups.values()])
    system = np.array([terms(key) for key in groups], dtype=np.float64) / medians[:, None]
    size = np.maximum(np.abs(system).max(axis=0), 1e-300)
    factors: FloatArray = nnls(system / size, np.ones(len(medians)))[0] / size
    return float(factors[0]), float(factors[1])


def _rate(seconds: float) -> float:
    return min(1.0 / seconds, FASTEST) if seconds > 0.0 else FASTEST


def _grouped(rows: Sequence[_Row], what: str) -> dict[tuple[int, int, int], list[float]]:
    found: dict[tuple[int, int, int], list[float]] = {}
    for row in rows:
        if row.what == what and row.seconds > 0.0:
            found.setdefault((row.blocks, row.samples, row.direction), []).append(row.seconds)
    return found


def _rows(one: Measured) -> tuple[list[_Row], list[float]]:
    """Return passes and messages of a round, and the times that stages took to send their results [s]."""
    S = len(one.plan.blocks)
    messages = {
        (e.element, e.micro_batch, e.direction): e for e in one.events if e.element % 2 == 0 and e.there_s
    }
    edge = {(e.micro_batch, e.direction): e for e in one.events if e.element == 2 * S + 1 and e.there_s}
    rows = [
        _Row("message", 0, e.samples, e.direction, e.there_s - e.began_s)
        for e in messages.values()
        if e.element <= 2 * S
    ]
    busy: list[float] = []
    for s, blocks in enumerate(one.plan.blocks):
        mine = sorted((e for e in one.events if e.element == 2 * s + 1), key=lambda e: e.began_s)
        for event, following in zip(mine, [*mine[1:], None], strict=True):
            seconds = event.measured_end_s - event.began_s
            if following is not None:
                backward = following.direction
                came = messages.get((2 * (s + backward), following.micro_batch, backward))
                if came is not None and came.there_s <= event.measured_end_s:
                    # The stage sends its result before it goes on.
                    busy.append(following.began_s - event.measured_end_s)
                    seconds = following.began_s - event.began_s
            rows.append(_Row("pass", blocks, event.samples, event.direction, seconds))
    for (m, direction), e in edge.items():
        # Includes the time that the control unit takes to pass a micro-batch on.
        other = messages.get((2 * S, m, direction))
        if other is not None:
            seconds = e.there_s - other.there_s if direction == 0 else other.began_s - e.began_s
            rows.append(_Row("edge message", 0, e.samples, direction, seconds))
    rows += [
        _Row("head", 0, e.samples, e.direction, e.measured_end_s - e.began_s)
        for e in one.events
        if e.element == 2 * S + 2
    ]
    return rows, busy
