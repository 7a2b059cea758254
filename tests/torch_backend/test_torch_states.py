"""States of environments on tensors: taken, set, saved and tried, each beside the one that plays on."""

import copy
import dataclasses
import pickle
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from settings_support import SETTINGS
from state_ways_support import WAYS, assert_same, go_on
from torch_support import ROUNDS, arrays_of, make_torch, random_actions, scenario_of
from variants_support import mostly_slow

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.arrays import namespace
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import COPIES, SCHEDULES, SEQUENTIAL
from collapipe_env.simulator.even_split import even_split

MODES = ["NextStep", "SameStep", "Disabled"]


def assert_same_round(one, two):
    """The last rounds are of the same tensors, whether played here or not."""
    first, second = one.last_round, two.last_round
    assert_same(dict(arrays_of(first.state)), dict(arrays_of(second.state)))
    for part in ("allocation", "costs", "learning"):
        assert_same(tensors_of(getattr(first, part)), tensors_of(getattr(second, part)))
    assert_same(first.arrivals.counts, second.arrivals.counts)
    assert_same(first.arrivals.micro_batches, second.arrivals.micro_batches)
    assert first.arrivals.pick is second.arrivals.pick is None
    assert first.arrivals.most == second.arrivals.most
    assert_same(first.surviving_fraction(), second.surviving_fraction())
    for name in ("backlog", "backlog_sum", "energy_excess"):
        assert_same(getattr(first, name), getattr(second, name))


def tensors_of(part):
    return {name: value for name, value in part.__getstate__().items() if isinstance(value, torch.Tensor)}


def out_of_step(**kwargs):
    """An environment with rows in different rounds, one of them at its end, and actions to go on with."""
    env = make_torch("moving", **kwargs)
    actions = random_actions(env, 12)
    env.reset(seed=5)
    go_on(env, actions[:1])
    env.reset(options={"reset_mask": np.array([False, True, False])})
    go_on(env, actions[1:3])
    return env, actions[3:]


