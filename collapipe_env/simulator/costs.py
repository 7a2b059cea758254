"""Delay, energy, memory and losses of one round under an allocation: a pure function.

This module combines all the physics. The simulator calls it for the rounds that are played. Model-based
schedulers call it for candidate allocations, which have extra leading axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from collapipe_env.ground.arrays import Array, concatenate, namespace
from collapipe_env.ground.registry import Registry
from collapipe_env.kernels.plain_round import CLUSTER, DEVICE, NODE, ROUND
from collapipe_env.physics import delay, energy, overheads, radio
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.elements import (
    PipelineElements,
    allreduce_times,
    collection_times,
    gpipe_makespan,
    relay_times,
    stage_elements,
)
from collapipe_env.physics.links import HopTimes, PlanGraph, hop_times, plan_graph
from collapipe_env.physics.memory import device_memory
from collapipe_env.physics.participation import (
    counted_delay,
    players,
    real_steps,
    whole_steps,
)
from collapipe_env.physics.recomputation import recomputation_terms
from collapipe_env.physics.schedules import split, storage
from collapipe_env.physics.schedules.crossings import Crossings, interleaved_crossings
from collapipe_env.physics.workload import BACKWARD_OVER_FORWARD
from collapipe_env.simulator.own_results import checked_price
from collapipe_env.simulator.plain_costs import PlainCosts, plain_round_costs
from collapipe_env.simulator.round import RoundCosts, Terms, with_terms, without_absent
from collapipe_env.simulator.running import running_state
from collapipe_env.simulator.state import Parameters, SystemState, able_clusters

Pricing: TypeAlias = Callable[[RoundCosts, Parameters, SystemState, Allocation], Terms | None]

PRICES: Registry[Pricing] = Registry(
    "price",
    {
        "server": "collapipe_env.dynamics.server_queue:encoder_terms",
        "replicas": "collapipe_env.dynamics.replicas:replica_terms",
        "migration": "collapipe_env.dynamics.migration:migration_terms",
    },
)
"""Prices beyond the physics of a round, in the order in which they are added: functions of the physics'
round, the scalars, the system and the plan, which return terms; ``None`` adds nothing. A price is on where
the scenario has a process, or terms, of its name."""


def round_costs(
    parameters: Parameters,
    state: SystemState,
    allocation: Allocation,
    interference_w: Array | None = None,
) -> RoundCosts:
    """Evaluate one round (`system_model.md` sections 3 to 7).

    Plain plans in NumPy arrays with one batch axis go through a compiled loop, all others through
    :func:`general_round_costs`; the results agree apart from rounding.

    Args:
        state: Channels, speeds, memories; leading axes broadcastable with the allocation's.
        allocation: The decision to evaluate.
        interference_w: Interference to use instead of the allocation's own (..., N) [W], for solvers that
            hold it fixed. Moments travel under the interference of their own phase.
    """
    costs: RoundCosts | None = None
    state = running_state(state, allocation)
    if interference_w is None and allocation.is_plain:
        compiled = plain_round_costs(parameters, state, allocation, _counted(parameters, state, allocation))
        if compiled is not None:
            costs = _named(compiled, allocation, parameters)
    if costs is None:
        costs = general_round_costs(parameters, state, allocation, interference_w)
    found = []
    for price in _prices(parameters.prices):
        terms = price(costs, parameters, state, allocation)
        if terms is not None:
            found.append(terms)
    return with_terms(costs, parameters, state, found) if found else costs


@lru_cache(maxsize=16)
def _prices(names: tuple[str, ...]) -> tuple[Pricing, ...]:
    shipped, found = PRICES.shipped(), {name: PRICES.get(name) for name in PRICES if name in names}
    return tuple(f if name in shipped else checked_price(name, f) for name, f in found.items())


def _named(costs: PlainCosts, allocation: Allocation, parameters: Parameters) -> RoundCosts:
    """The compiled loop's rows as one object."""
    rounds, clusters, nodes, devices = costs
    extra = parameters.overheads
    return RoundCosts(
        delay=rounds[ROUND.delay],
        cluster_delay=clusters[CLUSTER.delay],
        local_step=clusters[CLUSTER.local_step],
        allreduce=clusters[CLUSTER.allreduce],
        update=clusters[CLUSTER.update],
        collect=clusters[CLUSTER.collect],
        upload=clusters[CLUSTER.upload],
        relay=clusters[CLUSTER.relay],
        barrier=clusters[CLUSTER.barrier],
        broadcast=rounds[ROUND.broadcast],
        energy=nodes[NODE.energy],
        energy_ratio=nodes[NODE.energy_ratio],
        memory=devices[DEVICE.memory],
        survival=clusters[CLUSTER.survival],
        interference=clusters[CLUSTER.interference],
        elements=PipelineElements(
            hop_forward=nodes[NODE.hop_forward],
            hop_backward=nodes[NODE.hop_backward],
            compute_forward=devices[DEVICE.compute_forward],
            compute_backward=devices[DEVICE.compute_backward],
            uplink=clusters[CLUSTER.uplink],
            downlink=clusters[CLUSTER.downlink],
            server_forward=clusters[CLUSTER.server_forward],
            server_backward=clusters[CLUSTER.server_backward],
            latency=clusters[CLUSTER.latency],
            hop_latency=extra.latency_s,
            edge_latency=extra.edge_latency_s,
        ),
        allocation=allocation,
        budget_period_s=parameters.budget_period_s,
        idle_round_s=parameters.idle_round_s,
        local_steps=taken_steps(parameters, allocation),
        server_budget_j=parameters.server.budget_j or math.inf,
    )


