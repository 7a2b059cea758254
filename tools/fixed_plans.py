"""Fixed allocations of the documentation's tables, in a module that worker processes can import."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from collapipe_env.baselines.even_split import PipeLine
from collapipe_env.physics.allocation import ONE_F_ONE_B, Allocation
from collapipe_env.physics.apportionment import apportion
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.state import SystemState


class OneMicroBatch(PipeLine):
    """Even split with M = 1."""

    name = "even split, M = 1"

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario, micro_batches=1)


class ManyMicroBatches(PipeLine):
    """Even split with M = 64."""

    name = "even split, M = 64"

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario, micro_batches=64)


class FewestDevices(PipeLine):
    """Blocks split evenly over the fewest devices whose memory holds the encoder.

    Devices with more memory come first; among equals the faster. The rest is as in the even split.
    """

    name = "fewest devices"

    def allocate(self, state: SystemState) -> Allocation:
        """Decide one round; see :meth:`StateScheduler.act`."""
        blocks = self.parameters.costs.blocks
        cap = np.where(state.present, state.memory_cap, 0)
        order = np.lexsort((-state.speed, -cap), axis=-1)
        held = np.cumsum(np.take_along_axis(cap, order, axis=-1), axis=-1)
        # A device is needed where those before it cannot hold all blocks.
        needed = np.concatenate((np.zeros_like(held[..., :1]), held[..., :-1]), axis=-1) < blocks
        chosen = np.zeros(cap.shape)
        np.put_along_axis(chosen, order, needed.astype(np.float64), axis=-1)
        shares = apportion(blocks, chosen, np.where(chosen > 0.0, cap, 0))
        return replace(super().allocate(state), blocks=shares)


class OneForwardOneBackward(PipeLine):
    """The even split under 1F1B with as many micro-batches as there are samples, which stores least."""

    name = "even split, 1F1B"

    def allocate(self, state: SystemState) -> Allocation:
        """Decide one round; see :meth:`StateScheduler.act`."""
        plan = super().allocate(state)
        ones = np.ones_like(plan.micro_batches)
        after = np.flip(np.cumsum(np.flip(plan.blocks > 0, axis=-1), axis=-1), axis=-1)  # stages from each on
        most = ones * max(self.parameters.micro_batch_choices)
        schedule = ones * ONE_F_ONE_B
        return replace(plan, micro_batches=most, schedule=schedule, caps=np.maximum(after, 1), chunks=ones)
