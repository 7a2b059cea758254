"""VanillaFL: shares under memory limits, and the round it stands for in closed form."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from baseline_support import PRICED, SMALL, UNEVEN, Recorder, first_state
from hypothesis import given
from hypothesis import strategies as st
from oracles.planned_chains import full_power_rates

from collapipe_env.baselines.vanilla_fl import VanillaFL, data_shares
from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import AllocationError
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.layout import fixed_layout
from collapipe_env.simulator.build import mean_state
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs


@given(st.lists(st.floats(-0.5, 1.2), min_size=1, max_size=6))
def test_largest_group_with_equal_shares_or_all_to_the_brim(limits) -> None:
    share = data_shares(np.array(limits))
    groups = [
        g
        for size in range(1, len(limits) + 1)
        for g in itertools.combinations(limits, size)
        if all(limit * size >= 1.0 for limit in g)
    ]
    assert (share >= 0.0).all()
    assert (share <= np.maximum(limits, 0.0) + 1e-12).all()
    if groups:
        size = max(len(g) for g in groups)
        assert sorted(share)[-size:] == pytest.approx([1.0 / size] * size)
        assert share.sum() == pytest.approx(1.0)
    else:
        room = np.clip(limits, 0.0, 1.0)
        assert share.sum() == pytest.approx(min(1.0, room.sum()), abs=1e-12)
        # Whoever has less than the most is full.
        below = share < share.max() - 1e-9
        assert np.allclose(share[below], room[below])


@pytest.mark.parametrize("name", ["small", "medium", "large", "xlarge"])
def test_all_devices_take_part_in_the_shipped_scenarios(name: str) -> None:
    scenario = load_scenario(name)
    state = mean_state(scenario, fixed_layout(scenario)).map(lambda a: a[None])
    scheduler = VanillaFL(scenario)
    assert (scheduler.left_out(state) == 0).all()
    assert np.allclose(scheduler.shares(state), 1.0 / scenario.max_devices)
    check_allocation(scheduler.parameters, state, scheduler.act(None, state))


@pytest.mark.parametrize(
    "overheads", [UNEVEN.overheads, SMALL.overheads, PRICED.overheads], ids=["free", "shipped", "priced"]
)
@pytest.mark.parametrize("micro_batches", [1, 4])
def test_round_in_closed_form(micro_batches: int, overheads) -> None:
    scenario = replace(SMALL, overheads=overheads)
    state = first_state(scenario, 1)
    scheduler = VanillaFL(scenario, micro_batches=micro_batches)
    parameters, costs, extra = (
        scheduler.parameters,
        scheduler.parameters.costs,
        scheduler.parameters.overheads,
    )
    round_ = round_costs(parameters, state, scheduler.act(None, state))
    rates, repeats = full_power_rates(parameters, state)
    L, b, share = costs.blocks, costs.batch_size / micro_batches, 1.0 / 3.0
    for n in range(SMALL.clusters):
        rate, tries = rates[0, n], repeats[0, n]

        def message(i, j, bits, rate=rate, tries=tries):
            sent = tries[i, j] * (share * b * bits + extra.header_bits) / rate[i, j]
            return (sent + extra.message_s) / parameters.sharing.duty

        out = sum(message(0, j, costs.activation_bits) for j in (1, 2, 3))
        home = max(message(j, 0, costs.activation_bits) for j in (1, 2, 3))
        back_out = sum(message(0, j, costs.gradient_bits) for j in (1, 2, 3))
        back_home = max(message(j, 0, costs.gradient_bits) for j in (1, 2, 3))
        # A group launches all of its blocks, however few the samples of each device.
        clock = state.clock[0, n].min()
        compute = share * b * L * costs.block_forward_flops / state.speed[0, n].min()
        compute += L * extra.block_cycles / clock
        chain = round_.elements
        up, down = chain.uplink[0, n], chain.downlink[0, n]
        forward = [out, compute, home, up, chain.server_forward[0, n]]
        backward = [down, chain.server_backward[0, n], back_out, 2.0 * compute, back_home]
        step = sum(forward) + sum(backward) + (micro_batches - 1) * (max(forward) + max(backward))
        step += 2.0 * (2.0 * extra.latency_s + extra.edge_latency_s) + L * extra.update_cycles / clock
        payload = L * costs.block_payload_bits
        slowest_pair = min(rate[i, j] for i, j in itertools.permutations((1, 2, 3), 2))
        step += 2.0 * 2.0 / 3.0 * payload / slowest_pair
        expected = step + payload / rate[1, 0] + round_.upload[0, n]
        assert round_.cluster_delay[0, n] == pytest.approx(expected, rel=1e-9)


def test_devices_without_memory_are_left_out_and_counted() -> None:
    state = first_state(SMALL, 1)
    costs = VanillaFL(SMALL).parameters.costs
    weights = costs.blocks * costs.block_state_bytes
    batch = costs.blocks * costs.batch_size * costs.stored_activation_bytes
    memory = state.memory_bytes.copy()
    memory[0, 0] = [weights + 0.6 * batch, weights + 0.2 * batch, weights + 0.5 * batch]
    memory[0, 1] = [weights + 0.45 * batch, weights + 0.45 * batch, weights + 0.2 * batch]
    tight = replace(state, memory_bytes=memory)
    scheduler = VanillaFL(SMALL)
    assert scheduler.left_out(tight).tolist() == [[1, 0]]
    assert np.allclose(scheduler.shares(tight)[0], [[0.5, 0.0, 0.5], [0.4, 0.4, 0.2]])
    check_allocation(scheduler.parameters, tight, scheduler.act(None, tight))
    memory[0, 1] = [weights + 0.45 * batch, weights + 0.45 * batch, weights]
    with pytest.raises(AllocationError, match=r"environment 0, cluster 1: .* hold 90 % of a mini-batch"):
        scheduler.act(None, replace(state, memory_bytes=memory))


def test_it_needs_no_device_that_holds_a_block_with_a_whole_mini_batch() -> None:
    state, scheduler = first_state(SMALL, 2), VanillaFL(SMALL)
    crowded = replace(state, memory_cap=np.zeros_like(state.memory_cap))
    assert np.array_equal(scheduler.act(None, crowded).sample_share, scheduler.act(None, state).sample_share)


def test_learner_sees_one_stage_of_all_blocks() -> None:
    learner = Recorder(2)
    env = CollaPipeVectorEnv(num_envs=2, scenario=SMALL, learner=learner)
    env.reset(seed=1)
    env.step_allocation(VanillaFL(SMALL).act(None, env.state))
    assert learner.outcomes[0].blocks.tolist() == [[[SMALL.blocks, 0, 0]] * 2] * 2


def test_devices_that_take_no_part_are_counted_in_info():
    """All devices take part; then the last one of the first cluster is taken out of the plan."""
    env = CollaPipeEnv(scenario="small", learner="surrogate")
    env.reset(seed=0)
    scheduler = VanillaFL(env.scenario)
    decision = scheduler.act(np.zeros((1, 1), np.float32), env.state)
    stage, share = decision.stage.copy(), decision.sample_share.copy()
    stage[0, 0, 2], share[0, 0] = -1, [0.5, 0.5, 0.0]
    fewer = replace(decision, stage=stage, sample_share=share)
    assert env.step_allocation(decision)[4]["left_out"] == scheduler.left_out(env.state).sum()
    assert env.step_allocation(fewer)[4]["left_out"] == 1.0
    assert "left_out" not in env.step(np.zeros(env.action_space.shape, np.float32))[4]
