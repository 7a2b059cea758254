"""The nouns of the simulator: what is fixed, what a scheduler sees, and what a round cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

from collapipe_env.arrays import Array
from collapipe_env.physics.parameters import SystemParameters as SystemParameters


@dataclass(frozen=True, eq=False)
class SystemState:
    """Everything that decides a round besides the allocation; leading batch axes ``...``.

    Attributes:
        uplink_gain: ``h_n`` (..., N).
        d2d_gain: ``G_n`` (..., N, K+1, K+1), symmetric; node 0 is the CU.
        cross_gain: ``X`` (..., N, N), path-loss gain between cluster centres, zero diagonal.
        speed: Effective speed now, ``v_k`` (..., N, K) [FLOP/s]; positive also for absent devices.
        compute_power: ``P_act`` now (..., N, K) [W].
        memory_bytes: Memory offered (..., N, K); zero for absent devices.
        memory_cap: Blocks that fit the memory under GPipe (..., N, K), int.
        present: Devices that exist and answer (..., N, K), bool.
        budget: Energy budget per round (..., N, K+1) [J].
        backlog: Normalised virtual queues ``z`` (..., N, K+1); zero for absent devices.
        round_index: Rounds played (...), int.
        loss: Smoothed evaluation loss (...).
    """

    uplink_gain: Array
    d2d_gain: Array
    cross_gain: Array
    speed: Array
    compute_power: Array
    memory_bytes: Array
    memory_cap: Array
    present: Array
    budget: Array
    backlog: Array
    round_index: Array
    loss: Array

    def map(self, function: Callable[[Array], Array]) -> SystemState:
        """Apply one function to every array, for instance to add a batch axis."""
        return SystemState(**{f.name: function(getattr(self, f.name)) for f in fields(self)})

    def __getitem__(self, index: object) -> SystemState:
        """Index the leading batch axes of every array."""
        return self.map(lambda a: a[index])
