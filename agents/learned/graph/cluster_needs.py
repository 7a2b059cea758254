"""Shares of the uplink from the observation alone: a common deadline for the plans of all clusters.

The features of a cluster give its delay for any share. At the shares chosen here, all clusters are ready at
the same time. The delays leave out what the features do not tell: moments that move, relays, repeated packets
and headers of messages.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

# Registers the formulas for compiled code.
import collapipe_env.kernels.formulas  # noqa: F401
from collapipe_env.agents.dssra.cluster_costs import mean_active_power
from collapipe_env.envs.graph_features import CU, DEVICE
from collapipe_env.envs.graph_observation import GraphObserver
from collapipe_env.ground.arrays import FloatArray, IntArray, log1p
from collapipe_env.ground.compiled import compiled_inner, compiled_leaf
from collapipe_env.kernels.graph_rows import LEAST_SECONDS, LOG_BOUND
from collapipe_env.physics.workload import BACKWARD_OVER_FORWARD

from .net_inputs import BLOCK_S, HOP_S, HOP_SNR, feature_of_system, log_longer, log_snr_cap
from .shares import write_deadline_shares

# Columns of a cluster's needs: times of a round, where pipeline times are for the whole mini-batch.
FORWARD_SUM = 0  # sum of the forward elements except the uplink [s]
BACKWARD_SUM = 1  # sum of the backward elements except the downlink [s]
FORWARD_MAX = 2  # slowest forward element except the uplink [s]
BACKWARD_MAX = 3  # slowest backward element except the downlink [s]
ONCE = 4  # collection, updates and latencies of the round [s]
UPLOAD = 5  # upload of the update at a share of 1/N [s]
UPLINK = 6  # activations on the uplink at a share of 1/N [s]
DOWNLINK = 7  # gradients on the downlink at a share of 1/N [s]
SNR = 8  # signal to noise ratio of the uplink at a share of 1/N
MICRO_BATCHES = 9
NOISE = 10  # interference over noise on the cluster's links
NEEDS = 11
ROUNDS = 4
"""Newton steps towards the shares; each uses the delays around the previous shares."""
UPLOAD_S, UPLINK_S, DOWNLINK_S = (CU.place(f"log_{way}_s") for way in ("upload", "uplink", "downlink"))
UPLINK_SNR, SERVER_S = CU.place("log_uplink_snr"), CU.place("log_server_s")
LAUNCH_S, UPDATE_S = DEVICE.place("log_launch_s"), DEVICE.place("log_update_s")
"""Places of features in their arrays."""
SERVER_FORWARD = 1.0 / (1.0 + BACKWARD_OVER_FORWARD)
"""Part of the server's time that its forward pass takes; it recomputes nothing."""


class SystemTimes(NamedTuple):
    """Times of every cluster's chain, as the features of a system tell them.

    Attributes:
        reference_w: Power at which radio features hold [W].
        log_cap: Log of the greatest SNR that device-to-device rates use.
        message_s: Time of a device-to-device message beyond its bits [s].
        latency_s: Latency of a device-to-device message [s].
        edge_message_s: The same as ``message_s`` on uplink and downlink [s].
        edge_latency_s: The same as ``latency_s`` on uplink and downlink [s].
        server_launch_s: The server's launches for one micro-batch [s].
        collect_ratio: Bits of a block's update over those of a hop.
        forward_part: Part of a stage's time that its forward pass takes, 1/3, or 1/4 with recomputation.
    """

    reference_w: float
    log_cap: float
    message_s: float
    latency_s: float
    edge_message_s: float
    edge_latency_s: float
    server_launch_s: float
    collect_ratio: float
    forward_part: float


def system_times(observer: GraphObserver) -> SystemTimes:
    """Read the times from an observer's features of the system; recomputation is not a feature."""
    context = observer.context

    def value(name: str) -> float:
        return math.exp(feature_of_system(context, name))

    names = ("message_s", "latency_s", "edge_message_s", "edge_latency_s", "server_launch_s")
    times = {name: value(f"log_{name}") - LEAST_SECONDS for name in names}
    return SystemTimes(
        reference_w=math.sqrt(value("log_power_min") * value("log_power_max")),
        log_cap=float(log_snr_cap(context)),
        collect_ratio=value("log_collect_ratio"),
        forward_part=1.0 / (1.0 + observer.parameters.costs.backward_over_forward),
        **times,
    )


