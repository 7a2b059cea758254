"""The two algorithms of Asteroid's planner on plain numbers (``algorithms.md`` 2.1 and 2.2).

Times here are of a forward and a backward pass together, which is all that the tie-free latency needs. They
include the costs of a pass or message that do not depend on its size ([X]): a device that takes part in a
stage launches its blocks however few samples it is dealt, and a sender pays for each of its receivers.
Node 0 of a cluster is the CU; device ``k`` is node ``k + 1``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled, compiled_inner, compiled_leaf


class PlannerLinks(NamedTuple):
    """Links between a cluster's nodes, node 0 the CU and then the devices.

    Attributes:
        hop_s: Time of a micro-batch's activations and gradients (K+1, K+1) [s].
        forward_s: Overhead of a message of activations from node i to node j (K+1, K+1) [s].
        backward_s: Overhead of a message of gradients from node j back to node i (K+1, K+1) [s].
        ring_s: Time of one block's parameters between two devices (K, K) [s].
        delay_s: Latency of a hop, there and back [s].
    """

    hop_s: FloatArray
    forward_s: FloatArray
    backward_s: FloatArray
    ring_s: FloatArray
    delay_s: float


class PlannerDevices(NamedTuple):
    """Devices of a cluster, in the order in which groups are filled.

    Attributes:
        sample_s: Forward and backward time of one sample and block (K,), > 0 [s].
        launch_s: Launches of one block for one micro-batch, forward and backward (K,), >= 0 [s].
        update_s: Update of one block, once in a local step (K,), >= 0 [s].
        limit: Most samples of a micro-batch that fit each device (Q, L+1, K), ``Q >= K``: for a stage of 0..L
            blocks before ``q = 0..Q-1`` further stages; not rising with ``q``.
    """

    sample_s: FloatArray
    launch_s: FloatArray
    update_s: FloatArray
    limit: IntArray


@compiled_leaf
def _busy(dealt: int, sample_s: float, launch_s: float) -> float:
    """Time of a device with ``dealt`` samples of a micro-batch [s]; without samples it launches nothing."""
    return dealt * sample_s + (launch_s if dealt > 0 else 0.0)


@compiled
def split_samples(samples: int, sample_s: FloatArray, launch_s: FloatArray, limit: IntArray) -> IntArray:
    """Algorithm 1's result: deal the samples of one micro-batch to the devices of a group.

    Each sample goes to the device that then ends first, launches included, within the memory limits. No deal
    has an earlier end, which is where the algorithm's own steps (shares in proportion to speed, cut at the
    limits, then single samples off the slowest device) end too.

    Args:
        samples: Samples of the micro-batch, >= 1.
        sample_s: Time of a sample on each device (G,), > 0 [s].
        launch_s: Additional time of each device that is dealt any (G,), >= 0 [s].
        limit: Most samples that each device's memory allows (G,), >= 0.

    Returns:
        Samples of each device (G,), possibly 0 for some; all 0 if the memories cannot hold them.
    """
    dealt = np.zeros(len(limit), dtype=np.int64)
    if limit.sum() < samples:
        return dealt
    for _ in range(samples):
        taker, least = -1, np.inf
        for k in range(len(limit)):
            busy = _busy(dealt[k] + 1, sample_s[k], launch_s[k])
            if dealt[k] < limit[k] and busy < least:
                taker, least = k, busy
        dealt[taker] += 1
    return dealt


@compiled
def lengthened(
    rest_s: float, step_s: float, ending_s: float, micro_batches: int, delay_s: float = 0.0
) -> float:
    """Latency of a pipeline with one more step in front, in the tie-free form.

    Repeated from the last step to the first, this gives
    ``max_s {sum_{i<=s} l_i + sum_{i<s} e_i + M e_s + T_a^s}`` over steps ``s`` (stages and links alike).

    Args:
        rest_s: Latency of the later steps, 0 for none [s].
        step_s: Forward and backward time ``e`` of one micro-batch on the new step [s].
        ending_s: ``T_a``, all-reduce and update of the new step's group, 0 for a link [s].
        micro_batches: ``M``.
        delay_s: ``l``, for which a message is under way without occupying the new link, both ways; 0 for a
            stage [s].
    """
    return max(micro_batches * step_s + ending_s, step_s + rest_s) + delay_s


@compiled_inner
def deal_groups(
    blocks: int, samples: int, devices: PlannerDevices, links: PlannerLinks
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Every possible stage, dealt by Algorithm 1; arguments as for :func:`best_plans`.

    Returns:
        For the first of ``q`` stages to come, with ``d`` blocks on devices ``i..j-1``: samples of each node
        (K+1, K, K+1, L+1, K+1); forward and backward time of a micro-batch, infinite where the memories
        cannot hold it, and all-reduce and update (K+1, K, K+1, L+1) [s]. Index ``q = 0`` is not used.
    """
    sample_s, launch_s, limit, ring_s = devices.sample_s, devices.launch_s, devices.limit, links.ring_s
    K = sample_s.shape[0]
    dealt = np.zeros((K + 1, K, K + 1, blocks + 1, K + 1), dtype=np.int64)
    stage_s = np.full((K + 1, K, K + 1, blocks + 1), np.inf)
    ending_s = np.zeros((K + 1, K, K + 1, blocks + 1))
    for q in range(1, K + 1):
        if q > 1 and (limit[q - 1] == limit[q - 2]).all():
            dealt[q], stage_s[q], ending_s[q] = dealt[q - 1], stage_s[q - 1], ending_s[q - 1]
            continue
        for i in range(K):
            for j in range(i + 1, K + 1):
                for d in range(1, blocks + 1):
                    part = split_samples(samples, sample_s[i:j], launch_s[i:j], limit[q - 1, d, i:j])
                    if part.sum() == 0:
                        continue
                    dealt[q, i, j, d, i + 1 : j + 1] = part
                    group, busy, update, slowest = i + np.flatnonzero(part), 0.0, 0.0, 0.0
                    for a in group:
                        busy = max(busy, _busy(part[a - i], sample_s[a], launch_s[a]))
                        update = max(update, devices.update_s[a])
                        for b in group:
                            if b != a:
                                slowest = max(slowest, ring_s[a, b])
                    stage_s[q, i, j, d] = d * busy
                    ending_s[q, i, j, d] = 2.0 * (len(group) - 1) / len(group) * d * slowest + d * update
    return dealt, stage_s, ending_s


