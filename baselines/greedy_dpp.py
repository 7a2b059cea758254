"""Greedy drift plus penalty: blocks are placed one by one where they add least.

The idea (extend the current segment or open the next device, whichever adds less drift plus penalty) is an
additional control named in ``algorithms.md`` 1.1, not a published system ([X]); what is added up is our
reconstruction of the per-round objective, ``V T_n + sum z e`` of a cluster ([R]).
"""

from __future__ import annotations

import numpy as np

from collapipe_env.agents.dssra.cluster_costs import LEAST_PRICE
from collapipe_env.agents.dssra.option_table import option_table, options_with
from collapipe_env.agents.dssra.round_input import ClusterTerms, environment_row, round_input
from collapipe_env.agents.dssra.segment_plan import SegmentProblem, plan_cost
from collapipe_env.agents.dssra.segment_problem import segment_problem
from collapipe_env.ground.arrays import IntArray
from collapipe_env.ground.compiled import called_from_python, compiled
from collapipe_env.simulator.state import SystemState

from .planning.chain_problem import full_power_noise
from .planning.plan_baseline import SegmentBaseline

_priced, _row = called_from_python(segment_problem), called_from_python(environment_row)


@compiled
def greedy_segments(problem: SegmentProblem) -> IntArray:
    """Place the blocks one after another, ``O(L K^2)``.

    The first block goes to the first device. Every further block extends the last segment or opens the next
    device, whichever gives the cheaper partial plan, closed by the hop to the CU, under the true GPipe
    objective; on ties it extends the segment. Devices without memory are skipped. A device is opened only if
    it and the later ones can hold the rest, so the plan is always completed.

    Args:
        problem: A cluster whose devices can hold the blocks.

    Returns:
        Blocks of each device (K,).
    """
    devices = problem.cap.shape[0]
    segments = np.zeros(devices, dtype=np.int64)
    last = 0
    for placed in range(problem.total_blocks):
        least, choice = np.inf, -1
        for k in range(last, devices):
            if segments[k] >= problem.cap[k]:
                continue
            opens = segments[k] == 0
            if opens and problem.cap[k:].sum() < problem.total_blocks - placed:
                break
            segments[k] += 1
            closed = plan_cost(problem, segments)
            segments[k] -= 1
            if closed < least:
                least, choice = closed, k
            if opens:
                break
        segments[choice] += 1
        last = choice
    return segments


class GreedyDPP(SegmentBaseline):
    """Greedy segments for the current queues, speeds and channels.

    Powers, bandwidth and micro-batches keep the common defaults. Overheads, the update and the radios' power
    count as in DSSRA's segments. Every cluster weighs its own delay with the whole ``V``, as if it were the
    slowest one; with budgets per second, with ``V - sum z / T_ref``, as DSSRA's bound does. Where full power
    breaks a CU's budget (``medium``), that CU's queue grows without end and the segments spare its hops more
    and more, at the expense of the delay.

    Args:
        micro_batches: Wanted number of micro-batches; the nearest allowed one is used.
    """

    name = "Greedy DPP"

    def segments(self, state: SystemState) -> IntArray:
        """See :meth:`SegmentBaseline.segments`."""
        parameters, numbers = self.parameters, self.parameters.numbers
        option = options_with(option_table(parameters, 0), self.micro_batches)
        inputs = round_input(parameters, state, option)
        environments, N, K = state.present.shape
        power = np.full(K + 1, parameters.power_max_w)
        noise = full_power_noise(parameters, state)
        blocks, V = np.zeros(state.present.shape, dtype=np.int64), numbers.tradeoff_v
        for e in range(environments):
            row = _row(inputs, e)
            worth = max(V - float(row.relief[0]), LEAST_PRICE * V)
            for n in range(N):
                terms = ClusterTerms(int(option), float(noise[e, n]), 1.0 / N, worth, 0.0)
                problem = _priced(n, power, terms, row, numbers)
                blocks[e, n] = greedy_segments(problem)
        return blocks
