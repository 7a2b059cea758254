"""Migration: holders of each block's optimiser moments, from round to round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from collapipe_env.ground.arrays import Array, loop_array, namespace
from collapipe_env.ground.errors import StateError
from collapipe_env.ground.state_trees import REMEDY
from collapipe_env.kernels.handovers import holder_rows
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.migration import block_holders
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.decisions import opens
from collapipe_env.simulator.process import Carried, Observed, Process
from collapipe_env.simulator.process_registry import leaves_clusters_short
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
    (:mod:`collapipe_env.physics.migration`). Before the first round no device holds a block.
    """

    name = "migration"
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
        plays = costs.plays
        if plays is not None:
            blocks = xp.where(plays[..., None], blocks, carried["blocks"])
            holders = xp.where(plays[..., None, None], holders, carried["holders"])
        return {"blocks": blocks, "holders": holders}

    def realistic(self, carried: Carried) -> Carried:
        """All arrays: a planner knows the plans that were played."""
        return carried

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
    plain = plan.stage is None and plan.chunks is None and plan.server_blocks is None
    if not plain or type(own) is not np.ndarray or own.ndim != 3:
        return block_holders(plan, blocks)
    holders = np.empty((*own.shape[:2], blocks, own.shape[2] + 1), dtype=np.bool_)
    holder_rows(loop_array(own, np.int64), holders)
    return holders
