"""The oracle against a grid and a global optimiser, DSSRA against the oracle, and V's trade-off."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scheduler_support as support
from scipy.optimize import differential_evolution
from unpriced_support import unpriced
from variants_support import mostly_slow

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.baselines.oracle import Oracle, cluster_plans
from collapipe_env.baselines.planning.oracle_powers import FixedPlan
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.queues import idle_drift
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import Scheduler
from collapipe_env.simulator.check import check_allocation

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import dssra_gap
import tradeoff_sweep


def tiny(clusters, devices, blocks, **sections):
    return load_scenario(
        {
            "base": "small",
            "workload": {"blocks": blocks, **sections.pop("workload", {})},
            "cluster": {"clusters": clusters, "devices": devices, "layout": "per_episode"},
            **sections,
        }
    )


def state_of(scenario, seed, backlog=3.0):
    return dssra_gap.draw_state(scenario, backlog, np.random.default_rng(seed))


def test_plans_are_all_splits_that_fit():
    plans = cluster_plans(4, np.array([2, 0, 4]))
    assert plans.tolist() == [[0, 0, 4], [1, 0, 3], [2, 0, 2]]
    assert cluster_plans(5, np.array([2, 2])).shape == (0, 2)


@pytest.mark.parametrize("drift", ["bound", "exact"])
@pytest.mark.parametrize("backlog", mostly_slow([0.0, 3.0], [1]))
@pytest.mark.parametrize("priced", [False, True])
def test_one_cluster_equals_a_grid_over_plans_and_powers(backlog, priced, drift):
    scenario = tiny(1, 2, 2, workload={"micro_batches": [1, 4]})
    if not priced:
        scenario = unpriced(scenario)
    oracle = Oracle(scenario, drift=drift)
    state = state_of(scenario, 3, backlog)
    levels = np.geomspace(scenario.devices.power_min_w, scenario.devices.power_max_w, 33)
    cu, first, second = (p.ravel() for p in np.meshgrid(levels, levels, levels))
    least = np.inf
    for blocks in ([0, 2], [1, 1], [2, 0]):
        for micro_batches in (1, 4):
            grid = Allocation(
                blocks=np.broadcast_to(blocks, (cu.size, 1, 2)),
                micro_batches=np.full((cu.size, 1), micro_batches),
                bandwidth=np.ones((cu.size, 1)),
                device_power=np.stack((first, second), axis=-1)[:, None],
                cu_power=cu[:, None],
            )
            least = min(least, oracle.objective(state.map(lambda a: a[None]), grid).min())
    found = oracle.solve(state)
    assert found.combinations == (6 if priced else 3)
    assert found.objective <= least * (1.0 + 1e-7)
    idle = idle_drift(state.backlog) if drift == "exact" else 0.0
    assert least - idle <= (found.objective - idle) * 1.003  # the grid's coarseness
    assert Oracle(scenario, drift=drift, all_micro_batches=True).solve(state).objective == pytest.approx(
        found.objective, rel=1e-6
    )


@pytest.mark.parametrize("drift", ["bound", "exact"])
def test_shares_and_powers_equal_those_of_a_global_optimiser(drift):
    scenario = unpriced(tiny(2, 1, 1))
    oracle = Oracle(scenario, drift=drift)
    state = state_of(scenario, 5)
    low, high = np.log(scenario.devices.power_min_w), np.log(scenario.devices.power_max_w)
    floor = scenario.budgets.bandwidth_floor

    def value(points):  # (5, population)
        power, share = np.exp(points[:4]).T, points[4]
        allocation = Allocation(
            blocks=np.ones((*share.shape, 2, 1), dtype=np.int64),
            micro_batches=np.full((*share.shape, 2), 64),
            bandwidth=np.stack((share, 1.0 - share), axis=-1),
            device_power=power[..., 2:, None],
            cu_power=power[..., :2],
        )
        return oracle.objective(state.map(lambda a: a[None]), allocation)

    found = differential_evolution(
        value,
        [(low, high)] * 4 + [(floor, 1.0 - floor)],
        vectorized=True,
        updating="deferred",
        rng=0,
        maxiter=250,
        tol=1e-10,
        polish=False,
    )
    least = idle_drift(state.backlog) if drift == "exact" else 0.0
    assert oracle.solve(state).objective - least == pytest.approx(found.fun - least, rel=2e-4)


@pytest.mark.parametrize("drift", ["bound", "exact"])
@pytest.mark.parametrize("links", ["drop", "arq"])
def test_the_problem_is_convex_in_the_logarithms(links, drift):
    # With repeats as long as nothing is given up: the number of transmissions is convex only up to a limit.
    scenario = dssra_gap.scenario_of((3, 2, 2), links).with_overrides({"radio.max_transmissions": 1_000_000})
    oracle = Oracle(scenario, drift=drift)
    rng = np.random.default_rng(1)
    for seed in range(10):
        state = state_of(scenario, seed)
        segments = np.array([rng.permutation(s) for s in ([1, 1], [2, 0], [0, 2])])
        plan = FixedPlan(oracle.parameters, state, segments, np.array([1, 8, 64]), oracle.tradeoff_v)
        a, b = rng.uniform(plan.low, plan.high, (2, 200, plan.size))
        least = idle_drift(state.backlog) if drift == "exact" else 0.0
        values = [
            oracle.objective(state.map(lambda x: x[None]), plan.allocation(p)) - least
            for p in (a, b, 0.5 * (a + b))
        ]
        assert (values[2] <= 0.5 * (values[0] + values[1]) * (1.0 + 1e-12)).all()


@pytest.mark.parametrize(
    ("drift", "instances"),
    [
        ("exact", 3),
        pytest.param("exact", 8, marks=pytest.mark.slow),
        pytest.param("bound", 8, marks=pytest.mark.slow),
    ],
)
def test_dssra_is_close_to_the_oracle_and_never_better(tmp_path, capsys, drift, instances):
    path = tmp_path / "gap.json"
    # One of each shape with lossless links, the others with repeats.
    arguments = ["--instances", str(instances), "--seed", "4", "--restarts", "1", "--drift", drift]
    assert dssra_gap.main([*arguments, "--output", str(path)]) == 0
    assert "goal" in capsys.readouterr().out
    content = json.loads(path.read_text())
    assert list(tmp_path.iterdir()) == [path]
    gaps = np.array([i["gap"] for i in content["instances"]])
    assert len(gaps) == instances
    assert (gaps > -1e-4).all()
    assert np.median(gaps) < 0.002
    assert gaps.max() < 0.02
    assert all(i["even_split"] > 0.1 for i in content["instances"])


def test_the_oracle_is_a_scheduler_with_feasible_decisions():
    scenario = unpriced(tiny(2, 2, 2))
    oracle = Oracle(scenario, restarts=0)
    assert isinstance(oracle, Scheduler)
    state = support.loaded_state(scenario, 2, seed=1)
    allocation = oracle.allocate(state)
    check_allocation(oracle.parameters, state, allocation)
    assert (allocation.bandwidth >= scenario.budgets.bandwidth_floor).all()
    np.testing.assert_allclose(allocation.bandwidth.sum(axis=-1), 1.0)
    support.assert_same(oracle.act(None, state), allocation)
    oracle.reset(3)
    support.assert_same(oracle.act(None, state[1:])[0], allocation[1])


def test_what_the_oracle_cannot_do_is_refused():
    for argument in ("tradeoff_v", "restarts", "largest"):
        with pytest.raises(AllocationError, match=f"{argument}.*-1"):
            Oracle(support.SMALL, **{argument: -1})
    state = support.loaded_state(support.MEDIUM, 1)
    with pytest.raises(AllocationError, match=r"at most 2,000 .*raise largest"):
        Oracle(support.MEDIUM).solve(state[0])
    with pytest.raises(AllocationError, match="1 batch axes"):
        Oracle(support.MEDIUM).solve(state)
    scenario = tiny(2, 2, 2)
    state = state_of(scenario, 0)
    cap = np.array([[2, 2], [1, 0]])
    with pytest.raises(AllocationError, match=r"cluster 1: .* 1 blocks, but the encoder has 2"):
        Oracle(scenario).solve(replace(state, memory_cap=cap))


@pytest.mark.slow
def test_a_larger_v_shortens_the_delay_and_lengthens_the_queues(tmp_path, capsys):
    path = tmp_path / "sweep.json"
    arguments = ["--v", "0.05", "0.5", "5", "--rounds", "60", "--warmup", "60", "--envs", "1"]
    assert tradeoff_sweep.main([*arguments, "--long-rounds", "20", "--output", str(path)]) == 0
    assert "no budgets" in capsys.readouterr().out
    content = json.loads(path.read_text())
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    delay, backlog = (np.array([p[name] for p in content["points"]]) for name in ("delay", "backlog"))
    assert (np.diff(delay) < 0.0).all()
    assert (delay > content["delay_without_budgets"]).all()
    # In proportion to V where V is large; the lower end has the fluctuations of single rounds.
    assert (np.diff(backlog) > 0.0).all()
    assert 5.0 < backlog[2] / backlog[1] < 20.0
    assert [mark["rounds"] for mark in content["long_run"]] == [2, 10, 20]


def test_long_run_counts_the_energy_of_every_round():
    course = tradeoff_sweep.long_run(support.SMALL, 10, seed=0)
    _, ratios = support.play(DSSRA(support.SMALL), rows=1, rounds=10)
    assert course[-1]["worst_energy_ratio"] == pytest.approx(ratios.mean(axis=0).max(), rel=1e-3)
