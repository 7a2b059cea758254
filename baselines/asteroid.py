"""Asteroid (Ye et al., MobiCom 2024, arXiv 2408.08015): hybrid pipeline parallelism, planned every round.

Stated by the public abstract: devices are grouped into stages, data parallel inside a stage and pipelined
between stages, and a dynamic programme together with memory-aware scheduling of micro-batches plans that.
The two planner algorithms here follow ``algorithms.md`` 2.1 and 2.2, which describe a public
re-implementation and were not checked against the paper ([R]). Ours beyond that ([R], [X]):

* "layers" are whole encoder blocks and a device's profile is linear in the samples;
* shares ``y_k`` are whole samples of a micro-batch (``y_k b`` is an integer), as Algorithm 1 deals them;
  a device that is dealt none holds nothing and is left out of its stage;
* the planner's latency is the tie-free form of 2.2 over all steps: stages, the links between groups at
  their slowest pair (the round is charged with the pairs' own rates and shares), and besides them the hops
  from and to the CU, the uplink and the server, because the data and the decoder are there;
* the programme remembers the first stage of each suffix, which makes it exact for that latency;
* the best plans for each number of stages are finally compared by the delay that the simulator charges;
* the simulator prices GPipe, so memory must hold all ``M`` micro-batches of a device's share. Asteroid's
  1F1B with ``K_p = 2 (P - p) - 1`` micro-batches in flight would need less of it; it is not priced yet.

Devices are ordered by memory, largest first. Queues are ignored.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from collapipe_env.allocation import Allocation, stack_allocations
from collapipe_env.baselines.asteroid_planner import best_plans, lengthened
from collapipe_env.errors import AllocationError
from collapipe_env.physics import radio
from collapipe_env.physics.workload import BACKWARD_OVER_FORWARD
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import REFERENCE_MICRO_BATCHES, even_split
from collapipe_env.simulator.state import SystemParameters, SystemState

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

PASSES = 1.0 + BACKWARD_OVER_FORWARD
"""Forward and backward work together, in forward passes."""


def sample_limits(parameters: SystemParameters, state: SystemState, micro_batches: int) -> IntArray:
    """Most samples of a micro-batch that each device's memory allows under GPipe.

    Args:
        parameters: Scalars of the scenario.
        state: The system (E, ...).
        micro_batches: ``M``, all of which are in flight.

    Returns:
        Samples (E, N, L+1, K) for a stage of 0..L blocks, at most ``b``; 0 for absent devices.
    """
    costs = parameters.costs
    held = np.maximum(np.arange(costs.blocks + 1), 1)[:, None]
    room = np.asarray(state.memory_bytes)[..., None, :] / held - costs.block_state_bytes
    # What fits up to rounding fits: the check has a larger slack.
    most = np.floor(room / (micro_batches * costs.stored_activation_bytes) + 1e-9)
    most = np.where(state.present[..., None, :], most, 0.0)
    limit: IntArray = np.clip(most, 0, costs.batch_size // micro_batches).astype(np.int64)
    return limit


def link_seconds(
    parameters: SystemParameters, state: SystemState, defaults: Allocation
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Times of the links at equal bandwidth and full power.

    Args:
        parameters: Scalars of the scenario.
        state: The system (E, ...).
        defaults: Bandwidth, powers and micro-batches.

    Returns:
        Activations and gradients of a micro-batch between nodes (E, N, K+1, K+1), one block's parameters
        between devices (E, N, K, K), and the uplink and downlink of a micro-batch (E, N) [s].
    """
    costs = parameters.costs
    samples = costs.batch_size / defaults.micro_batches
    # Everybody sends at full power, so the mean power of a cluster's active nodes depends on no plan.
    disturbance = radio.interference(state.cross_gain, defaults.cu_power)
    noise = radio.d2d_noise(parameters.noise_density, parameters.d2d_bandwidth_hz, disturbance)
    snr = radio.d2d_snr(defaults.node_power, state.d2d_gain, noise)
    with np.errstate(divide="ignore"):  # nodes do not send to themselves
        bit_s = 1.0 / radio.shannon_rate(snr, parameters.d2d_bandwidth_hz)
        exponent = parameters.waterfall_threshold / snr
    up_s = (
        samples
        * costs.activation_bits
        / radio.uplink_rate(
            defaults.bandwidth,
            defaults.cu_power,
            state.uplink_gain,
            parameters.uplink_noise_w,
            parameters.uplink_bandwidth_hz,
        )
    )
    down_s = (
        samples
        * costs.gradient_bits
        / radio.downlink_rate(
            defaults.bandwidth,
            parameters.bs_power_w,
            state.uplink_gain,
            parameters.downlink_noise_w,
            parameters.downlink_bandwidth_hz,
        )
    )
    packet_s = bit_s
    if parameters.link_errors == "arq":
        packet_s = bit_s * radio.expected_transmissions(exponent)
        up_s = up_s * radio.expected_transmissions(
            radio.uplink_failure_exponent(
                defaults.bandwidth,
                defaults.cu_power,
                state.uplink_gain,
                parameters.uplink_noise_w,
                parameters.waterfall_threshold,
            )
        )
    there = samples[..., None, None] * costs.activation_bits * packet_s
    back = samples[..., None, None] * costs.gradient_bits * packet_s.swapaxes(-1, -2)
    return there + back, costs.block_payload_bits * bit_s[..., 1:, 1:], up_s + down_s


