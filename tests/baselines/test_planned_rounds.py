"""Plans as planners price them against the simulator, with overheads on; and the numbers of micro-batches."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from baseline_support import PRICED, RECOMPUTED, RELAYED, SMALL, UNEVEN, decide, first_state
from test_draft_pricing import random_plan
from unpriced_support import unpriced

from collapipe_env.baselines.adaptis import AdaPtis
from collapipe_env.baselines.flexpipe import FlexPipe
from collapipe_env.baselines.optpipe import OptPipe
from collapipe_env.baselines.oracle import Oracle
from collapipe_env.baselines.pipar import PiPar
from collapipe_env.baselines.planning.chain_problem import chain_problems
from collapipe_env.baselines.planning.draft_pricing import lower_bound
from collapipe_env.baselines.planning.plan_search import micro_batch_options
from collapipe_env.baselines.planning.scheduled_plan import ScheduledPlan, allocation_of
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.costs import round_costs

ROOMY = {"devices.profiles": [{"switched_capacitance": 1e-28, "memory_bytes": [1e12]}]}
"""Memory for any schedule."""


def seconds_of(plan: ScheduledPlan, parameters, state) -> tuple[float, float]:
    """What a plan of the first cluster is planned and simulated to take [s]."""
    others = {at: ScheduledPlan((0,), (6,), "gpipe", (1,), 1) for at in np.ndindex(state.uplink_gain.shape)}
    costs = round_costs(parameters, state, allocation_of(parameters, state, {**others, (0, 0): plan}))
    planned = plan.seconds(chain_problems(parameters, state)[0, 0])
    return planned, float((costs.cluster_delay - costs.upload)[0, 0])


@pytest.mark.parametrize("duplex", ["full", "half"])
@pytest.mark.parametrize(
    "base", [UNEVEN, PRICED, RELAYED, RECOMPUTED], ids=["uneven", "priced", "relayed", "recomputed"]
)
def test_a_plan_lasts_as_long_as_planned(base, duplex: str) -> None:
    scenario = base.with_overrides({"radio.d2d_duplex": duplex, **ROOMY})
    parameters, rng = system_parameters(scenario), np.random.default_rng(1)
    state = first_state(scenario, 1, seed=2)
    seen = set()
    for _ in range(60):
        plan = random_plan(rng, 3, 6)
        if plan.schedule == "1f1b" and rng.random() < 0.5:
            plan = plan._replace(schedule="async")
        planned, simulated = seconds_of(plan, parameters, state)
        assert planned == pytest.approx(simulated, rel=1e-9), plan
        bound = lower_bound(chain_problems(parameters, state)[0, 0], plan.arrays())
        assert bound <= planned * (1 + 1e-12)
        seen.add(plan.schedule)
    assert seen == {"gpipe", "1f1b", "zb-h1", "interleaved", "async"}


def test_options_are_all_numbers_where_they_cost_and_the_largest_few_where_not() -> None:
    free, priced = system_parameters(unpriced(SMALL)), system_parameters(PRICED)
    assert micro_batch_options(priced, None) == (1, 2, 4, 8, 16, 64)
    assert micro_batch_options(free, None) == (4, 16, 32, 64)
    assert micro_batch_options(system_parameters(SMALL), None) == free.micro_batch_choices
    assert micro_batch_options(priced, 5) == micro_batch_options(free, 5) == (4,)
    for field in free.overheads._fields:
        costly = replace(free, overheads=free.overheads._replace(**{field: 1e-9}))
        assert micro_batch_options(costly, None) == free.micro_batch_choices


def schedulers(micro_batches: int | None):
    """Planners that choose M, free or held to one number."""
    if micro_batches is None:
        return {"adaptis": AdaPtis(PRICED), "flexpipe": FlexPipe(PRICED), "pipar": PiPar(PRICED)}
    one = PRICED.with_overrides({"workload.micro_batches": [micro_batches]})
    return {
        "adaptis": AdaPtis(PRICED, micro_batches=micro_batches),
        "flexpipe": FlexPipe(PRICED, micro_batches=micro_batches),
        "pipar": PiPar(one),
    }


def test_numbers_of_micro_batches_are_chosen_inside_their_range_and_pay() -> None:
    parameters, state = system_parameters(PRICED), first_state(PRICED, 2, seed=4)

    def delays(micro_batches):
        found = {}
        for name, scheduler in schedulers(micro_batches).items():
            plan = decide(scheduler, state)
            found[name] = plan.micro_batches, round_costs(parameters, state, plan)
        return found

    chosen = delays(None)
    for name, (M, _) in chosen.items():
        assert (M > 1).any(), name
        assert (M < 64).all(), name
    for M in (1, 64):
        for name, (_, fixed) in delays(M).items():
            ours = chosen[name][1]
            if name == "pipar":  # plans the clusters together
                assert (ours.delay < 0.95 * fixed.delay).all()
            else:
                assert (ours.cluster_delay < 0.95 * fixed.cluster_delay).all(), (name, M)


def test_optpipe_takes_the_number_with_the_quickest_warm_start() -> None:
    pytest.importorskip("ortools", reason="OptPipe needs the extra 'optimize'")
    parameters, state = system_parameters(PRICED), first_state(PRICED, 1, seed=4)
    delays = {}
    for most in (1, 2, 4, 8, 16):
        plan = OptPipe(PRICED, solver_time=0.0, max_micro_batches=most).act(None, state)
        delays[most] = plan.micro_batches, round_costs(parameters, state, plan).cluster_delay
        assert (plan.micro_batches <= most).all()
    for few, many in itertools.pairwise(delays):
        assert (delays[many][1] <= delays[few][1] * (1 + 1e-12)).all()
    numbers = delays[16][0]
    assert (numbers > 1).all()
    assert (numbers < 16).any()


def tiny(clusters: int, devices: int, blocks: int, **overrides):
    """A tiny scenario with overheads."""
    return load_scenario(
        {
            "base": "small",
            "workload": {"blocks": blocks, "micro_batches": [1, 4, 16]},
            "cluster": {"clusters": clusters, "devices": devices, "layout": "per_episode"},
        }
    ).with_overrides(
        {f"overheads.{name}": getattr(PRICED.overheads, name) for name in vars(PRICED.overheads)} | overrides
    )


COMMON_HEAD = {"workload.head": "common", "workload.local_steps": 3, "workload.distribution": "relay"}


def radios(snr_cap_db: float | None) -> dict:
    return {
        "radio.snr_cap_db": snr_cap_db,
        "radio.d2d_circuit_w": 1.0,
        "radio.edge_circuit_w": 1.8,
        "radio.amplifier_efficiency": 0.35,
        "radio.receive_w": 0.9,
        "budgets.device_energy_j": 100,
        "budgets.cu_energy_j": 60,
    }


@pytest.mark.parametrize(
    ("seed", "snr_cap_db"),
    [
        (3, None),
        pytest.param(5, 20.0, marks=pytest.mark.slow),
        pytest.param(3, 20.0, marks=pytest.mark.slow),
        pytest.param(5, None, marks=pytest.mark.slow),
    ],
)
def test_the_oracle_equals_a_grid_over_plans_micro_batches_and_powers(snr_cap_db, seed: int) -> None:
    scenario = tiny(1, 2, 2, **radios(snr_cap_db))
    oracle = Oracle(scenario, drift="bound")
    state = first_state(scenario, 1, seed)
    levels = np.geomspace(scenario.devices.power_min_w, scenario.devices.power_max_w, 33)
    cu, first, second = (p.ravel() for p in np.meshgrid(levels, levels, levels))
    least = {}
    for blocks, M in itertools.product(([0, 2], [1, 1], [2, 0]), (1, 4, 16)):
        grid = Allocation(
            blocks=np.broadcast_to(blocks, (cu.size, 1, 2)),
            micro_batches=np.full((cu.size, 1), M),
            bandwidth=np.ones((cu.size, 1)),
            device_power=np.stack((first, second), axis=-1)[:, None],
            cu_power=cu[:, None],
        )
        least[M] = min(least.get(M, np.inf), oracle.objective(state, grid).min())
    found = oracle.solve(state[0])
    assert found.combinations == 9
    assert found.objective <= min(least.values()) * (1.0 + 1e-7)
    assert min(least.values()) <= found.objective * 1.003  # the grid's coarseness
    assert min(least, key=least.__getitem__) == int(found.allocation.micro_batches[0])
    largest = Oracle(scenario, drift="bound", all_micro_batches=False).solve(state[0])
    assert largest.combinations == 3
    assert found.objective <= largest.objective <= least[16] * (1.0 + 1e-7)


@pytest.mark.parametrize(
    ("snr_cap_db", "weights"),
    [
        pytest.param(None, {}, id="free"),
        pytest.param(20.0, {}, id="capped", marks=pytest.mark.slow),
        pytest.param(20.0, {"workload.distribution": "relay"}, id="relayed", marks=pytest.mark.slow),
        pytest.param(None, COMMON_HEAD, id="common", marks=pytest.mark.slow),
    ],
)
def test_the_oracle_is_not_beaten_by_random_decisions_of_several_clusters(snr_cap_db, weights) -> None:
    scenario = tiny(2, 2, 2, **radios(snr_cap_db), **weights)
    oracle = Oracle(scenario, drift="bound")
    state = first_state(scenario, 1, 7)
    best = oracle.solve(state[0])
    assert best.combinations == 9 * 9
    rng = np.random.default_rng(0)
    centre, low, high = best.allocation, scenario.devices.power_min_w, scenario.devices.power_max_w
    for spread in (0.01, 0.1, 1.0):
        rows = 4000

        def near(values, spread=spread, rows=rows):
            return np.clip(values * np.exp(spread * rng.normal(size=(rows, *values.shape))), low, high)

        share = centre.bandwidth * np.exp(spread * rng.normal(size=(rows, 2)))
        share = share / share.sum(axis=-1, keepdims=True)
        tried = Allocation(
            blocks=np.broadcast_to(centre.blocks, (rows, 2, 2)),
            micro_batches=np.broadcast_to(centre.micro_batches, (rows, 2)),
            bandwidth=share,
            device_power=near(centre.device_power),
            cu_power=near(centre.cu_power),
        )
        assert oracle.objective(state, tried).min() >= best.objective * (1.0 - 1e-6)