class _Links(NamedTuple):
    """Rates and failures of all links under a plan."""

    interference: Array
    snr: Array
    rates: Array
    uplink_rate: Array
    downlink_rate: Array
    broadcast_rate: Array
    uplink_exponent: Array


class _Traffic(NamedTuple):
    """Traffic of a micro-batch on the hops: each node's airtime both ways, and failures of all hops."""

    hops: HopTimes
    crossings: Crossings | None
    airtime: Array
    received: Array | None
    loss_exponent: Array


def general_round_costs(
    parameters: Parameters,
    state: SystemState,
    allocation: Allocation,
    interference_w: Array | None = None,
) -> RoundCosts:
    """Evaluate one round of any plan on any array library; arguments as for :func:`round_costs`."""
    xp = namespace(state.uplink_gain, allocation.bandwidth)
    costs, state = parameters.costs, running_state(state, allocation)
    steps = real_steps(allocation, costs.local_steps)
    device_steps = steps[..., None]
    graph = plan_graph(allocation)
    links = _links(parameters, state, allocation, graph, interference_w)

    # The array API standard leaves mixing of integers and reals open, hence the explicit types.
    micro_batches = xp.astype(allocation.micro_batches, state.speed.dtype)
    device_blocks = xp.astype(allocation.device_blocks, state.speed.dtype)
    samples = costs.batch_size / micro_batches
    traffic = _traffic(parameters, allocation, graph, links, samples)
    maths = delay.stage_time(samples[..., None], device_blocks, costs.block_forward_flops, state.speed)
    maths = allocation.of_share(maths)
    launch = overheads.launch_time(device_blocks, parameters.overheads.block_cycles, state.clock)
    work = maths + launch
    server, server_weight = split.server_times(parameters, allocation, samples, state.server_share)
    terms = recomputation_terms(parameters, allocation)
    ratio = terms.backward_over_forward
    elements = _elements(parameters, graph, links, traffic.hops, samples, (work, ratio * work), server)

    local_step = gpipe_makespan(elements, micro_batches)
    if allocation.is_scheduled:
        # Imported here: plans with GPipe need not load the compiled schedules.
        from collapipe_env.physics.schedules import chains

        # A backward pass takes rho times the launches of a forward pass; one of them is for weight gradients.
        weight = graph.per_stage((costs.block_weight_flops / costs.block_forward_flops) * maths + launch)
        elements = chains.with_weight_gradients(elements, weight, server_weight, traffic.crossings)
        local_step = chains.scheduled_steps(parameters, allocation, graph, elements, local_step)

    passes = steps * micro_batches
    payload = device_blocks * costs.block_payload_bits
    collection = collection_times(graph, links.rates[..., 1:, 0], payload)
    airtime = energy.device_airtime(passes[..., None], traffic.airtime[..., 1:], collection)
    in_groups: Array = 0.0  # airtime of all-reduces
    if graph.same_stage is None:
        allreduce = xp.zeros_like(local_step)
    else:
        group_time = allreduce_times(graph, links.rates, device_blocks * costs.block_gradient_bits)
        allreduce = xp.max(group_time, axis=-1)
        local_step = local_step + allreduce
        in_groups = device_steps * group_time
        airtime = airtime + in_groups
    updates = overheads.update_time(device_blocks, parameters.overheads.update_cycles, state.clock)
    update = xp.max(updates, axis=-1)
    local_step = local_step + update
    if allocation.is_split:
        local_step = split.split_steps(parameters, allocation, elements, allreduce + update, local_step)

    collect = xp.max(collection, axis=-1)
    update_bits, broadcast_bits = split.update_payloads(costs, allocation)
    upload = delay.upload_time(update_bits, links.uplink_rate)
    relay = barrier = xp.zeros_like(upload)
    paced = local_step
    if parameters.barrier:
        paced = split.paced_steps(allocation, local_step, steps)
        barrier = paced - local_step
    cluster_delay = delay.cluster_delay(steps, paced, collect, upload)
    broadcast = delay.broadcast_time(broadcast_bits, links.broadcast_rate)

    received: Array | None = None
    if traffic.received is not None:
        received = passes[..., None] * traffic.received
        from_all = xp.sum(collection, axis=-1)[..., None]
        received = concatenate((received[..., :1] + from_all, received[..., 1:] + in_groups))
    cu_airtime = energy.cu_airtime(passes, traffic.airtime[..., 0], elements.uplink, upload)
    hops = passes * traffic.airtime[..., 0]
    if parameters.distribution == "relay":
        sent = relay_times(
            graph, links.rates[..., 0, 1:], device_blocks * split.relay_payload(costs, allocation)
        )
        relay = xp.sum(sent, axis=-1)
        cluster_delay, cu_airtime, hops = relay + cluster_delay, cu_airtime + relay, hops + relay
        if received is not None:
            received = concatenate((received[..., :1], received[..., 1:] + sent))
    joules = concatenate(
        (
            _cu_energy(parameters, allocation, cu_airtime, hops, received)[..., None],
            _device_energy(
                parameters,
                state,
                allocation,
                energy.compute_time(passes[..., None], work, ratio) + device_steps * updates,
                airtime,
                received,
            ),
        )
    )

    survival = xp.ones_like(cluster_delay)
    if parameters.lossy:
        uplink_loss = radio.loss_exponent(links.uplink_exponent, parameters.transmissions)
        survival = radio.survival(traffic.loss_exponent + uplink_loss)
    in_flight, state_bytes, working = storage.memory_terms(costs, allocation, terms)
    found = RoundCosts(
        delay=delay.round_delay(xp.max(cluster_delay, axis=-1), broadcast),
        cluster_delay=cluster_delay,
        local_step=local_step,
        allreduce=allreduce,
        update=update,
        collect=collect,
        upload=upload,
        relay=relay,
        barrier=barrier,
        broadcast=broadcast,
        energy=joules,
        energy_ratio=joules / state.budget,
        memory=device_memory(device_blocks, in_flight, state_bytes, terms.activation_bytes, working),
        survival=survival,
        interference=links.interference,
        elements=elements,
        allocation=allocation,
        budget_period_s=parameters.budget_period_s,
        idle_round_s=parameters.idle_round_s,
        local_steps=taken_steps(parameters, allocation),
        server_budget_j=parameters.server.budget_j or math.inf,
    )
    counted = _counted(parameters, state, allocation)
    return found if counted is None else without_absent(found, counted)


