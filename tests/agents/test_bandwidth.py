"""Slopes of delays and costs against differences, and the shares against a general-purpose optimiser."""

import numpy as np
import pytest
import scheduler_support as support
from scipy.optimize import minimize

from collapipe_env.agents.dssra import bandwidth, cluster_costs, round_plan
from collapipe_env.agents.dssra.option_table import option_table, options_with
from collapipe_env.agents.dssra.round_input import environment_row, round_input
from collapipe_env.ground.compiled import called_from_python
from collapipe_env.kernels.cluster_chain import DELAY_PRICE, UPLINK_SNR, chain_size
from collapipe_env.simulator.build import system_parameters

evaluate_shares = called_from_python(bandwidth.evaluate_shares)
share_band = called_from_python(bandwidth.share_band)
weigh_delays = called_from_python(bandwidth.weigh_delays)
delay_and_slopes = called_from_python(bandwidth.delay_and_slopes)
delay_and_cost = called_from_python(cluster_costs.delay_and_cost)
summarise_cluster = called_from_python(cluster_costs.summarise_cluster)
environment_of = called_from_python(environment_row)
evaluate = called_from_python(round_plan.evaluate)
noise_of = called_from_python(cluster_costs.noise_of)

SCENARIOS = {
    "medium": support.MEDIUM,
    "moving": support.MOVING,
    "arq": support.ARQ,
    "priced": support.PRICED,
    "relayed": support.RELAYED,
}


def random_case(scenario, seed, mean=3.0):
    """Parameters, state, a random allocation, and what the search sees of them."""
    parameters = system_parameters(scenario)
    state = support.loaded_state(scenario, 1, seed, mean, silent=0.3)
    allocation = support.random_plan(scenario, state, seed)
    option = options_with(option_table(parameters, 0), allocation.micro_batches)
    inputs = environment_of(round_input(parameters, state, option), 0)
    return parameters, state, allocation, inputs


def summaries(allocation, inputs, constants):
    segments, power = allocation.blocks[0], np.ascontiguousarray(allocation.node_power[0])
    noise = noise_of(segments, power, inputs, constants)
    summary = np.empty((len(segments), chain_size(power.shape[1])))
    for n in range(len(segments)):
        option = inputs.option[n]
        summarise_cluster(n, segments[n], power[n], option, noise[n], inputs, constants, summary[n])
    return segments, power, summary


@pytest.mark.parametrize("name", SCENARIOS)
def test_slopes_are_derivatives(name):
    parameters, _, allocation, inputs = random_case(SCENARIOS[name], 3)
    constants = parameters.numbers._replace(tradeoff_v=1.0)
    _, _, summary = summaries(allocation, inputs, constants)
    for n in range(len(summary)):
        for share in (0.05, 0.3, 0.9):
            up, down = (delay_and_cost(share + h, summary[n], constants) for h in (1e-6, -1e-6))
            numeric = (np.array(up) - np.array(down)) / 2e-6
            delay, *found = delay_and_slopes(share, summary[n], constants)
            assert delay == pytest.approx(delay_and_cost(share, summary[n], constants)[0], rel=1e-12)
            np.testing.assert_allclose(found, numeric, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("mean", "tradeoff_v"), [(0.0, 1.4), (1.0, 1.4), (20.0, 0.5)])
