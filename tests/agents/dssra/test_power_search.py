"""The search of a cluster's powers: its cost is the physics', and no other optimiser does better."""

import math

import numpy as np
import pytest
import scheduler_support as support
from as_python_support import as_python
from scipy.optimize import minimize, minimize_scalar
from scipy.special import lambertw

from collapipe_env.agents.dssra import power_search
from collapipe_env.agents.dssra.round_input import ClusterTerms, round_input
from collapipe_env.kernels.cluster_chain import chain_size
from collapipe_env.simulator.build import system_parameters

cluster_cost = as_python(power_search.cluster_cost)
search_powers = as_python(power_search.search_powers)
optimal_power = as_python(power_search.optimal_power)


@pytest.mark.parametrize("scenario", [support.MEDIUM, support.ARQ, support.PRICED, support.RECOMPUTED])
@pytest.mark.parametrize("loss_price", [0.0, 3.0])
@pytest.mark.parametrize("seed", range(4))
def test_powers_are_the_best_of_their_cluster(scenario, loss_price, seed):
    parameters = system_parameters(scenario)
    constants = parameters.numbers._replace(tradeoff_v=1.4)
    low, high = np.log(constants.power_min_w), np.log(constants.power_max_w)
    state = support.loaded_state(scenario, 1, seed, 3.0, silent=0.3)
    inputs = support.row_of(round_input(parameters, state), 0)
    inputs.common[0].loss_price = loss_price
    devices = int(state.present[0, 1].sum())
    segments = np.zeros(state.present.shape[-1], dtype=np.int64)
    stages = np.sort(np.random.default_rng(seed).permutation(devices)[: 1 + seed])
    segments[stages] = 1
    segments[stages[0]] += constants.blocks - segments.sum()
    used = np.flatnonzero(np.append(1, segments))
    given = (ClusterTerms(inputs.options.shape[0] - 1, 1e-13, 0.3, 0.9, 0.05 * seed), inputs, constants)

    def cost(log_power, given=given):
        power = np.full(segments.size + 1, 0.01)
        power[used] = np.exp(log_power)
        return cluster_cost(1, segments, power, *given, np.empty(chain_size(power.size)))

    found = []
    for first in (0.005, 0.075):
        power = np.full(segments.size + 1, first)
        found.append(search_powers(1, segments, power, *given, np.empty(chain_size(power.size))))
        assert ((power >= constants.power_min_w) & (power <= constants.power_max_w)).all()
        assert found[-1] == pytest.approx(cost(np.log(power[used])), rel=1e-12)
        assert (power[np.setdiff1d(np.arange(power.size), used)] == first).all()
    for start in (np.log(power[used]), np.full(used.size, -3.0)):
        reference = minimize(
            cost, start, method="Powell", bounds=[(low, high)] * used.size, options={"xtol": 1e-6}
        )
        assert max(found) <= reference.fun * (1.0 + 2e-3)
    free = cost(np.log(power[used]), given=(given[0]._replace(interference_price=0.0), *given[1:]))
    # In each of its sub-channels the cluster radiates half of the time, silent nodes never.
    mean = 0.5 * power[used].sum() / power.size
    assert found[-1] - free == pytest.approx(0.05 * seed * mean, abs=1e-12)


def test_optimal_power_is_the_numerical_optimum():
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(200):
        weight, price = rng.uniform(0.05, 3.0), 10.0 ** rng.uniform(-3, 2)
        gain, noise = 10.0 ** rng.uniform(-12, -7), 10.0 ** rng.uniform(-14, -11)
        power = optimal_power(weight, price, gain, noise, 0.002, 0.2)

        def cost(log_power, weight=weight, price=price, snr=gain / noise):
            return (weight + price * math.exp(log_power)) / math.log1p(math.exp(log_power) * snr)

        low, high = math.log(0.002), math.log(0.2)
        found = minimize_scalar(cost, bounds=(low, high), method="bounded", options={"xatol": 1e-10})
        assert 0.002 <= power <= 0.2
        assert cost(math.log(power)) <= found.fun * (1.0 + 1e-12)
        inside += 0.002 < power < 0.2
    assert inside > 50
    assert optimal_power(1.0, 0.0, 1e-9, 1e-13, 0.002, 0.2) == 0.2
    assert optimal_power(0.0, 1.0, 1e-9, 1e-13, 0.002, 0.2) == 0.002
    assert optimal_power(1.0, 1e-300, 1e-9, 1e-13, 0.002, 0.2) == 0.2


def test_optimal_power_follows_lambert_w():
    for ratio in np.geomspace(1e-6, 1e200, 200):
        u = 1.0 + lambertw((ratio - 1.0) / math.e).real
        found = optimal_power(ratio, 1.0, 1.0, 1.0, 0.0, math.inf)
        assert found == pytest.approx(math.expm1(u), rel=1e-7)
