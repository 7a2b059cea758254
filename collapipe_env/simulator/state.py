"""State of the simulated system before a round, true and as schedulers see it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Annotated, Any

import numpy as np

from collapipe_env.ground.arrays import Array, concatenate, namespace, where
from collapipe_env.ground.records import SMALLEST, Declared, Record, made
from collapipe_env.physics.memory import memory_caps
from collapipe_env.physics.parameters import Parameters as Parameters
from collapipe_env.physics.queues import lyapunov

MOST_ROUNDS = 1_000_000
"""Most rounds that a state may have, unless the scenario's episodes are longer."""


@dataclass(frozen=True, eq=False)
class SystemState(Record):
    """Everything that decides a round apart from the allocation; leading batch axes ``...``."""

    uplink_gain: Annotated[Array, Declared("N", low=SMALLEST)]
    """``h_n``."""
    d2d_gain: Annotated[Array, Declared("N K+1 K+1", low=0.0)]
    """``G_n``, symmetric; node 0 is the CU."""
    cross_gain: Annotated[Array, Declared("N N", low=0.0)]
    """``X``, path-loss gain between cluster centres, zero diagonal."""
    speed: Annotated[Array, Declared("N K", "FLOP/s", low=SMALLEST)]
    """Effective speed now, ``v_k``; positive even for absent devices."""
    clock: Annotated[Array, Declared("N K", "Hz", low=SMALLEST)]
    """Effective clock now, ``f_k``; positive even for absent devices."""
    compute_power: Annotated[Array, Declared("N K", "W", low=0.0)]
    """``P_act`` now."""
    full_speed: Annotated[Array, Declared("N K", "FLOP/s", low=SMALLEST)]
    """Speed at the full clock."""
    cubic_power: Annotated[Array, Declared("N K", kind="truth")]
    """True where a device's power grows with the cube of its clock, False where it grows in proportion."""
    memory_bytes: Annotated[Array, Declared("N K", "byte", low=0.0)]
    """Memory offered; zero for absent devices."""
    memory_cap: Annotated[Array, Declared("N K", low=0, high=1e18, kind="whole")]
    """Blocks that fit the memory under GPipe."""
    present: Annotated[Array, Declared("N K", kind="truth")]
    """Devices that exist and answer."""
    budget: Annotated[Array, Declared("N K+1", "J", low=SMALLEST, high=math.inf)]
    """Energy budget per round."""
    backlog: Annotated[Array, Declared("N K+1", low=0.0)]
    """Normalised virtual queues ``z``; zero for absent devices."""
    round_index: Annotated[Array, Declared("", low=0, high=1e18, kind="whole")]
    """Rounds played."""
    loss: Annotated[Array, Declared("", "nat", high=math.inf, unknown=True)]
    """Smoothed evaluation loss."""
    server_share: Annotated[Array, Declared("", low=SMALLEST, high=1.0)]
    """Share of the server that other tenants leave to the clusters."""
    absence: Annotated[Array | None, Declared("N", "rounds", low=0.0)] = None
    """Participation queues ``y``, counted in rounds; ``None`` unless schedulers decide which clusters take
    part."""
    known_uplink_gain: Annotated[Array | None, Declared("N", low=SMALLEST)] = None
    """Known value of ``h_n`` before the round; ``None`` where it equals ``h_n``."""
    known_d2d_gain: Annotated[Array | None, Declared("N K+1 K+1", low=0.0)] = None
    """The same for ``G_n``."""
    processes: Mapping[str, Mapping[str, Array]] = field(default_factory=dict)
    """Arrays that processes expose, by process and name."""

    @property
    def server_backlog(self) -> Array | None:
        """Normalised virtual queue of the server's energy ``z_BS`` (...); ``None`` where it has no budget."""
        shown = self.processes.get("server")
        return None if shown is None else shown["backlog"]

    @property
    def energy_lyapunov(self) -> Array:
        """Lyapunov function of the nodes' queues (...)."""
        # Functions that PyTorch compiles can neither keep arrays nor call a cached property.
        return self._lyapunov if type(self.backlog) is np.ndarray else lyapunov(self.backlog)

    @cached_property
    def _lyapunov(self) -> Array:
        """The same for the two rounds that read it."""
        return lyapunov(self.backlog)

    @property
    def live_backlog(self) -> Array:
        """Queues that a round updates (..., N, K+1): those of present nodes, 0 for devices that are away.

        Absence earns no credit: a frozen queue has no price and no drift.
        """
        present, backlog = self.present, self.backlog
        return concatenate((backlog[..., :1], where(present, backlog[..., 1:], 0.0 * backlog[..., 1:])))


@dataclass(frozen=True, eq=False)
class EstimatedState(SystemState):
    """Estimate of a system before a round, which schedulers receive instead of the true system.

    It has the fields of a system, with estimates as values: ``uplink_gain``, for instance, is the known gain.
    It has no separate known gains.
    """

    @classmethod
    def of(cls, state: SystemState, **others: Any) -> EstimatedState:
        """The same arrays as an estimate, with known gains in place of the true ones.

        Args:
            state: The system (...), or an estimate already.
            others: Values that replace the state's.
        """
        arrays = {name: getattr(state, name) for name in _ARRAYS} | others
        for name in ("uplink_gain", "d2d_gain"):
            known = arrays[f"known_{name}"]
            arrays[f"known_{name}"] = None
            arrays[name] = arrays[name] if known is None else known
        return made(cls, **arrays)


_ARRAYS = tuple(each.name for each in fields(SystemState))


def other_memory_caps(parameters: Parameters, state: SystemState) -> Array | None:
    """Return the blocks that each device can hold under the other setting of recomputation (..., N, K), int.

    Returns:
        ``None`` where this decision is not open.
    """
    other = parameters.other_costs
    return None if other is None else memory_caps(other, state.memory_bytes)


def able_clusters(parameters: Parameters, state: SystemState) -> Array:
    """Return the clusters whose devices can hold the encoder (..., N), bool."""
    cap, other = state.memory_cap, other_memory_caps(parameters, state)
    if other is not None:
        cap = where(other > cap, other, cap)
    blocks: Array = namespace(cap).sum(cap, axis=-1)
    return blocks >= parameters.costs.blocks
