"""Times of planned chains without the planners' own recurrence: from rates, and event by event."""

import numpy as np

from collapipe_env.baselines.planning.chain_problem import plan_times
from collapipe_env.physics.allocation import ASYNC
from collapipe_env.physics.schedules.makespans import run_chain
from oracles.links import efficiency, tries_and_success


def full_power_rates(parameters, state):
    """Rates between nodes at full power (E, N, K+1, K+1) and expected transmissions of a packet."""
    power = np.full((*state.present.shape[:-1], state.present.shape[-1] + 1), parameters.power_max_w)
    disturbance = parameters.sharing.duty * parameters.power_max_w * state.cross_gain.sum(axis=-2)
    noise = parameters.noise_density * parameters.d2d_bandwidth_hz + disturbance
    snr = power[..., None] * state.d2d_gain / noise[..., None, None]
    rates, repeats = np.zeros(snr.shape), np.zeros(snr.shape)
    for at in zip(*np.nonzero(snr), strict=True):
        rates[at] = parameters.d2d_bandwidth_hz * efficiency(parameters.link, snr[at])
        repeats[at], _ = tries_and_success(parameters, snr[at])
    return rates, repeats


def sample_times(parameters, state, micro_batches):
    """Of one sample, both ways: a block on each device (E, N, K), and each hop with its messages."""
    costs, extra, b = parameters.costs, parameters.overheads, parameters.costs.batch_size / micro_batches
    rates, repeats = full_power_rates(parameters, state)
    packet_s = repeats / np.where(rates > 0, rates, np.inf)
    packet_s = packet_s / parameters.sharing.duty
    back_s = np.swapaxes(packet_s, -1, -2)
    block_s = 3.0 * costs.block_forward_flops / state.speed + 3.0 * extra.block_cycles / b / state.clock
    hop_s = costs.activation_bits * packet_s + costs.gradient_bits * back_s
    messages_s = 2.0 * extra.message_s / b / parameters.sharing.duty
    return block_s, hop_s + extra.header_bits / b * (packet_s + back_s) + messages_s


def simulated(problem, plan):
    """What a plan takes, event by event: shares nothing with the recurrence that planners price with."""
    arrays = plan.arrays()
    runs = int(problem.numbers.local_steps) if arrays.schedule == ASYNC else 1
    times, M, one_event = plan_times(problem, arrays), plan.micro_batches * runs, np.zeros((1, 6))
    duplex = problem.numbers.half_duplex
    step = run_chain(times, arrays.schedule, arrays.caps, plan.chunks, M, duplex, one_event)
    collect, update = (
        max(h * each[k] for h, k in zip(plan.held, plan.devices, strict=True))
        for each in (problem.times.block_collect, problem.times.block_update)
    )
    to_device = problem.times.link_bit[0, 1:]
    relay = sum(
        h * problem.numbers.relay_bits * to_device[k] for h, k in zip(plan.held, plan.devices, strict=True)
    )
    return (step / runs + update) * problem.numbers.local_steps + collect + relay
