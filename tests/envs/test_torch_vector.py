"""The vector environment of tensors: arguments, types, NumPy's numbers, single precision, compiling, GPUs."""

import dataclasses
import subprocess
import sys
from contextlib import nullcontext
from functools import partial

import environments_support as support
import gymnasium as gym
import numpy as np
import pytest
import torch
from environments_support import VARIANTS, assert_close, make_actions, on_tensors
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode
from settings_support import SETTINGS
from state_ways_support import assert_same

from collapipe_env.envs.graph_observation import GraphObserver
from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.backends.torch_backend import TorchBackend
from collapipe_env.ground.errors import AllocationError, ScenarioError
from collapipe_env.physics.allocation import COPIES, SCHEDULES, SEQUENTIAL
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.even_split import even_split

ID = "CollaPipeSurrogate-Small-v0"
MODES = ("NextStep", "SameStep")


def test_make_vec_chooses_the_backend():
    one = gym.make_vec(ID, num_envs=3)
    two = gym.make_vec(ID, num_envs=3, backend="torch", device="cpu", dtype="float32", max_episode_steps=2)
    assert (type(one), type(two)) == (CollaPipeVectorEnv, CollaPipeTorchVectorEnv)
    for space in ("single_observation_space", "observation_space", "action_space"):
        assert getattr(two, space) == getattr(one, space)
    assert two.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert EnvSpec.from_json(two.spec.to_json()).kwargs["device"] == "cpu"
    two.reset(seed=0)
    assert [bool(two.step(a)[3].all()) for a in make_actions(two, 2)] == [False, True]