@pytest.mark.parametrize("way", WAYS, ids=["state", "file", "pickle", "deepcopy"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", mostly_slow(["float64", "float32"]))
def test_environment_goes_on_bit_for_bit(way, mode, dtype, tmp_path):
    kwargs = {"autoreset_mode": mode, "dtype": dtype}
    env, actions = out_of_step(**kwargs)
    other = way(env, lambda: make_torch("moving", **kwargs), tmp_path / "state.safetensors")
    assert_same_round(env, other)
    assert_same(env.ended_summaries, other.ended_summaries)
    assert env.ended_summaries["_return"].tolist() == [True, False, True]
    assert_same(go_on(other, actions), go_on(env, actions))
    assert_same(env.get_state(), other.get_state())


def test_schedules_of_step_sizes_can_be_pickled():
    env = make_torch("skewed")
    actions = random_actions(env, ROUNDS)
    env.reset(seed=2)
    other = pickle.loads(pickle.dumps(env))
    assert_same(go_on(other, actions), go_on(env, actions))


@pytest.mark.parametrize("asked", [True, False])
def test_a_state_can_be_set_again_and_again(asked):
    env, actions = out_of_step(autoreset_mode="SameStep")
    state = env.get_state()
    kept = copy.deepcopy(state)
    first = go_on(env, actions)
    for _ in range(2):
        env.set_state(state)
        if asked:  # the last round is worked out then
            assert isinstance(env.last_round.arrivals.counts, torch.Tensor)
        assert_same(env.get_state(), kept)
        assert_same(go_on(env, actions), first)
    assert_same(state, kept)


def test_a_state_holds_the_numbers_of_numpy():
    """Of the same episodes, but for rounding."""
    one, two = CollaPipeVectorEnv(3, scenario_of("moving"), "surrogate"), make_torch("moving")
    for env in (one, two):
        env.reset(seed=5)
        for action in random_actions(one, ROUNDS + 2):
            env.step(action)
    expected, found = one.get_state(), two.get_state()
    assert found["kind"] == "CollaPipeTorchVectorEnv"
    for state in (expected, found):
        del state["kind"]
        # Nobody can ask tensors which micro-batches arrived.
        del state["mdp"]["simulator"]["last_round"]["pick"]

    def compare(mine, its, place):
        if isinstance(mine, dict):
            assert mine.keys() == its.keys(), place
            for name in mine:
                compare(mine[name], its[name], f"{place}/{name}")
        elif isinstance(mine, np.ndarray):
            assert its.dtype == mine.dtype, place
            np.testing.assert_allclose(its, mine, rtol=1e-9, atol=1e-12, err_msg=place)
        else:
            assert its == mine, place

    compare(expected, found, "")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_simulation_is_the_step_and_leaves_no_trace(mode, dtype):
    env, actions = out_of_step(autoreset_mode=mode, dtype=dtype)
    twin, _ = out_of_step(autoreset_mode=mode, dtype=dtype)
    for action in actions:
        before, record = env.get_state(), env.last_round
        tensors = dict(arrays_of(env.state))
        simulated = env.simulate(torch.from_numpy(action))
        plan = env.codec.decode(torch.zeros(action.shape, dtype=torch.float64), env.state.memory_cap)
        planned = env.simulate(plan)
        assert not torch.equal(planned[1], simulated[1])
        assert_same(env.get_state(), before)
        assert env.last_round is record
        assert all(
            now is then
            for now, then in zip(dict(arrays_of(env.state)).values(), tensors.values(), strict=True)
        )
        assert_same(go_on(env, [action])[0], simulated)
        go_on(twin, [action])
    assert_same(env.get_state(), twin.get_state())


def test_allocations_of_tensors_and_arrays_are_the_step():
    one, two, three, four = (make_torch("moving", autoreset_mode="SameStep") for _ in range(4))
    for env in (one, two, three, four):
        env.reset(seed=1)
    for action in random_actions(one, 2 * ROUNDS):
        plan = one.codec.decode(torch.from_numpy(action).double(), one.state.memory_cap)
        expected = one.step(action)
        assert_same(two.step_allocation(plan), expected)
        assert_same(three.step_allocation(plan.map(lambda a: a.numpy())), expected)
        wanted = plan.map(lambda a: a.clone().requires_grad_() if a.is_floating_point() else a)
        assert_same(four.step_allocation(wanted), expected)
        assert not four.last_round.allocation.bandwidth.requires_grad


@pytest.mark.parametrize("around", [nullcontext, SETTINGS["all at once"]], ids=["alone", "inside a program"])
def test_plans_beyond_the_box_play_what_numpy_plays(around):
    one, two = CollaPipeVectorEnv(2, scenario_of("small", 9), "surrogate"), make_torch("small", 2, 9)
    for env in (one, two):
        env.reset(seed=1)
    even = even_split(one._mdp.world.parameters, one.state)
    E, N, _ = even.blocks.shape
    grouped = dataclasses.replace(
        even,
        blocks=np.broadcast_to([3, 3, 0], even.blocks.shape),
        stage=np.broadcast_to([0, 1, 1], even.blocks.shape),
        sample_share=np.broadcast_to([1.0, 0.5, 0.5], even.blocks.shape),
    )
    scheduled = dataclasses.replace(
        even,
        schedule=np.full((E, N), SCHEDULES.index("1f1b")),
        caps=np.full(even.blocks.shape, 2),
        chunks=np.ones((E, N), dtype=np.int64),
    )
    shared = dataclasses.replace(
        even,
        blocks=np.broadcast_to([2, 0, 0], even.blocks.shape),
        server_blocks=np.full((E, N), 4),
        server_mode=np.full(E, COPIES),
    )
    in_turn = dataclasses.replace(
        shared, server_mode=np.full(E, SEQUENTIAL), micro_batches=np.ones_like(even.micro_batches)
    )
    for plan in (even, grouped, shared, in_turn):
        expected = one.step_allocation(plan)
        with around():
            found = two.step_allocation(plan)
        np.testing.assert_allclose(found[1].numpy(), expected[1], rtol=1e-6)
        assert set(found[4]) == set(expected[4])
        for name in expected[4]:
            np.testing.assert_allclose(found[4][name].numpy(), expected[4][name], rtol=1e-9, err_msg=name)
        two.set_state(two.get_state())  # such a round, too, is part of the state
        one_round, other = one.last_round.costs, two.last_round.costs
        np.testing.assert_allclose(other.cluster_delay.numpy(), one_round.cluster_delay, rtol=1e-9)
    assert one.step_allocation(scheduled)[4]["delay"].all()
    before = two.get_state()
    with pytest.raises(AllocationError, match=r"torch backend plays only GPipe.*backend='numpy'"):
        two.step_allocation(scheduled)
    assert_same(two.get_state(), before)


def test_infeasible_allocations_are_refused_and_change_nothing():
    env = make_torch("moving")
    env.reset(seed=0)
    before = env.get_state()
    plan = env.codec.decode(torch.zeros(env.action_space.shape, dtype=torch.float64), env.state.memory_cap)
    broken = plan.map(torch.clone)
    broken.blocks[1, 0, 0] += 1
    for wrong, message in ((broken, "blocks"), (plan.map(lambda a: a[:2]), "shape"), (None, "NoneType")):
        with pytest.raises(AllocationError, match=message):
            env.step_allocation(wrong)
    assert_same(env.get_state(), before)
    # What the giver goes on writing to is not what was played.
    env.step_allocation(plan)
    kept = env.last_round.allocation.blocks.clone()
    plan.blocks.fill_(0)
    assert torch.equal(env.last_round.allocation.blocks, kept)
    assert namespace(kept) is not np
