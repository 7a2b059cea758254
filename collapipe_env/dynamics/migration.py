"""Migration: holders of the blocks' optimiser moments, and the phase in which moved moments travel ([X])."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from collapipe_env.ground.arrays import Array, loop_array, namespace, where
from collapipe_env.ground.errors import StateError
from collapipe_env.ground.state_trees import REMEDY
from collapipe_env.kernels.handovers import handover_rows, holder_rows
from collapipe_env.kernels.moments_phase import phase_rows
from collapipe_env.physics import energy, radio
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.moves import Handover, PhaseTimes, block_holders, handover, moving_times
from collapipe_env.physics.parameters import Parameters
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.decision_names import opens
from collapipe_env.simulator.general_costs import seconds_per_bit
from collapipe_env.simulator.process import Carried, Observed, Process
from collapipe_env.simulator.process_registry import leaves_clusters_short
from collapipe_env.simulator.round import RoundCosts, Terms
from collapipe_env.simulator.state import SystemState
from collapipe_env.simulator.system import System


@dataclass(frozen=True)
class MigrationSpec:
    """Fields of ``dynamics.processes.migration``.

    Attributes:
        moments: ``move``: the optimiser's moments of a block that changes device follow it over the radio.
            ``reset``: they start again from zero, at no cost of time or energy.
        moment_bits: Bits per number of the moments that travel.
        route: ``direct`` from device to device, or over the ``cu`` in two hops.
    """

    moments: Literal["move", "reset"] = "move"
    moment_bits: Literal[16, 32] = 32
    route: Literal["direct", "cu"] = "direct"


class PreviousPlan(Process):
    """The plan of the previous round, which decides the cost of a change of plan ([X]).

    It carries the holders of every block and the blocks of every device; the costs of a round read them
    (:mod:`collapipe_env.physics.moves`). Before the first round no device holds a block.
    """

    name = "migration"
    # A planner knows the plans that were played.
    told: ClassVar[tuple[str, ...]] = ("holders",)
    Spec = MigrationSpec

    @classmethod
    def idle_fields(cls, spec: MigrationSpec) -> Mapping[str, str]:
        """Fields of moments that travel, where they start again from zero."""
        only = "it is used only with moments: move"
        return dict.fromkeys(("moment_bits", "route"), only) if spec.moments == "reset" else {}

    def __init__(self, scenario: Scenario, spec: MigrationSpec) -> None:
        super().__init__(scenario, spec)
        L, N, K = scenario.blocks, scenario.clusters, scenario.max_devices
        self._shape = (N, L, K + 1)
        self.observed = (
            Observed("blocks", (N, K), "blocks", 0.0, float(L), "blocks held in the previous round"),
        )

    def begin(self, system: System, u: Array) -> Carried:  # noqa: ARG002 - draws nothing
        """Start without holders."""
        xp = namespace(system.speed)
        none = xp.zeros_like(system.speed, dtype=xp.int64)
        holders = xp.broadcast_to(none[:, :, None, :1] > 0, (none.shape[0], *self._shape))
        return {"blocks": none, "holders": xp.astype(holders, xp.bool, copy=True)}

    def advance(self, carried: Carried, state: Any, costs: Any, u: Any, delta_s: Any) -> Carried:  # noqa: ARG002
        """The plan just played; clusters that sat out keep their earlier one."""
        xp, plan = namespace(costs.delay), costs.allocation
        blocks = xp.astype(plan.device_blocks, xp.int64)
        holders = holders_of(plan, self.scenario.blocks)
        blocks = xp.where(costs.plays[..., None], blocks, carried["blocks"])
        return {
            "blocks": blocks,
            "holders": xp.where(costs.plays[..., None, None], holders, carried["holders"]),
        }

    def check(self, carried: Carried) -> None:
        """Refuse plans that cannot have been played."""
        held = carried["holders"][..., 1:].sum(axis=-2)
        if (held != carried["blocks"]).any():
            raise StateError(f"simulator/processes/migration: blocks do not agree with holders: {REMEDY}")
        each = carried["holders"].any(axis=-1)
        # A cluster that has always sat out holds nothing yet; otherwise all clusters begin in the same round.
        short = any(leaves_clusters_short(name) for name, _ in self.scenario.dynamics.processes)
        together = -1 if short or opens(self.scenario, "participation") else (-2, -1)
        if (each.any(axis=together) != each.all(axis=together)).any():
            raise StateError(f"simulator/processes/migration/holders leave blocks without a holder: {REMEDY}")


def holders_of(plan: Allocation, blocks: int) -> Array:
    """Holders of every block under a plan (..., N, L, K+1), bool; plain plans in a compiled loop.

    Args:
        plan: Any feasible plan (..., N, K).
        blocks: Encoder depth ``L``.
    """
    own = plan.blocks
    if not plan.is_plain or type(own) is not np.ndarray or own.ndim != 3:
        return block_holders(plan, blocks)
    return holder_rows(loop_array(own, np.int64), blocks)


def migration_terms(
    costs: RoundCosts, parameters: Parameters, state: SystemState, allocation: Allocation
) -> Terms | None:
    """The phase that moves moments before the local steps; ``None`` where no earlier plan is carried.

    Notes hold the fate of every block's ``moments`` (..., N, L), int: ``STAY``, ``TRAVEL`` or ``LOST`` of
    :mod:`collapipe_env.physics.moves`, and where moments travel their energy ``moving_j`` (..., N, K+1) [J].

    Args:
        costs: The round without it.
        parameters: Scalars of the scenario, with migration.
    """
    change = change_of_plan(parameters, state, allocation)
    if change is None or parameters.migration is None:
        return None
    notes = {"moments": change.moments}
    if not parameters.migration.moves:
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
    after = holders_of(allocation, parameters.costs.blocks)
    if allocation.participates is None:
        return _handed_over(previous["holders"], state.present, after, rules.moves)
    plays = allocation.plays
    # A cluster that sits out keeps the plan that it had.
    after = namespace(after).where(plays[..., None, None], after, previous["holders"])
    return _of_players(_handed_over(previous["holders"], state.present, after, rules.moves), plays)


def _handed_over(before: Array, present: Array, after: Array, moves: bool) -> Handover:
    """Blocks that change hands, in a compiled loop where the arrays are NumPy's."""
    # One state may serve all plans: only the array form repeats it.
    if type(before) is not np.ndarray or before.ndim != 4 or before.shape != after.shape:
        return handover(before, present, after, moves)
    here, now = np.ascontiguousarray(present), np.ascontiguousarray(after)
    return Handover(*handover_rows(np.ascontiguousarray(before), here, now, moves))


