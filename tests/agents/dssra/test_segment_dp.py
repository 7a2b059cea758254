"""The segment programme against brute force through the simulator's own physics."""

from dataclasses import replace

import numpy as np
import pytest
from as_python_support import as_python
from oracles.splits import splits
from round_support import links_of
from scheduler_support import row_of

from collapipe_env.agents.dssra import cluster_answers, segment_dp
from collapipe_env.agents.dssra import segment_problem as pricing
from collapipe_env.agents.dssra.round_input import ClusterTerms, round_input
from collapipe_env.agents.dssra.segment_problem import SegmentProblem
from collapipe_env.kernels.cluster_times import ClusterTimes
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.energy import RadioPower
from collapipe_env.physics.moves import Migration
from collapipe_env.physics.overheads import Overheads
from collapipe_env.physics.radio import Sharing, d2d_noise
from collapipe_env.physics.workload import WorkloadCosts
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.state import Parameters, SystemState

best_segments = as_python(segment_dp.best_segments)
plan_cost = as_python(pricing.plan_cost)
segment_problem = as_python(pricing.segment_problem)
near_sizes = as_python(cluster_answers.segments_of_near_sizes)


def random_system(rng):
    """Parameters and state of one random cluster, with elements of all kinds of similar size."""
    K, L = int(rng.integers(2, 6)), int(rng.integers(2, 8))
    costs = WorkloadCosts(
        blocks=L,
        batch_size=16,
        local_steps=int(rng.integers(1, 4)),
        block_forward_flops=1e8,
        decoder_forward_flops=10.0 ** rng.uniform(3, 9),
        block_weight_flops=9e7,
        decoder_weight_flops=1e3,
        block_parameters=10 ** int(rng.integers(4, 7)),
        embedding_parameters=1000,
        stored_activation_bytes=1e6,
        activation_bits=10.0 ** rng.uniform(4.5, 6.5),
        gradient_bits=10.0 ** rng.uniform(4.5, 6.5),
        weight_bits=16,
    )
    parameters = Parameters(
        costs=costs,
        noise_density=4e-21,
        bs_noise_density=4e-21,
        d2d_bandwidth_hz=10e6,
        sharing=Sharing(1.0, 5.0),
        uplink_bandwidth_hz=20e6,
        downlink_bandwidth_hz=20e6,
        bs_power_w=20.0,
        external_interference_w=0.0,
        **links_of(str(rng.choice(["drop", "arq", "none"])), 0.5),
        server_flops=1e11,
        clusters=1,
        power_min_w=0.002,
        power_max_w=0.2,
        tradeoff_v=float(rng.choice([0.01, 0.3, 3.0])),
        micro_batch_choices=(int(rng.choice([1, 2, 4, 16])),),
        bandwidth_floor=0.0,
    )
    if rng.random() < 0.5:
        overheads = Overheads(*(rng.uniform(0.0, most) for most in (1e8, 1e8, 0.1, 1e5, 0.1, 0.1, 0.1, 0.1)))
        radio_power = RadioPower(1.0, 1.8, 0.35, float(rng.uniform(0.0, 2.0)))
        parameters = replace(
            parameters,
            overheads=overheads,
            radio_power=radio_power,
            link=parameters.link._replace(ceiling=10.0),
            distribution=str(rng.choice(["cu", "relay"])),
        )
    gain = 10.0 ** rng.uniform(-11, -7, (K + 1, K + 1))
    present = rng.random(K) < 0.85
    present[rng.integers(K)] = True
    cap = np.where(present, rng.integers(1, L + 1, K), 0)
    cap[np.argmax(cap)] = L
    state = SystemState(
        uplink_gain=10.0 ** rng.uniform(-12, -9, 1),
        d2d_gain=np.maximum(gain, gain.T)[None],
        cross_gain=np.zeros((1, 1)),
        speed=10.0 ** rng.uniform(9.5, 10.8, (1, K)),
        clock=rng.uniform(0.3e9, 2e9, (1, K)),
        full_speed=np.full((1, K), 1e11),
        cubic_power=np.zeros((1, K), dtype=bool),
        compute_power=rng.uniform(1.0, 8.0, (1, K)),
        memory_bytes=np.full((1, K), 1e9),
        memory_cap=cap[None],
        present=present[None],
        budget=np.full((1, K + 1), 5.0),
        backlog=rng.exponential(2.0, (1, K + 1)) * (rng.random((1, K + 1)) < 0.7),
        round_index=np.zeros((), dtype=np.int64),
        loss=np.zeros(()),
        server_share=np.ones(()),
    )
    if rng.random() < 0.5:
        parameters = replace(
            parameters, migration=Migration(10.0 ** rng.uniform(5, 8), True, rng.random() < 0.3)
        )
        held = np.zeros((1, L, K + 1), dtype=bool)
        held[0, range(L), 1 + np.sort(rng.integers(0, K, L))] = True
        state = replace(state, processes={"migration": {"holders": held}})
    return parameters, state