def test_shares_are_the_optimum_of_the_convex_problem(mean, tradeoff_v):
    for seed in range(6):
        parameters, _, allocation, inputs = random_case(support.MEDIUM, seed, mean)
        constants = parameters.numbers._replace(tradeoff_v=tradeoff_v)
        segments, power, summary = summaries(allocation, inputs, constants)
        clusters = len(summary)
        share, weight, delay = np.full(clusters, 1.0 / clusters), np.empty(clusters), np.empty(clusters)
        value = share_band(summary, constants, share, weight, delay)
        assert share.sum() == pytest.approx(1.0, rel=1e-12)
        assert share.min() >= constants.bandwidth_floor * (1.0 - 1e-12)
        assert weight.sum() == pytest.approx(tradeoff_v, rel=1e-6)
        assert weight.min() >= 0.0
        even = np.full(clusters, 1.0 / clusters)
        assert evaluate(segments, power, inputs.option, even, inputs, constants)[0] == value

        def parts(x, summary=summary, constants=constants):
            return np.array([delay_and_cost(b, s, constants) for b, s in zip(x, summary, strict=True)])

        start = np.append(np.full(clusters, 1.0 / clusters), delay.max() * 2.0)
        found = minimize(
            lambda x, parts=parts: tradeoff_v * x[-1] + parts(x[:-1])[:, 1].sum(),
            start,
            method="SLSQP",
            bounds=[(constants.bandwidth_floor, 1.0)] * clusters + [(0.0, None)],
            constraints=[
                {"type": "eq", "fun": lambda x: x[:-1].sum() - 1.0},
                {"type": "ineq", "fun": lambda x, parts=parts: x[-1] - parts(x[:-1])[:, 0]},
            ],
            options={"maxiter": 300, "ftol": 1e-10},
        )
        best = np.maximum(found.x[:-1], constants.bandwidth_floor)
        reference = evaluate_shares(summary, constants, best / best.sum(), np.empty(clusters))
        assert value <= reference * (1.0 + 1e-4)


@pytest.mark.parametrize(("most", "wide"), [(1e6, 0.9), (16.0, 0.3)])
def test_a_deep_fade_with_repeats_gets_no_more_band_than_helps_it(most, wide):
    # With 16 transmissions the delay falls, rises, and falls again when nearly all of them are made.
    parameters, _, allocation, inputs = random_case(support.ARQ, 0)
    changes = {"tradeoff_v": 1.0, "waterfall_threshold": 2.0, "bandwidth_floor": 0.01, "transmissions": most}
    constants = parameters.numbers._replace(**changes)
    _, _, summary = summaries(allocation, inputs, constants)
    summary = np.ascontiguousarray(summary[:2])
    summary[:, UPLINK_SNR] = 0.3, 5.0
    wide, narrow = (delay_and_slopes(share, summary[0], constants)[1] for share in (wide, 0.01))
    assert wide > 0.0 > narrow
    share, weight, delay = np.full(2, 0.5), np.empty(2), np.empty(2)
    value = share_band(summary, constants, share, weight, delay)
    assert share.sum() == pytest.approx(1.0, rel=1e-12)
    tried = [
        evaluate_shares(summary, constants, np.array([b, 1.0 - b]), np.empty(2))
        for b in np.linspace(0.01, 0.99, 2000)
    ]
    assert value <= min(tried) * (1.0 + 1e-4)


def test_a_cluster_whose_delay_no_band_changes_is_given_what_the_others_leave_of_the_deadline():
    """Its band has the price of its own energy; by that price, each other's delay has its weight."""
    parameters, _, allocation, inputs = random_case(support.ARQ, 0)
    constants = parameters.numbers._replace(tradeoff_v=1.0, waterfall_threshold=2.0, bandwidth_floor=0.01)
    constants = constants._replace(transmissions=1e6)  # hardly a packet is given up
    summary = summaries(allocation, inputs, constants)[2]
    summary[:, UPLINK_SNR] = 0.3, *np.linspace(4.0, 6.0, len(summary) - 1)
    share = np.array([0.9, *np.full(len(summary) - 1, 0.1 / (len(summary) - 1))])
    weight = np.empty(len(summary))
    _, wanting = weigh_delays(summary, constants, share, np.full(len(share), 0.01), weight)
    slopes = []
    for b, one in zip(share, summary, strict=True):
        less, more = (np.array(delay_and_cost(b + h, one, constants)) for h in (-1e-7, 1e-7))
        slopes.append((more - less) / 2e-7)
    (flat, price), *others = [(delay, -cost) for delay, cost in slopes]
    assert flat > 0.0  # with more band it would even be later
    expected = [(price - saved) / -delay for delay, saved in others]
    np.testing.assert_allclose(weight[1:], expected, rtol=1e-4)
    assert weight[0] == pytest.approx(summary[0, DELAY_PRICE] - sum(expected), rel=1e-4)
    assert wanting == (min(expected) < 0.0 or weight[0] < 0.0)