@pytest.mark.slow
def test_pytorch_is_imported_only_for_this_backend():
    code = (
        "import sys\n"
        "from collapipe_env.envs.registration import make_vector\n"
        "make_vector(scenario='small', learner='surrogate')\n"
        "assert 'torch' not in sys.modules\n"
        "make_vector(scenario='small', backend='torch')\n"
        "assert 'torch' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"backend": "tork"}, "backend = 'tork'.*did you mean 'torch'"),
        ({"bakend": "torch"}, "bakend.*did you mean 'backend'"),
        ({"device": "cuda"}, "device = 'cuda'.*add backend='torch'"),
        ({"backend": "torch", "devise": "cpu"}, "devise.*did you mean 'device'"),
        ({"backend": "torch", "device": "gpu0"}, "gpu0.*'cuda:1'"),
        ({"backend": "torch", "device": "cuda:99"}, "cuda:99.*can use"),
        ({"backend": "torch", "dtype": "float16"}, "float16.*did you mean 'float"),
        ({"backend": "torch", "learner": "torch"}, "learner = 'torch'.*only the surrogate learner"),
        ({"backend": "torch", "render_mode": "rgb_array"}, "no pictures"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ScenarioError, match=f"(?s){message}"):
        gym.make_vec(ID, **{"num_envs": 2, **arguments})
    given = {k: v for k, v in arguments.items() if k != "backend"}
    if arguments.get("backend") == "torch":
        with pytest.raises(ScenarioError, match=f"(?s){message}"):
            CollaPipeTorchVectorEnv(**{"num_envs": 2, "scenario": "small", **given})


@pytest.mark.parametrize("dtype", ["float64", torch.float32])
@pytest.mark.parametrize("mode", MODES)
def test_shapes_types_and_masks(mode, dtype):
    env = on_tensors(num_envs=4, dtype=dtype, autoreset_mode=mode)
    real = torch.float64 if dtype == "float64" else torch.float32

    def check_info(info):
        for name, value in info.items():
            if isinstance(value, dict):
                check_info(value)
                continue
            assert name.startswith("_") or f"_{name}" in info
            kind = {"rounds": torch.int64, "final_obs": torch.float32}.get(name, real)
            assert (value.dtype, len(value)) == (torch.bool if name.startswith("_") else kind, 4), name

    _, info = env.reset(seed=0)
    check_info(info)
    for t, action in enumerate(make_actions(env, 10), 1):
        # Tensors and NumPy arrays alike.
        observation, reward, *ends, found = env.step(torch.from_numpy(action) if t % 2 else action)
        check_info(found)
        check_info(env.ended_summaries)
        assert observation.dtype == reward.dtype == torch.float32
        assert all(end.dtype == torch.bool and end.shape == (4,) for end in ends)
        assert not any(value.requires_grad for value in (observation, reward, *ends))
        over = bool(ends[1].any())
        assert ("final_info" in found) == (over and mode == "SameStep")
        assert set(info) == {name for name in found if "final" not in name}
        assert bool(env.ended_summaries) == (t >= 4)
        if over and mode == "SameStep":
            assert env.observation_space.contains(found["final_obs"].numpy())
            assert not torch.equal(found["final_obs"], observation)


def test_gradients_of_actions_and_plans_are_not_tracked():
    one, two = (on_tensors(autoreset_mode="SameStep") for _ in range(2))
    for env in (one, two):
        env.reset(seed=1)
    for action in make_actions(one, 6):
        tensors = torch.from_numpy(action).double().requires_grad_()
        plan = one.codec.decode(tensors.detach(), one.state.memory_cap)
        expected = one.step(tensors)
        assert not expected[1].requires_grad
        wanted = plan.map(lambda a: a.clone().requires_grad_() if a.is_floating_point() else a)
        assert_same(two.step_allocation(wanted), expected)
        assert not two.last_round.allocation.bandwidth.requires_grad


def test_unchecked_actions_spoil_their_own_row_only():
    checked, free = on_tensors("small"), on_tensors("small", check_actions=False)
    actions = make_actions(free, 1)[0]
    for env in (checked, free):
        env.reset(seed=0)
    expected = checked.step(actions)[1]
    spoilt = actions.copy()
    spoilt[1] = np.nan
    found = free.step(spoilt)[1]
    assert torch.isnan(found).tolist() == [False, True, False]
    assert torch.equal(found[[0, 2]], expected[[0, 2]])


# The numbers of NumPy


def plans_beyond_the_box(even):
    """Plans with groups of devices, with copies on the server, and with clusters that take turns there."""
    groups = {"blocks": [3, 3, 0], "stage": [0, 1, 1], "sample_share": [1.0, 0.5, 0.5]}
    shape, clusters = even.blocks.shape, even.blocks.shape[:-1]
    yield even
    yield dataclasses.replace(even, **{name: np.broadcast_to(row, shape) for name, row in groups.items()})
    shared = dataclasses.replace(
        even,
        blocks=np.broadcast_to([2, 0, 0], shape),
        server_blocks=np.full(clusters, 4),
        server_mode=np.full(clusters[:1], COPIES),
    )
    yield shared
    turns = np.full(clusters[:1], SEQUENTIAL)
    yield dataclasses.replace(shared, server_mode=turns, micro_batches=np.ones_like(even.micro_batches))


@pytest.mark.parametrize("around", [nullcontext, SETTINGS["all at once"]], ids=["alone", "inside a program"])
def test_plans_beyond_the_box_play_what_numpy_plays(around):
    one, two = (build("small", 9) for build in (support.vector, on_tensors))
    for env in (one, two):
        env.reset(seed=1)
    even = even_split(system_parameters(one.scenario), one.state)
    for plan in plans_beyond_the_box(even):
        expected = one.step_allocation(plan)
        with around():
            found = two.step_allocation(plan)
        np.testing.assert_allclose(found[1].numpy(), expected[1], rtol=1e-6)
        assert_close(found[4], expected[4], exact=False)
        two.set_state(two.get_state())  # such a round, too, is part of the state
        delays = (env.last_round.costs.cluster_delay for env in (two, one))
        np.testing.assert_allclose(*map(np.asarray, delays), rtol=1e-9)
    clusters = even.blocks.shape[:-1]
    scheduled = dataclasses.replace(
        even,
        schedule=np.full(clusters, SCHEDULES.index("1f1b")),
        caps=np.full(even.blocks.shape, 2),
        chunks=np.ones(clusters, dtype=np.int64),
    )
    assert one.step_allocation(scheduled)[4]["delay"].all()
    before = two.get_state()
    with pytest.raises(AllocationError, match=r"torch backend plays only GPipe.*backend='numpy'"):
        two.step_allocation(scheduled)
    assert_same(two.get_state(), before)


@pytest.mark.parametrize("rounds", [25, pytest.param(100, marks=pytest.mark.slow)])
def test_single_precision_is_close(rounds):
    """Over a whole episode, in which every step is compared."""
    fine, coarse = (on_tensors("small", rounds, 8, dtype=dtype) for dtype in ("float64", "float32"))
    for env in (fine, coarse):
        env.reset(seed=0)
    for action in make_actions(fine, rounds):
        a, b = fine.step(action), coarse.step(action)
        # Segments are whole blocks: a score at the edge may fall to the other side, which nothing here does.
        assert torch.equal(fine.last_round.costs.allocation.blocks, coarse.last_round.costs.allocation.blocks)
        torch.testing.assert_close(b[0], a[0], rtol=0.0, atol=1e-5)
        # A queue's change, a difference of queues in single precision, weighs as much as the queue.
        weights = fine.last_round.backlog.square().sum(dim=(-2, -1)) / fine.scenario.budgets.tradeoff
        rounding = torch.finfo(torch.float32).eps * float(weights.max())
        torch.testing.assert_close(b[1], a[1], rtol=1e-4, atol=rounding)
        for name in ("delay", "loss"):
            torch.testing.assert_close(b[4][name].double(), a[4][name], rtol=1e-5, atol=0.0)


def test_single_precision_of_graphs_is_close():
    fine, coarse = (on_tensors("priced", dtype=d, observation="graph") for d in ("float64", "float32"))
    for env in (fine, coarse):
        env.reset(seed=0)
    for action in make_actions(fine, 3):
        torch.testing.assert_close(fine.step(action)[0], coarse.step(action)[0], rtol=1e-5, atol=1e-5)


def test_gradients_reach_what_the_graph_was_built_of():
    """The general form is differentiable where links are: for whoever optimises a layout."""
    env = on_tensors(observation="graph")
    env.reset(seed=0)
    gain = env.state.d2d_gain.clone().requires_grad_()
    state = dataclasses.replace(env.state, d2d_gain=gain)
    graph = GraphObserver(system_parameters(env.scenario)).build_generic(state)
    graph.hop[..., 1].sum().backward()
    used = graph.hop[..., 1] != 0.0
    torch.testing.assert_close(gain.grad[used], 1.0 / gain.detach()[used])
    assert (gain.grad[~used] == 0.0).all()


# Compiled rounds, which take a minute, and GPUs


def trajectory(env, seed):
    """All tensors that a run hands out: observations, rewards, ends and delays."""
    out = [env.reset(seed=seed)[0]]
    for action in make_actions(env, 8):
        *said, info = env.step(action)
        out += [*said, info["delay"]]
    return out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "compiler"),
    [(n, "inductor") for n in ("small", "moving")]
    + [(n, "eager") for n in ("walking", "priced", "absent_common")],
)
def test_compiled_rounds_are_the_same_rounds_and_whole(name, compiler, monkeypatch):
    """The last ones are only traced, which shows whether anything splits them."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, fullgraph=True, backend=compiler))
    one, two = on_tensors(name, 3), on_tensors(name, 3, compiled=True)
    torch.testing.assert_close(trajectory(two, 3), trajectory(one, 3), rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_compiled_graphs_are_the_same_graphs():
    env = on_tensors(observation="graph")
    env.reset(seed=0)
    build = env._mdp.observer.build_generic
    fused = TorchBackend(compiled=True).fuse(build)
    torch.testing.assert_close(fused(env.state), build(env.state), rtol=1e-6, atol=1e-6)


on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that PyTorch can use")


@on_a_gpu
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", VARIANTS)
def test_a_gpu_plays_the_episodes_of_the_cpu_and_repeats_them(name, mode):
    given = {"autoreset_mode": mode}
    one, two, again = (on_tensors(name, 3, device=device, **given) for device in ("cpu", "cuda", "cuda"))
    found = trajectory(two, 3)
    assert all(tensor.device.type == "cuda" for tensor in found)
    torch.testing.assert_close([t.cpu() for t in found], trajectory(one, 3), rtol=1e-6, atol=1e-6)
    assert all(map(torch.equal, found, trajectory(again, 3)))


@on_a_gpu
@pytest.mark.parametrize("mode", MODES)
def test_steps_do_not_wait_for_the_gpu(mode):
    env = on_tensors("small", 3, 64, device="cuda", check_actions=False, autoreset_mode=mode)
    env.reset(seed=0)
    actions = torch.zeros(env.action_space.shape, device="cuda")
    env.step(actions)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(8):
            env.step(actions)
    finally:
        torch.cuda.set_sync_debug_mode("default")
