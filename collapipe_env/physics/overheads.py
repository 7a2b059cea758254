"""Overheads: fixed costs of a pass or a message, whatever its size ([X]).

An element of the chain that serves a whole mini-batch in ``A`` seconds serves one of ``M`` micro-batches in
``A / M + o``, where ``o`` is its overhead. A link also has a latency ``l``, which delays a message and
occupies no element, so that under GPipe one direction of a local step takes

    ``sum_i (A_i / M + o_i + l_i) + (M - 1) max_i (A_i / M + o_i)``

and the largest ``M`` is not always the best. Times of devices scale with their clocks. Overheads and
latencies belong to the pipeline's messages; collection, upload and broadcast have none.
"""

from __future__ import annotations

from typing import NamedTuple

from collapipe_env.ground.arrays import Array


class Overheads(NamedTuple):
    """Overheads of a scenario; all zero in the form of the paper.

    Attributes:
        block_cycles: Clock cycles that launching one block's forward pass takes; a backward pass takes twice
            as many.
        update_cycles: Clock cycles of the optimiser's update of one block, once in a local step.
        message_s: Time for which a device-to-device message occupies its sender in addition to its bits [s].
        header_bits: Bits of such a message in addition to its numbers [bit].
        latency_s: Latency of a device-to-device message [s].
        edge_message_s: The same as ``message_s`` on uplink and downlink [s].
        edge_latency_s: Latency of a message on uplink and downlink [s].
        server_s: Time that launching the server's forward pass takes, twice as much backward [s].
    """

    block_cycles: float
    update_cycles: float
    message_s: float
    header_bits: float
    latency_s: float
    edge_message_s: float
    edge_latency_s: float
    server_s: float


NO_OVERHEADS = Overheads(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""Overheads of a scenario in which only FLOPs and bits cost time."""


def cycles_time(blocks: Array, cycles: float, clock: Array) -> Array:
    """Time that a device spends on its blocks whatever a micro-batch holds, ``delta o f_ref / f`` [s].

    Launches of its forward pass count for each micro-batch, the optimiser's update once in a local step.

    Args:
        blocks: Blocks ``delta`` that the device holds, >= 0.
        cycles: ``o f_ref`` of one block, ``block_cycles`` or ``update_cycles`` [cycle].
        clock: ``f``, > 0 [Hz].
    """
    return blocks * (cycles / clock)


def latency_of_chain(stages: Array, overheads: Overheads) -> Array:
    """Latency of all links that a micro-batch crosses in one direction [s].

    From the CU over ``S`` stages back to the CU there are ``S + 1`` hops, then the uplink or, backward, the
    downlink.

    Args:
        stages: ``S`` >= 0.
    """
    return (stages + 1) * overheads.latency_s + overheads.edge_latency_s
