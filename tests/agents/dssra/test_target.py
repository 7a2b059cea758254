"""DSSRA-target: drift plus penalty per unit of progress, over local steps and who takes part."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import scheduler_support as support

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.agents.dssra.common_end import common_end
from collapipe_env.agents.dssra.target import DSSRATarget, TargetPlan
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import AllocationError, ScenarioError
from collapipe_env.learners.expected_progress import ExpectedProgress
from collapipe_env.learners.surrogate_fits import fit_for
from collapipe_env.learners.surrogate_progress import SurrogateOutcome, progress
from collapipe_env.physics.loss_curve import loss_at
from collapipe_env.physics.queues import lyapunov
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.decision_names import COLLAPIPE
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.unable_clusters import sitting_out

OPEN = load_scenario(
    {
        "base": "small",
        "decisions": [*COLLAPIPE, "participation", "local_steps"],
        "cluster": {"clusters": 3, "devices": 3},
        "budgets": {"per": "second", "cu_energy_j": 12.5, "device_energy_j": 10},
        "radio": {"uplink_bandwidth_hz": 15e6},  # steps are cheap beside uploads
        "learning": {"partition": "dirichlet"},
    }
)
PER_ROUND = OPEN.with_overrides({"budgets.per": "round", "name": "per round"})
STEPS_ONLY = OPEN.with_overrides({"decisions": [*COLLAPIPE, "local_steps"], "name": "steps"})
PLAYERS_ONLY = OPEN.with_overrides({"decisions": [*COLLAPIPE, "participation"], "name": "players"})
LOSSY = OPEN.with_overrides({"radio.link_errors": "drop", "radio.waterfall_threshold": 8.0, "name": "lossy"})
EVERY = [OPEN, PER_ROUND, STEPS_ONLY, PLAYERS_ONLY, LOSSY]
NAMES = [scenario.name for scenario in EVERY]


@pytest.fixture(autouse=True)
def drifting(monkeypatch):
    """A law under which many local steps, and few clusters, have their price."""
    fit = fit_for(OPEN)
    constants = replace(
        fit.constants,
        drift=0.01,
        participation=1.0,
        heterogeneity={**fit.constants.heterogeneity, "dirichlet": 0.05},
    )
    found = replace(fit, constants=constants)
    for place in ("expected_progress", "surrogate"):
        monkeypatch.setattr(f"collapipe_env.learners.{place}.fit_for", lambda _: found)


def loaded(scenario, rows, seed, mean=0.3):
    state = support.loaded_state(scenario, rows, seed, mean)
    if state.absence is None:
        return state
    return replace(state, absence=np.random.default_rng(seed).exponential(1.0, state.absence.shape))


@pytest.mark.parametrize("scenario", EVERY, ids=NAMES)
def test_no_common_number_of_local_steps_is_better_with_any_clusters(scenario) -> None:
    state, solver = loaded(scenario, 2, 1), DSSRATarget(scenario)
    plan = solver.allocate(state)
    check_allocation(system_parameters(scenario), state, plan)
    ratio = solver.ratio(state, plan)
    assert (ratio > 0.0).any()
    steps = (1, 2, 4, 8, 16) if "local_steps" in scenario.decisions else (1,)
    players = [p for p in itertools.product((False, True), repeat=3) if any(p)]
    players = players if "participation" in scenario.decisions else [(True,) * 3]
    others = []
    for H in steps:
        base = DSSRA(scenario).with_local_steps(H).allocate(state)
        if "local_steps" in scenario.decisions:
            base = replace(base, local_steps=np.full(base.micro_batches.shape, H))
        for plays in players:
            mask = np.broadcast_to(np.array(plays), (2, 3))
            other = sitting_out(base, mask) if "participation" in scenario.decisions else base
            others.append(solver.ratio(state, other))
    best = np.min(others, axis=0)
    paying = best > 0.0
    assert (ratio <= best * (1.0 + 1e-9))[paying].all()
    assert (np.array(others) > ratio * 1.01)[:, paying].any()  # plans differ in what they are worth


def test_where_waiting_pays_drift_plus_penalty_alone_decides() -> None:
    state = loaded(OPEN, 6, 1, mean=10.0)
    solver = DSSRATarget(OPEN)
    plan = solver.allocate(state)
    ratio = solver.ratio(state, plan)
    assert (ratio < 0.0).all()
    least = np.min([s.objective(state, s.allocate(state)) for s in solver._solvers], axis=0)
    assert (DSSRA(OPEN).objective(state, plan) <= least * (1.0 - 1e-12)).all()


@pytest.mark.parametrize("scenario", EVERY, ids=NAMES)
def test_the_ratio_is_that_of_the_round_as_it_is_played(scenario) -> None:
    scenario = scenario.with_overrides({"learning.warmup_steps": 0, "learning.schedule": "constant"})
    env = CollaPipeVectorEnv(scenario=scenario, num_envs=2, learner="surrogate", reward="delay")
    env.reset(seed=2)
    solver, law = DSSRATarget(scenario), ExpectedProgress.of(scenario)
    for _ in range(2):
        state = env.state
        plan = solver.allocate(state)
        ratio = solver.ratio(state, plan)
        before = lyapunov(state.backlog, state.absence)
        progress = env.learner.get_state()["progress"]
        env.step_allocation(plan)
        costs = env.last_round.costs
        drift = lyapunov(env.state.backlog, env.state.absence) - before
        made = env.learner.get_state()["progress"] - progress
        if scenario is not LOSSY and (np.asarray(costs.survival) > 1.0 - 1e-9).all():
            np.testing.assert_allclose(law.of_costs(costs), made, rtol=1e-9)
        expected = (solver.tradeoff_v * costs.delay + drift) / law.of_costs(costs)
        np.testing.assert_allclose(ratio, expected, rtol=1e-7)


def test_expected_progress_is_near_the_mean_over_arrivals() -> None:
    law = ExpectedProgress.of(LOSSY)
    rng = np.random.default_rng(0)
    survival = np.broadcast_to(np.array([0.9, 0.6, 0.8]), (4000, 3))
    arrived = rng.random((4000, 3, 4, 8)) < survival[:, :, None, None]
    samples = law.batch_size * arrived.mean(axis=-1)
    steps = np.full((4000, 3), 4.0)
    outcome = SurrogateOutcome(samples, 1.0 - survival.mean(axis=-1), steps)
    drawn = progress(law.constants, outcome, law.heterogeneity).mean()
    assert law.of_round(survival[:1], np.full((1, 3), 4))[0] == pytest.approx(drawn, rel=0.03)


def test_a_loss_is_found_back_on_the_curve_and_nobody_progresses_without_players() -> None:
    law = ExpectedProgress.of(OPEN)
    c, made = law.constants, np.array([1e-4, 0.02, 0.5, 1.0, 3.0])
    np.testing.assert_allclose(law.reached(loss_at(c, made)), made, rtol=1e-6)
    assert law.reached(np.array([c.initial_loss + 1.0, c.floor_loss])).tolist() == [0.0, np.inf]
    assert law.of_round(np.ones((1, 3)), np.zeros((1, 3), dtype=int)).tolist() == [0.0]


def test_near_the_target_there_is_no_use_in_more_local_steps() -> None:
    law = ExpectedProgress.of(OPEN)
    goal = float(loss_at(law.constants, np.array(1.0)))
    scenario = OPEN.with_overrides({"dynamics.target_loss": goal})
    solver, state = DSSRATarget(scenario), loaded(scenario, 1, 3)
    one_step = law.of_round(np.ones((1, 3)), np.ones((1, 3), dtype=int))[0]

    def steps_at(progress):
        loss = loss_at(law.constants, np.array([progress]))
        return DSSRATarget.allocate(solver, replace(state, loss=loss)).local_steps.max()

    assert steps_at(0.0) > 1
    assert steps_at(1.0 - 0.3 * one_step) == 1
    assert steps_at(1.2) == steps_at(0.0)  # the target is behind: it goes on as ever


def test_closed_scenarios_get_dssra_s_plans() -> None:
    scenario = OPEN.with_overrides({"decisions": list(COLLAPIPE), "name": "closed"})
    state = loaded(scenario, 3, 4)
    support.assert_same(DSSRATarget(scenario).allocate(state), DSSRA(scenario).allocate(state))


def test_a_price_of_one_s_own_weighs_progress_against_drift_plus_penalty() -> None:
    state = loaded(OPEN, 3, 5)
    free = DSSRATarget(OPEN).ratio(state, DSSRATarget(OPEN).allocate(state))
    assert (free > 0.0).any()
    row = int(np.argmax(free))
    state, price = state[row : row + 1], float(free[row])
    support.assert_same(
        DSSRATarget(OPEN, price_of_progress=price).allocate(state), DSSRATarget(OPEN).allocate(state)
    )
    law = ExpectedProgress.of(OPEN)

    def made(price):
        plan = DSSRATarget(OPEN, price_of_progress=price).allocate(state)
        return law.of_round(np.ones((1, 3)), np.where(plan.participates, plan.local_steps, 0))[0]

    assert made(0.2 * price) < made(price) < made(5.0 * price)


def test_arguments_close_decisions() -> None:
    state = loaded(OPEN, 4, 6)
    plan = DSSRATarget(OPEN, participation=False, local_steps=[4]).allocate(state)
    assert (plan.participates == 1).all()
    assert (plan.local_steps == 4).all()
    solver = DSSRATarget(OPEN)
    assert (solver.ratio(state, solver.allocate(state)) <= solver.ratio(state, plan) * (1.0 + 1e-12)).all()
    with pytest.raises(AllocationError, match=r"local_steps: expected one of \[1, 2, 4, 8, 16\], got 3"):
        DSSRA(OPEN).with_local_steps(3)


@pytest.mark.parametrize("scheduler", [DSSRA, DSSRATarget])
def test_clusters_that_cannot_hold_the_encoder_sit_out(scheduler) -> None:
    state = loaded(OPEN, 2, 7)
    memory, cap = state.memory_bytes.copy(), state.memory_cap.copy()
    memory[1, 2], cap[1, 2] = 1e6, 0
    state = replace(state, memory_bytes=memory, memory_cap=cap)
    plan = scheduler(OPEN).allocate(state)
    check_allocation(system_parameters(OPEN), state, plan)
    assert plan.participates[1, 2] == 0
    assert plan.participates[1].any()
    used = np.where(plan.participates[1] == 1, plan.bandwidth[1], 0.0).sum()
    assert used == pytest.approx(1.0)
    with pytest.raises(AllocationError, match="no plan exists"):
        scheduler(STEPS_ONLY).allocate(replace(state, absence=None))


def test_players_share_the_whole_uplink_also_when_one_comes_back() -> None:
    state = loaded(OPEN, 2, 9)
    plan = DSSRA(OPEN).allocate(state)
    two = np.array([[True, True, False], [True, True, True]])
    away = sitting_out(plan, two)
    assert away.bandwidth[0, :2].sum() == pytest.approx(1.0)
    np.testing.assert_array_equal(away.bandwidth[1], plan.bandwidth[1])
    back = sitting_out(away, np.ones_like(two))
    np.testing.assert_allclose(back.bandwidth.sum(axis=-1), 1.0)
    check_allocation(system_parameters(OPEN), state, back)
    shares = back.bandwidth[0]
    assert shares[0] / shares[1] == pytest.approx(plan.bandwidth[0, 0] / plan.bandwidth[0, 1])


def test_uploads_end_together_under_proportional_rates() -> None:
    rng = np.random.default_rng(8)
    share, upload = rng.dirichlet(np.ones(4), 5), rng.uniform(1.0, 5.0, (5, 4))
    rest, plays = rng.uniform(0.0, 8.0, (5, 4)), rng.random((5, 4)) < 0.7
    plays[:, 0] = True
    found = common_end(share, upload, rest, plays)
    for row in range(5):
        on = plays[row]
        assert found[row, on].sum() == pytest.approx(1.0)
        ends = rest[row, on] + upload[row, on] * share[row, on] / found[row, on]
        np.testing.assert_allclose(ends, ends[0], rtol=1e-9)
        np.testing.assert_array_equal(found[row, ~on], share[row, ~on])


def test_a_task_without_a_fit_is_refused_only_where_progress_counts(monkeypatch) -> None:
    def none(scenario):
        raise ScenarioError(f"{scenario.workload.task} has no surrogate fit")

    monkeypatch.setattr("collapipe_env.learners.expected_progress.fit_for", none)
    with pytest.raises(ScenarioError, match="has no surrogate fit"):
        DSSRATarget(OPEN)
    DSSRATarget(OPEN.with_overrides({"decisions": list(COLLAPIPE), "name": "closed"}))


def test_shares_hold_when_clusters_come_back_to_uploads_that_end_together() -> None:
    state, solver = loaded(OPEN, 4, 3), DSSRATarget(OPEN)
    parameters = system_parameters(OPEN)
    base = DSSRA(OPEN).allocate(state)
    plays = np.broadcast_to(np.array([True, True, False]), (4, 3))
    able, steps = np.ones((4, 3), dtype=bool), np.ones((4, 3), dtype=np.int64)
    plan, costs, _ = solver._best(state, [TargetPlan(base, plays, steps)])
    together = next(solver._moved(plan, costs, able))
    np.testing.assert_array_equal(together.base.bandwidth[:, 2], base.bandwidth[:, 2])
    np.testing.assert_allclose(*(each.bandwidth.sum(axis=-1) for each in (together.base, base)), rtol=1e-12)
    expected = common_end(sitting_out(base, plays).bandwidth, costs.upload, costs.rest, plays)[:, :2]
    np.testing.assert_allclose(solver._allocation(together).bandwidth[:, :2], expected, rtol=1e-12)
    for back in solver._moved(*solver._best(state, [together])[:2], able):
        check_allocation(parameters, state, solver._allocation(back))


def test_a_target_that_the_curve_never_reaches_bounds_no_progress() -> None:
    floor = fit_for(OPEN).constants.floor_loss
    state = replace(loaded(OPEN, 3, 2), loss=np.array([floor, 0.9 * floor, 1.5 * floor]))
    plan = DSSRATarget(OPEN).allocate(state)
    for target in (floor, 0.5 * floor):
        found = DSSRATarget(OPEN.with_overrides({"dynamics.target_loss": target})).allocate(state)
        np.testing.assert_array_equal(found.local_steps, plan.local_steps)
        np.testing.assert_array_equal(found.bandwidth, plan.bandwidth)