def _counted(parameters: Parameters, state: SystemState, allocation: Allocation) -> Array | None:
    """``T_n`` of clusters that sit out, see :func:`counted_delay`; ``None`` where all take part."""
    if allocation.participates is None:
        return None
    able = None if parameters.idle_round_s is None else able_clusters(parameters, state)
    return counted_delay(allocation, able, parameters.idle_round_s)


def _device_energy(
    parameters: Parameters,
    state: SystemState,
    allocation: Allocation,
    compute_time: Array,
    airtime: Array,
    received: Array | None,
) -> Array:
    radio_power = parameters.radio_power
    drawn = energy.radio_power(allocation.device_power, radio_power.d2d_circuit_w, radio_power.efficiency)
    receiver = 0.0 if received is None else radio_power.receive_w * received[..., 1:]
    return energy.device_energy(state.compute_power, compute_time, drawn, airtime, receiver)


def _cu_energy(
    parameters: Parameters, allocation: Allocation, airtime: Array, hops: Array, received: Array | None
) -> Array:
    radio_power = parameters.radio_power
    heard: Array = 0.0 if received is None else received[..., 0]
    circuits = energy.circuit_energy(radio_power, hops, airtime - hops, heard)
    return energy.cu_energy(allocation.cu_power / radio_power.efficiency, airtime, circuits)


