"""With a most robust format and bounded repeats a round is bounded, however deep the fades."""

import math

import numpy as np
import pytest

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters

LINKS = {
    "link_errors": "harq",
    "max_transmissions": 4,
    "rate_attenuation": 0.75,
    "rate_ceiling": 7.4,
    "snr_floor_db": -10.0,
    "packet_diversity": 4.0,
    "d2d_radios": 1,
    "d2d_total_hz": 40e6,
}
FADES = {"diversity": 1, "d2e_shadowing_db": 8.0, "d2d_shadowing_db": 8.0}


def longest_round(parameters, devices, slowest):
    """Seconds of a round whose links are all 20 dB below the floor and send all repeats.

    Pipelining only shortens it.

    Args:
        devices: Devices of a cluster.
        slowest: Speed of the slowest device [FLOP/s].
    """
    p, c, o, worst = parameters, parameters.costs, parameters.overheads, 0.01 * 0.75 * math.log2(1.1)
    hop, up = worst * p.d2d_bandwidth_hz, worst * p.bandwidth_floor * p.uplink_bandwidth_hz
    down, B, M = worst * p.bandwidth_floor * p.downlink_bandwidth_hz, c.batch_size, c.batch_size
    R, both = p.link.transmissions, c.activation_bits + c.gradient_bits
    step = (devices + 1) * R * B * both / hop / p.sharing.duty
    step += R * B * c.activation_bits / up + B * c.gradient_bits / down
    step += 3.0 * B * (c.blocks * c.block_forward_flops / slowest)
    step += 3.0 * B * c.decoder_forward_flops * p.clusters / p.server_flops
    step += M * (2 * (devices + 1) * (o.message_s / p.sharing.duty + o.latency_s) + 2 * o.edge_message_s)
    step += 2 * o.edge_latency_s + 3 * M * o.server_s
    step += c.blocks * (3 * M * o.block_cycles + o.update_cycles) / 0.5e9
    whole = c.blocks * c.block_payload_bits
    collect, upload = whole / hop, c.update_payload_bits / up
    return (
        c.local_steps * step + collect + upload + p.numbers.broadcast_bits / (worst * p.downlink_bandwidth_hz)
    )


@pytest.mark.filterwarnings("ignore::collapipe_env.feasibility.EnergyBudgetWarning")
def test_random_plans_in_rayleigh_fading_with_8_db_stay_within_the_longest_round():
    scenario = load_scenario({"base": "small", "radio": {**LINKS, **FADES}})
    env = CollaPipeVectorEnv(64, scenario, "surrogate")
    env.reset(seed=11)
    env.action_space.seed(0)
    profile = scenario.devices.profiles[0]
    slowest = profile.clock_min_hz * profile.flops_per_cycle
    bound = longest_round(system_parameters(scenario), scenario.max_devices, slowest)
    longest, at_floor = 0.0, 0
    for _ in range(20):
        _, rewards, *_ = env.step(env.action_space.sample())
        assert np.isfinite(rewards).all()
        longest = max(longest, float(env.last_round.costs.delay.max()))
        at_floor += int((env.last_round.costs.survival < 1e-3).sum())
    assert longest < bound
    assert at_floor > 0  # some links were so bad that nothing arrived