@compiled_leaf
def write_needs(
    segments: IntArray,
    power: FloatArray,
    micro_batches: FloatArray,
    cu: npt.NDArray[np.float32],
    device: npt.NDArray[np.float32],
    hop: npt.NDArray[np.float32],
    between: npt.NDArray[np.float32],
    times: SystemTimes,
    needs: FloatArray,
) -> None:
    """Write the needs of each cluster of a system, which do not depend on its share.

    Args:
        segments: Blocks (N, K).
        power: Powers (N, K+1) [W].
        micro_batches: ``M`` (N,).
        cu: Features of control units (N, 8).
        device: Features of devices (N, K, 8).
        hop: Features of hops (N, K+1, K+1, 2).
        between: Features of two clusters (N, N, 1).
        needs: Receives the columns named above (N, NEEDS).
    """
    N, K = segments.shape
    for n in range(N):
        needs[n, NOISE] = 0.0
    for m in range(N):
        level = mean_active_power(segments[m], power[m]) / times.reference_w
        for n in range(N):
            needs[n, NOISE] += level * math.expm1(between[m, n, 0])
    forward_part = times.forward_part
    for n in range(N):
        M = micro_batches[n]
        noise = math.log1p(needs[n, NOISE])  # log of noise with interference over noise without
        server = math.exp(cu[n, SERVER_S]) - LEAST_SECONDS + M * times.server_launch_s
        forward_sum, backward_sum = SERVER_FORWARD * server, (1.0 - SERVER_FORWARD) * server
        forward_max, backward_max = forward_sum, backward_sum
        collect, update, stages, last = 0.0, 0.0, 0.0, 0
        for step in range(1, K + 2):
            node = step if step <= K else 0
            if node > 0 and segments[n, node - 1] == 0:
                continue
            seconds, snr = 0.5 * math.exp(hop[n, last, node, HOP_S]), float(hop[n, last, node, HOP_SNR])
            there = snr + math.log(power[n, last] / times.reference_w) - noise
            back = snr + math.log(power[n, node] / times.reference_w) - noise
            # Activations and gradients are assumed to have equally many bits.
            forward = seconds * math.exp(log_longer(snr, there, times.log_cap)) + M * times.message_s
            backward = seconds * math.exp(log_longer(snr, back, times.log_cap)) + M * times.message_s
            forward_sum, backward_sum = forward_sum + forward, backward_sum + backward
            forward_max, backward_max = max(forward_max, forward), max(backward_max, backward)
            if node > 0:
                blocks = segments[n, node - 1]
                launch = math.exp(device[n, node - 1, LAUNCH_S]) - LEAST_SECONDS
                stage = blocks * (math.exp(device[n, node - 1, BLOCK_S]) + M * launch)
                forward_sum += forward_part * stage
                backward_sum += (1.0 - forward_part) * stage
                forward_max = max(forward_max, forward_part * stage)
                backward_max = max(backward_max, (1.0 - forward_part) * stage)
                update = max(update, blocks * (math.exp(device[n, node - 1, UPDATE_S]) - LEAST_SECONDS))
                snr = float(hop[n, node, 0, HOP_SNR])
                back = snr + math.log(power[n, node] / times.reference_w) - noise
                longer = float(hop[n, node, 0, HOP_S]) + log_longer(snr, back, times.log_cap)
                collect = max(collect, blocks * times.collect_ratio * math.exp(longer))
                stages += 1.0
            last = node
        needs[n, FORWARD_SUM], needs[n, BACKWARD_SUM] = forward_sum, backward_sum
        needs[n, FORWARD_MAX], needs[n, BACKWARD_MAX] = forward_max, backward_max
        latency = 2.0 * ((stages + 1.0) * times.latency_s + times.edge_latency_s)
        needs[n, ONCE] = collect + update + latency
        snr = float(cu[n, UPLINK_SNR])
        own = snr + math.log(power[n, 0] / times.reference_w)
        longer = math.exp(log_longer(snr, own, LOG_BOUND))
        needs[n, UPLOAD] = longer * math.exp(cu[n, UPLOAD_S])
        needs[n, UPLINK] = longer * math.exp(cu[n, UPLINK_S])
        needs[n, DOWNLINK], needs[n, SNR] = math.exp(cu[n, DOWNLINK_S]), math.exp(own)
        needs[n, MICRO_BATCHES] = M


@compiled_leaf
def parts_at(needs: FloatArray, share: float, edge_message_s: float) -> tuple[float, float]:
    """A cluster's delay around a share: a constant part, and one inversely proportional to the share [s].

    The second part is given for a share of 1/N. Together they match the delay and its slope at the given
    share. The whole power goes into the share, so a smaller share has a better SNR, and the uplink's time
    falls less than in proportion as the share grows.

    Args:
        needs: The cluster's needs (NEEDS,).
        share: Its share of the uplink times N.
        edge_message_s: Time of a message on uplink and downlink beyond its bits [s].
    """
    M, inverse, messages = needs[MICRO_BATCHES], 1.0 / share, needs[MICRO_BATCHES] * edge_message_s
    at_one, here = log1p(needs[SNR]), log1p(needs[SNR] * inverse)
    slower = inverse * at_one / here
    slope = at_one / here * (1.0 - inverse * needs[SNR] / ((1.0 + inverse * needs[SNR]) * here))
    stays = (needs[FORWARD_SUM] + needs[BACKWARD_SUM]) / M + needs[ONCE]
    on_uplink, on_downlink = needs[UPLOAD], 0.0
    # Each direction of the edge is one element of the chain, and may be the slowest.
    if slower * needs[UPLINK] + messages > needs[FORWARD_MAX]:
        stays, on_uplink = stays + messages, on_uplink + needs[UPLINK]
    else:
        stays += (messages + (M - 1.0) * needs[FORWARD_MAX]) / M
        on_uplink += needs[UPLINK] / M
    if inverse * needs[DOWNLINK] + messages > needs[BACKWARD_MAX]:
        stays, on_downlink = stays + messages, needs[DOWNLINK]
    else:
        stays += (messages + (M - 1.0) * needs[BACKWARD_MAX]) / M
        on_downlink = needs[DOWNLINK] / M
    stays += on_uplink * (slower - inverse * slope)
    return stays, on_uplink * slope + on_downlink


@compiled_inner
def write_own_shares(needs: FloatArray, floor: float, edge_message_s: float, share: FloatArray) -> None:
    """Write the shares (N,) of one system.

    Args:
        needs: The clusters' needs (N, NEEDS).
        floor: Least share of a cluster.
        edge_message_s: Time of a message on uplink and downlink beyond its bits [s].
        share: Receives the shares (N,).
    """
    N = len(share)
    stays, inverse = np.empty(N), np.empty(N)
    for n in range(N):
        share[n] = 1.0 / N
    for _ in range(ROUNDS):
        for n in range(N):
            stays[n], inverse[n] = parts_at(needs[n], N * share[n], edge_message_s)
        write_deadline_shares(stays, inverse, floor, share)