def test_segments_are_the_best_of_all_compositions():
    rng = np.random.default_rng(7)
    stages = []
    for _ in range(45):
        parameters, state = random_system(rng)
        V, K = parameters.tradeoff_v, state.present.shape[-1]
        interference = np.array([10.0 ** rng.uniform(-15, -11)])
        power = np.exp(rng.uniform(np.log(0.002), np.log(0.2), K + 1))
        constants = parameters.numbers._replace(tradeoff_v=V)
        inputs = row_of(round_input(parameters, state.map(lambda a: a[None])), 0)
        noise = float(d2d_noise(parameters.noise_density, parameters.d2d_bandwidth_hz, interference)[0])
        terms = ClusterTerms(0, noise, 1.0, V, 0.0)
        problem = segment_problem(0, power, terms, inputs, constants)
        cost, segments = best_segments(problem, np.inf)

        plans = np.array(splits(parameters.costs.blocks, state.memory_cap[0]))
        rows = len(plans)
        everything = Allocation(
            blocks=plans[:, None, :],
            micro_batches=np.full((rows, 1), parameters.micro_batch_choices[-1]),
            bandwidth=np.ones((rows, 1)),
            device_power=np.broadcast_to(power[1:], (rows, 1, K)),
            cu_power=np.full((rows, 1), power[0]),
        )
        costs = round_costs(parameters, state.map(lambda a: a[None]), everything, interference)
        values = V * costs.cluster_delay[:, 0] + (state.backlog * costs.energy_ratio).sum(axis=(-2, -1))
        chosen = int(np.flatnonzero((plans == segments).all(axis=-1))[0])
        assert values[chosen] <= values.min() * (1.0 + 1e-9)
        # The programme's objective is the round's, up to what no plan changes.
        priced = np.array([plan_cost(problem, plan) for plan in plans])
        np.testing.assert_allclose(
            priced - priced[0], values - values[0], rtol=1e-9, atol=1e-9 * values.max()
        )
        assert cost == pytest.approx(priced.min(), rel=1e-12)
        stages.append((segments > 0).sum())
        # Any cost of so many blocks, as the exact drift's is no multiple of one block's; with a known plan.
        more = rng.exponential(problem.block_cost).cumsum(axis=1)
        bent = problem._replace(block_cost=problem.block_cost + more)
        values = np.array([plan_cost(bent, plan) for plan in plans])
        for bound in (np.inf, float(rng.choice(values)), float(values.min())):
            cost, segments = best_segments(bent, bound)
            assert cost == pytest.approx(values.min(), rel=1e-12)
            assert plan_cost(bent, segments) == pytest.approx(cost, rel=1e-12)
        assert best_segments(bent, 0.9 * float(values.min()))[0] == np.inf
    assert len(set(stages)) >= 3


def test_segments_are_also_the_best_of_all_at_neighbouring_numbers_of_micro_batches():
    rng, sizes, chosen = np.random.default_rng(3), (1, 2, 4, 16), []
    for _ in range(30):
        parameters, state = random_system(rng)
        # An uplink as slow as other elements: its time is the same for all segments, but not for all sizes.
        parameters = replace(parameters, micro_batch_choices=sizes, uplink_bandwidth_hz=1e6)
        V, K = parameters.tradeoff_v, state.present.shape[-1]
        power = np.exp(rng.uniform(np.log(0.002), np.log(0.2), K + 1))
        inputs = row_of(round_input(parameters, state.map(lambda a: a[None])), 0)
        noise = parameters.noise_density * parameters.d2d_bandwidth_hz
        now = int(rng.integers(4))
        plans = np.array(splits(parameters.costs.blocks, state.memory_cap[0]))
        rows, values = len(plans), {}
        for option in range(4) if len(inputs.choices) > 1 else (now,):
            if abs(option - now) > 1:
                continue
            everything = Allocation(
                blocks=plans[:, None, :],
                micro_batches=np.full((rows, 1), sizes[option]),
                bandwidth=np.ones((rows, 1)),
                device_power=np.broadcast_to(power[1:], (rows, 1, K)),
                cu_power=np.full((rows, 1), power[0]),
            )
            costs = round_costs(parameters, state.map(lambda a: a[None]), everything, np.zeros(1))
            values[option] = V * costs.cluster_delay[:, 0]
            values[option] += (state.backlog * costs.energy_ratio).sum(axis=(-2, -1))
        segments, terms = near_sizes(
            0,
            plans[rng.integers(rows)],
            power,
            ClusterTerms(now, noise, 1.0, V, 0.0),
            inputs,
            parameters.numbers,
        )
        value = values[terms.option][(plans == segments).all(axis=-1)]
        assert value == pytest.approx(min(v.min() for v in values.values()), rel=1e-9)
        chosen.append(terms.option - now)
    assert set(chosen) == {-1, 0, 1}


def test_equal_costs_and_a_long_chain_are_solved_and_too_little_memory_is_told():
    ones, none, zero = np.ones((17, 17)), np.zeros((17, 17)), np.zeros(16)
    edge = (0.0,) * 6  # instant links to the base station, and an instant server
    times = ClusterTimes(*[np.ones(16)] * 4, ones, ones, none, *edge, zero, zero, none, none)
    each = np.broadcast_to(np.arange(33.0), (16, 33)).copy()
    still = (np.zeros(0, np.int64), *(np.zeros((16, n)) for n in (0, 0, 1)), False, 0.0)
    problem = SegmentProblem(32, np.full(16, 4), times, each, ones, 1.0, 1.0, 1.0, *still, 0.0, 0.0, 0.0)
    cost, segments = best_segments(problem, np.inf)
    # Eight full devices, nine hops and three maxima of four against more devices and more hops.
    assert segments.sum() == 32
    assert cost == min(32 + (-(-32 // d) + 1) + 3 * d for d in (2, 3, 4))
    free = {"bottleneck_price": 0.0, "collect_price": 0.0, "update_price": 0.0}
    assert best_segments(problem._replace(block_cost=0.0 * each, hop_cost=none, **free), np.inf)[0] == 0.0
    cost, segments = best_segments(problem._replace(cap=np.ones(16, np.int64)), np.inf)
    assert cost == np.inf
    assert not segments.any()
