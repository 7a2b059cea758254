"""What layouts fix for an episode, as tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from collapipe_env.physics.memory import memory_cap_blocks
from collapipe_env.physics.workload import WorkloadCosts
from collapipe_env.scenario import Layout
from collapipe_env.simulator.build import link_path_gains
from collapipe_env.torch_backend.placement import Placement
from collapipe_env.torch_backend.rows import Rows


@dataclass(frozen=True, eq=False)
class LayoutTensors:
    """Layouts of ``E`` environments; every tensor has the leading axis E.

    Attributes:
        mean_gain: Path gains of the links, uplinks first, then each cluster's pairs of nodes (E, links).
        cross_gain: ``X`` (E, N, N).
        memory_bytes: (E, N, K).
        memory_cap: Blocks that fit the memory (E, N, K), int64.
        present: (E, N, K), bool.
        full_speed: Speed at the full clock (E, N, K) [FLOP/s].
        flops_per_cycle: (E, N, K).
        switched_capacitance: ``kappa`` (E, N, K).
        active_power: Power at full speed (E, N, K) [W].
    """

    mean_gain: Tensor
    cross_gain: Tensor
    memory_bytes: Tensor
    memory_cap: Tensor
    present: Tensor
    full_speed: Tensor
    flops_per_cycle: Tensor
    switched_capacitance: Tensor
    active_power: Tensor

    @classmethod
    def of(cls, layouts: Sequence[Layout], costs: WorkloadCosts, placement: Placement) -> LayoutTensors:
        """Copy layouts to the device.

        Args:
            layouts: One for each environment.
            costs: Priced workload: what a block needs of the memory.
            placement: Device and type.
        """

        def stacked(read: Callable[[Layout], npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
            return np.stack([read(layout) for layout in layouts])

        memory = stacked(lambda a: a.memory_bytes)
        caps = memory_cap_blocks(
            memory, costs.batch_size, costs.block_state_bytes, costs.stored_activation_bytes
        )
        reals = placement.reals
        return cls(
            mean_gain=reals(stacked(link_path_gains)),
            cross_gain=reals(stacked(lambda a: a.cross_gain)),
            memory_bytes=reals(memory),
            memory_cap=placement.as_is(caps.astype(np.int64)),
            present=placement.as_is(np.stack([a.present for a in layouts])),
            full_speed=reals(stacked(lambda a: a.max_clock_hz * a.flops_per_cycle)),
            flops_per_cycle=reals(stacked(lambda a: a.flops_per_cycle)),
            switched_capacitance=reals(stacked(lambda a: a.switched_capacitance)),
            active_power=reals(stacked(lambda a: a.active_power_w)),
        )

    def repeated(self, num_envs: int) -> LayoutTensors:
        """One layout for all environments, without a copy for each."""
        return self._each(lambda a, _: a.expand(num_envs, *a.shape[1:]), self)

    def put(self, rows: Rows, fresh: LayoutTensors) -> LayoutTensors:
        """These layouts with fresh ones in some rows."""
        return self._each(rows.put, fresh)

    def _each(self, function: Callable[[Tensor, Tensor], Tensor], other: LayoutTensors) -> LayoutTensors:
        names = [f.name for f in fields(self)]
        return LayoutTensors(**{n: function(getattr(self, n), getattr(other, n)) for n in names})


def pair_places(devices: int, device: torch.device) -> Tensor:
    """Place of each pair of nodes in a row of pairs, flattened ((K+1)^2,); the diagonal's is past the end."""
    nodes = devices + 1
    index = np.full((nodes, nodes), nodes * devices // 2)
    first, second = np.triu_indices(nodes, 1)
    index[first, second] = index[second, first] = np.arange(len(first))
    return torch.from_numpy(index.ravel()).to(device)
