"""Asteroid (Ye et al., MobiCom 2024, arXiv 2408.08015): hybrid pipeline parallelism, planned every round.

Stated by the public abstract: devices are grouped into stages, data parallel inside a stage and pipelined
between stages; a dynamic programme plans this together with memory-aware scheduling of micro-batches.
The two planner algorithms and the 1F1B rule here follow ``algorithms.md`` 2.1 to 2.3: the former describe a
public re-implementation, the latter is reconstructed, and none was checked against the paper ([R]). Ours
beyond that ([R], [X]):

* "layers" are whole encoder blocks; a device's profile is linear in the samples, plus the time that
  launching its blocks takes;
* shares ``y_k`` are whole samples of a micro-batch; a device that is dealt none is left out of its stage;
* the planner's latency is the tie-free form of 2.2 over all steps: stages, the links between groups at
  their slowest pair, and also the hops from and to the CU, the uplink and the server. It adds up a link's two
  directions and ignores the caps: it only ranks plans, and the round is charged with the simulated 1F1B and
  the pairs' own rates and shares;
* overheads are in the planner's times: launches in a stage's, messages in a link's (of the device that has
  the most to send), latencies beside a link, updates beside a stage's all-reduce. ``M`` is an input;
* the programme remembers the first stage of each suffix, which makes it exact for that latency;
* 1F1B with ``K_p = 2 (P - p) - 1`` micro-batches in flight, where the server is the last of the ``P`` stages,
  as the data and the decoder pass it: the last group has three in flight. Memory holds ``K_p`` (at most
  ``M``) micro-batches of a device's share. The hop to the CU and the uplink, two links in a row, count as
  the one link that the rule knows;
* where no plan fits with these ``K_p``, a ceiling for all stages of the cluster is lowered until one fits;
* the best plans for each number of stages are finally compared by the delay that the simulator charges.

The scenario decides how a failure inside a round is handled, by default with Asteroid's lightweight replay
(``churn.md``), and who keeps replicas: ``next_stage`` is Asteroid's topology-driven replication.

Devices are ordered by memory, largest first. Queues are ignored.
"""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.physics.allocation import Allocation, with_schedule
from collapipe_env.physics.memory import samples_beside
from collapipe_env.physics.workload import BACKWARD_OVER_FORWARD
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.state import SystemState

from .planning.asteroid_planner import PlannerDevices, PlannerLinks, best_plans, lengthened
from .planning.chain_problem import ChainProblem, chain_problems
from .planning.plan_baseline import PlanBaseline


def warm_ups(devices: int, ceiling: int) -> IntArray:
    """Micro-batches in flight in a stage by the number of device stages from it to the end (devices,).

    ``min(2 (P - p) - 1, ceiling)`` for ``P - p - 1 = 1..devices``: the server is stage ``P``.
    """
    rule: IntArray = 2 * np.arange(1, devices + 1) + 1
    return np.minimum(rule, ceiling)


