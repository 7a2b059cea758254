"""What the tests of the baselines share: systems, states, problems of planners and random plans."""

from dataclasses import replace

import numpy as np
from unpriced_support import unpriced

from collapipe_env.baselines.planning.chain_problem import ChainProblem, chain_problems
from collapipe_env.baselines.planning.scheduled_plan import ScheduledPlan, caps_of
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.overheads import Overheads
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import action_codec, system_parameters
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.learner import LearningReport

SMALL = load_scenario("small")
UNEVEN = unpriced(
    {
        "base": "small",
        "cluster": {"devices": [3, 2], "layout": "per_episode"},
        "radio": {"link_errors": "arq", "waterfall_threshold": 2.0, "d2d_shadowing_db": 4.0},
        "dynamics": {"load_levels": [0.5, 1.0]},
        "budgets": {"device_energy_j": 40, "cu_energy_j": 40},
        "workload": {"local_steps": 2, "micro_batches": [1, 2, 16]},
    }
)
PRICED = UNEVEN.with_overrides(
    {
        "radio.rate_ceiling": 8.3,
        "radio.d2d_circuit_w": 1.0,
        "radio.edge_circuit_w": 1.8,
        "radio.amplifier_efficiency": 0.35,
        "radio.receive_w": 0.9,
        "radio.edge_receive_w": 0.8,
        "radio.idle_w": 0.3,
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

HALF = UNEVEN.with_overrides({"radio.d2d_duplex": "half"})
TIGHT = SMALL.with_overrides({"devices.profiles.0.memory_bytes": [190e6, 290e6]})
"""Two or three blocks a device under GPipe, and little beside them."""
SLOW = UNEVEN.with_overrides({"cluster.server_flops": 2.5e10})
SLOWER = UNEVEN.with_overrides({"cluster.server_flops": 1.2e10, "radio.link_errors": "drop"})
SLOW_PRICED = PRICED.with_overrides({"cluster.server_flops": 1.2e10, "workload.micro_batches": [1, 4, 16]})
"""Servers about as fast as a device or two: deeper cuts than one block pay, and the memory stops them."""


def first_state(scenario, rows, seed=0):
    """The state before the first round, with random backlogs."""
    env = CollaPipeVectorEnv(num_envs=rows, scenario=scenario, learner="surrogate")
    env.reset(seed=seed)
    rng = np.random.default_rng([seed, 7])
    backlog = rng.exponential(2.0, env.state.backlog.shape)
    backlog[..., 1:] *= env.state.present
    return replace(env.state, backlog=backlog)


def decide(scheduler, state):
    """The allocation that a decision is or stands for."""
    decision = scheduler.act(None, state)
    if isinstance(decision, Allocation):
        return decision
    return action_codec(scheduler.scenario).decode(decision, state.memory_cap, state.memory_bytes)


def loud_costs(parameters, state, plan):
    """The charged round if idle nodes disturbed the other clusters as active ones do, as planners assume."""
    active = 1.0 + (plan.device_blocks > 0).sum(axis=-1)
    louder = state.cross_gain * (parameters.sharing.channels / active)[..., None]
    return round_costs(parameters, replace(state, cross_gain=louder), plan)


class Recorder:
    """A learner that learns nothing and keeps what it was told."""

    def __init__(self, rows):
        self.outcomes, self._report = [], LearningReport(*np.ones((3, rows)))

    def reset(self, *_):
        return self._report

    def train_round(self, outcome):
        self.outcomes.append(outcome)
        return self._report


def changed(problem, **values):
    """A chain problem with other times, memories or parameters, by their names."""
    parts = {"times": problem.times, "numbers": problem.numbers}
    for part, fields in parts.items():
        own = {name: values.pop(name) for name in tuple(values) if name in fields._fields}
        parts[part] = fields._replace(**own)
    return problem._replace(**parts, **values)


BASE = chain_problems(system_parameters(SMALL), first_state(SMALL, 1))[0, 0]


def random_problem(rng: np.random.Generator, devices: int, blocks: int, half_duplex: bool) -> ChainProblem:
    """A cluster with random times; links and stages take about equally long."""
    compute = rng.uniform(0.2, 1.0, devices)
    hops = rng.uniform(0.0, 2.0, (2, devices + 1, devices + 1))
    server = rng.choice([0.0, 0.5])
    # Half of the systems have overheads and latencies.
    costly = rng.choice([0.0, 0.1])
    extra = costly * rng.exponential(1.0, 8)
    return changed(
        BASE,
        blocks=blocks,
        local_steps=float(rng.integers(1, 3)),
        half_duplex=half_duplex,
        block_forward=compute,
        block_backward=2.0 * compute,
        block_weight=compute * rng.uniform(0.5, 1.5),
        hop_forward=hops[0],
        hop_backward=hops[1],
        uplink=float(rng.uniform(0.0, 2.0)),
        downlink=float(rng.uniform(0.0, 2.0)),
        server_forward=float(server),
        server_backward=2.0 * float(server),
        server_weight=float(server),
        block_collect=rng.uniform(0.0, 0.5, devices),
        link_bit=rng.uniform(0.0, 0.5, (devices + 1, devices + 1)),
        relay_bits=float(rng.choice([0.0, 1.0])),
        memory_bytes=rng.uniform(0.3, 1.0, devices) * 1e9,
        overheads=Overheads(*extra.tolist()),
        block_launch=costly * rng.exponential(0.3, devices),
        block_update=costly * rng.exponential(1.0, devices),
        hop_overhead_forward=costly * rng.exponential(1.0, (devices + 1, devices + 1)),
        hop_overhead_backward=costly * rng.exponential(1.0, (devices + 1, devices + 1)),
    )


def random_plan(rng: np.random.Generator, devices: int, blocks: int) -> ScheduledPlan:
    """A plan without regard to memory."""
    schedule = str(rng.choice(["gpipe", "1f1b", "zb-h1", "interleaved"]))
    M = int(rng.choice([1, 2, 4, 8, 16]))
    sizes = [S for S in range(1, min(devices, blocks // 2) + 1) if M % S == 0 and S > 1]
    if schedule == "interleaved" and not sizes:
        schedule = "1f1b"
    several = schedule == "interleaved"
    S = int(rng.choice(sizes)) if several else int(rng.integers(1, min(devices, blocks) + 1))
    chunks = 2 if several else 1
    held = np.full(S, chunks)
    held += np.bincount(rng.integers(0, S, blocks - chunks * S), minlength=S)
    caps = caps_of("ordinary", schedule, S, 2) if several else rng.integers(1, 2 * S + 5, S).tolist()
    placed = rng.permutation(devices)[:S].tolist()
    return ScheduledPlan(tuple(placed), tuple(held.tolist()), schedule, tuple(caps), M, chunks)
