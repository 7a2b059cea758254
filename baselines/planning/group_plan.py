"""What the baselines share whose plans the action box cannot express: they decide whole allocations.

Groups of devices and schedules beyond GPipe are such plans. As with
:class:`~collapipe_env.baselines.planning.segment_baseline.SegmentBaseline`, everything that a system leaves
open gets the common defaults: equal bandwidth, full power and the even split's number of micro-batches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from collapipe_env.allocation import Allocation
from collapipe_env.errors import AllocationError
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.even_split import REFERENCE_MICRO_BATCHES, equal_resources, nearest_choice
from collapipe_env.simulator.state import SystemState

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class AllocationBaseline(ABC):
    """A scheduler that decides from the state alone, has no memory and returns allocations, not actions.

    Args:
        scenario: The scenario to schedule.
    """

    name: str

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.parameters = system_parameters(scenario)

    def reset(self, seed: int | None = None) -> None:  # noqa: B027 - rightly empty, and not abstract
        """Nothing to forget and nothing random."""

    def act(
        self,
        observation: npt.NDArray[np.float32],  # noqa: ARG002 - part of the interface
        state: SystemState,
    ) -> Allocation:
        """Decide one round; the action box cannot express such plans, so this is an allocation.

        Args:
            observation: Not used.
            state: The system before the round (E, ...).

        Raises:
            AllocationError: No plan fits the memories of some cluster.
        """
        return self.allocate(state)

    @abstractmethod
    def allocate(self, state: SystemState) -> Allocation:
        """Decide one round; see :meth:`act`."""

    def refusal(self, environment: int, cluster: int, reason: str) -> AllocationError:
        """The error for a cluster that has no plan.

        Args:
            environment: Row of the state.
            cluster: Index of the cluster.
            reason: What its memories cannot hold, and a remedy.
        """
        return AllocationError(f"{self.name}: environment {environment}, cluster {cluster}: {reason}")


class PlanBaseline(AllocationBaseline):
    """An allocation baseline with a fixed number of micro-batches.

    Args:
        scenario: The scenario to schedule.
        micro_batches: Wanted number of micro-batches; the nearest allowed one is used, the larger of two
            equally near.
    """

    def __init__(self, scenario: Scenario, *, micro_batches: int = REFERENCE_MICRO_BATCHES) -> None:
        super().__init__(scenario)
        self.micro_batches = nearest_choice(self.parameters.micro_batch_choices, micro_batches)

    def with_defaults(self, blocks: IntArray, *, stage: IntArray, share: FloatArray) -> Allocation:
        """Groups with the common defaults.

        Args:
            blocks: Blocks of each stage slot (..., N, K).
            stage: Slot of each device (..., N, K), -1 for none.
            share: Each device's share of its stage's samples (..., N, K).
        """
        return Allocation(
            blocks=blocks,
            micro_batches=np.full(blocks.shape[:-1], self.micro_batches, dtype=np.int64),
            **equal_resources(self.parameters, blocks.shape),
            stage=stage,
            share=share,
        )
