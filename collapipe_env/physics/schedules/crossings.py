"""Crossings of an interleaved plan: each hop between devices is passed once for every chunk ([X])."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collapipe_env.ground.arrays import Array, namespace
from collapipe_env.physics.links import HopTimes, PlanGraph


@dataclass(frozen=True, eq=False)
class Crossings:
    """Crossings of the hops of an interleaved plan, and the hop between its chunks.

    Attributes:
        airtime: Airtime of each node for one micro-batch, both directions (..., N, K+1) [s].
        received: Airtime that each node receives for one micro-batch (..., N, K+1) [s]; ``None`` where
            receivers draw no power.
        loss_exponent: Sum of the exponents of all hops and crossings (..., N).
        wrap_forward: Hop from the last stage to the first (..., N) [s].
        wrap_backward: Hop from the first stage to the last (..., N) [s].
    """

    airtime: Array
    received: Array | None
    loss_exponent: Array
    wrap_forward: Array
    wrap_backward: Array


def interleaved_crossings(graph: PlanGraph, hops: HopTimes, wraps: HopTimes, chunks: Array) -> Crossings:
    """Combine the plain hops, ``v`` times between devices, and ``v - 1`` passes of the hop between chunks.

    Args:
        hops: Its hops; failures count ``v`` crossings between devices already.
        wraps: The hop between chunks.
        chunks: ``v`` (..., N).
    """
    xp = namespace(hops.forward)
    v = xp.astype(chunks, hops.forward.dtype)
    concatenate = np.concatenate if xp is np else xp.concat
    between = graph.successor[..., 1:, 1:]
    once = xp.ones_like(v)[..., None]

    def repeated(towards_device: Array) -> Array:
        return concatenate((once, xp.where(towards_device, v[..., None], 1.0)), axis=-1)

    again = v - 1.0
    senders, receivers = repeated(xp.any(between, axis=-1)), repeated(xp.any(between, axis=-2))

    received: Array = None
    if hops.received_forward is not None and wraps.received_forward is not None:
        received = (
            hops.received_forward * receivers
            + hops.received_backward * senders
            + again[..., None] * (wraps.received_forward + wraps.received_backward)
        )
    return Crossings(
        airtime=hops.forward * senders
        + hops.backward * receivers
        + again[..., None] * (wraps.forward + wraps.backward),
        received=received,
        loss_exponent=hops.loss_exponent + again * wraps.loss_exponent,
        wrap_forward=xp.max(wraps.forward, axis=-1),
        wrap_backward=xp.max(wraps.backward, axis=-1),
    )
