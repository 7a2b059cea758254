"""The graph net as a scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from collapipe_env.agents.dssra.argument_checks import require_weights
from collapipe_env.agents.dssra.hazard_memory import FailureRisk, failure_risk
from collapipe_env.agents.dssra.option_table import MICRO_BATCHES
from collapipe_env.agents.dssra.parallel_rounds import as_record
from collapipe_env.agents.dssra.round_input import round_input
from collapipe_env.dynamics.channel_knowledge import gains_are_exact
from collapipe_env.envs.graph_observation import GraphObserver
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import StateScheduler
from collapipe_env.simulator.refusal import require_budgets_per_round, require_room
from collapipe_env.simulator.state import SystemState

from .cluster_needs import system_times
from .compiled_net import NetWeights
from .decision_rows import Fixed, decide_rows
from .net_inputs import log_snr_cap, scale_slopes, shared_columns
from .process_inputs import HEAT_INPUTS, process_inputs


class GraphScheduler(StateScheduler):
    """Plays the graph net; deterministic, with the same plan for a row in any batch.

    Args:
        weights: The net's weights, from :func:`packed_weights`.
        heads: Heads of attention.
        exact_shares: Whether the uplink is shared out exactly for the net's segments and powers, as DSSRA
            does; otherwise the net also decides the shares. Where gains are hidden, a net trained for that
            departs from the shares that are exact at the known gains.
        tradeoff_v: Lyapunov ``V`` [1/s], > 0; the scenario's by default.

    Raises:
        AllocationError: If an argument is out of range.
        ScenarioError: Budgets are per second.
    """

    name = "graph net"

    def __init__(
        self,
        scenario: Scenario,
        weights: NetWeights,
        heads: int,
        *,
        exact_shares: bool = True,
        tradeoff_v: float | None = None,
    ) -> None:
        super().__init__(scenario)
        require_budgets_per_round(f"scheduler {self.name!r}", self.parameters)
        V = self.parameters.tradeoff_v if tradeoff_v is None else tradeoff_v
        V, _ = require_weights(self.name, V, 0.0)
        parameters = replace(self.parameters, tradeoff_v=V)
        self._observer = GraphObserver(parameters)
        self._record: Any = as_record(parameters.numbers)
        self._weights = weights
        self._fixed = Fixed(
            shared=np.array(shared_columns(self._observer.context, np.float64(0.0))),
            scale_slopes=np.array(scale_slopes()),
            log_cap=float(log_snr_cap(self._observer.context)),
            log_worth=float(np.log(V / parameters.clusters)),
            heads=heads,
            exact_shares=int(exact_shares),
            departs=int(not gains_are_exact(scenario) and _has_share_head(weights)),
            times=system_times(self._observer),
        )
        self._risk = self._failure_risk()

    def with_own_shares(self) -> GraphScheduler:
        """The same net with its own shares of the uplink in place of the exact ones."""
        other = copy(self)
        other._risk = self._failure_risk()
        other._fixed = self._fixed._replace(exact_shares=0)
        return other

    def _failure_risk(self) -> FailureRisk | None:
        """Estimates of failures, if the net reads them."""
        reads = self._weights.process_w[HEAT_INPUTS:].any()
        return failure_risk(self.scenario) if reads else None

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
        inputs = round_input(self.parameters, state, exact_drift=True)
        require_room(inputs.cap[:, 0], self.parameters.costs.blocks)
        E, N, K = state.present.shape
        blocks, power = np.empty((E, N, K), np.int64), np.empty((E, N, K + 1))
        share, option = np.empty((E, N)), np.empty((E, N), np.int64)
        decide_rows(
            self._observer.system(state),
            inputs,
            self._record,
            self._fixed,
            self._weights,
            process_inputs(state),
            blocks,
            power,
            share,
            option,
        )
        return Allocation(
            blocks=blocks,
            micro_batches=inputs.options[0, option, MICRO_BATCHES],
            bandwidth=share,
            device_power=power[..., 1:],
            cu_power=power[..., 0],
        )


def packed_weights(state: Mapping[str, Any], layers: int) -> NetWeights:
    """Weights for compiled decisions.

    Args:
        state: Weights by the names of :class:`~.net.GraphNet`, arrays or tensors on the CPU.
        layers: Layers of attention.
    """

    def get(name: str, part: str) -> Any:
        array = np.asarray(state[f"{name}.{part}"], dtype=np.float32)
        return np.ascontiguousarray(array.T if array.ndim == 2 else array)

    packed = {"process_w": np.concatenate((get("heat", "weight"), get("risk", "weight")))}
    for field in [name for name in NetWeights._fields if name not in packed]:
        name, _, kind = field.rpartition("_")
        part = "weight" if kind == "w" else "bias"
        if f"{name}.{part}" in state:
            packed[field] = get(name, part)
        else:
            packed[field] = np.stack([get(f"layers.{i}.{name}", part) for i in range(layers)])
    return NetWeights(**packed)


def _has_share_head(weights: NetWeights) -> bool:
    """Whether the net departs from exact shares: a head of zeros changes nothing but roundings."""
    return bool(weights.share_head_w.any() or weights.share_head_b.any())
