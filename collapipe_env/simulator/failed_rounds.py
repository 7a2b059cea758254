"""Costs of rounds in which a device fails ([X]).

:mod:`collapipe_env.simulator.plans_left` gives the plans after a failure; :func:`round_costs` gives their
steps and energies.
"""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.physics import energy
from collapipe_env.physics.recovery import RecoveryTerms
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.failed_records import NOBODY, FailedRounds, Replayed, unscathed
from collapipe_env.simulator.plans_left import PlansLeft, StepPrices, taking
from collapipe_env.simulator.round import RoundCosts
from collapipe_env.simulator.state import Parameters, SystemState


class Failures:
    """Prices rounds in which devices fail.

    Attributes:
        prices: Scalars, terms of recovery, and prices of single local steps.
    """

    def __init__(self, parameters: Parameters, terms: RecoveryTerms) -> None:
        self.prices = StepPrices(parameters, terms)

    def replayed(self, state: SystemState, costs: RoundCosts, failing_s: FloatArray) -> Replayed | None:
        """Changes that failures make to rounds; ``None`` where no failure matters.

        Args:
            state: The systems before the rounds (R, ...), on the host.
            costs: The rounds without failures, on the host.
            failing_s: Times at which devices fail (R, N, K) [s], from the round's start; infinite for none.
        """
        allocation = costs.allocation
        first, at = self._first(costs, failing_s)
        rows = np.flatnonzero((first != NOBODY).any(axis=-1))
        if not len(rows):
            return None
        failed = unscathed(allocation, self.prices.parameters.costs.blocks)
        rounds = PlansLeft(self.prices, state[rows], costs, rows, first[rows], at[rows])
        plan, transfers = rounds.left_over(failed)
        plan, after = rounds.fitting(failed, plan)
        return self._priced(failed, rounds, costs, after, transfers)

    def _first(self, costs: RoundCosts, failing_s: FloatArray) -> tuple[IntArray, FloatArray]:
        """The first device of each cluster that fails while it holds blocks that are not collected yet."""
        at_work = np.where(costs.allocation.device_blocks > 0, failing_s, np.inf)
        at_work = np.where(costs.plays[..., None], at_work, np.inf)
        device, at = at_work.argmin(axis=-1), at_work.min(axis=-1)
        collected = costs.cluster_delay - costs.upload
        matters = at < collected
        return np.where(matters, device, NOBODY), np.where(matters, at, np.inf)

    def _priced(
        self,
        failed: FailedRounds,
        rounds: PlansLeft,
        costs: RoundCosts,
        after: RoundCosts,
        sent: dict[tuple[int, int], FloatArray],
    ) -> Replayed:
        """Delays and energies of the replays.

        Args:
            failed: Failures; the rows of ``rounds`` are completed in place.
            rounds: Rows with a failure.
            costs: Costs of the whole batch without failures.
            after: Costs of the plans after the failures, with one local step (R, ...).
            sent: Seconds that each pair of nodes sends (K+1, K+1) by row and cluster.
        """
        rows, state, steps = rounds.rows, rounds.state, rounds.steps
        before = round_costs(self.prices.planned, state, taking(1, rounds.plan))
        step, rest = _step_and_rest(self.prices.planned, state, before)
        step_after, rest_after = _step_and_rest(self.prices.left, state, after)
        migration = costs.energy[rows] - rest - steps[..., None] * step
        delay, joules = np.zeros_like(costs.cluster_delay), np.zeros_like(costs.energy)
        p = self.prices.parameters.radio_power
        power = energy.radio_power(after.allocation.node_power, p.d2d_circuit_w, p.efficiency)
        for r, n in rounds.where:
            row = rows[r]
            spent = migration[r, n] + failed.tried_steps[row, n] * step[r, n]
            ends = failed.at_s[row, n] + failed.detect_s[row, n] + failed.plan_s[row, n]
            if not failed.dropped[row, n]:
                left = steps[r, n] - failed.credited[row, n]
                failed.replay_s[row, n] = left * after.local_step[r, n]
                failed.collect_s[row, n] = after.collect[r, n]
                ends = ends + failed.move_s[row, n] + failed.replay_s[row, n] + failed.collect_s[row, n]
                ends = ends + after.upload[r, n]
                seconds = sent[r, n]
                spent = spent + left * step_after[r, n] + rest_after[r, n]
                spent = spent + power[r, n] * seconds.sum(axis=1) + p.receive_w * seconds.sum(axis=0)
            else:
                spent[0] += power[r, n, 0] * costs.relay[row, n]
                # Losing a device never shortens a round: only its end shows that nothing will come.
                ends = max(ends, costs.cluster_delay[row, n])
            delay[row, n] = ends - costs.cluster_delay[row, n]
            joules[row, n] = spent - costs.energy[row, n]
        return Replayed(delay, joules, failed)


def _step_and_rest(
    parameters: Parameters, state: SystemState, one: RoundCosts
) -> tuple[FloatArray, FloatArray]:
    """Energy of a local step, and of the rest of a round (R, N, K+1) [J].

    Args:
        state: The systems (R, ...).
        one: Costs with one local step (R, ...).
    """
    step = round_costs(parameters, state, taking(2, one.allocation)).energy - one.energy
    return step, one.energy - step
