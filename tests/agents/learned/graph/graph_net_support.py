"""Shared parts of the graph net's tests: systems, their states, and nets of random weights."""

from dataclasses import replace
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import torch

from collapipe_env.agents.learned.graph.counts import sample_counts
from collapipe_env.agents.learned.graph.graph_files import LATER
from collapipe_env.agents.learned.graph.graph_parameters import GraphParameters
from collapipe_env.agents.learned.graph.graph_scheduler import Decider, GraphScheduler
from collapipe_env.agents.learned.graph.net import GraphNet
from collapipe_env.agents.learned.graph.net_inputs import NetInputs, net_inputs
from collapipe_env.agents.learned.graph.plan_inputs import PlanInputs, plan_inputs
from collapipe_env.agents.learned.hyperparameters import usual
from collapipe_env.envs.graph_observation import GraphObserver
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import action_codec, system_parameters
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.world import World

SMALL = load_scenario("small")
MEDIUM = load_scenario("medium")
BOARDS = load_scenario("boards")
"""Moments of moved blocks cost time, so that the plan before matters."""
UNEQUAL = load_scenario(
    {
        "base": "small",
        "cluster": {"clusters": 3, "devices": [3, 1, 2], "layout_seed": 5},
        "workload": {"blocks": 4},
        "budgets": {"device_energy_j": 40, "bandwidth_floor": 0.02},
    }
)
ALONE = load_scenario(
    {"base": "small", "cluster": {"clusters": 1}, "radio": {"uplink_bandwidth_hz": 5e6, "bs_power_w": 5}}
)
LATE_GAINS = {"dynamics.processes.channel_knowledge": {"modes": ["delayed", "noisy"]}}
LATE, MOVING_LATE = SMALL.with_overrides(LATE_GAINS), BOARDS.with_overrides(LATE_GAINS)
"""Gains are known late and with errors."""
SCENARIOS = {"small": SMALL, "medium": MEDIUM, "boards": BOARDS, "unequal": UNEQUAL, "alone": ALONE}


def loud(scenario):
    """With powers at which no far CU repeats so often that more of the band would cost it time.

    Radios that are idle, and receivers of the downlink, cost nothing: their prices are tested by themselves.
    """
    quiet = {"radio.idle_w": 0.0, "radio.edge_receive_w": 0.0}
    return scenario.with_overrides({"devices.power_min_w": 0.05, **quiet})


def played_state(scenario, rows, seed=0, mean=2.0, rounds=2):
    """A state after some rounds of random plans, with random queues, a third of them empty."""
    world = World(scenario, IdleLearner(rows), rows)
    world.reset([np.random.default_rng([seed, row]) for row in range(rows)])
    rng, codec = np.random.default_rng([seed, 7]), action_codec(scenario)
    for _ in range(rounds):
        world.step(random_plan(codec, world.state, rng))
    state = world.state
    backlog = rng.exponential(mean, state.backlog.shape) * (rng.random(state.backlog.shape) > 0.33)
    backlog[..., 1:] *= state.present
    return replace(state, backlog=backlog)


def random_plan(codec, state, rng):
    """A random plan that fits into the memories."""
    return codec.decode(rng.uniform(-1.0, 1.0, (len(state.present), codec.action_size)), state.memory_cap)


def sampled(state, draws, seed):
    """True states (E D, ...) with other gains for every draw."""
    rows, rng = np.repeat(np.arange(len(state.present)), draws), np.random.default_rng([seed, 5])
    state = state[rows]
    pairs = rng.gamma(2.0, 0.5, state.d2d_gain.shape)
    return replace(
        state,
        uplink_gain=state.uplink_gain * rng.gamma(2.0, 0.5, state.uplink_gain.shape),
        d2d_gain=state.d2d_gain * (pairs + pairs.swapaxes(-1, -2)) / 2.0,
    )


