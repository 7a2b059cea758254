"""The oracle against grids, a global optimiser and random decisions; DSSRA against it; V's trade-off."""

import itertools
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from baseline_support import PRICED, SMALL, first_state
from scipy.optimize import differential_evolution
from unpriced_support import unpriced

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.baselines.oracle import Oracle, cluster_plans
from collapipe_env.baselines.planning.oracle_powers import FixedPlan
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.queues import idle_drift
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import Scheduler
from collapipe_env.simulator.check import check_allocation

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import dssra_gap
import tradeoff_sweep


def tiny(clusters, devices, blocks, micro_batches=(1, 4, 16), **sections):
    """A tiny scenario, in which every plan can be tried."""
    return load_scenario(
        {
            "base": "small",
            "workload": {"blocks": blocks, "micro_batches": list(micro_batches)},
            "cluster": {"clusters": clusters, "devices": devices, "layout": "per_episode"},
            **sections,
        }
    )


COSTLY = {f"overheads.{name}": getattr(PRICED.overheads, name) for name in vars(PRICED.overheads)} | {
    "radio.d2d_circuit_w": 1.0,
    "radio.edge_circuit_w": 1.8,
    "radio.amplifier_efficiency": 0.35,
    "radio.receive_w": 0.9,
    "radio.edge_receive_w": 0.8,
    "radio.idle_w": 0.3,
    "budgets.device_energy_j": 100,
    "budgets.cu_energy_j": 60,
}
"""Overheads of everything, and radios that draw more than they emit."""
LISTENING = {
    "radio.idle_w": 2.0,
    "budgets.device_energy_j": 25,
    "budgets.cu_energy_j": 25,
    "budgets.tradeoff": 1.0,
}
"""Idle radios decide what a second costs."""
COMMON_HEAD = {"workload.head": "common", "workload.local_steps": 3, "workload.distribution": "relay"}


def state_of(scenario, seed, backlog=3.0):
    return dssra_gap.draw_state(scenario, backlog, np.random.default_rng(seed))


def batch_of(state):
    return state.map(lambda a: a[None])


def test_plans_are_all_splits_that_fit():
    plans = cluster_plans(4, np.array([2, 0, 4]))
    assert plans.tolist() == [[0, 0, 4], [1, 0, 3], [2, 0, 2]]
    assert cluster_plans(5, np.array([2, 2])).shape == (0, 2)


def least_of_grid(oracle, state, points):
    """Least objective of one cluster of two devices by the number of micro-batches, over a grid of powers."""
    devices, least = oracle.scenario.devices, {}
    levels = np.geomspace(devices.power_min_w, devices.power_max_w, points)
    cu, first, second = (p.ravel() for p in np.meshgrid(levels, levels, levels))
    for blocks, M in itertools.product(([0, 2], [1, 1], [2, 0]), oracle.parameters.micro_batch_choices):
        grid = Allocation(
            blocks=np.broadcast_to(blocks, (cu.size, 1, 2)),
            micro_batches=np.full((cu.size, 1), M),
            bandwidth=np.ones((cu.size, 1)),
            device_power=np.stack((first, second), axis=-1)[:, None],
            cu_power=cu[:, None],
        )
        least[M] = min(least.get(M, np.inf), oracle.objective(batch_of(state), grid).min())
    return least


@pytest.mark.parametrize(
    ("scenario", "combinations"),
    [
        (unpriced(tiny(1, 2, 2, (1, 4))), 3),
        pytest.param(tiny(1, 2, 2, (1, 4)), 6, marks=pytest.mark.slow),
        (tiny(1, 2, 2).with_overrides(COSTLY), 9),
        (tiny(1, 2, 2, (4,)).with_overrides(COSTLY | LISTENING), 3),
        pytest.param(
            tiny(1, 2, 2).with_overrides(COSTLY | {"radio.rate_ceiling": 6.7}), 9, marks=pytest.mark.slow
        ),
    ],
    ids=["free", "shipped", "costly", "listening", "capped"],
)
@pytest.mark.parametrize(
    ("drift", "backlog"), [("exact", 3.0), ("bound", 3.0), pytest.param("exact", 0.0, marks=pytest.mark.slow)]
)
def test_one_cluster_equals_a_grid_over_plans_micro_batches_and_powers(
    scenario, combinations, backlog, drift
):
    oracle, state = Oracle(scenario, drift=drift, restarts=0), state_of(scenario, 3, backlog)
    by_number, found = least_of_grid(oracle, state, 17), oracle.solve(state)
    least = min(by_number.values())
    assert found.combinations == combinations
    assert found.objective <= least + 1e-7 * abs(least)
    idle = idle_drift(state.backlog) if drift == "exact" else 0.0
    assert least - idle <= (found.objective - idle) * 1.012  # the grid's coarseness
    assert min(by_number, key=by_number.__getitem__) == int(found.allocation.micro_batches[0])
    if combinations == 3:
        every = Oracle(scenario, drift=drift, all_micro_batches=True, restarts=0).solve(state)
        assert every.objective == pytest.approx(found.objective, rel=1e-6)
    else:
        largest = Oracle(scenario, drift=drift, all_micro_batches=False, restarts=0).solve(state)
        assert largest.combinations == 3
        assert found.objective <= largest.objective <= by_number[max(by_number)] * (1.0 + 1e-7)


