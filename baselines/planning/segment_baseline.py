"""What the baselines that only choose segments share: everything they leave open gets the common defaults."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from collapipe_env.agents.dssra.cluster_costs import RoundConstants, RoundInput
from collapipe_env.agents.dssra.policy import round_input
from collapipe_env.agents.dssra.segment_dp import SegmentProblem
from collapipe_env.agents.dssra.segment_problem import segment_problem
from collapipe_env.allocation import Allocation
from collapipe_env.compiled import called_from_python
from collapipe_env.physics import radio
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import action_codec, system_parameters
from collapipe_env.simulator.even_split import REFERENCE_MICRO_BATCHES, even_split, nearest_choice
from collapipe_env.simulator.refusal import require_room
from collapipe_env.simulator.state import SystemParameters, SystemState

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_priced = called_from_python(segment_problem)


class SegmentBaseline(ABC):
    """A scheduler that chooses segments; equal bandwidth, full power and fixed ``M`` as in the even split.

    A difference in delay to the even split is thus due to the segments (and ``M`` where a system
    prescribes it).

    Args:
        scenario: The scenario to schedule.
        micro_batches: Wanted number of micro-batches; the nearest allowed one is used.
    """

    name: str
    default_micro_batches: ClassVar[int] = REFERENCE_MICRO_BATCHES

    def __init__(self, scenario: Scenario, *, micro_batches: int | None = None) -> None:
        self.scenario = scenario
        self.parameters = system_parameters(scenario)
        wanted = self.default_micro_batches if micro_batches is None else micro_batches
        self.micro_batches = nearest_choice(self.parameters.micro_batch_choices, wanted)
        self._codec = action_codec(scenario)

    def reset(self, seed: int | None = None) -> None:  # noqa: B027 - rightly empty, and not abstract
        """Nothing to forget and nothing random."""

    def act(
        self,
        observation: npt.NDArray[np.float32],  # noqa: ARG002 - part of the interface
        state: SystemState,
    ) -> npt.NDArray[np.float32]:
        """Decide one round; see :class:`~collapipe_env.schedulers.Scheduler`."""
        return self._codec.encode(self.allocate(state))

    def allocate(self, state: SystemState) -> Allocation:
        """Decide one round.

        Args:
            state: The system before the round (E, ...).

        Raises:
            AllocationError: The devices present in some cluster cannot hold the encoder.
        """
        require_room(np.where(state.present, state.memory_cap, 0), self.parameters.costs.blocks)
        defaults = even_split(self.parameters, state, self.micro_batches)
        return replace(defaults, blocks=self.segments(state))

    @abstractmethod
    def segments(self, state: SystemState) -> IntArray:
        """Blocks of each device (E, N, K), within the memory caps and summing to ``L`` in each cluster.

        Args:
            state: The system (E, ...); every cluster can hold the encoder.
        """


def fill_in_order(total: int, order: IntArray, caps: npt.NDArray[np.integer]) -> IntArray:
    """Fill devices to their caps, one after the other.

    Args:
        total: Blocks to place.
        order: Indices of the devices, first to be filled first (..., K).
        caps: Blocks that each can hold (..., K).

    Returns:
        Blocks of each device (..., K), by device index.
    """
    sorted_caps = np.take_along_axis(np.asarray(caps, dtype=np.int64), order, axis=-1)
    before = np.cumsum(sorted_caps, axis=-1) - sorted_caps
    taken: IntArray = np.clip(total - before, 0, sorted_caps)
    blocks = np.zeros_like(taken)
    np.put_along_axis(blocks, order, taken, axis=-1)
    return blocks


def full_power_problems(
    parameters: SystemParameters, state: SystemState, constants: RoundConstants
) -> Iterator[tuple[int, int, SegmentProblem]]:
    """Times and prices of blocks and hops of every cluster at full power and equal bandwidth.

    With every active node at full power the interference depends on no decision, so it is exact.

    Args:
        parameters: Scalars of the scenario.
        state: The system (E, ...).
        constants: Scalars of the search, with ``V`` and the number of micro-batches to price with.

    Yields:
        Environment, cluster and its problem; times are those of a whole mini-batch.
    """
    inputs = round_input(parameters, state)
    environments, N, K = state.present.shape
    power = np.full(K + 1, parameters.power_max_w)
    disturbance = radio.interference(state.cross_gain, np.full((environments, N), parameters.power_max_w))
    noise = radio.d2d_noise(parameters.noise_density, parameters.d2d_bandwidth_hz, disturbance)
    for e in range(environments):
        row = RoundInput(*(a[e] for a in inputs))
        for n in range(N):
            problem = _priced(n, power, float(noise[e, n]), 1.0 / N, constants.tradeoff_v, row, constants)
            yield e, n, problem