def _links(
    parameters: Parameters,
    state: SystemState,
    allocation: Allocation,
    graph: PlanGraph,
    interference_w: Array | None,
) -> _Links:
    p, share, cu_power, gain = parameters, allocation.bandwidth, allocation.cu_power, state.uplink_gain
    power, plays = allocation.node_power, players(allocation)
    xp = namespace(share)
    share = xp.where(plays, share, xp.ones_like(share))  # an unread share may be zero
    if interference_w is None:
        sent = radio.mean_active_power(power, graph.active)
        sent = xp.where(plays, sent, xp.zeros_like(sent))
        interference_w = radio.interference(state.cross_gain, sent)
    noise = radio.d2d_noise(p.noise_density, p.d2d_bandwidth_hz, interference_w)
    snr = radio.d2d_snr(power, state.d2d_gain, noise)
    downlink = (p.downlink_noise_w, p.downlink_bandwidth_hz)
    return _Links(
        interference=interference_w,
        snr=snr,
        rates=radio.shannon_rate(radio.usable_snr(snr, p.d2d_snr_cap), p.d2d_bandwidth_hz),
        uplink_rate=radio.uplink_rate(share, cu_power, gain, p.uplink_noise_w, p.uplink_bandwidth_hz),
        downlink_rate=radio.downlink_rate(share, p.bs_power_w, gain, *downlink),
        broadcast_rate=radio.broadcast_rate(p.bs_power_w, gain, *downlink),
        uplink_exponent=radio.uplink_failure_exponent(
            share, cu_power, gain, p.uplink_noise_w, p.waterfall_threshold
        ),
    )


def _traffic(
    parameters: Parameters, allocation: Allocation, graph: PlanGraph, links: _Links, samples: Array
) -> _Traffic:
    costs, chunks = parameters.costs, allocation.schedules.chunks

    def times(chain: PlanGraph, often: Array | None = None) -> HopTimes:
        return hop_times(
            chain,
            links.snr,
            links.rates,
            samples * costs.activation_bits,
            samples * costs.gradient_bits,
            waterfall_threshold=parameters.waterfall_threshold,
            transmissions=parameters.transmissions,
            overheads=parameters.overheads,
            receivers=parameters.radio_power.receive_w > 0.0,
            crossings_between_devices=often,
        )

    if allocation.is_scheduled and namespace(samples).any(chunks > 1):
        hops = times(graph, chunks)
        crossings = interleaved_crossings(graph, hops, times(graph.wrap_around()), chunks)
        return _Traffic(hops, crossings, crossings.airtime, crossings.received, crossings.loss_exponent)
    hops = times(graph)
    received = None
    if hops.received_forward is not None:
        received = hops.received_forward + hops.received_backward
    return _Traffic(hops, None, hops.forward + hops.backward, received, hops.loss_exponent)


def _elements(
    parameters: Parameters,
    graph: PlanGraph,
    links: _Links,
    hops: HopTimes,
    samples: Array,
    work: tuple[Array, Array],
    server: Array,
) -> PipelineElements:
    costs = parameters.costs
    hop_forward, hop_backward, forward, backward = stage_elements(graph, hops, *work)
    xp, extra = namespace(samples), parameters.overheads
    stages = xp.sum(xp.astype(graph.leader, samples.dtype), axis=-1)
    uplink = delay.edge_time(samples, costs.activation_bits, links.uplink_rate)
    if parameters.transmissions > 1.0:
        uplink = uplink * radio.expected_transmissions(links.uplink_exponent, parameters.transmissions)
    return PipelineElements(
        hop_forward=hop_forward,
        hop_backward=hop_backward,
        compute_forward=forward,
        compute_backward=backward,
        uplink=uplink + extra.edge_message_s,
        downlink=delay.edge_time(samples, costs.gradient_bits, links.downlink_rate) + extra.edge_message_s,
        server_forward=server,
        server_backward=BACKWARD_OVER_FORWARD * server,
        latency=overheads.latency_of_chain(stages, extra),
        hop_latency=extra.latency_s,
        edge_latency=extra.edge_latency_s,
    )


def taken_steps(parameters: Parameters, allocation: Allocation) -> Array | None:
    """Local steps of the clusters (..., N), int; ``None`` where the scenario settles them."""
    if allocation.local_steps is None and not parameters.local_steps_choices:
        return None
    return whole_steps(allocation, parameters.costs.local_steps)


def seconds_per_bit(parameters: Parameters, state: SystemState, power: Array, disturbance: Array) -> Array:
    """Airtime of a bit from node to node (..., N, K+1, K+1) [s], sender first.

    Args:
        power: Transmit powers of the CU and the devices (..., N, K+1) [W].
        disturbance: Interference in each cluster (..., N) [W].
    """
    p = parameters
    noise = radio.d2d_noise(p.noise_density, p.d2d_bandwidth_hz, disturbance)
    snr = radio.d2d_snr(power, state.d2d_gain, noise)
    # A node has no link to itself: an infinite SNR makes its time zero instead of NaN.
    snr = namespace(snr).where(snr > 0.0, snr, math.inf)
    rates = radio.shannon_rate(radio.usable_snr(snr, p.d2d_snr_cap), p.d2d_bandwidth_hz)
    exponent = radio.failure_exponent(snr, p.waterfall_threshold)
    seconds: Array = radio.seconds_per_bit(rates, exponent, p.transmissions)
    return seconds
