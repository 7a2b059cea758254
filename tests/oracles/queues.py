"""Queues, rewards and totals of rounds, node by node from their definitions."""

import numpy as np


def drift(reward, queue, used, granted, cap, per_second):
    """What one energy queue adds to the drift of a reward in a round."""
    after = max(queue + used - granted, 0.0)
    if reward == "lyapunov":
        return 0.5 * (after**2 - queue**2)
    if reward == "drift_plus_penalty":
        return min(queue, cap) * (after - queue if per_second else used - 1.0)
    return 0.0


def absence_drift(reward, queue, after, cap):
    """What a participation queue adds."""
    if reward == "lyapunov":
        return 0.5 * (after**2 - queue**2)
    return min(queue, cap) * (after - queue) if reward == "drift_plus_penalty" else 0.0


class Accounts:
    """Queues ``z`` (N, K+1) and ``y`` (N,) of an episode, and what its rounds use.

    Args:
        period_s: Period of a budget [s], which counts where budgets are per second.
    """

    def __init__(self, scenario, reference_delay, period_s):
        N, K, self.budgets = scenario.clusters, scenario.max_devices, scenario.budgets
        self.reference_delay, self.per_second = reference_delay, scenario.budgets.per == "second"
        self.period_s = period_s
        self.joules = np.array([self.budgets.cu_energy_j] + [self.budgets.device_energy_j] * K)
        self.z, self.y = np.zeros((N, K + 1)), np.zeros(N)
        self.used, self.granted = np.zeros((N, K + 1)), np.zeros(N)
        self.emptied = self.frozen = 0

    def play(self, energy, delay, plays):
        """Count a round of energies (N, K+1) [J], a delay [s] and the clusters that take part (N,).

        Returns:
            Rewards by name, and the allowance, the energy above it and the sum of the queues.
        """
        allowed = delay / self.period_s if self.per_second else 1.0
        V, cap = self.budgets.tradeoff / self.reference_delay, self.budgets.backlog_cap
        drifts, excess = {"lyapunov": 0.0, "drift_plus_penalty": 0.0}, 0.0
        for n, takes_part in enumerate(plays):
            after = max(self.y[n] + self.budgets.participation_min - takes_part, 0.0)
            for reward in drifts:
                drifts[reward] += absence_drift(reward, self.y[n], after, cap)
            self.y[n] = after
            self.granted[n] += takes_part * allowed
            for i, joules in enumerate(energy[n]):
                z, e = self.z[n, i], joules / self.joules[i]
                if not takes_part:
                    assert joules == 0.0
                    self.frozen += z > 0.0
                    continue
                for reward in drifts:
                    drifts[reward] += drift(reward, z, e, allowed, cap, self.per_second)
                excess += max(e - allowed, 0.0)
                self.used[n, i] += e
                self.z[n, i] = max(z + e - allowed, 0.0)
                self.emptied += z > self.z[n, i] == 0.0
        rewards = {name: -(V * delay + found) / (V * self.reference_delay) for name, found in drifts.items()}
        rewards["delay"] = -delay / self.reference_delay
        return rewards, {"allowance": allowed, "cost": excess, "backlog": self.z.sum()}

    def worst_ratio(self):
        """Greatest energy of a node over what it was granted."""
        return (self.used / np.where(self.granted, self.granted, 1.0)[:, None]).max()


def cluster_rewards(reward, record, scenario, reference_delay, period_s):
    """Difference rewards (E, N) of a round, and how many clusters gave or took from others.

    A cluster's own drift, and all that the delay of its own costs and, per second, gives the others.
    """
    V, cap, second = (
        scenario.budgets.tradeoff / reference_delay,
        scenario.budgets.backlog_cap,
        scenario.budgets.per == "second",
    )

    def drift_of(e, n, T):
        if not np.asarray(record.costs.plays)[e, n]:
            return 0.0
        # Absent devices use nothing and owe nothing.
        pairs = zip(record.state.backlog[e, n], record.costs.energy_ratio[e, n], strict=True)
        return sum(drift(reward, z, used, T / period_s if second else 1.0, cap, second) for z, used in pairs)

    found, relieved = np.empty(record.costs.cluster_delay.shape), 0
    for e, delays in enumerate(record.costs.cluster_delay.tolist()):
        T = float(record.costs.delay[e])
        for n, delay in enumerate(delays):
            others = [m for m in range(len(delays)) if m != n]
            slowest = max((delays[m] for m in others), default=0.0)
            alone = max(delay, slowest) - slowest
            given = sum(drift_of(e, m, T) - drift_of(e, m, T - alone) for m in others)
            relieved += given < -1e-3
            if record.absence is not None:
                given += absence_drift(reward, record.state.absence[e, n], record.absence[e, n], cap)
            found[e, n] = -(V * alone + given + drift_of(e, n, T)) / (V * reference_delay)
    return found, relieved
