"""Costs of one round of any plan on any array library.

Here all the physics comes together. The compiled loop of plain plans
(:mod:`collapipe_env.kernels.plain_round`) uses the same formulas.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from collapipe_env.ground.arrays import Array, concatenate, namespace
from collapipe_env.physics import delay, energy, overheads, packet_errors, radio, rates
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.elements import PipelineElements, allreduce_times, collection_times, gpipe_makespan
from collapipe_env.physics.links import PlanGraph, plan_graph
from collapipe_env.physics.memory import device_memory
from collapipe_env.physics.recomputation import recomputation_terms
from collapipe_env.physics.schedules import split, storage
from collapipe_env.physics.traffic import plan_traffic
from collapipe_env.physics.workload import BACKWARD_OVER_FORWARD
from collapipe_env.simulator.round import RoundCosts, with_idle_radios, without_absent
from collapipe_env.simulator.running import running_state
from collapipe_env.simulator.state import Parameters, SystemState, able_clusters


class _Links(NamedTuple):
    """Rates and failures of all links under a plan."""

    interference: Array
    snr: Array
    rates: Array
    uplink_rate: Array
    downlink_rate: Array
    broadcast_rate: Array
    uplink_exponent: Array


def general_round_costs(
    parameters: Parameters,
    state: SystemState,
    allocation: Allocation,
    interference_w: Array | None = None,
) -> RoundCosts:
    """Evaluate one round; arguments as for :func:`collapipe_env.simulator.costs.round_costs`."""
    xp = namespace(state.uplink_gain, allocation.bandwidth)
    costs, extra, state = parameters.costs, parameters.overheads, running_state(state, allocation)
    steps = allocation.real_steps(costs.local_steps)
    device_steps = steps[..., None]
    graph = plan_graph(allocation)
    links = _links(parameters, state, allocation, graph, interference_w)

    # The array API standard leaves mixing of integers and reals open, hence the explicit types.
    micro_batches = xp.astype(allocation.micro_batches, state.speed.dtype)
    device_blocks = xp.astype(allocation.device_blocks, state.speed.dtype)
    samples = costs.batch_size / micro_batches
    traffic = plan_traffic(parameters, allocation, graph, links.snr, links.rates, samples)
    maths = delay.stage_time(samples[..., None], device_blocks, costs.block_forward_flops, state.speed)
    maths = allocation.of_share(maths)
    launch = overheads.cycles_time(device_blocks, extra.block_cycles, state.clock)
    work = maths + launch
    server, server_weight = split.server_times(parameters, allocation, samples, state.server_share)
    terms = recomputation_terms(parameters, allocation)
    ratio = terms.backward_over_forward
    uplink = delay.message_time(samples * costs.activation_bits, links.uplink_rate)
    transmissions, duty = parameters.link.transmissions, parameters.sharing.duty
    if transmissions > 1.0:
        uplink = uplink * packet_errors.expected_transmissions(links.uplink_exponent, transmissions)
    downlink = delay.message_time(samples * costs.gradient_bits, links.downlink_rate)
    elements = PipelineElements(
        hop_forward=graph.per_group(traffic.hops.forward) / duty,
        hop_backward=graph.per_group(traffic.hops.backward) / duty,
        compute_forward=graph.per_stage(work),
        compute_backward=graph.per_stage(ratio * work),
        uplink=uplink + extra.edge_message_s,
        downlink=downlink + extra.edge_message_s,
        server_forward=server,
        server_backward=BACKWARD_OVER_FORWARD * server,
        latency=overheads.latency_of_chain(xp.sum(xp.astype(graph.leader, samples.dtype), axis=-1), extra),
        hop_latency=extra.latency_s,
        edge_latency=extra.edge_latency_s,
    )

    local_step = gpipe_makespan(elements, micro_batches)
    if allocation.is_scheduled:
        # Imported here: plans with GPipe need not load the compiled schedules.
        from collapipe_env.physics.schedules import chains

        # A backward pass takes rho times the launches of a forward pass; one of them is for weight gradients.
        weight = graph.per_stage((costs.block_weight_flops / costs.block_forward_flops) * maths + launch)
        elements = replace(
            elements,
            compute_weight=weight,
            server_weight=server_weight,
            wrap_forward=traffic.wrap_forward / duty,
            wrap_backward=traffic.wrap_backward / duty,
        )
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
    updates = overheads.cycles_time(device_blocks, extra.update_cycles, state.clock)
    update = xp.max(updates, axis=-1)
    local_step = local_step + update
    if allocation.is_split:
        local_step = split.split_steps(parameters, allocation, elements, allreduce + update, local_step)

    collect = xp.max(collection, axis=-1)
    update_bits, broadcast_bits = split.update_payloads(costs, allocation)
    upload = delay.message_time(update_bits, links.uplink_rate)
    relay = barrier = xp.zeros_like(upload)
    paced = local_step
    if parameters.barrier:
        paced = split.paced_steps(allocation, local_step, steps)
        barrier = paced - local_step
    cluster_delay = delay.cluster_delay(steps, paced, collect, upload)
    broadcast = delay.message_time(broadcast_bits, links.broadcast_rate)

    received = passes[..., None] * traffic.received
    from_all = xp.sum(collection, axis=-1)[..., None]
    received = concatenate((received[..., :1] + from_all, received[..., 1:] + in_groups))
    cu_airtime = energy.cu_airtime(passes, traffic.airtime[..., 0], elements.uplink, upload)
    hops = passes * traffic.airtime[..., 0]
    if parameters.distribution == "relay":
        # The CU sends one message after another. In a group every member gets the whole segment.
        message = device_blocks * split.relay_payload(costs, allocation)
        sent = delay.message_time(message, xp.where(graph.active, links.rates[..., 0, 1:], xp.inf))
        relay = xp.sum(sent, axis=-1)
        cluster_delay, cu_airtime, hops = relay + cluster_delay, cu_airtime + relay, hops + relay
        received = concatenate((received[..., :1], received[..., 1:] + sent))
    radios = parameters.radio_power
    drawn = energy.radio_power(allocation.device_power, radios.d2d_circuit_w, radios.efficiency)
    computing = energy.compute_time(passes[..., None], work, ratio) + device_steps * updates
    receiver = radios.receive_w * received[..., 1:]
    of_devices = energy.device_energy(state.compute_power, computing, drawn, airtime, receiver)
    from_edge: Array = 0.0
    if radios.edge_receive_w > 0.0:
        from_edge = passes * elements.downlink + broadcast[..., None]
    circuits = energy.circuit_energy(radios, hops, cu_airtime - hops, received[..., 0], from_edge)
    of_cu = energy.cu_energy(allocation.cu_power / radios.efficiency, cu_airtime, circuits)
    joules = concatenate((of_cu[..., None], of_devices))

    survival = xp.ones_like(cluster_delay)
    if parameters.lossy:
        uplink_loss = packet_errors.loss_exponent(links.uplink_exponent, transmissions)
        survival = packet_errors.survival(traffic.loss_exponent + uplink_loss)
    in_flight, state_bytes, working = storage.memory_terms(costs, allocation, terms)
    found = RoundCosts(
        delay=xp.max(cluster_delay, axis=-1) + broadcast,
        cluster_delay=cluster_delay,
        local_step=local_step,
        allreduce=allreduce,
        update=update,
        collect=collect,
        upload=upload,
        relay=relay,
        barrier=barrier,
        broadcast=broadcast,
        busy_energy=joules,
        energy=joules,
        energy_ratio=joules / state.budget,
        memory=device_memory(device_blocks, in_flight, state_bytes, terms.activation_bytes, working),
        survival=survival,
        interference=links.interference,
        plays=allocation.plays,
        elements=elements,
        allocation=allocation,
        budget_period_s=parameters.budget_period_s,
        idle_round_s=parameters.idle_round_s,
        local_steps=allocation.taken_steps(costs.local_steps, decided=bool(parameters.local_steps_choices)),
        server_budget_j=parameters.server.budget_j,
    )
    if allocation.participates is not None:
        found = without_absent(found, absent_delay(parameters, state, allocation))
    return with_idle_radios(found, parameters, state)


def absent_delay(parameters: Parameters, state: SystemState, allocation: Allocation) -> Array:
    """``T_n`` of clusters that sit out (..., N) [s]: 0, or ``T_ref`` for one that cannot hold the encoder."""
    unable = ~able_clusters(parameters, state)
    return parameters.idle_round_s * namespace(unable).astype(unable, allocation.bandwidth.dtype)


def _links(
    parameters: Parameters,
    state: SystemState,
    allocation: Allocation,
    graph: PlanGraph,
    interference_w: Array | None,
) -> _Links:
    p, share, cu_power, gain = parameters, allocation.bandwidth, allocation.cu_power, state.uplink_gain
    power, plays = allocation.node_power, allocation.plays
    xp = namespace(share)
    share = xp.where(plays, share, xp.ones_like(share))  # an unread share may be zero
    if interference_w is None:
        sent = radio.power_in_a_channel(radio.active_power(power, graph.active), p.sharing)
        sent = xp.where(plays, sent, xp.zeros_like(sent))
        interference_w = radio.interference(state.cross_gain, sent)
    else:
        interference_w = xp.zeros_like(share) + interference_w
    noise = radio.d2d_noise(p.noise_density, p.d2d_bandwidth_hz, interference_w)
    snr = radio.d2d_snr(power, state.d2d_gain, noise)
    downlink = (p.downlink_noise_w, p.downlink_bandwidth_hz)
    uplink_snr = rates.uplink_snr(share, cu_power, gain, p.uplink_noise_w)
    return _Links(
        interference=interference_w,
        snr=snr,
        rates=rates.link_rate(p.link, p.d2d_bandwidth_hz, snr),
        uplink_rate=rates.link_rate(p.link, share * p.uplink_bandwidth_hz, uplink_snr),
        downlink_rate=share * rates.full_band_rate(p.link, p.bs_power_w, gain, *downlink),
        broadcast_rate=rates.full_band_rate(p.link, p.bs_power_w, xp.min(gain, axis=-1), *downlink),
        uplink_exponent=packet_errors.failure_exponent(p.link, uplink_snr),
    )


def seconds_per_bit(parameters: Parameters, state: SystemState, power: Array, disturbance: Array) -> Array:
    """Airtime of a bit from node to node (..., N, K+1, K+1) [s], sender first.

    Args:
        power: Transmit powers of the CU and the devices (..., N, K+1) [W].
        disturbance: Interference in each cluster (..., N) [W].
    """
    p = parameters
    noise = radio.d2d_noise(p.noise_density, p.d2d_bandwidth_hz, disturbance)
    snr = radio.d2d_snr(power, state.d2d_gain, noise)
    # A node has no link to itself.
    xp, linked = namespace(snr), snr > 0.0
    seconds = packet_errors.d2d_seconds_per_bit(p.link, p.d2d_bandwidth_hz, xp.where(linked, snr, 1.0))
    return xp.where(linked, seconds, 0.0)
