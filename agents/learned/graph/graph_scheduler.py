"""The graph net as a scheduler."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import numpy as np
import torch

from collapipe_env.agents.dssra.hazard_memory import failure_risk
from collapipe_env.dynamics.channel_knowledge import gains_are_exact
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import StateScheduler
from collapipe_env.simulator.refusal import require_budgets_per_round, require_room
from collapipe_env.simulator.state import SystemState

from .graph_decision import Decider
from .net import GraphNet


class GraphScheduler(StateScheduler):
    """Plays the graph net; deterministic, with the same plan for a row in any batch.

    The uplink is shared out exactly for the net's segments and powers, as DSSRA does. Where gains are hidden,
    a net trained for that departs from the shares that are exact at the known gains.

    Args:
        net: The net; a copy of it plays.

    Raises:
        ScenarioError: Budgets are per second.
    """

    name = "graph net"

    def __init__(self, scenario: Scenario, net: GraphNet) -> None:
        super().__init__(scenario)
        require_budgets_per_round(f"scheduler {self.name!r}", self.parameters)
        self._decider = Decider(self.parameters)
        self._net = deepcopy(net).cpu().double().requires_grad_(requires_grad=False)
        # A head of zeros changes nothing but roundings.
        self._departs = not gains_are_exact(scenario) and net.has_share_head
        self._risk = failure_risk(scenario) if bool(net.risk.weight.any()) else None

    def reset(self, seed: int | None = None) -> None:  # noqa: ARG002 - part of the interface
        """Forget the stays of earlier rounds; nothing is random."""
        if self._risk is not None:
            self._risk.reset()

    def allocate(self, state: SystemState) -> Allocation:
        """Decide one round.

        Args:
            state: The system before the round (E, ...); where the net reads failures, row ``i`` is the same
                environment in every call.

        Returns:
            The allocation (E, ...).

        Raises:
            AllocationError: If the devices present in some cluster cannot hold the encoder.
        """
        if self._risk is not None:
            state = self._risk.added(state)
        require_room(np.where(state.present, state.memory_cap, 0), self.parameters.costs.blocks)
        with torch.inference_mode():
            plan = self._decider.plan(self._net, state)
            share, _ = self._decider.shares(plan, state, departs=self._departs)
        found = plan.played(share.numpy())
        # Idle devices send nothing, unless moments of theirs move.
        silent = found.blocks == 0
        if self._decider.moves(state):
            silent &= state.processes["migration"]["blocks"] == 0
        return replace(found, device_power=np.where(silent, self.parameters.power_min_w, found.device_power))
