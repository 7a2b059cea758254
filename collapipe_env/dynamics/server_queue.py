"""The virtual queue of the server's energy, where a scenario gives it a budget."""

from __future__ import annotations

from typing import Any

from collapipe_env.ground.arrays import Array, namespace
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.queues import update_backlog
from collapipe_env.physics.server import encoder_energy
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.server_section import term_values
from collapipe_env.simulator.process import Carried, CarriedArray, Process
from collapipe_env.simulator.round import RoundCosts, Terms
from collapipe_env.simulator.state import Parameters, SystemState
from collapipe_env.simulator.system import System


def encoder_terms(
    costs: RoundCosts,  # noqa: ARG001 - all prices have the same arguments
    parameters: Parameters,
    state: SystemState,  # noqa: ARG001
    allocation: Allocation,
) -> Terms:
    """Energy of the encoder blocks that the server trains, which counts against its budget."""
    return Terms(server_j=encoder_energy(parameters.server, parameters.costs, allocation))


class ServerQueue(Process):
    """Normalised queue ``z_BS(t+1) = max(z_BS(t) + e_BS(t) - a(t), 0)`` of the server's energy ([X]).

    ``e_BS`` is the energy of the encoder blocks that the server trained, over ``Ebar_BS``. ``a`` is the
    allowance of the round: 1, or ``T / T_ref`` with budgets per second, as for the nodes' queues. The process
    is on where ``server.terms`` or ``server.energy_budget_j`` give the server a budget.
    """

    name = "server"

    def __init__(self, scenario: Scenario, spec: Any = None) -> None:
        super().__init__(scenario, spec)
        shown, about = (0.0, scenario.budgets.backlog_cap), "energy queue z of the server, capped"
        backlog = CarriedArray("", "budgets", 0.0, seen="always", shown=shown, about=about)
        self.carries = {"backlog": backlog}

    @classmethod
    def of(cls, scenario: Scenario) -> Process | None:
        """On where the server has an energy budget."""
        return None if term_values(scenario.server).energy_budget_j is None else cls(scenario)

    def begin(self, system: System, u: Array) -> Carried:  # noqa: ARG002 - draws nothing
        """Start empty."""
        return {"backlog": namespace(system.speed).zeros_like(system.speed[:, 0, 0])}

    def advance(self, carried: Carried, state: Any, costs: Any, u: Any, delta_s: Any) -> Carried:  # noqa: ARG002
        """The queue after the round just played."""
        return {"backlog": update_backlog(carried["backlog"], costs.server_ratio, costs.allowance)}
