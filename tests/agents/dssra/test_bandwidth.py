"""Slopes of delays and costs against differences, and the shares against a general-purpose optimiser."""

import numpy as np
import pytest
import scheduler_support as support
from as_python_support import as_python
from scipy.optimize import minimize

from collapipe_env.agents.dssra import bandwidth, cluster_costs
from collapipe_env.kernels import cluster_chain as columns
from collapipe_env.kernels.cluster_chain import DELAY_PRICE, SUMMARY, UPLINK_SNR
from collapipe_env.simulator.build import system_parameters

evaluate_shares = as_python(bandwidth.evaluate_shares)
share_band = as_python(bandwidth.share_band)
weigh_delays = as_python(bandwidth.weigh_delays)
delay_and_slopes = as_python(bandwidth.delay_and_slopes)
delay_and_cost = as_python(cluster_costs.delay_and_cost)
edge_joules = as_python(columns.edge_joules)
edge_times = as_python(columns.edge_times)


def numbers_of(scenario, V=1.0, **changes):
    return system_parameters(scenario).numbers._replace(tradeoff_v=V, **changes)


def summaries(constants, seed, price=1.0, clusters=4, snr=(20.0, 400.0)):
    """Clusters whose elements last about as long as their uplinks; half of them care little for energy."""
    rng, summary = np.random.default_rng(seed), np.zeros((clusters, SUMMARY))
    full_s = constants.batch_size * constants.activation_bits / (6.0 * constants.uplink_bandwidth_hz)
    for ahead, most in (
        (columns.FORWARD_SUM, columns.FORWARD_MAX),
        (columns.BACKWARD_SUM, columns.BACKWARD_MAX),
    ):
        summary[:, ahead] = full_s * clusters * rng.uniform(1.0, 4.0, clusters)
        summary[:, most] = summary[:, ahead] * rng.uniform(0.2, 0.7, clusters)
    summary[:, columns.ONCE] = full_s * rng.uniform(0.0, 4.0, clusters)
    summary[:, UPLINK_SNR] = rng.uniform(*snr, clusters)
    summary[:, columns.DOWNLINK_RATE] = (
        6.0 * constants.downlink_bandwidth_hz * rng.uniform(0.5, 1.5, clusters)
    )
    summary[:, columns.UPDATE_BITS] = (
        constants.batch_size * constants.activation_bits * rng.uniform(0.1, 3.0, clusters)
    )
    summary[:, columns.MICRO_BATCHES] = rng.choice([1.0, 4.0, 16.0], clusters)
    summary[:, columns.LOCAL_STEPS] = constants.local_steps
    summary[:, columns.FIXED_COST] = rng.uniform(0.0, 1.0, clusters)
    summary[:, columns.UPLINK_W] = rng.uniform(0.5, 2.0, clusters)
    summary[:, columns.CU_PRICE] = (
        0.02 * price * rng.exponential(1.0, clusters) * (rng.random(clusters) < 0.5)
    )
    summary[:, columns.CU_LEAST] = summary[:, columns.CU_PRICE]
    summary[:, columns.LOSS_PRICE] = 0.01 * price
    summary[:, DELAY_PRICE] = constants.tradeoff_v
    return summary


