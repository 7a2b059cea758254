"""Difference rewards of clusters, against maxima and sums that are written out."""

import numpy as np
import pytest

from collapipe_env.envs.rewards import marginal_delay
from collapipe_env.envs.sb3 import make_sb3_vec_env
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.simulator.build import reference_delay


def others_maximum(delays: list[float], cluster: int) -> float:
    rest = [delay for index, delay in enumerate(delays) if index != cluster]
    return max(rest, default=0.0)


@pytest.mark.parametrize("clusters", [1, 2, 5])
def test_marginal_delay_is_the_maximum_less_that_of_the_others(clusters):
    rng = np.random.default_rng(clusters)
    # Whole seconds, so that some rows have two slowest clusters.
    delays = rng.integers(1, 5, (200, clusters)).astype(float)
    expected = [
        [max(row[n], others_maximum(row, n)) - others_maximum(row, n) for n in range(clusters)]
        for row in delays.tolist()
    ]
    assert np.array_equal(marginal_delay(delays), expected)
    if clusters > 1:
        assert (np.count_nonzero(expected, axis=-1) == 0).any()


def test_marginal_delay_on_tensors():
    torch = pytest.importorskip("torch")
    delays = np.random.default_rng(0).random((3, 4, 5))
    assert np.array_equal(marginal_delay(torch.as_tensor(delays)).numpy(), marginal_delay(delays))


def brute_force(env, reward: str) -> tuple[np.ndarray, int]:
    """Difference rewards (E, N) of the last round, node by node, and for how many others gained or lost.

    A cluster's own drift, and all that the delay of its own costs and, per second, gives the others.
    """
    record, scenario = env.env.last_round, env.env.scenario
    V, cap = scenario.budgets.tradeoff_v, scenario.budgets.backlog_cap
    second = scenario.budgets.per == "second"
    # Delay of the even split at one local step, where budgets are per round.
    period = reference_delay(scenario.with_overrides({"workload.local_steps": 1, "budgets.per": "round"}))

    def drift_of(e, n, T):
        total, granted = 0.0, T / period if second else 1.0
        # Absent devices use nothing and owe nothing.
        for before, ratio in zip(record.state.backlog[e, n], record.costs.energy_ratio[e, n], strict=True):
            after = max(before + ratio - granted, 0.0)
            if reward == "lyapunov":
                total += 0.5 * (after**2 - before**2)
            elif reward == "drift_plus_penalty":
                total += min(before, cap) * (after - before if second else ratio - 1.0)
        return total

    found, relieved = np.empty(record.costs.cluster_delay.shape), 0
    for e, delays in enumerate(record.costs.cluster_delay.tolist()):
        T = float(record.costs.delay[e])
        for n in range(len(delays)):
            alone = max(delays[n], others_maximum(delays, n)) - others_maximum(delays, n)
            others = [m for m in range(len(delays)) if m != n]
            given = sum(drift_of(e, m, T) - drift_of(e, m, T - alone) for m in others)
            relieved += given < -1e-3
            found[e, n] = -(V * alone + given + drift_of(e, n, T)) / (V * env.env.reference_delay)
    return found, relieved


@pytest.mark.filterwarnings("ignore::collapipe_env.feasibility.EnergyBudgetWarning")
@pytest.mark.parametrize("per", ["round", "second"])
@pytest.mark.parametrize("reward", ["lyapunov", "drift_plus_penalty", "delay"])
def test_cluster_rewards_of_a_round(reward, per):
    # Budgets that break, and clusters of other sizes, so that a device is absent.
    scenario = {
        "base": "medium",
        "cluster": {"clusters": 3, "devices": [4, 3, 5]},
        "workload": {"local_steps": 2},
        "budgets": {"device_energy_j": 6, "cu_energy_j": 1, "bandwidth_floor": 0.02, "per": per},
        "dynamics": {"rounds": 3},
    }
    env = make_sb3_vec_env(scenario, 4, seed=3, learner="surrogate", reward=reward)
    with pytest.raises(ScenarioError, match="no round was played yet"):
        env.cluster_rewards()
    env.reset()
    rng = np.random.default_rng(0)
    ended = given = 0
    for _ in range(5):
        _, rewards, dones, _ = env.step(rng.uniform(-1.0, 1.0, (4, env.env.codec.action_size)))
        found, (expected, relieved) = env.cluster_rewards(), brute_force(env, reward)
        given += relieved
        assert found.dtype == np.float32
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)
        ended += dones.sum()
        if per == "second" and reward != "delay":
            continue
        # All but what the slower ones add to each other's delay: with it the round's own reward is the sum.
        T = env.env.last_round.costs.cluster_delay
        rest = (env.last_info["delay"] - marginal_delay(T).sum(axis=-1)) / env.env.reference_delay
        assert rewards == pytest.approx(found.sum(axis=-1) - rest, rel=1e-4)
    # Also in the step in which episodes end, and the state is that of the next one already.
    assert ended == 4
    assert (given > 0) == (per == "second" and reward != "delay")


def test_rewards_that_cannot_be_told_apart_are_refused():
    env = make_sb3_vec_env("small", 2, seed=0, learner="surrogate", reward=lambda _b, costs, _a: -costs.delay)
    env.reset()
    env.step(np.zeros((2, 18)))
    assert not env.rewards_clusters
    with pytest.raises(ScenarioError, match="cannot be split by cluster"):
        env.cluster_rewards()
    waiting = {
        "base": "small",
        "workload": {"local_steps": 2, "head": "common"},
        "budgets": {"device_energy_j": 30},
    }
    assert not make_sb3_vec_env(waiting, 2, learner="surrogate").rewards_clusters
    assert make_sb3_vec_env("small", 2, learner="surrogate").rewards_clusters
