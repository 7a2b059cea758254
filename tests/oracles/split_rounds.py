"""Split training in plain Python: plans of given cuts, PiPar's timetable and its authors' rule."""

import math
from dataclasses import replace

import numpy as np

from collapipe_env.physics.allocation import SCHEDULES, Allocation


def strongest(state, e, n, blocks):
    """The fastest device that can hold so many blocks, in plain Python; None if there is none."""
    able = [
        k
        for k in range(state.present.shape[-1])
        if state.present[e, n, k] and state.memory_cap[e, n, k] >= blocks
    ]
    return max(able, key=lambda k: (state.speed[e, n, k], -k), default=None)


def split(scheduler, state, e, cuts, mode, micro_batches=None):
    """One environment's plan with given cuts, or None if a cluster cannot hold its part."""
    N, K = state.present.shape[1:]
    blocks = np.zeros((N, K), dtype=np.int64)
    for n, cut in enumerate(cuts):
        k = strongest(state, e, n, cut)
        if k is None:
            return None
        blocks[n, k] = cut
    p = scheduler.parameters
    return Allocation(
        blocks=blocks,
        micro_batches=np.ones(N, dtype=np.int64) if micro_batches is None else np.asarray(micro_batches),
        bandwidth=np.full(N, 1.0 / N),
        device_power=np.full((N, K), p.power_max_w),
        cu_power=np.full(N, p.power_max_w),
        server_blocks=p.costs.blocks - np.asarray(cuts),
        server_mode=np.asarray(mode),
    )


def timetable(plan):
    """PiPar's order of operations for a plan."""
    held = plan.blocks > 0
    return replace(
        plan,
        schedule=np.full(plan.micro_batches.shape, SCHEDULES.index("1f1b")),
        caps=np.where(held, plan.micro_batches[..., None], 0),
        chunks=np.ones_like(plan.micro_batches),
    )


def iteration(e, at, M):
    """A local step in plain Python: all forwards at the device, the server answers each batch at once."""
    k = int(np.argmax(e.compute_forward[at]))
    to_device, to_cu = e.hop_forward[at][0], e.hop_forward[at][k + 1]
    # Backward senders: the CU sends the device the gradients, the device the CU those of the embedding.
    back_to_device, back_to_cu = e.hop_backward[at][0], e.hop_backward[at][k + 1]

    def through(ready, seconds, free=0.0):
        """When each batch has passed something that takes one at a time, first come, first served."""
        passed = []
        for arrival in ready:
            free = max(free, arrival) + seconds
            passed.append(free)
        return passed

    forwards = through(through([0.0] * M, to_device), e.compute_forward[at][k])
    at_server = through(through(forwards, to_cu), e.uplink[at])
    answered = through(at_server, e.server_forward[at] + e.server_backward[at])
    back = through(through(answered, e.downlink[at]), back_to_device)
    # The device turns to the backward passes when its last forward pass is done.
    backwards = through(back, e.compute_backward[at][k], free=forwards[-1])
    return through(backwards, back_to_cu)[-1]


def authors_rule(elements, choices, batch_size):
    """Number of batches by the rule of the authors' code, from times of the whole mini-batch.

    Hops inside the cluster count as parts of the links; the smallest allowed number not below is taken.
    """
    k = int(np.argmax(elements["compute_forward"]))
    links = ("uplink", "downlink", "hop_forward", "hop_backward", "server_forward", "server_backward")
    around = sum(np.sum(elements[name]) for name in links)
    client = min(elements["compute_forward"][k], elements["compute_backward"][k])
    wanted = min(math.ceil(around / client) + 1, batch_size // 2)
    return min((c for c in choices if c >= wanted), default=choices[-1])
