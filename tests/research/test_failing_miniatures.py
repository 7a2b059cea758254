"""Miniatures whose devices fail: expected delays against drawn failures, means against the environment."""

import numpy as np
import pytest

from collapipe_env.simulator.costs import round_costs
from research.miniatures import __main__ as tool
from research.miniatures.cases import failing_miniatures
from research.miniatures.failing import FailingSystem, LeastExpected
from research.miniatures.failing_table import factors_of
from research.miniatures.playing import mean_delays

CASES = {mini.name: mini for mini in failing_miniatures()}
SMALL = CASES["failing-2"].scenario.with_overrides({"workload.blocks": 4})
"""Two devices with few plans."""
BOTH = 0b11


@pytest.fixture(scope="module")
def system() -> FailingSystem:
    return FailingSystem(SMALL)


def test_the_expected_delay_is_the_mean_over_drawn_failures(system: FailingSystem) -> None:
    """Each device's time of failure is drawn from its exponential law and played by the package."""
    rng, factors = np.random.default_rng(3), np.asarray([5.0, 5.0])
    draws, plans = 4000, system.plans(BOTH)
    expected = system.expected(BOTH, system.certain(factors[None]))[0]
    for plan in (0, len(plans.delay) // 2, len(plans.delay) - 1):
        state = system._state(np.ones(2, dtype=int), draws)
        blocks = np.repeat(plans.blocks[plan][None], draws, axis=0)
        many = np.full(draws, plans.micro_batches[plan])
        costs = round_costs(system.parameters, state, system.allocation(blocks, many))
        at = rng.exponential(SMALL.dynamics.processes[0][1].on_mean_s / factors, (draws, 2))
        failing = np.where(at < system.round_s, at / system.round_s * costs.cluster_delay, np.inf)
        replayed = system._failures.replayed(state, costs, failing[:, None, :])
        assert replayed is not None
        delays = costs.delay + replayed.cluster_delay[:, 0]
        error = delays.std() / np.sqrt(draws)
        assert abs(delays.mean() - expected[plan]) < 4.0 * error + 0.002 * expected[plan]


def test_nobody_fails_where_hazards_vanish(system: FailingSystem) -> None:
    rare = FailingSystem(SMALL.with_overrides({"dynamics.processes.presence.on_mean_s": 1e9}))
    steady = rare.expected(BOTH, rare.certain(np.asarray([[0.2, 0.2]])))[0]
    np.testing.assert_allclose(steady, rare.plans(BOTH).delay, rtol=1e-6)
    # The same plans in the same state, whatever the hazards.
    np.testing.assert_allclose(rare.plans(BOTH).delay, system.plans(BOTH).delay)
    assert (system.plans(BOTH).extra >= -1e-9).all()


def test_one_device_alone_has_one_division_and_cannot_be_replaced(system: FailingSystem) -> None:
    alone = system.plans(0b01)
    assert (alone.blocks == [SMALL.blocks, 0]).all()
    assert len(alone.delay) == len(system.parameters.micro_batch_choices)
    assert (alone.extra[:, 1] == 0.0).all()


@pytest.mark.slow
def test_the_model_says_what_is_played(system: FailingSystem) -> None:
    mini = CASES["failing-2"]
    factors = factors_of(type(mini)("few", "churn", "few", SMALL), 48)
    assert set(np.unique(factors)) == {0.2, 5.0}
    played = mean_delays(SMALL, LeastExpected(system, factors), 1, 48, 300, 0)[0]
    error = played.std(ddof=1) / np.sqrt(len(played))
    assert abs(played.mean() - system.least_mean()) < 3.5 * error
    learnt = mean_delays(SMALL, LeastExpected(system), 1, 48, 300, 0)[0]
    # In the same episodes, knowing more is no worse but for chance.
    assert (learnt - played).mean() > -3.0 * (learnt - played).std(ddof=1) / np.sqrt(48) - 1e-9


def test_a_short_run_prints_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    tool.main(["--only", "failing-2", "--quick"])
    assert "| two devices |" in capsys.readouterr().out
