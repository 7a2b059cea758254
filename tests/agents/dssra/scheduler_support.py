"""What the tests of the schedulers share: systems, backlogs, plans, and played rounds."""

from dataclasses import fields, replace

import numpy as np
from baseline_support import decide
from unpriced_support import unpriced

from collapipe_env.learners.idle import IdleLearner
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import action_codec
from collapipe_env.simulator.world import World

SMALL = load_scenario({"base": "small", "budgets": {"device_energy_j": 12}})
MEDIUM = load_scenario("medium")
MOVING = unpriced(
    {
        "base": "small",
        "cluster": {"devices": [3, 2], "layout": "per_episode"},
        "radio": {"d2e_shadowing_db": 8.0, "d2d_shadowing_db": 4.0, "external_interference_w": 1e-13},
        "dynamics": {"load_levels": [0.5, 1.0]},
        "budgets": {"device_energy_j": 40, "cu_energy_j": 300},
    }
)
ARQ = unpriced(
    {
        "base": "small",
        "radio": {"link_errors": "arq", "waterfall_threshold": 0.1},
        "workload": {"local_steps": 3, "micro_batches": [1, 4]},
        "budgets": {"device_energy_j": 26, "cu_energy_j": 7},
    }
)
PRICED = load_scenario(
    {
        "base": "small",
        "workload": {"local_steps": 2},
        "radio": {
            "rate_ceiling": 11.6,
            "d2d_circuit_w": 0.3,
            "edge_circuit_w": 0.5,
            "amplifier_efficiency": 0.5,
            "receive_w": 0.3,
            "edge_receive_w": 0.5,
            "idle_w": 0.2,
        },
        "overheads": {
            "block_s": 0.003,
            "update_s": 0.05,
            "message_s": 0.001,
            "header_bits": 2000,
            "latency_s": 0.003,
            "edge_message_s": 0.001,
            "edge_latency_s": 0.015,
            "server_s": 0.0005,
        },
        "budgets": {"device_energy_j": 24, "cu_energy_j": 10},
    }
)
ADAPTED = PRICED.with_overrides({
    "name": "adapted",
    "radio.link_errors": "harq",
    "radio.max_transmissions": 4,
    "radio.rate_attenuation": 0.75,
    "radio.rate_ceiling": 7.4,
    "radio.snr_floor_db": -10.0,
    "radio.packet_diversity": 4.0,
    "radio.d2d_total_hz": 40e6,
    "radio.d2d_radios": 1,
    "budgets.cu_energy_j": 14,
})  # fmt: skip
"""Links that adapt to a target error rate, with fading within a round, and one radio a node."""
RELAYED = PRICED.with_overrides({"workload.distribution": "relay", "name": "relayed"})
"""CUs send new weights on to their devices."""
RECOMPUTED = RELAYED.with_overrides({"workload.recompute": True, "name": "recomputed"})
"""Devices also compute activations anew."""
DECISIONS = ("segments", "micro_batches", "bandwidth", "powers", "recompute")
DECIDED = SMALL.with_overrides(
    {"decisions": DECISIONS, "devices.profiles.0.memory_bytes": (2.2e8, 4.5e8), "name": "decided"}
)
"""Plans say where activations are recomputed, and memories differ in what they hold without."""

SCENARIOS = {
    "small": SMALL,
    "medium": MEDIUM,
    "moving": MOVING,
    "arq": ARQ,
    "priced": PRICED,
    "relayed": RELAYED,
    "adapted": ADAPTED,
}