@compiled_leaf
def group_hop(senders: IntArray, receivers: IntArray, links: PlannerLinks) -> float:
    """Time of a hop from one group to the next: its slowest pair, plus each way the longest messages [s].

    The samples of a whole micro-batch are assumed to pass each pair.

    Args:
        senders: Samples of each node in the first group (K+1,), 0 for nodes outside it.
        receivers: The same for the next group.
    """
    slowest, forward, backward = 0.0, 0.0, 0.0
    for a in range(len(senders)):
        if senders[a] > 0:
            messages = 0.0
            for b in range(len(receivers)):
                if receivers[b] > 0:
                    slowest = max(slowest, links.hop_s[a, b])
                    messages += links.forward_s[a, b]
            forward = max(forward, messages)
    for b in range(len(receivers)):
        if receivers[b] > 0:
            messages = 0.0
            for a in range(len(senders)):
                if senders[a] > 0:
                    messages += links.backward_s[a, b]
            backward = max(backward, messages)
    return slowest + forward + backward


@compiled
def best_plans(
    blocks: int,
    samples: int,
    micro_batches: int,
    devices: PlannerDevices,
    links: PlannerLinks,
    tail_s: float,
) -> tuple[FloatArray, IntArray, IntArray, IntArray]:
    """Algorithm 2: the plan of least latency for every number of stages.

    Devices come sorted; stages take consecutive runs of them, first devices first, and every device is in
    a run. A stage's samples are dealt by :func:`split_samples`; a device that is dealt none drops out. The
    state of the programme holds the blocks and devices of the first stage of the suffix, next to the
    blocks, devices and stages left: the hop in front of a suffix depends on them. What a stage has in flight
    depends only on the number of stages behind it, so its memory is known too. As the latency never falls
    when the suffix takes longer, the programme is exact, ``O(L^3 K^4)``.

    Args:
        blocks: ``L``.
        samples: Samples of a micro-batch.
        micro_batches: ``M``.
        tail_s: Latency of what comes after the return to the CU (uplink and server) [s].

    Returns:
        Index 0 is the number of stages minus one: latency (K,), infinite where there is no plan [s];
        blocks of each stage (K, K); stage of each device, -1 for none (K, K); its samples (K, K).
    """
    K, delay_s = devices.sample_s.shape[0], links.delay_s
    dealt, stage_s, ending_s = deal_groups(blocks, samples, devices, links)
    cu = np.zeros(K + 1, dtype=np.int64)
    cu[0] = samples

    # [p, l, i, j, d]: last l blocks in p stages, the first of which has d blocks on devices i..j-1.
    least = np.full((K + 1, blocks + 1, K, K + 1, blocks + 1), np.inf)
    next_end = np.zeros(least.shape, dtype=np.int64)
    next_blocks = np.zeros(least.shape, dtype=np.int64)
    for p in range(1, min(K, blocks) + 1):
        for i in range(K - p + 1):
            for j in range(i + 1, K - p + 2):
                for d in range(1, blocks - p + 2):
                    step, ending = stage_s[p, i, j, d], ending_s[p, i, j, d]
                    if step == np.inf:
                        continue
                    if p == 1 and j == K:
                        hop = group_hop(dealt[p, i, j, d], cu, links)
                        rest = lengthened(tail_s, hop, 0.0, micro_batches, delay_s)
                        least[p, d, i, j, d] = lengthened(rest, step, ending, micro_batches)
                    for end in range(j + 1, K + 1):
                        for after in range(1, blocks - d + 1):
                            if stage_s[p - 1, j, end, after] == np.inf:
                                continue
                            hop = group_hop(dealt[p, i, j, d], dealt[p - 1, j, end, after], links)
                            for placed in range(d + after, blocks + 1):
                                rest = least[p - 1, placed - d, j, end, after]
                                rest = lengthened(rest, hop, 0.0, micro_batches, delay_s)
                                value = lengthened(rest, step, ending, micro_batches)
                                if value < least[p, placed, i, j, d]:
                                    least[p, placed, i, j, d] = value
                                    next_end[p, placed, i, j, d] = end
                                    next_blocks[p, placed, i, j, d] = after

    latency = np.full(K, np.inf)
    plan = np.zeros((K, K), dtype=np.int64)
    stage = np.full((K, K), -1, dtype=np.int64)
    share = np.zeros((K, K), dtype=np.int64)
    for p in range(1, K + 1):
        end, first = 0, 0
        for j in range(1, K + 1):
            for d in range(1, blocks + 1):
                hop = group_hop(cu, dealt[p, 0, j, d], links)
                value = lengthened(least[p, blocks, 0, j, d], hop, 0.0, micro_batches, delay_s)
                if value < latency[p - 1]:
                    latency[p - 1], end, first = value, j, d
        if latency[p - 1] == np.inf:
            continue
        i, left = 0, blocks
        for s in range(p):
            further = p - s
            plan[p - 1, s] = first
            for a in range(i, end):
                if dealt[further, i, end, first, a + 1] > 0:
                    stage[p - 1, a] = s
                    share[p - 1, a] = dealt[further, i, end, first, a + 1]
            at = further, left, i, end, first
            i, left, end, first = end, left - first, next_end[at], next_blocks[at]
    return latency, plan, stage, share
