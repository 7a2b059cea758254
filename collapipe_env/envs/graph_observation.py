"""The graph observation: control units, devices and hops of any system, in features independent of its size.

Every number is a physical quantity in SI units, mostly as a natural logarithm, or a count; nothing is scaled
by constants of a scenario. One policy can therefore read systems of any size, layout, budget and workload.
Times are those of a whole round. Powers are unknown before the decision: radio features hold at the reference
power, the geometric mean of the least and the greatest. Logarithms are held within :data:`LOG_BOUND`, far
beyond any system, so that a dead link or ``V = 0`` is a finite number.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from gymnasium import spaces

from collapipe_env.envs.graph_additions import build, graph_additions
from collapipe_env.envs.graph_features import CORE, context_of
from collapipe_env.envs.graph_layout import GraphLayout, hops_there
from collapipe_env.ground.arrays import Array, Constant, log1p, loop_array, namespace
from collapipe_env.kernels.graph_rows import (
    GraphSystem,
    cu_columns,
    device_columns,
    graph_rows,
    held,
    hop_columns,
    over_noise,
)
from collapipe_env.physics.parameters import Parameters
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.state import SystemState

_NO_BLOCKS = np.empty((0, 0, 0), np.int64)


@cache
def _shapes(clusters: int, devices: int) -> tuple[tuple[int, ...], ...]:
    """Shapes of the arrays that every scenario has."""
    return tuple(array.sized(clusters, devices).shape for array in CORE)


class GraphArrays(NamedTuple):
    """A graph observation; leading batch axes ``...``.

    Attributes:
        cu: Features of control units (..., N, len(CU.features)).
        device: Features of devices (..., N, K, len(DEVICE.features)), 0 for absent ones.
        hop: Features of hops from node to node (..., N, K+1, K+1, len(HOP.features)), node 0 the CU; 0 for a
            node itself and for absent devices.
        between: Features of two clusters (..., N, N, len(BETWEEN.features)), 0 for a cluster and itself.
        present: 1 if the device is present (..., N, K).
        context: Features of the system (..., len(CONTEXT.features)).
    """

    cu: Array
    device: Array
    hop: Array
    between: Array
    present: Array
    context: Array


class GraphObserver:
    """Builds graph observations of states on any array library.

    Attributes:
        context: Features of the system (len(CONTEXT.features),).
    """

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.context = context_of(parameters)
        self._context = Constant(self.context)

    def build(self, state: SystemState) -> GraphArrays:
        """Graph observations of states (E, ...) in NumPy arrays, as fresh float32 arrays."""
        E, N, K = state.present.shape
        graph = GraphArrays(*(np.empty((E, *shape), np.float32) for shape in _shapes(N, K)))
        graph.context[:] = self.context
        graph_rows(self.parameters.numbers, self.system(state), *graph[:-1])
        return graph

    def system(self, state: SystemState) -> GraphSystem:
        """Arrays of a state (E, ...) that the compiled loop reads."""
        arrays = [getattr(state, name) for name in GraphSystem._fields[:-1]]
        arrays.append(self._previous_blocks(state))
        return GraphSystem(*(loop_array(array, array.dtype) for array in arrays))

    def _previous_blocks(self, state: SystemState) -> Array:
        """Blocks that devices held in the round before (..., N, K), (0, 0, 0) where moving them is free."""
        if "migration" in state.processes and self.parameters.numbers.moment_bits > 0.0:
            return state.processes["migration"]["blocks"]
        return _NO_BLOCKS

    def build_generic(self, state: SystemState) -> GraphArrays:
        """Graph observations of states (..., ) of any array library, of their library and real type."""
        xp, real, p = namespace(state.backlog), state.speed.dtype, self.parameters.numbers
        present, context = xp.astype(state.present, real), self._context.like(state.backlog)
        blocks = self._previous_blocks(state)
        device = device_columns(
            p,
            state.speed,
            state.clock,
            state.compute_power,
            xp.astype(state.memory_cap, real),
            state.budget[..., 1:],
            state.backlog[..., 1:],
            xp.zeros_like(present) if blocks is _NO_BLOCKS else xp.astype(blocks, real),
        )
        cu = cu_columns(
            p,
            state.uplink_gain,
            xp.sum(state.cross_gain, axis=-2),
            state.budget[..., 0],
            state.backlog[..., 0],
            xp.ones_like(state.uplink_gain) * state.server_share[..., None],
        )
        used = hops_there(state.present)
        hop = hop_columns(p, xp.where(used, over_noise(state.d2d_gain, p), 1.0))
        return GraphArrays(
            cu=xp.stack(cu, axis=-1),
            device=xp.stack(device, axis=-1) * present[..., None],
            hop=xp.where(used[..., None], xp.stack(hop, axis=-1), 0.0),
            between=held(log1p(over_noise(state.cross_gain, p)))[..., None],
            present=present,
            context=xp.broadcast_to(context, (*state.uplink_gain.shape[:-1], context.shape[0])),
        )


class GraphObservations:
    """Graph observations as environments hand them out: dictionaries of float32 arrays."""

    def __init__(self, scenario: Scenario) -> None:
        self._additions = graph_additions(scenario)
        self.layout = GraphLayout(scenario.clusters, scenario.max_devices, scenario.blocks, self._additions)
        self._observer = GraphObserver(system_parameters(scenario))

    def space(self) -> spaces.Dict:
        """Space of the observations of one environment."""
        return self.layout.space()

    def build(self, state: SystemState) -> dict[str, Array]:
        """Observations of states (E, ...) in NumPy arrays, as fresh float32 arrays."""
        return {**self._observer.build(state)._asdict(), **self._added(state)}

    def build_generic(self, state: SystemState) -> dict[str, Array]:
        """Observations of states (E, ...) on any array library."""
        xp = namespace(state.backlog)
        graph = self._observer.build_generic(state)._asdict()
        return {**{name: xp.astype(a, xp.float32) for name, a in graph.items()}, **self._added(state)}

    def _added(self, state: SystemState) -> dict[str, Array]:
        return {added.name: build(added, state) for added in self._additions}