@pytest.mark.parametrize("drift", ["exact", pytest.param("bound", marks=pytest.mark.slow)])
def test_shares_and_powers_equal_those_of_a_global_optimiser(drift):
    scenario = unpriced(tiny(2, 1, 1, (64,)))
    oracle, state = Oracle(scenario, drift=drift), state_of(scenario, 5)
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
        return oracle.objective(batch_of(state), allocation)

    found = differential_evolution(
        value,
        [(low, high)] * 4 + [(floor, 1.0 - floor)],
        vectorized=True,
        updating="deferred",
        rng=0,
        maxiter=150,
        tol=1e-10,
        polish=False,
    )
    least = idle_drift(state.backlog) if drift == "exact" else 0.0
    assert oracle.solve(state).objective - least == pytest.approx(found.fun - least, rel=2e-4)


@pytest.mark.parametrize(
    ("shape", "overrides"),
    [
        ((2, 1, 2), {}),
        pytest.param((2, 2, 2), {}, marks=pytest.mark.slow),
        pytest.param((2, 2, 2), {"radio.rate_ceiling": 6.7}, marks=pytest.mark.slow),
        pytest.param(
            (2, 2, 2), {"radio.rate_ceiling": 6.7, "workload.distribution": "relay"}, marks=pytest.mark.slow
        ),
        pytest.param((2, 2, 2), COMMON_HEAD, marks=pytest.mark.slow),
    ],
    ids=["one device", "free", "capped", "relayed", "common"],
)
def test_random_decisions_of_several_clusters_do_not_beat_it(shape, overrides):
    scenario = tiny(*shape).with_overrides(COSTLY | overrides)
    oracle, state = Oracle(scenario, drift="bound", restarts=1), first_state(scenario, 1, 7)
    best, N = oracle.solve(state[0]), 2
    assert best.combinations == (3 if shape[1] == 1 else 9) ** 2
    rng, rows = np.random.default_rng(0), 2500
    centre, low, high = best.allocation, scenario.devices.power_min_w, scenario.devices.power_max_w
    for spread in (0.01, 0.1, 1.0):
        device, cu, share = (
            values * np.exp(spread * rng.normal(size=(rows, *values.shape)))
            for values in (centre.device_power, centre.cu_power, centre.bandwidth)
        )
        tried = Allocation(
            blocks=np.broadcast_to(centre.blocks, (rows, *centre.blocks.shape)),
            micro_batches=np.broadcast_to(centre.micro_batches, (rows, N)),
            bandwidth=share / share.sum(axis=-1, keepdims=True),
            device_power=np.clip(device, low, high),
            cu_power=np.clip(cu, low, high),
        )
        assert oracle.objective(state, tried).min() >= best.objective * (1.0 - 1e-6)


@pytest.mark.parametrize("drift", ["bound", "exact"])
@pytest.mark.parametrize("links", ["drop", "arq"])
def test_the_problem_is_convex_in_the_logarithms(links, drift):
    # With repeats as long as nothing is given up: the number of transmissions is convex only up to a limit.
    # And with Shannon's rate: below the SNR of the most robust format times are not convex.
    plain = {"radio.snr_floor_db": None, "radio.packet_diversity": None}
    repeats = {"radio.max_transmissions": 1_000_000, "radio.waterfall_threshold": 0.02}
    scenario = dssra_gap.scenario_of((3, 2, 2), links)
    scenario = scenario.with_overrides(plain | (repeats if links == "arq" else {}))
    oracle, rng = Oracle(scenario, drift=drift), np.random.default_rng(1)
    for seed in range(10):
        state = state_of(scenario, seed)
        segments = np.array([rng.permutation(s) for s in ([1, 1], [2, 0], [0, 2])])
        plan = FixedPlan(oracle.parameters, state, segments, np.array([1, 8, 64]), oracle.tradeoff_v)
        a, b = rng.uniform(plan.low, plan.high, (2, 200, plan.size))
        least = idle_drift(state.backlog) if drift == "exact" else 0.0
        one, other, middle = (
            oracle.objective(batch_of(state), plan.allocation(p)) - least for p in (a, b, 0.5 * (a + b))
        )
        assert (middle <= 0.5 * (one + other) * (1.0 + 1e-12)).all()


