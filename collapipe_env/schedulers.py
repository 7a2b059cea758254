"""The one interface of everything that decides: DSSRA, learned agents and the published systems."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from collapipe_env.allocation import Allocation
from collapipe_env.errors import AllocationError, shown
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.state import SystemState

Decision: TypeAlias = npt.NDArray[np.float32] | Allocation
"""Actions (E, N (2K + 3)) of the box, or allocations, of any form."""


@runtime_checkable
class Scheduler(Protocol):
    """Decides one round for a batch of ``E`` environments at once.

    Learned agents read the observation, model-based ones the state; both decide from what is known
    before the round: channels, speeds, memories and queues.

    Attributes:
        name: Short name for tables and plots.
    """

    name: str

    def reset(self, seed: int | None = None) -> None:
        """Forget earlier episodes; ``seed`` governs the scheduler's own randomness, if it has any."""
        ...

    def act(self, observation: npt.NDArray[np.float32], state: SystemState) -> Decision:
        """Decide one round.

        Args:
            observation: What a learned agent sees (E, D).
            state: The system before the round (E, ...).

        Returns:
            Actions (E, N (2K + 3)), or an :class:`~collapipe_env.allocation.Allocation` (E, ...).
        """
        ...


class StateScheduler(ABC):
    """Base class of schedulers that decide from the state alone, and return allocations.

    A subclass sets ``name`` and writes :meth:`allocate`; one with a memory or random numbers of its own
    overrides :meth:`reset`, too.

    Args:
        scenario: The scenario to schedule.

    Attributes:
        name: Short name for tables and plots.
        scenario: The scenario.
        parameters: Its scalars.

    Raises:
        AllocationError: ``scenario`` is something else.
    """

    name: str

    def __init__(self, scenario: Scenario) -> None:
        if not isinstance(scenario, Scenario):
            raise AllocationError(
                f"{type(self).__name__}({shown(scenario)}): expected a Scenario, for instance "
                "load_scenario('medium')"
            )
        self.scenario = scenario
        self.parameters = system_parameters(scenario)

    def reset(self, seed: int | None = None) -> None:  # noqa: B027 - rightly empty, and not abstract
        """Nothing to forget, and nothing random."""

    def act(
        self,
        observation: npt.NDArray[np.float32] | None,  # noqa: ARG002 - part of the interface
        state: SystemState,
    ) -> Allocation:
        """Decide one round.

        Args:
            observation: Not used.
            state: The system before the round (E, ...).

        Raises:
            AllocationError: The state is of another scenario, or no plan fits the memories of some cluster.
        """
        expected = (self.scenario.clusters, self.scenario.max_devices)
        if state.present.ndim != 3 or state.present.shape[1:] != expected:
            raise AllocationError(
                f"{self.name} schedules {expected[0]} clusters of up to {expected[1]} devices, the state has "
                f"the shape {tuple(state.present.shape)}, expected (environments, {expected[0]}, "
                f"{expected[1]}): build it with the scenario of the environment"
            )
        return self.allocate(state)

    @abstractmethod
    def allocate(self, state: SystemState) -> Allocation:
        """Decide one round; see :meth:`act`.

        Args:
            state: The system before the round (E, ...).
        """

    def refusal(self, environment: int, cluster: int, reason: str) -> AllocationError:
        """Error for a cluster that has no plan.

        Args:
            environment: Row of the state.
            cluster: Index of the cluster.
            reason: What its memories cannot hold, and a remedy.
        """
        return AllocationError(f"{self.name}: environment {environment}, cluster {cluster}: {reason}")
