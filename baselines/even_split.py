"""PipeLine: the static pipeline that CollaPipe's evaluation compares with (our reading of it, [R])."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import action_codec, system_parameters
from collapipe_env.simulator.even_split import REFERENCE_MICRO_BATCHES, even_split
from collapipe_env.simulator.state import SystemState


class PipeLine:
    """Even split over the devices present, a fixed number of micro-batches, equal bandwidth, full power.

    Channels and queues are ignored.

    Args:
        scenario: The scenario to schedule.
        micro_batches: Wanted number of micro-batches; the nearest allowed one is used.
    """

    name = "PipeLine"

    def __init__(self, scenario: Scenario, *, micro_batches: int = REFERENCE_MICRO_BATCHES) -> None:
        self.scenario = scenario
        self.parameters = system_parameters(scenario)
        self.micro_batches = micro_batches
        self._codec = action_codec(scenario)

    def reset(self, seed: int | None = None) -> None:
        """Nothing to forget and nothing random."""

    def act(
        self,
        observation: npt.NDArray[np.float32],  # noqa: ARG002 - part of the interface
        state: SystemState,
    ) -> npt.NDArray[np.float32]:
        """Decide one round; see :class:`~collapipe_env.schedulers.Scheduler`."""
        return self._codec.encode(even_split(self.parameters, state, self.micro_batches))
