"""Random systems and plans of every kind, for tests of what a round costs."""

import dataclasses
import math

import numpy as np

from collapipe_env.physics.allocation import (
    ASYNC,
    COMMON,
    COPIES,
    GPIPE,
    INTERLEAVED,
    ONE_F_ONE_B,
    SEQUENTIAL,
    ZERO_BUBBLE,
    Allocation,
)
from collapipe_env.physics.block_costs import (
    block_parameters,
    forward_flops,
    linear_maps,
    stored_activation_bytes,
    weight_flops,
)
from collapipe_env.physics.energy import RadioPower
from collapipe_env.physics.overheads import Overheads
from collapipe_env.physics.radio import Sharing
from collapipe_env.physics.rates import LinkLaw, fades_of
from collapipe_env.physics.server import ServerTerms
from collapipe_env.physics.training_memory import TrainingMemory
from collapipe_env.physics.workload import WorkloadCosts, decoder_forward_flops, decoder_weight_flops
from collapipe_env.simulator.state import Parameters, SystemState

CHOICES = (1, 2, 4, 8, 16)
PRICED = {
    "overheads": Overheads(
        block_cycles=3e6,
        update_cycles=1e7,
        message_s=0.02,
        header_bits=2e4,
        latency_s=0.03,
        edge_message_s=0.05,
        edge_latency_s=0.07,
        server_s=0.011,
    ),
    "radio_power": RadioPower(1.0, 1.8, 0.35, receive_w=0.9, edge_receive_w=0.7, idle_w=0.25),
    "law": {"ceiling": 10.0},
}
"""Parameters with all overheads, and radios that draw more than they emit."""
RELAYED = {**PRICED, "distribution": "relay", "head": "common"}
"""New weights are sent on by the CUs, and local steps wait for each other."""
ADAPTED = {
    "attenuation": 0.75,
    "ceiling": 7.4,
    "snr_floor": 0.1,
    "fades": fades_of(4.0),
    "adapted_exponent": -math.log1p(-0.1),
}
"""Links that adapt to a target error rate, with fading within a round."""
PRICES = {
    "free": {},
    "priced": PRICED,
    "relayed": RELAYED,
    "recomputed": {**PRICED, "recompute": True},
    "adapted": {**PRICED, "law": ADAPTED, "sharing": Sharing(0.5, 7.0)},
}
"""Forms of prices that every way of computing a round has to know."""


def links_of(errors, threshold, most=16, law=None):
    """Parameters of links, of which lost packets are dropped, sent again or not there."""
    again = float(most) if errors == "arq" else 1.0
    link = LinkLaw(waterfall_threshold=threshold, transmissions=again, **(law or {}))
    return {"lossy": errors != "none", "link": link}


def make_parameters(
    clusters,
    *,
    blocks=6,
    steps=1,
    link_errors="drop",
    waterfall_threshold=0.1,
    max_transmissions=16,
    law=None,
    recompute=False,
    **changes,
):
    costs = WorkloadCosts(
        blocks=blocks,
        batch_size=16,
        local_steps=steps,
        block_forward_flops=forward_flops(linear_maps(64, 256), 64, 32),
        decoder_forward_flops=decoder_forward_flops(1, 64, 256, 32, 10, 32),
        block_weight_flops=weight_flops(linear_maps(64, 256), 32),
        decoder_weight_flops=decoder_weight_flops(1, 64, 256, 32, 10, 32),
        block_parameters=block_parameters(64, 256),
        embedding_parameters=64 * 1000,
        stored_activation_bytes=stored_activation_bytes(64, 4, 32, 32),
        activation_bits=32.0 * 64 * 32,
        gradient_bits=32.0 * 64 * 16,
        weight_bits=16,
    )
    stored, whole = 4.0 * 64 * 32, costs.stored_activation_bytes
    memory = {"training_memory": TrainingMemory(recompute=True), "stored_activation_bytes": stored}
    again = dataclasses.replace(costs, **memory, working_bytes=whole - stored)
    costs, other = (again, costs) if recompute else (costs, again)
    values = {
        "costs": costs,
        "other_costs": other,
        "noise_density": 10 ** (-20.4),
        "bs_noise_density": 10 ** (-20.6),
        "d2d_bandwidth_hz": 10e6,
        "sharing": Sharing(1.0, 5.0),
        "uplink_bandwidth_hz": 20e6,
        "downlink_bandwidth_hz": 15e6,
        "bs_power_w": 20.0,
        "external_interference_w": 1e-13,
        **links_of(link_errors, waterfall_threshold, max_transmissions, law),
        "server_flops": 1e12,
        "clusters": clusters,
        "power_min_w": 0.002,
        "power_max_w": 0.2,
        "tradeoff_v": 1.0,
        "micro_batch_choices": CHOICES,
        "bandwidth_floor": 0.01,
    }
    return Parameters(**{**values, **changes})


