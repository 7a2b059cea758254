"""What the baselines share whose plans the action box cannot express: they decide whole allocations.

Groups of devices and schedules beyond GPipe are such plans. As with
:class:`~collapipe_env.baselines.segment_baseline.SegmentBaseline`, everything that a system leaves open gets
the common defaults: equal bandwidth, full power and the even split's number of micro-batches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from collapipe_env.allocation import Allocation
from collapipe_env.errors import AllocationError
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.even_split import REFERENCE_MICRO_BATCHES
from collapipe_env.simulator.state import SystemState

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class PlanBaseline(ABC):
    """A scheduler that decides stages, groups or schedules from the state alone; it has no memory.

    Args:
        scenario: The scenario to schedule.
        micro_batches: Wanted number of micro-batches; the nearest allowed one is used, the larger of two
            equally near.
    """

    name: str

    def __init__(self, scenario: Scenario, *, micro_batches: int = REFERENCE_MICRO_BATCHES) -> None:
        self.scenario = scenario
        self.parameters = system_parameters(scenario)
        self.micro_batches = min(
            reversed(self.parameters.micro_batch_choices), key=lambda choice: abs(choice - micro_batches)
        )

    def reset(self, seed: int | None = None) -> None:  # noqa: B027 - rightly empty, and not abstract
        """Nothing to forget and nothing random."""

    def act(
        self,
        observation: npt.NDArray[np.float32],  # noqa: ARG002 - part of the interface
        state: SystemState,
    ) -> Allocation:
        """Decide one round.

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

    def with_defaults(self, blocks: IntArray, *, stage: IntArray, share: FloatArray) -> Allocation:
        """Groups with the common defaults.

        Args:
            blocks: Blocks of each stage slot (..., N, K).
            stage: Slot of each device (..., N, K), -1 for none.
            share: Each device's share of its stage's samples (..., N, K).
        """
        clusters = blocks.shape[:-1]
        return Allocation(
            blocks=blocks,
            micro_batches=np.full(clusters, self.micro_batches, dtype=np.int64),
            bandwidth=np.full(clusters, 1.0 / self.parameters.clusters),
            device_power=np.full(blocks.shape, self.parameters.power_max_w),
            cu_power=np.full(clusters, self.parameters.power_max_w),
            stage=stage,
            share=share,
        )

    def refusal(self, environment: int, cluster: int, reason: str) -> AllocationError:
        """The error for a cluster that has no plan.

        Args:
            environment: Row of the state.
            cluster: Index of the cluster.
            reason: What its memories cannot hold, and a remedy.
        """
        return AllocationError(f"{self.name}: environment {environment}, cluster {cluster}: {reason}")