@pytest.mark.parametrize("name", support.SCENARIOS)
def test_slopes_are_derivatives(name):
    constants = numbers_of(support.SCENARIOS[name])
    for one in summaries(constants, 3):
        for share in (0.05, 0.3, 0.9):
            up, down = (delay_and_cost(share + h, one, constants) for h in (1e-6, -1e-6))
            numeric = (np.array(up) - np.array(down)) / 2e-6
            delay, *found, _ = delay_and_slopes(share, one, constants)
            assert delay == pytest.approx(delay_and_cost(share, one, constants)[0], rel=1e-12)
            np.testing.assert_allclose(found, numeric, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", support.SCENARIOS)
@pytest.mark.parametrize(
    "start", [-1.0, -1e-4, 0.1]
)  # an empty queue, one that fills with the joules, a long one
def test_under_the_exact_drift_a_joule_costs_the_queue_after_it(name, start):
    constants = numbers_of(support.SCENARIOS[name])
    for one in summaries(constants, 3):
        one[[columns.CU_LEAST, columns.CU_START, columns.CU_RISE]] = 1e-3, start, 2e-3
        for share in (0.05, 0.3, 0.9):
            costs = []
            for b in (share + 1e-6, share - 1e-6):
                joules, lost = edge_joules(constants, b, one), edge_times(constants, b, one)[3]
                after = max(start + 2e-3 * joules, 0.0)
                costs.append(1e-3 * joules + after**2 / (2.0 * 2e-3) + one[columns.LOSS_PRICE] * lost)
            found = delay_and_slopes(share, one, constants)[2]
            assert found == pytest.approx((costs[0] - costs[1]) / 2e-6, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize(
    ("name", "price", "V"),
    [("medium", 0.0, 1.4), ("medium", 1.0, 1.4), ("medium", 300.0, 0.5), ("adapted", 1.0, 1.4)],
)
def test_shares_are_the_optimum_of_the_convex_problem(name, price, V):
    constants = numbers_of(support.SCENARIOS[name], V)
    floor = constants.bandwidth_floor
    for seed in range(6):
        summary = summaries(constants, seed, price)
        clusters = len(summary)
        even = np.full(clusters, 1.0 / clusters)
        share, weight, delay = even.copy(), np.empty(clusters), np.empty(clusters)
        value = share_band(summary, constants, share, weight, delay)
        assert share.sum() == pytest.approx(1.0, rel=1e-12)
        assert share.min() >= floor * (1.0 - 1e-12)
        assert weight.sum() == pytest.approx(V, rel=1e-6)
        assert weight.min() >= 0.0
        assert evaluate_shares(summary, constants, share, np.empty(clusters)) == value

        def parts(x, summary=summary):
            return np.array([delay_and_cost(b, s, constants) for b, s in zip(x, summary, strict=True)])

        found = minimize(
            lambda x, parts=parts: V * x[-1] + parts(x[:-1])[:, 1].sum(),
            np.append(even, delay.max() * 2.0),
            method="SLSQP",
            bounds=[(floor, 1.0)] * clusters + [(0.0, None)],
            constraints=[
                {"type": "eq", "fun": lambda x: x[:-1].sum() - 1.0},
                {"type": "ineq", "fun": lambda x, parts=parts: x[-1] - parts(x[:-1])[:, 0]},
            ],
            options={"maxiter": 300, "ftol": 1e-10},
        )
        best = np.maximum(found.x[:-1], floor)
        reference = evaluate_shares(summary, constants, best / best.sum(), np.empty(clusters))
        assert value <= reference * (1.0 + 1e-4)


def fading(most):
    """Numbers of deep fades, in which packets are sent up to ``most`` times."""
    numbers = numbers_of(support.ARQ, bandwidth_floor=0.01)
    return numbers._replace(link=numbers.link._replace(waterfall_threshold=2.0, transmissions=most))


@pytest.mark.parametrize("busy", [0.0, 156.0])  # the other cluster wants little, or nearly all of the band
@pytest.mark.parametrize(("most", "wide"), [(1e6, 0.9), (16.0, 0.3)])
def test_a_deep_fade_with_repeats_gets_no_more_band_than_helps_it(most, wide, busy):
    # With 16 transmissions the delay falls, rises, and falls again when nearly all of them are made.
    constants = fading(most)
    summary = summaries(constants, 0, price=0.0, clusters=2)
    summary[:, UPLINK_SNR] = 0.3, 5.0
    summary[1, columns.ONCE] = busy
    wide, narrow = (delay_and_slopes(share, summary[0], constants)[1] for share in (wide, 0.01))
    assert wide > 0.0 > narrow
    share = np.full(2, 0.5)
    value = share_band(summary, constants, share, np.empty(2), np.empty(2))
    assert share.sum() == pytest.approx(1.0, rel=1e-12)
    pairs = (np.array([b, 1.0 - b]) for b in np.linspace(0.01, 0.99, 2000))
    assert value <= min(evaluate_shares(summary, constants, pair, np.empty(2)) for pair in pairs) * (
        1.0 + 1e-4
    )


def test_a_cluster_whose_delay_no_band_changes_is_given_what_the_others_leave_of_the_deadline():
    """Its band has the price of its own energy; by that price, each other's delay has its weight."""
    constants = fading(1e6)  # hardly a packet is given up
    summary = summaries(constants, 0, price=0.0)
    summary[:, UPLINK_SNR] = 0.3, *np.linspace(4.0, 6.0, 3)
    summary[:, columns.UPLINK_W] = 1.0
    summary[:, columns.CU_PRICE] = summary[:, columns.CU_LEAST] = 1e-3, 2e-3, 0.0, 4e-3
    share, weight = np.array([0.9, *np.full(3, 0.1 / 3)]), np.empty(4)
    _, wanting = weigh_delays(summary, constants, share, np.full(4, 0.01), weight)
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