def make_state(rng, lead, clusters, devices, parameters, *, absent=0.0):
    """A random system: gains over four decades, every device with memory for the whole encoder."""
    shape = (*lead, clusters, devices)
    gain = 10 ** rng.uniform(-10, -6, (*lead, clusters, devices + 1, devices + 1))
    gain = np.triu(gain, 1)
    cross = 10 ** rng.uniform(-16, -12, (*lead, clusters, clusters))
    cross[..., range(clusters), range(clusters)] = 0.0
    present = rng.random(shape) >= absent
    present[..., 0] = True
    c = parameters.costs
    activations = c.stored_activation_bytes + c.working_bytes
    whole = c.blocks * (c.block_state_bytes + c.batch_size * activations)
    memory = np.where(present, whole * rng.uniform(1.0, 2.0, shape), 0.0)
    uplink_gain = 10 ** rng.uniform(-13, -9, (*lead, clusters))
    speed = rng.uniform(1e9, 3e10, shape)
    return SystemState(
        uplink_gain=uplink_gain,
        d2d_gain=gain + np.swapaxes(gain, -1, -2),
        cross_gain=cross,
        speed=speed,
        clock=speed / 16.0,
        full_speed=speed,
        cubic_power=np.zeros(shape, dtype=bool),
        compute_power=rng.uniform(0.5, 8.0, shape),
        memory_bytes=memory,
        memory_cap=np.where(present, c.blocks, 0),
        present=present,
        budget=rng.uniform(1.0, 10.0, (*lead, clusters, devices + 1)),
        backlog=rng.uniform(0.0, 3.0, (*lead, clusters, devices + 1)),
        round_index=np.zeros(lead, dtype=np.int64),
        loss=np.zeros(lead),
        server_share=np.ones(lead),
    )


def make_allocation(rng, state, parameters, *, groups=False):
    """A random feasible plan; with groups, some stages have several devices with uneven shares."""
    shape = state.present.shape
    L = parameters.costs.blocks
    blocks = np.zeros(shape, dtype=np.int64)
    stage = np.full(shape, -1)
    share = np.zeros(shape)
    for place in np.ndindex(shape[:-1]):
        there = np.flatnonzero(state.present[place])
        if groups:
            members = rng.permutation(there)[: rng.integers(1, len(there) + 1)]
            slots = rng.integers(0, len(members), len(members))
            for slot in np.unique(slots):
                inside = members[slots == slot]
                stage[place][inside] = slot
                share[place][inside] = rng.dirichlet(np.full(len(inside), 3.0))
            used = np.unique(slots)
        else:
            used = there
        weights = rng.dirichlet(np.full(len(used), 0.7))
        blocks[place][used] = rng.multinomial(L, weights)
        if groups and not blocks[place][used].all():  # every stage of a plan with groups holds a block
            blocks[place][used] = 1
            blocks[place][used[0]] += L - len(used)
    power = np.exp(rng.uniform(np.log(0.002), np.log(0.2), shape))
    return Allocation(
        blocks=blocks,
        micro_batches=rng.choice(CHOICES, shape[:-1]),
        bandwidth=rng.dirichlet(np.full(shape[-2], 2.0), shape[:-2]) * 0.96 + 0.01,
        device_power=power,
        cu_power=np.exp(rng.uniform(np.log(0.002), np.log(0.2), shape[:-1])),
        stage=stage if groups else None,
        sample_share=share if groups else None,
    )


def make_case(seed, *, lead=(2,), clusters=3, devices=4, groups=False, absent=0.0, **options):
    rng = np.random.default_rng(seed)
    parameters = make_parameters(clusters, **options)
    state = make_state(rng, lead, clusters, devices, parameters, absent=absent)
    return parameters, state, make_allocation(rng, state, parameters, groups=groups)


def on_server(plan, kept, mode=COPIES):
    """A plan of one device a stage whose last blocks are on the server."""
    blocks = np.array(plan.blocks)
    for place in np.ndindex(kept.shape):
        for _ in range(int(kept[place])):
            blocks[place][np.flatnonzero(blocks[place])[-1]] -= 1
    M = np.ones_like(plan.micro_batches) if mode == SEQUENTIAL else plan.micro_batches
    mode = np.full(kept.shape[:-1], mode)
    return dataclasses.replace(plan, blocks=blocks, micro_batches=M, server_blocks=kept, server_mode=mode)


