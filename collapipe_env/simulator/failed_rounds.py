"""Costs of rounds in which a device fails ([X]); :mod:`~.plans_left` gives the plans after a failure."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.physics import energy
from collapipe_env.simulator.failed_records import NOBODY, unscathed
from collapipe_env.simulator.plans_left import PlansLeft, Recovery
from collapipe_env.simulator.round import Interruption, RoundCosts
from collapipe_env.simulator.state import SystemState


class Failures(Recovery):
    """Prices rounds in which devices fail."""

    def replayed(self, state: SystemState, costs: RoundCosts, failing_s: FloatArray) -> Interruption | None:
        """Changes that failures make to rounds; ``None`` where no failure matters.

        Args:
            state: The systems before the rounds (R, ...), on the host.
            costs: The rounds without failures, on the host.
            failing_s: Times at which devices fail (R, N, K) [s], from the round's start; infinite for none.
        """
        # Devices that hold blocks which are not collected yet.
        at_work = (costs.allocation.device_blocks > 0) & costs.plays[..., None]
        hits = np.nonzero(at_work & (failing_s < (costs.cluster_delay - costs.upload)[..., None]))
        if not len(hits[0]):
            return None
        # The first one of each cluster.
        order = np.argsort(failing_s[hits], kind="stable")
        row, n, device = (places[order] for places in hits)
        _, first = np.unique(row * costs.plays.shape[1] + n, return_index=True)
        row, n, device = row[first], n[first], device[first]
        place, at_s, terms = (row, n), failing_s[row, n, device], self.terms
        left = PlansLeft(self, state, costs, place, device, at_s)
        found = left.continued()
        on, after = found.goes_on, found.after
        going, rest = (found.place[0][on], n[on]), (row[on], n[on])
        failed = unscathed(costs.allocation, self.parameters.costs.blocks)
        failed.device[place], failed.at_s[place], failed.tried_steps[place] = device, at_s, left.tried
        failed.detect_s[place], failed.plan_s[place] = terms.detection_s, terms.planning_s
        failed.dropped[place] = ~on
        failed.credited[rest], failed.reset[rest] = found.credited[on], found.reset[on]
        failed.move_s[rest] = found.move_s[on]
        failed.replay_s[rest] = (left.steps - found.credited)[on] * after.local_step[going]
        failed.collect_s[rest] = after.collect[going]
        failed.blocks[rest] = after.allocation.blocks[going]
        if after.allocation.stage is not None:
            failed.stage[rest] = after.allocation.stage[going]
        failed.stage[(*rest, device[on])] = NOBODY

        delay, joules = np.zeros_like(costs.cluster_delay), np.zeros_like(costs.energy)
        known = at_s + terms.detection_s + terms.planning_s
        # Losing a device never shortens a round: only its end shows that nothing will come.
        ends = np.maximum(known, costs.cluster_delay[place])
        ends[on] = (
            known[on] + (failed.move_s + failed.replay_s + failed.collect_s)[rest] + after.upload[going]
        )
        delay[place] = ends - costs.cluster_delay[place]
        radio, spent = self.parameters.radio_power, -found.spared
        cu = energy.radio_power(costs.allocation.cu_power[place], radio.d2d_circuit_w, radio.efficiency)
        # A cluster that gives its round up has sent new weights on, and hears the next ones.
        heard = radio.edge_receive_w * costs.broadcast[row]
        spent[:, 0] += np.where(on, 0.0, cu * costs.relay[place] + heard)
        spent[on] += found.joules[on] + after.energy[going]
        joules[place] = spent
        return Interruption(delay, joules, ~failed.dropped, failed)