class Asteroid:
    """Groups of devices in stages, planned for the speeds, memories and channels of the moment.

    Equal bandwidth, full power and fixed ``M`` as in the even split, so that a difference to it is due to
    stages and groups.

    Args:
        scenario: The scenario to schedule.
        micro_batches: Wanted number of micro-batches; the nearest allowed one is used.
    """

    name = "Asteroid"

    def __init__(self, scenario: Scenario, *, micro_batches: int = REFERENCE_MICRO_BATCHES) -> None:
        self.scenario = scenario
        self.parameters = system_parameters(scenario)
        self.micro_batches = micro_batches

    def reset(self, seed: int | None = None) -> None:
        """Nothing to forget and nothing random."""

    def act(
        self,
        observation: npt.NDArray[np.float32],  # noqa: ARG002 - part of the interface
        state: SystemState,
    ) -> Allocation:
        """Decide one round; the action box cannot express groups, so this is an allocation.

        Args:
            observation: Not used.
            state: The system before the round (E, ...).

        Raises:
            AllocationError: No plan fits the memories of some cluster.
        """
        latency, plans = self.candidates(state)
        with_axis = state.map(lambda a: a[None])
        delay = round_costs(self.parameters, with_axis, plans).cluster_delay
        choice = np.where(np.isfinite(latency), delay, np.inf).argmin(axis=0)

        def chosen(values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
            index = choice[None] if values.ndim == 3 else choice[None, ..., None]
            best: npt.NDArray[np.generic] = np.take_along_axis(values, index, axis=0)[0]
            return best

        return plans.map(chosen)

    def candidates(self, state: SystemState) -> tuple[FloatArray, Allocation]:
        """The planner's best plan for each number of stages.

        Args:
            state: The system (E, ...).

        Returns:
            Planned latency of a local step (K, E, N), index 0 for one stage, infinite where there is no
            plan with so many stages [s]; and the plans with leading axes (K, E). Where there is none, the
            cluster's plan with the fewest stages stands in.

        Raises:
            AllocationError: No plan fits the memories of some cluster.
        """
        costs = self.parameters.costs
        L = costs.blocks
        environments, N, K = state.present.shape
        # The defaults' own segments are not used; where they do not exist the planner may still succeed.
        roomy = replace(state, memory_cap=np.where(state.present, L, 0))
        defaults = even_split(self.parameters, roomy, self.micro_batches)
        M = int(defaults.micro_batches.flat[0])
        samples = costs.batch_size // M
        limits = sample_limits(self.parameters, state, M)
        hop_s, ring_s, edge_s = link_seconds(self.parameters, state, defaults)
        sample_s = PASSES * costs.block_forward_flops / state.speed
        cluster_flops = self.parameters.server_flops / self.parameters.clusters
        server_s = PASSES * samples * costs.decoder_forward_flops / cluster_flops

        latency = np.full((K, environments, N), np.inf)
        blocks = np.zeros((K, environments, N, K), dtype=np.int64)
        stage = np.full(blocks.shape, -1, dtype=np.int64)
        share = np.zeros(blocks.shape)
        for e, n in np.ndindex(environments, N):
            ranked = np.argsort(-state.memory_bytes[e, n], kind="stable")
            order = ranked[state.present[e, n][ranked]]
            nodes = np.concatenate(([0], order + 1))
            tail_s = lengthened(lengthened(0.0, server_s, 0.0, M), float(edge_s[e, n]), 0.0, M)
            found, lengths, slots, dealt = best_plans(
                L,
                samples,
                M,
                np.ascontiguousarray(sample_s[e, n, order]),
                np.ascontiguousarray(limits[e, n][:, order]),
                np.ascontiguousarray(hop_s[e, n][np.ix_(nodes, nodes)]),
                np.ascontiguousarray(ring_s[e, n][np.ix_(order, order)]),
                tail_s,
            )
            if not np.isfinite(found).any():
                raise AllocationError(
                    f"environment {e}, cluster {n}: no grouping of its {len(order)} devices holds the "
                    f"{L} blocks and the activations of a mini-batch: no plan exists"
                )
            size = len(order)
            latency[:size, e, n] = found
            fewest = int(np.isfinite(found).argmax())
            for p in range(K):
                row = p if p < size and np.isfinite(found[p]) else fewest
                blocks[p, e, n, :size] = lengths[row]
                stage[p, e, n, order] = slots[row]
                share[p, e, n, order] = dealt[row] / samples
        base = stack_allocations([replace(defaults, blocks=blocks[0])] * K)
        return latency, replace(base, blocks=blocks, stage=stage, share=share)