def interleaved(rng, parameters, plan, chunks):
    """Three stages of as many blocks as chunks or more, with Megatron's warm-up; sizes that it takes."""
    L, shape = parameters.costs.blocks, plan.micro_batches.shape
    blocks, M = np.zeros_like(plan.blocks), rng.choice([3, 6, 12], shape)
    for place in np.ndindex(shape):
        spare = rng.multinomial(L - 3 * chunks, [0.5, 0.3, 0.2])
        blocks[place][[0, 1, 3]] = chunks + spare
    caps = np.minimum([chunks * 3 + 2, chunks * 3, 1, chunks * 3 - 2], chunks * M[..., None])
    costs = dataclasses.replace(parameters.costs, batch_size=12)
    parameters = dataclasses.replace(parameters, costs=costs, micro_batch_choices=(3, 6, 12))
    orders = {"schedule": np.full(shape, INTERLEAVED), "caps": caps, "chunks": np.full(shape, chunks)}
    return parameters, dataclasses.replace(plan, blocks=blocks, micro_batches=M, **orders)


def with_schedules(rng, plan):
    """The plan under a schedule of each cluster's own, with caps at random."""
    M = plan.micro_batches
    kinds = rng.choice([GPIPE, ONE_F_ONE_B, ZERO_BUBBLE, ASYNC], M.shape)
    caps = rng.integers(1, M[..., None] + 1, plan.blocks.shape)
    return dataclasses.replace(plan, schedule=kinds, caps=caps, chunks=np.ones_like(M))


def opened(rng, parameters, state, plan):
    """Parameters, system and plan in which clusters sit out and take local steps, and devices slow down."""
    shape = plan.micro_batches.shape
    plays = (rng.random(shape) < 0.6).astype(int)
    plan = dataclasses.replace(
        plan,
        participates=plays,
        local_steps=rng.choice([-1, 1, 3, 5], shape),
        recompute=rng.integers(-1, 2, shape),
        clock_cap=rng.uniform(0.3, 1.0, plan.device_power.shape),
        bandwidth=np.where(plays, plan.bandwidth, 0.0),  # a share of nothing must not be divided by
    )
    state = dataclasses.replace(
        state,
        server_share=rng.uniform(0.2, 1.0, state.server_share.shape),
        speed=state.full_speed * rng.uniform(0.3, 1.0, shape)[..., None],
        cubic_power=rng.random(state.speed.shape) < 0.5,
    )
    choices = {"idle_round_s": 7.0, "local_steps_choices": (1, 3, 5)}
    return dataclasses.replace(parameters, **choices), state, plan


KINDS = ("plain", "groups", "scheduled", "scheduled groups", "interleaved", "common", "copies", "sequential")
FORMATS = (
    {},
    {"weight_bits": 8},
    {"compression": "top-k", "top_k_share": 0.01},
    {"compression": "lora", "adapter_parameters": 1234},
)
"""Ways in which updates travel, by fields of the workload."""


def plans_of(kind, seed, opens, **options):
    """A system and plans of a kind, which also say all that can be opened to plans if it ``opens``."""
    rng = np.random.default_rng([seed, 1])
    wire = dict(options.pop("wire", {}))
    groups = "groups" in kind or (kind in ("common", "copies", "sequential") and rng.random() < 0.5)
    if kind == "interleaved":
        options |= {"devices": 4, "blocks": 10}
    p, s, a = make_case(seed, **{"groups": groups, **options})
    p = dataclasses.replace(
        p, costs=dataclasses.replace(p.costs, **wire), other_costs=dataclasses.replace(p.other_costs, **wire)
    )
    if "scheduled" in kind:
        a = with_schedules(rng, a)
    elif kind == "interleaved":
        p, a = interleaved(rng, p, a, int(rng.integers(2, 4)))
        p = dataclasses.replace(p, other_costs=dataclasses.replace(p.other_costs, batch_size=12))
    elif kind in ("common", "copies", "sequential"):
        mode = {"common": COMMON, "copies": COPIES, "sequential": SEQUENTIAL}[kind]
        kept = rng.integers(0, p.costs.blocks, a.micro_batches.shape)
        kept *= mode != COMMON
        kept = np.repeat(kept[..., :1], kept.shape[-1], axis=-1) if mode == SEQUENTIAL else kept
        a = on_server(a, kept, mode)
        p = dataclasses.replace(p, server=ServerTerms(tenants=float(rng.uniform(0.0, 0.9))))
        if rng.random() < 0.5:
            p = dataclasses.replace(p, server_flops=1e9)  # so slow that clusters wait for each other
    if opens:
        p, s, a = opened(rng, p, s, a)
        if kind == "sequential":
            a = dataclasses.replace(a, local_steps=None)
    return p, s, a