def _of_players(change: Handover, plays: Array) -> Handover:
    """The handover without clusters that sit out: their devices do nothing, even where a holder has gone."""
    xp, each = namespace(plays), plays[..., None]
    nothing = (xp.zeros_like(array) for array in change)
    chosen = (each[..., None], each, each, each)
    return Handover(*map(xp.where, chosen, change, nothing))


def phase_times(
    parameters: Parameters, state: SystemState, allocation: Allocation, change: Handover
) -> PhaseTimes:
    """Times of the phase, in which the owners, old and new, and the CUs of all clusters interfere.

    Args:
        parameters: Scalars of the scenario, with migration.
        change: Blocks that it hands over.
    """
    p, rules, power = parameters, parameters.migration, allocation.node_power
    assert rules is not None
    on_air = where(allocation.plays[..., None], power, 0.0)
    arrays = (on_air, state.d2d_gain, state.cross_gain, change.moved, change.leaving, change.involved)
    if power.ndim == 3 and all(type(a) is np.ndarray and len(a) == len(power) for a in arrays):
        law = (p.noise_density, p.d2d_bandwidth_hz, p.d2d_snr_cap, p.waterfall_threshold)
        rows = map(np.ascontiguousarray, arrays)
        return PhaseTimes(*phase_rows(law, p.transmissions, rules.block_bits, rules.through_cu, *rows))
    # Other libraries, and one state for all plans.
    sent = radio.mean_active_power(on_air, change.involved)
    seconds = seconds_per_bit(p, state, power, radio.interference(state.cross_gain, sent))
    return moving_times(change, rules.block_bits * seconds, rules.through_cu)