def random_net(seed, spread=0.3, shares=1.0):
    """A net whose heads are random, too, so that its decisions vary from node to node; blind to heat."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = GraphNet(usual(GraphParameters))
        with torch.no_grad():
            for name, parameter in net.named_parameters():
                if not name.startswith(LATER):
                    parameter.add_(0.05 * torch.randn_like(parameter))
            for head in (net.count_head, net.node_head, net.chain_head):
                head.weight.copy_(spread * torch.randn_like(head.weight))
                head.bias.copy_(0.3 * torch.randn_like(head.bias))
            net.share_head.weight.copy_(shares * torch.randn_like(net.share_head.weight))
    return net


def scheduler(scenario, seed):
    """A net of random weights that plays."""
    return GraphScheduler(scenario, random_net(seed))


def observed(scenario, state):
    """The graph observation of a state, in double precision."""
    return GraphObserver(system_parameters(scenario)).build_generic(state)


def inputs_of(graph):
    """Inputs of the net from an observation, as tensors."""
    return NetInputs(*map(torch.from_numpy, net_inputs(graph)))


def chains_of(inputs, counts):
    """Second inputs of the net, as tensors."""
    found = plan_inputs(NetInputs(*(tensor.numpy() for tensor in inputs)), counts)
    return PlanInputs(*(torch.from_numpy(array).to(inputs.cu.dtype) for array in found))


class Whole(NamedTuple):
    """All that the net says, its segments the most likely ones."""

    logits: torch.Tensor
    power: torch.Tensor
    log2_micro_batches: torch.Tensor
    sharpness: torch.Tensor
    share_residual: torch.Tensor


def likeliest_counts(logits, cap, blocks):
    """Most likely blocks (..., N, K) that the memories can hold."""
    counts, flat = np.empty(cap.shape, np.int64), logits.detach().numpy().reshape(-1, *logits.shape[-2:])
    caps = np.ascontiguousarray(cap.reshape(-1, cap.shape[-1]), dtype=np.int64)
    none = np.empty((len(caps), 0, cap.shape[-1]))
    sample_counts(flat, caps, blocks, none, counts.reshape(caps.shape), none.astype(np.int64), none[..., 0])
    return counts


def whole_answer(net, inputs, blocks, cap=None, counts=None):
    """All that the net says of inputs, in double precision; by default every device can hold all blocks.

    The rest is about given counts, or about the most likely ones.
    """
    net = net.double()
    tokens = net.tokens(inputs)
    logits = net.count_logits(tokens, inputs, blocks)
    if counts is None:
        counts = likeliest_counts(logits, inputs.present.numpy() * blocks if cap is None else cap, blocks)
    return Whole(logits, *net(tokens, chains_of(inputs, counts)))


def answer(net, scenario, state, counts=None):
    """All that the net says of a state, in double precision."""
    cap = np.where(state.present, state.memory_cap, 0)
    return whole_answer(net, inputs_of(observed(scenario, state)), scenario.workload.blocks, cap, counts)


def group_of(scenario, known, truths=None, *, surprises=False):
    """Parts of a group that a step sees: known states, which stay, and possible truths, if not the same."""
    p, played, truths = system_parameters(scenario), [], known if truths is None else truths
    return SimpleNamespace(
        known=known,
        truth=known,
        whole=np.ones(len(known.present), np.bool_),
        possible_truths=lambda *_: truths,
        possible_failures=lambda *_: np.zeros((len(truths.present), *known.present.shape[1:])),
        play=played.append,
        exact=False,
        surprises=surprises,
        parameters=p,
        decider=Decider(p),
        played=played,
    )


def sizes(scenario, truths, plan, draws=1):
    """Numbers that the rows' objectives are divided by (E,): means over as many truths of each row."""
    many = plan[np.repeat(np.arange(len(plan.blocks)), draws)]
    costs, z = round_costs(system_parameters(scenario), truths, many), truths.backlog
    after = np.maximum(z + costs.energy_ratio - 1.0, 0.0)
    energy = (z * costs.energy_ratio + 0.5 * after**2).sum(axis=(-2, -1))
    size = (system_parameters(scenario).tradeoff_v * costs.delay + energy) / scenario.clusters
    return size.reshape(-1, draws).mean(axis=1)