OWN = DECISIONS[:4]
EVERYTHING = (*OWN, "recompute", "schedule", "server_blocks")
OPEN = {
    scenario.name: scenario
    for scenario in (
        DECIDED.with_overrides({"decisions": EVERYTHING, "name": "everything"}),
        PRICED.with_overrides({"decisions": EVERYTHING, "name": "priced"}),
        ARQ.with_overrides({"decisions": EVERYTHING, "name": "arq"}),
        RELAYED.with_overrides({"decisions": EVERYTHING, "name": "relayed"}),
        MEDIUM.with_overrides({"decisions": (*OWN, "schedule", "server_blocks"), "name": "medium"}),
    )
}
"""Scenarios that open schedules, recomputation and the server's blocks."""
OPEN["half"] = OPEN["everything"].with_overrides({"radio.d2d_duplex": "half", "name": "half"})
OPEN["served"] = OPEN["priced"].with_overrides(
    {"server.terms": "contended", "server.energy_budget_j": 4.0, "budgets.tradeoff": 12.0, "name": "served"}
)
OPEN["per second"] = OPEN["served"].with_overrides({"budgets.per": "second", "name": "per second"})


def per_second(scenario):
    return scenario.with_overrides({"budgets.per": "second"})


def start(scenario, rows, seed=0):
    simulator = World(scenario, IdleLearner(rows), rows)
    simulator.reset([np.random.default_rng([seed, row]) for row in range(rows)])
    return simulator


def loaded_state(scenario, rows, seed=0, mean=3.0, silent=0.0, rounds=0):
    """The state after rounds of random plans, with random backlogs; a part ``silent`` of them is zero."""
    world = start(scenario, rows, seed)
    for played in range(rounds):
        world.step(random_plan(scenario, world.state, seed + played))
    state = world.state
    rng = np.random.default_rng([seed, 99])
    backlog = rng.exponential(mean, state.backlog.shape) * (rng.random(state.backlog.shape) >= silent)
    backlog[..., 1:] *= state.present
    if state.server_backlog is not None:
        shown = {**state.processes["server"], "backlog": rng.exponential(mean, rows)}
        state = replace(state, processes={**state.processes, "server": shown})
    return replace(state, backlog=backlog)


def row_of(inputs, e):
    """One environment of the search's input."""
    arrays = {name: np.array(getattr(inputs, name)[e]) for name in inputs._fields[2:]}
    system = type(inputs.system)(*(np.array(a[e]) for a in inputs.system[:-1]), float(inputs.system[-1][e]))
    return inputs._replace(system=system, common=inputs.common[e : e + 1], **arrays)


def random_plan(scenario, state, seed):
    """Any plan (E, ...): those of random actions, with other parts in every cluster."""
    codec = action_codec(scenario)
    actions = np.random.default_rng(seed).uniform(-1.0, 1.0, (len(state.present), codec.action_size))
    return codec.decode(actions, state.memory_cap, state.memory_bytes)


def assert_same(first, second):
    """Two allocations are equal, bit for bit."""
    for field in fields(Allocation):
        np.testing.assert_array_equal(getattr(first, field.name), getattr(second, field.name))


def play(scheduler, rows, rounds, seed=0):
    """Delays (rounds, rows) and energy ratios (rounds, rows, N, K+1); every round is checked."""
    simulator = start(scheduler.scenario, rows, seed)
    scheduler.reset(seed)
    delays, ratios = [], []
    for _ in range(rounds):
        costs = simulator.step(decide(scheduler, simulator.state)).costs
        delays.append(costs.delay)
        ratios.append(costs.energy_ratio)
    return np.array(delays), np.array(ratios)


def neighbours(plan, state):
    """Plans of one row with a block elsewhere, where memories allow that, or another power of a CU."""
    found = []
    for n, giver, taker in np.ndindex(*plan.blocks.shape[1:], plan.blocks.shape[2]):
        blocks = plan.blocks.copy()
        blocks[0, n, giver] -= 1
        blocks[0, n, taker] += 1
        if giver != taker and (blocks >= 0).all() and (blocks <= state.memory_cap).all():
            found.append(replace(plan, blocks=blocks))
    for n in range(plan.cu_power.shape[1]):
        for factor in (0.5, 0.8, 1.25, 2.0):
            power = plan.cu_power.copy()
            power[0, n] = np.clip(power[0, n] * factor, 0.001, 0.1)
            found.append(replace(plan, cu_power=power))
    return found
