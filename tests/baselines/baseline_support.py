"""What the tests of the baselines share."""

import itertools
from dataclasses import replace

import numpy as np
from unpriced_support import unpriced

from collapipe_env.baselines.planning.chain_problem import plan_times
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.physics import radio
from collapipe_env.physics.allocation import ASYNC, Allocation
from collapipe_env.physics.schedules.makespans import run_chain
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import action_codec
from collapipe_env.simulator.learner import LearningReport

SMALL = load_scenario("small")
UNEVEN = unpriced(
    {
        "base": "small",
        "cluster": {"devices": [3, 2], "layout": "per_episode"},
        "radio": {"link_errors": "arq", "waterfall_threshold": 2.0, "d2d_shadowing_db": 4.0},
        "dynamics": {"load_levels": [0.5, 1.0]},
        "budgets": {"device_energy_j": 40, "cu_energy_j": 3},
        "workload": {"local_steps": 2, "micro_batches": [1, 2, 16]},
    }
)
PRICED = UNEVEN.with_overrides(
    {
        "radio.snr_cap_db": 25,
        "radio.d2d_circuit_w": 1.0,
        "radio.edge_circuit_w": 1.8,
        "radio.amplifier_efficiency": 0.35,
        "radio.receive_w": 0.9,
        "overheads.block_s": 0.008,
        "overheads.update_s": 0.03,
        "overheads.message_s": 0.006,
        "overheads.header_bits": 2e4,
        "overheads.latency_s": 0.011,
        "overheads.edge_message_s": 0.004,
        "overheads.edge_latency_s": 0.03,
        "overheads.server_s": 0.005,
        "budgets.device_energy_j": 100,
        "budgets.cu_energy_j": 60,
        "workload.micro_batches": [1, 2, 4, 8, 16, 64],
    }
)
"""Passes and messages cost whatever their size, radios draw more than they emit, and their rates end."""
RELAYED = PRICED.with_overrides({"workload.distribution": "relay"})
"""CUs send new weights on to their devices."""
RECOMPUTED = RELAYED.with_overrides(
    {"workload.recompute": True, "devices.profiles.0.memory_bytes": [1.3e8, 2.5e8]}
)
"""Devices compute activations anew, since most memories hold those of a block or two only."""


def first_state(scenario, rows, seed=0):
    """The state before the first round, with random backlogs."""
    env = CollaPipeVectorEnv(num_envs=rows, scenario=scenario, learner="surrogate")
    env.reset(seed=seed)
    rng = np.random.default_rng([seed, 7])
    backlog = rng.exponential(2.0, env.state.backlog.shape)
    backlog[..., 1:] *= env.state.present
    return replace(env.state, backlog=backlog)


def decide(scheduler, state):
    """The allocation that a decision stands for."""
    decision = scheduler.act(None, state)
    if isinstance(decision, Allocation):
        return decision
    return action_codec(scheduler.scenario).decode(decision, state.memory_cap)


class Recorder:
    """A learner that learns nothing and keeps what it was told."""

    def __init__(self, rows):
        self.outcomes, self._report = [], LearningReport(*np.ones((3, rows)))

    def reset(self, *_):
        return self._report

    def train_round(self, outcome):
        self.outcomes.append(outcome)
        return self._report


def plans(total, caps):
    """All splits of ``total`` blocks within the caps."""
    return [d for d in itertools.product(*(range(c + 1) for c in caps)) if sum(d) == total]


def full_power_rates(parameters, state):
    """Rates between nodes at full power (E, N, K+1, K+1) and expected transmissions of a packet."""
    power = np.full((*state.present.shape[:-1], state.present.shape[-1] + 1), parameters.power_max_w)
    disturbance = parameters.power_max_w * state.cross_gain.sum(axis=-2)
    noise = parameters.noise_density * parameters.d2d_bandwidth_hz + disturbance
    snr = power[..., None] * state.d2d_gain / noise[..., None, None]
    with np.errstate(divide="ignore"):
        repeats = radio.expected_transmissions(parameters.waterfall_threshold / snr, parameters.transmissions)
    rates = parameters.d2d_bandwidth_hz * np.log2(1.0 + np.minimum(snr, parameters.d2d_snr_cap))
    return rates, repeats


def changed(problem, **values):
    """A chain problem with other times, memories or parameters, by their names."""
    parts = {"times": problem.times, "numbers": problem.numbers}
    for part, fields in parts.items():
        own = {name: values.pop(name) for name in tuple(values) if name in fields._fields}
        parts[part] = fields._replace(**own)
    return problem._replace(**parts, **values)


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
