"""Migration: holders of the blocks' optimiser moments, and the phase in which moved moments travel ([X])."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from collapipe_env.ground.arrays import Array, loop_array, namespace, where
from collapipe_env.ground.errors import StateError
from collapipe_env.ground.state_trees import REMEDY
from collapipe_env.kernels.moments_on_air import held_rows, migration_rows
from collapipe_env.physics import energy, radio
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.moves import Handover, PhaseTimes, block_holders, handover, moving_times
from collapipe_env.physics.parameters import Parameters
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.fields import OnlyIf, field, spec
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.general_costs import seconds_per_bit
from collapipe_env.simulator.process import Carried, CarriedArray, Process
from collapipe_env.simulator.round import RoundCosts, Terms
from collapipe_env.simulator.state import SystemState
from collapipe_env.simulator.system import System

_TRAVEL = OnlyIf("with moments: move", lambda spec: spec.moments == "move")


@spec
class MigrationSpec:
    """Fields of ``dynamics.processes.migration``."""

    moments: Literal["move", "reset"] = field(
        "move",
        "move: the optimiser's moments of a block that changes device follow it over the radio; reset: they "
        "start again from zero, at no cost of time or energy",
    )
    moment_bits: Literal[16, 32] = field(32, "bits per number of the moments that travel", _TRAVEL)
    route: Literal["direct", "cu"] = field(
        "direct", "from device to device, or over the CU in two hops", _TRAVEL
    )


class PreviousPlan(Process):
    """The plan of the previous round, which decides the cost of a change of plan ([X]).

    It carries the holders of every block and the blocks of every device; the costs of a round read them
    (:mod:`collapipe_env.physics.moves`). Before the first round no device holds a block.
    """

    name = "migration"
    Spec = MigrationSpec

    def __init__(self, scenario: Scenario, spec: MigrationSpec) -> None:
        super().__init__(scenario, spec)
        L, N, K = scenario.blocks, scenario.clusters, scenario.max_devices
        self._shape = (N, L, K + 1)
        shown, about = (0.0, float(L)), "blocks held in the previous round"
        # A planner knows the plans that were played.
        self.carries = {
            "blocks": CarriedArray("N K", "blocks", 0, L, "whole", seen="always", shown=shown, about=about),
            "holders": CarriedArray(
                "N L K+1", kind="truth", seen="always", about="nodes that hold each block"
            ),
        }

    def begin(self, system: System, u: Array) -> Carried:  # noqa: ARG002 - draws nothing
        """Start without holders."""
        xp = namespace(system.speed)
        none = xp.zeros_like(system.speed, dtype=xp.int64)
        holders = xp.broadcast_to(none[:, :, None, :1] > 0, (none.shape[0], *self._shape))
        return {"blocks": none, "holders": xp.astype(holders, xp.bool, copy=True)}

    def advance(self, carried: Carried, state: Any, costs: Any, u: Any, delta_s: Any) -> Carried:  # noqa: ARG002
        """The plan just played; clusters that sat out keep their earlier one."""
        plan, plays, before = costs.allocation, costs.plays, (carried["blocks"], carried["holders"])
        if _is_for_loops(plan) and type(plays) is np.ndarray:
            blocks, holders = held_rows(loop_array(plan.blocks, np.int64), plays, *before)
        else:
            xp = namespace(costs.delay)
            blocks = xp.where(plays[..., None], xp.astype(plan.device_blocks, xp.int64), before[0])
            holders = xp.where(plays[..., None, None], block_holders(plan, self.scenario.blocks), before[1])
        return {"blocks": blocks, "holders": holders}

    def check(self, carried: Carried) -> None:
        """Refuse plans that cannot have been played."""
        held = carried["holders"][..., 1:].sum(axis=-2)
        if (held != carried["blocks"]).any():
            raise StateError(f"simulator/processes/migration: blocks do not agree with holders: {REMEDY}")
        each = carried["holders"].any(axis=-1)
        # A cluster that has always sat out holds nothing yet; otherwise all clusters begin in the same round.
        together = -1 if system_parameters(self.scenario).may_sit_out else (-2, -1)
        if (each.any(axis=together) != each.all(axis=together)).any():
            raise StateError(f"simulator/processes/migration/holders leave blocks without a holder: {REMEDY}")


def _is_for_loops(plan: Allocation) -> bool:
    """Whether loops take a plan: NumPy arrays with one batch axis, and one device a stage."""
    return plan.is_plain and type(plan.blocks) is np.ndarray and plan.blocks.ndim == 3


def migration_terms(
    costs: RoundCosts, parameters: Parameters, state: SystemState, allocation: Allocation
) -> Terms | None:
    """The phase that moves moments before the local steps; ``None`` where no earlier plan is carried.

    Notes hold the fate of every block's ``moments`` (..., N, L), int: ``STAY``, ``TRAVEL`` or ``LOST`` of
    :mod:`collapipe_env.physics.moves`, and where moments travel their energy ``moving_j`` (..., N, K+1) [J].
    """
    previous, rules = state.processes.get("migration"), parameters.migration
    if previous is None or rules is None:
        return None
    before = previous["holders"]
    if _is_for_loops(allocation) and type(before) is np.ndarray and len(before) == len(allocation.blocks):
        moments, duration, joules = migration_rows(
            parameters.record,
            loop_array(allocation.blocks, np.int64),
            allocation.plays,
            loop_array(allocation.cu_power, np.float64),
            loop_array(allocation.device_power, np.float64),
            np.ascontiguousarray(before),
            np.ascontiguousarray(state.present),
            np.ascontiguousarray(state.d2d_gain),
            np.ascontiguousarray(state.cross_gain),
        )
        notes = {"moments": moments, "moving_j": joules} if rules.moves else {"moments": moments}
        return Terms({"migration": duration}, energy=joules, notes=notes)
    change = change_of_plan(parameters, state, allocation)
    assert change is not None
    notes = {"moments": change.moments}
    if not rules.moves:
        return Terms({"migration": 0.0 * costs.cluster_delay}, notes=notes)
    times = phase_times(parameters, state, allocation, change)
    drawn = parameters.radio_power
    power = energy.radio_power(allocation.node_power, drawn.d2d_circuit_w, drawn.efficiency)
    joules = power * times.sent + drawn.receive_w * times.received
    return Terms({"migration": times.duration}, energy=joules, notes={**notes, "moving_j": joules})


def change_of_plan(parameters: Parameters, state: SystemState, allocation: Allocation) -> Handover | None:
    """Blocks that a plan hands over; ``None`` where a change of plan costs nothing."""
    previous, rules = state.processes.get("migration"), parameters.migration
    if previous is None or rules is None:
        return None
    before, plays = previous["holders"], allocation.plays[..., None]
    xp, after = namespace(before), block_holders(allocation, parameters.costs.blocks)
    # A cluster that sits out keeps the plan that it had, and its devices do nothing, even where one has gone.
    change = handover(before, state.present, xp.where(plays[..., None], after, before), rules.moves)
    chosen = (plays[..., None], plays, plays, plays)
    return Handover(
        *(xp.where(c, array, xp.zeros_like(array)) for c, array in zip(chosen, change, strict=True))
    )


def phase_times(
    parameters: Parameters, state: SystemState, allocation: Allocation, change: Handover
) -> PhaseTimes:
    """Times of the phase, in which the owners, old and new, and the CUs of all clusters interfere."""
    rules, power = parameters.migration, allocation.node_power
    assert rules is not None
    together = radio.active_power(where(allocation.plays[..., None], power, 0.0), change.involved)
    sent = together / parameters.sharing.channels
    seconds = seconds_per_bit(parameters, state, power, radio.interference(state.cross_gain, sent))
    return moving_times(change, rules.block_bits * seconds, rules.through_cu)