@pytest.mark.parametrize(
    ("drift", "instances", "shapes"),
    [
        ("exact", 3, ((1, 2, 2), (2, 2, 1), (2, 1, 2))),
        pytest.param("exact", 8, dssra_gap.SHAPES, marks=pytest.mark.slow),
        pytest.param("bound", 8, dssra_gap.SHAPES, marks=pytest.mark.slow),
    ],
)
def test_dssra_is_close_to_the_oracle_and_never_better(
    tmp_path, capsys, monkeypatch, drift, instances, shapes
):
    monkeypatch.setattr(dssra_gap, "SHAPES", shapes)
    path = tmp_path / "gap.json"
    # One of each shape with lossless links, the others with repeats.
    arguments = ["--instances", str(instances), "--seed", "4", "--restarts", "0", "--drift", drift]
    assert dssra_gap.main([*arguments, "--output", str(path)]) == 0
    assert "goal" in capsys.readouterr().out
    content = json.loads(path.read_text())
    assert list(tmp_path.iterdir()) == [path]
    gaps = np.array([i["gap"] for i in content["instances"]])
    assert len(gaps) == instances
    assert (gaps > -1e-4).all()
    assert np.median(gaps) < 0.002
    assert gaps.max() < 0.02
    assert all(i["even_split"] > (0.1 if instances == 8 else 0.0) for i in content["instances"])


def moving(clusters, route):
    """Three blocks whose moments move with them, on two devices that change their speed."""
    processes = {"migration": {"route": route, "moments": "move"}}
    return load_scenario(
        {
            "base": "small",
            "workload": {"blocks": 3, "micro_batches": [4]},
            "cluster": {"clusters": clusters, "devices": 2},
            "radio": {"d2d_total_hz": 40e6},
            "budgets": {"device_energy_j": 40, "cu_energy_j": 40},
            "dynamics": {"load_levels": [0.4, 0.7, 1.0], "processes": processes},
        }
    )


@pytest.mark.parametrize(
    ("clusters", "route", "drift", "states"),
    [
        (1, "direct", "exact", 2),
        *(
            pytest.param(2, route, drift, 6, marks=pytest.mark.slow)
            for route in ("direct", "cu")
            for drift in ("bound", "exact")
        ),
    ],
)
def test_dssra_moves_blocks_nearly_as_the_oracle_does(clusters, route, drift, states):
    scenario = moving(clusters, route)
    dssra, oracle = DSSRA(scenario, drift=drift), Oracle(scenario, drift=drift, restarts=0)
    gaps, stays = [], 0
    for seed in range(states):
        env = CollaPipeVectorEnv(1, scenario, "surrogate", autoreset_mode="Disabled")
        env.reset(seed=seed)
        rng = np.random.default_rng(seed)
        for _ in range(2):
            env.step(rng.uniform(-1, 1, env.action_space.shape).astype(np.float32))
        backlog = rng.exponential((0.0, 1.0, 20.0)[seed % 3], env.state.backlog.shape)
        state = replace(env.state, backlog=backlog)
        plan = dssra.allocate(state)
        ours, best = (s.objective(state, p)[0] for s, p in ((dssra, plan), (oracle, oracle.allocate(state))))
        gaps.append(ours / best - 1.0)
        stays += int((plan.blocks == state.processes["migration"]["blocks"]).all())
    # Over the CU its power decides every message; the search takes powers one by one.
    assert max(gaps) < (5e-3 if route == "direct" else 1e-2)
    assert np.median(gaps) < (2e-4 if route == "direct" else 5e-4)
    assert stays < states


def test_it_is_a_scheduler_with_feasible_decisions():
    scenario = unpriced(tiny(2, 1, 2, (64,), budgets={"cu_energy_j": 100, "device_energy_j": 100}))
    oracle, state = Oracle(scenario, restarts=0), first_state(scenario, 2, seed=1)
    assert isinstance(oracle, Scheduler)
    allocation = oracle.act(None, state)
    check_allocation(oracle.parameters, state, allocation)
    assert (allocation.bandwidth >= scenario.budgets.bandwidth_floor).all()
    np.testing.assert_allclose(allocation.bandwidth.sum(axis=-1), 1.0)
    oracle.reset(3)
    again = oracle.act(None, state[1:])
    np.testing.assert_array_equal(again.node_power[0], allocation.node_power[1])
    np.testing.assert_array_equal(again.blocks[0], allocation.blocks[1])


def test_what_it_cannot_do_is_refused():
    medium = load_scenario("medium")
    state = first_state(medium, 1)
    with pytest.raises(AllocationError, match=r"at most 2,000 .*raise largest"):
        Oracle(medium).solve(state[0])
    with pytest.raises(AllocationError, match="1 batch axes"):
        Oracle(medium).solve(state)
    scenario = tiny(2, 2, 2)
    tight = replace(state_of(scenario, 0), memory_cap=np.array([[2, 2], [1, 0]]))
    with pytest.raises(AllocationError, match=r"cluster 1: .* 1 blocks, but the encoder has 2"):
        Oracle(scenario).solve(tight)


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
    course = tradeoff_sweep.long_run(SMALL, 10, seed=0)
    world, dssra = tradeoff_sweep.start(SMALL, 1, 0), DSSRA(SMALL)
    ratios = [world.step(dssra.allocate(world.state)).costs.energy_ratio for _ in range(10)]
    assert course[-1]["worst_energy_ratio"] == pytest.approx(np.mean(ratios, axis=0).max(), rel=1e-3)
