"""State of the simulated system before a round, true and as schedulers see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields

from collapipe_env.ground.arrays import Array, concatenate, where
from collapipe_env.physics.memory import able_to_hold, memory_caps
from collapipe_env.physics.parameters import SystemParameters as SystemParameters


@dataclass(frozen=True, eq=False)
class SystemState:
    """Everything that decides a round apart from the allocation; leading batch axes ``...``.

    Attributes:
        uplink_gain: ``h_n`` (..., N).
        d2d_gain: ``G_n`` (..., N, K+1, K+1), symmetric; node 0 is the CU.
        cross_gain: ``X`` (..., N, N), path-loss gain between cluster centres, zero diagonal.
        speed: Effective speed now, ``v_k`` (..., N, K) [FLOP/s]; positive even for absent devices.
        clock: Effective clock now, ``f_k`` (..., N, K) [Hz]; positive even for absent devices.
        compute_power: ``P_act`` now (..., N, K) [W].
        memory_bytes: Memory offered (..., N, K); zero for absent devices.
        memory_cap: Blocks that fit the memory under GPipe (..., N, K), int.
        present: Devices that exist and answer (..., N, K), bool.
        budget: Energy budget per round (..., N, K+1) [J].
        backlog: Normalised virtual queues ``z`` (..., N, K+1); zero for absent devices.
        round_index: Rounds played (...), int.
        loss: Smoothed evaluation loss (...).
        server_share: Share of the server that other tenants leave to the clusters (...), in (0, 1]; ``None``
            for 1.
        absence: Participation queues ``y`` (..., N), counted in rounds; ``None`` unless schedulers decide
            which clusters take part.
        known_uplink_gain: Known value of ``h_n`` before the round (..., N); ``None`` where it equals ``h_n``.
        known_d2d_gain: The same for ``G_n`` (..., N, K+1, K+1).
        full_speed: Speed at the full clock (..., N, K) [FLOP/s]; ``None`` unless schedulers may cap clocks.
        cubic_power: True where a device's power grows with the cube of its clock, False where it grows in
            proportion (..., N, K), bool; ``None`` unless schedulers may cap clocks.
        processes: Arrays (..., ...) that processes expose, by process and name.
    """

    uplink_gain: Array
    d2d_gain: Array
    cross_gain: Array
    speed: Array
    clock: Array
    compute_power: Array
    memory_bytes: Array
    memory_cap: Array
    present: Array
    budget: Array
    backlog: Array
    round_index: Array
    loss: Array
    server_share: Array | None = None
    absence: Array | None = None
    known_uplink_gain: Array | None = None
    known_d2d_gain: Array | None = None
    full_speed: Array | None = None
    cubic_power: Array | None = None
    processes: Mapping[str, Mapping[str, Array]] = field(default_factory=dict)

    @property
    def server_backlog(self) -> Array | None:
        """Normalised virtual queue of the server's energy ``z_BS`` (...); ``None`` where it has no budget."""
        shown = self.processes.get("server")
        return None if shown is None else shown["backlog"]

    @property
    def live_backlog(self) -> Array:
        """Queues that a round updates (..., N, K+1): those of present nodes, 0 for devices that are away.

        Absence earns no credit: a frozen queue has no price and no drift.
        """
        present, backlog = self.present, self.backlog
        return concatenate((backlog[..., :1], where(present, backlog[..., 1:], 0.0 * backlog[..., 1:])))

    def map(self, function: Callable[[Array], Array]) -> SystemState:
        """Apply one function to every array, for instance to add a batch axis."""
        arrays = {
            f.name: function(array)
            for f in fields(self)
            if f.name != "processes" and (array := getattr(self, f.name)) is not None
        }
        shown = {
            process: {name: function(array) for name, array in carried.items()}
            for process, carried in self.processes.items()
        }
        return type(self)(**arrays, processes=shown)

    def __getitem__(self, index: object) -> SystemState:
        """Index the leading batch axes of every array."""
        return self.map(lambda a: a[index])


@dataclass(frozen=True, eq=False)
class EstimatedState(SystemState):
    """Estimate of a system before a round, which schedulers receive instead of the true system.

    It has the fields of a system, with estimates as values: ``uplink_gain``, for instance, is the known gain.
    It has no separate known gains.
    """

    @classmethod
    def of(cls, state: SystemState) -> EstimatedState:
        """The same arrays as an estimate, with known gains in place of the true ones.

        Args:
            state: The system (...), or an estimate already.
        """
        arrays = {f.name: getattr(state, f.name) for f in fields(SystemState)}
        for name in ("uplink_gain", "d2d_gain"):
            known = arrays[f"known_{name}"]
            arrays[f"known_{name}"] = None
            arrays[name] = arrays[name] if known is None else known
        return cls(**arrays)


def other_memory_caps(parameters: SystemParameters, state: SystemState) -> Array | None:
    """Return memory caps under the other setting of recomputation, where this decision is open.

    Args:
        parameters: Scalars of the scenario.
        state: The system (...).

    Returns:
        Blocks that each device can hold (..., N, K), int; ``None`` where the decision is not open.
    """
    other = parameters.other_costs
    return None if other is None else memory_caps(other, state.memory_bytes)


def able_clusters(parameters: SystemParameters, state: SystemState) -> Array:
    """Return the clusters whose devices can hold the encoder (..., N), bool.

    Args:
        parameters: Scalars of the scenario.
        state: The system (...).
    """
    return able_to_hold(parameters.costs, parameters.other_costs, state.memory_bytes)


def able_where_open(parameters: SystemParameters, state: SystemState) -> Array | None:
    """Return the clusters that can hold the encoder (..., N), bool; ``None`` where none may sit out.

    Args:
        parameters: Scalars of the scenario.
        state: The system (...).
    """
    return None if parameters.idle_round_s is None else able_clusters(parameters, state)
