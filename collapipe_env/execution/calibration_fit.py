"""Fit of a machine's constants to measurements of processes on it ([X]).

The law is that of the simulator. A forward pass of ``d`` blocks over ``b`` samples takes
``d (o + b F / v)`` and a backward pass twice that; a message of ``n`` bits arrives after ``l + n / r``. Both
are linear in the unknowns (``o`` and ``1 / v``, ``l`` and ``1 / r``), which are fitted by non-negative least
squares of the relative errors to the medians over all passes, or messages, of the same size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from collapipe_env.execution.calibration_rounds import CalibrationError, Measured
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.physics.workload import WorkloadCosts

FASTEST = 1e15
"""Rate that stands for any rate too fast to measure [bit/s or FLOP/s]."""
LEAST_SHARE = 0.01
"""Least share of the largest pass that its samples must explain."""

Size = tuple[int, int, int]
"""Blocks of a pass (0 for messages and the head), samples, and direction: 0 forward, 1 backward."""
Terms = Callable[[int, int, int], tuple[float, float]]
"""Factors of the two unknowns of a law, for a size."""
PASS, MESSAGE, EDGE, HEAD, BUSY = "pass", "message", "edge message", "head", "busy"
"""Kinds of measurements; the last is the time that a stage takes to send a result."""


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


def fit(rounds: Sequence[Measured], costs: WorkloadCosts) -> Constants:
    """Fit constants to rounds.

    Args:
        rounds: Rounds, at least of two sizes of micro-batches.
        costs: Prices of the scenario in which they were measured: FLOPs and bits of a sample.

    Raises:
        CalibrationError: If the rounds do not determine the constants.
    """
    bits = costs.activation_bits, costs.gradient_bits
    flops, head_flops = costs.block_forward_flops, costs.decoder_forward_flops
    message: Terms = lambda _, samples, backward: (1.0, samples * bits[backward])  # noqa: E731
    terms: dict[str, Terms] = {
        PASS: lambda d, samples, backward: (d * (1 + backward), d * (1 + backward) * samples * flops),
        MESSAGE: message,
        EDGE: message,
        HEAD: lambda _, samples, backward: (1 + backward, (1 + backward) * samples * head_flops),
    }
    found: dict[str, dict[Size, list[float]]] = {what: {} for what in (*terms, BUSY)}
    for one in rounds:
        for what, size, seconds in _measurements(one):
            if seconds > 0.0 or what == BUSY:
                found[what].setdefault(size, []).append(seconds)
    passes = {samples for _, samples, _ in found[PASS]}
    if len(passes) < 2:
        raise CalibrationError(
            f"there are passes over {', '.join(map(str, passes)) or 'no'} samples only: the law needs two "
            "sizes, so measure plans with several numbers of micro-batches"
        )
    laws = {what: _law(found[what], terms[what]) for what in terms}
    (block_s, per_flop), (fixed_s, per_bit) = laws[PASS], laws[MESSAGE]
    (edge_s, per_edge_bit), (server_s, per_server_flop) = laws[EDGE], laws[HEAD]
    largest = max(found[PASS], key=lambda size: terms[PASS](*size))
    if per_flop * terms[PASS](*largest)[1] < LEAST_SHARE * float(np.median(found[PASS][largest])):
        raise CalibrationError(
            "passes over more samples did not take longer: the machine was busy with other things, or the "
            "blocks are too small to be measured; measure more --rounds, or a larger workload"
        )
    busy = [seconds for each in found[BUSY].values() for seconds in each]
    message_s = float(np.clip(np.median(busy or [0.0]), 0.0, fixed_s))
    return Constants(
        flops=1.0 / per_flop,
        block_s=block_s,
        rate=_rate(per_bit),
        message_s=message_s,
        latency_s=fixed_s - message_s,
        edge_rate=_rate(per_edge_bit),
        edge_latency_s=edge_s,
        server_flops=_rate(per_server_flop),
        server_s=server_s,
    )


def _law(groups: Mapping[Size, Sequence[float]], terms: Terms) -> tuple[float, float]:
    """Return the two factors, neither below 0, of least relative error against the medians."""
    from scipy.optimize import nnls

    if not groups:
        return 0.0, 0.0
    medians = np.array([float(np.median(seconds)) for seconds in groups.values()])
    system = np.array([terms(*size) for size in groups], dtype=np.float64) / medians[:, None]
    scale = np.maximum(np.abs(system).max(axis=0), 1e-300)
    factors: FloatArray = nnls(system / scale, np.ones(len(medians)))[0] / scale
    return float(factors[0]), float(factors[1])


def _rate(seconds: float) -> float:
    return min(1.0 / seconds, FASTEST) if seconds > 0.0 else FASTEST


def _measurements(one: Measured) -> Iterator[tuple[str, Size, float]]:
    """Yield passes and messages of a round: what each is, its size and its length [s]."""
    S = len(one.plan.blocks)
    hops = {
        (e.element, e.micro_batch, e.direction): e for e in one.events if e.element % 2 == 0 and e.there_s
    }
    for e in one.events:
        if e.element == 2 * S + 2:
            yield HEAD, (0, e.samples, e.direction), e.measured_end_s - e.began_s
        elif e.element % 2 == 0 and e.there_s:
            yield MESSAGE, (0, e.samples, e.direction), e.there_s - e.began_s
        elif e.element == 2 * S + 1 and (other := hops.get((2 * S, e.micro_batch, e.direction))):
            # Includes the time that the control unit takes to pass a micro-batch on.
            seconds = other.began_s - e.began_s if e.direction else e.there_s - other.there_s
            yield EDGE, (0, e.samples, e.direction), seconds
    for s, blocks in enumerate(one.plan.blocks):
        mine = sorted((e for e in one.events if e.element == 2 * s + 1), key=lambda e: e.began_s)
        for e, following in zip(mine, [*mine[1:], None], strict=True):
            ends_s = e.measured_end_s
            if following is not None:
                hop = 2 * (s + following.direction), following.micro_batch, following.direction
                if hop in hops and hops[hop].there_s <= ends_s:
                    # The stage sends its result before it goes on.
                    yield BUSY, (0, 0, 0), following.began_s - ends_s
                    ends_s = following.began_s
            yield PASS, (blocks, e.samples, e.direction), ends_s - e.began_s
