"""Costs of changes to single clusters' plans, through the simulator, with what the others do held."""

import numpy as np
from scipy.optimize import brentq

from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.costs import round_costs


class HeldPrices:
    """Costs at a plan's prices: each cluster's own change, under the interference of the plan itself.

    Args:
        plan: The plan (E, ...), with its best shares.
        worth: Worth of a second of each cluster's delay (E, N).
    """

    def __init__(self, scenario, state, plan, worth):
        self.p, self.state, self.plan, self.worth = system_parameters(scenario), state, plan, worth
        base = round_costs(self.p, state, plan)
        self.interference, self.deadline = base.interference, base.cluster_delay.max(axis=-1, keepdims=True)
        # Idle radios are on as long as the plan's round lasts.
        on = np.concatenate((np.ones_like(base.energy[..., :1]), state.present), axis=-1)
        self.idle = self.p.radio_power.idle_w * on / state.budget
        self.left = 1.0 - self.idle * base.delay[:, None, None]
        self.watt = self._price_of_a_watt()

    def parts(self, plan, interference=None):
        """Delays and drifts of the clusters (E, N)."""
        held = self.interference if interference is None else interference
        costs = round_costs(self.p, self.state, plan, interference_w=held)
        z = self.state.backlog
        after = np.maximum(z + costs.busy_energy / self.state.budget - self.left, 0.0)
        return costs.cluster_delay, 0.5 * (after**2 - np.maximum(z - self.left, 0.0) ** 2).sum(axis=-1)

    def second(self):
        """Price of a second of the round (E,) [1/s]."""
        costs = round_costs(self.p, self.state, self.plan)
        after = np.maximum(self.state.backlog + costs.energy_ratio - 1.0, 0.0)
        return self.p.tradeoff_v + (after * self.idle).sum(axis=(-2, -1))

    def _price_of_a_watt(self):
        """Price of a watt of each cluster's mean power to the others (E, N), by central differences."""
        noise = self.p.noise_density * self.p.d2d_bandwidth_hz + self.interference
        sides = []
        for side in (-1e-4, 1e-4):
            delay, drift = self.parts(self.plan, self.interference + side * noise)
            sides.append(self.worth * delay + drift)
        slope = (sides[1] - sides[0]) / (2e-4 * noise)
        others = self.state.cross_gain * ~np.eye(self.worth.shape[1], dtype=bool)
        return (others * slope[:, None, :]).sum(axis=-1)

    def cost(self, plan):
        """Costs of the clusters (E, N), each under a change of its own."""
        delay, drift = self.parts(plan)
        active = np.concatenate((np.ones_like(plan.blocks[..., :1]), plan.blocks > 0), axis=-1)
        mean = self.p.sharing.duty * (plan.node_power * active).sum(axis=-1) / self.p.sharing.channels
        late = delay - self.deadline
        spare = self.second()[:, None] / self.p.clusters * np.maximum(late, 0.0)
        return np.where(self.worth > 0.0, self.worth * late, spare) + drift + self.watt * mean


def common_delay(n, later, own, share, uplink):
    """Seconds by which all clusters end later if one is, once shares have the same sum again.

    Args:
        n: The cluster.
        later: By how much it is later at its share [s].
        own: Its ``u / b`` then [s].
        share: Shares ``b`` (N,).
        uplink: ``u / b`` of all before (N,) [s]; delays are ``a + u / b``.
    """
    if later == 0.0:
        return 0.0
    u, fixed = share * uplink, -uplink
    u[n], fixed[n] = share[n] * own, later - own
    low = fixed.max()
    return brentq(lambda x: (u / (x - fixed)).sum() - share.sum(), low + 1e-9, max(later, 0.0) + 1e-9)
