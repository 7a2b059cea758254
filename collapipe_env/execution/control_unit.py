"""Control unit: trains its cluster in every round."""

from __future__ import annotations

from collapipe_env.execution.cluster_role import ClusterRole
from collapipe_env.execution.cluster_round import ControlUnitRound
from collapipe_env.execution.frames import Frame


class ControlUnit(ClusterRole):
    """Control unit of a cluster.

    It keeps the parts of the cluster's model with their moments, and hands the blocks out in every round. It
    watches over its devices: when one that has blocks is lost, it ends the attempt at the round, requests a
    plan for the remaining work, and continues with that plan.
    """

    def carry_out(self, frame: Frame) -> None:
        """Play a round."""
        if frame.kind == "round":
            ControlUnitRound(self, frame).run()