def sample_limits(problem: ChainProblem, in_flight: IntArray, micro_batches: int) -> IntArray:
    """Most samples of a micro-batch that each device's memory allows.

    Args:
        in_flight: Micro-batches in flight in a stage, for several positions (Q,), cut at ``micro_batches``.

    Returns:
        Samples (Q, L+1, K) for a stage of 0..L blocks, at most ``b``; 0 for absent devices.
    """
    c = problem.numbers
    held = np.maximum(np.arange(c.blocks + 1), 1)[:, None]
    room = samples_beside(problem.memory_bytes, held, c.block_state_bytes, c.activation_bytes)
    # Rounding must not refuse what fits: the check has a larger slack.
    stored = np.minimum(in_flight, micro_batches)[:, None, None] + c.working_bytes / c.activation_bytes / held
    most = np.floor(room / stored + 1e-9)
    limit: IntArray = np.clip(most, 0, int(c.batch_size) // micro_batches).astype(np.int64)
    return limit


class Asteroid(PlanBaseline):
    """Groups of devices in stages, planned for the current speeds, memories and channels.

    Equal bandwidth, full power and fixed ``M`` as in the even split, so any difference from it is due to
    stages, groups and 1F1B.
    """

    name = "Asteroid"

    def allocate(self, state: SystemState) -> Allocation:
        """Decide one round; see :meth:`StateScheduler.act`."""
        latency, plans = self.candidates(state)
        with_axis = state.map(lambda a: a[None])
        costs = round_costs(self.parameters, with_axis, plans)
        # A wait for the other clusters' candidates says nothing about this one.
        delay = costs.cluster_delay - self.parameters.costs.local_steps * costs.barrier
        choice = np.where(np.isfinite(latency), delay, np.inf).argmin(axis=0)
        E, N = choice.shape
        best = (choice, *np.ogrid[:E, :N])
        return plans.map(lambda values: values[best])

    def candidates(self, state: SystemState) -> tuple[FloatArray, Allocation]:
        """The planner's best plan for each number of stages.

        Returns:
            Planned latency of a local step (K, E, N), index 0 for one stage, infinite where no plan has
            that many stages [s]; and the plans with leading axes (K, E). Where there is none, the
            cluster's plan with the fewest stages stands in.

        Raises:
            AllocationError: If no plan fits the memories of some cluster.
        """
        samples = self.parameters.costs.batch_size // self.micro_batches
        environments, N, K = state.present.shape
        latency = np.full((K, environments, N), np.inf)
        blocks = np.zeros((K, environments, N, K), dtype=np.int64)
        stage = np.full(blocks.shape, -1, dtype=np.int64)
        share = np.zeros(blocks.shape)
        caps = np.zeros(blocks.shape, dtype=np.int64)
        for (e, n), problem in chain_problems(self.parameters, state).items():
            ranked = np.argsort(-state.memory_bytes[e, n], kind="stable")
            order = ranked[state.present[e, n][ranked]]
            size = len(order)
            # The rule's own caps first.
            for ceiling in (2 * K + 1, *range(self.micro_batches - 1, 0, -1)):
                in_flight = warm_ups(K, ceiling)
                found, lengths, slots, dealt = self._plans(problem, order, in_flight)
                if np.isfinite(found).any():
                    break
            else:
                raise self.refusal(
                    e,
                    n,
                    f"no grouping of its {size} devices holds the {problem.numbers.blocks} blocks and the "
                    "activations of even one micro-batch in flight: no plan exists. Give devices more "
                    "memory, or a smaller batch_size",
                )
            latency[:size, e, n] = found
            fewest = int(np.isfinite(found).argmax())
            for p in range(K):
                row = p if p < size and np.isfinite(found[p]) else fewest
                blocks[p, e, n, :size] = lengths[row]
                stage[p, e, n, order] = slots[row]
                share[p, e, n, order] = dealt[row] / samples
                caps[p, e, n, : row + 1] = in_flight[row::-1]
        plans = self.with_defaults(blocks, stage=stage, share=share)
        return latency, with_schedule(plans, "1f1b", caps)

    def _plans(
        self, problem: ChainProblem, order: IntArray, in_flight: IntArray
    ) -> tuple[FloatArray, IntArray, IntArray, IntArray]:
        """The planner on one cluster, see :func:`best_plans`."""
        M = self.micro_batches
        nodes = np.concatenate(([0], order + 1))
        times, extra = problem.times, problem.numbers.overheads
        both = 1.0 + BACKWARD_OVER_FORWARD
        block_s, hop_s = times.block_forward + times.block_backward, times.hop_forward + times.hop_backward
        ring_s = self.parameters.costs.block_gradient_bits * times.link_bit[1:, 1:]
        server_s = (times.server_forward + times.server_backward) / M + both * extra.server_s
        edge_s = (times.uplink + times.downlink) / M + 2.0 * extra.edge_message_s
        devices = PlannerDevices(
            block_s[order] / problem.numbers.batch_size,
            (1.0 + problem.numbers.backward_over_forward) * times.block_launch[order],
            times.block_update[order],
            np.ascontiguousarray(sample_limits(problem, in_flight, M)[..., order]),
        )

        def between(values: FloatArray, chosen: IntArray) -> FloatArray:
            return np.ascontiguousarray(values[np.ix_(chosen, chosen)])

        links = PlannerLinks(
            between(hop_s, nodes) / M,
            between(times.hop_overhead_forward, nodes),
            between(times.hop_overhead_backward, nodes),
            between(ring_s, order),
            2.0 * extra.latency_s,
        )
        server = lengthened(0.0, server_s, 0.0, M)
        return best_plans(
            problem.numbers.blocks,
            self.parameters.costs.batch_size // M,
            M,
            devices,
            links,
            lengthened(server, edge_s, 0.0, M, 2.0 * extra.edge_latency_s),
        )
