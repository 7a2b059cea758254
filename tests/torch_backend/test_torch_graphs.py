"""Graph observations of tensors are those of the NumPy environment."""

import dataclasses

import numpy as np
import pytest
import torch
from torch_support import NAMES, ROUNDS, make_pair, make_torch, random_actions, scenario_of
from variants_support import mostly_slow

from collapipe_env.envs.graph_observation import GraphObserver
from collapipe_env.ground.backends.torch_backend import TorchBackend

SINGLE = {"rtol": 1e-6, "atol": 1e-6}


def assert_same_graph(found, expected, message=""):
    assert set(found) == set(expected)
    for name, array in expected.items():
        assert found[name].dtype == torch.float32
        np.testing.assert_allclose(found[name].numpy(), array, err_msg=f"{message} {name}", **SINGLE)


@pytest.mark.parametrize("mode", mostly_slow(["NextStep", "SameStep"]))
@pytest.mark.parametrize("name", NAMES)
def test_whole_episodes_with_resets(name, mode):
    one, two = make_pair(scenario_of(name), autoreset_mode=mode, observation="graph")
    assert two.observation_space == one.observation_space
    expected, found = one.reset(seed=11), two.reset(seed=11)
    ends = 0
    for t, action in enumerate(random_actions(one, 2 * (ROUNDS + 1))):
        assert_same_graph(found[0], expected[0], f"step {t}")
        expected, found = one.step(action), two.step(torch.from_numpy(action))
        np.testing.assert_allclose(found[1].numpy(), expected[1], rtol=1e-6, atol=1e-7)
        np.testing.assert_array_equal(found[3].numpy(), expected[3])
        ends += expected[3].sum()
        if "final_obs" in expected[4]:
            rows = np.flatnonzero(expected[4]["_final_obs"])
            final = {name: array[rows] for name, array in found[4]["final_obs"].items()}
            last = [expected[4]["final_obs"][row] for row in rows]
            assert_same_graph(final, {name: np.stack([row[name] for row in last]) for name in final})
    assert ends == 6


def test_masked_resets_states_and_simulation():
    one, two = make_pair(scenario_of("moving"), autoreset_mode="Disabled", observation="graph")
    for env in (one, two):
        env.reset(seed=[3, 1, 4])
    actions = random_actions(one, 3)
    assert_same_graph(two.simulate(actions[0])[0], one.step(actions[0])[0])
    two.step(actions[0])
    state = two.get_state()
    mask = np.array([True, False, True])
    assert_same_graph(
        two.reset(options={"reset_mask": torch.from_numpy(mask)})[0],
        one.reset(options={"reset_mask": mask})[0],
    )
    flat = make_torch("moving", autoreset_mode="Disabled", observation="flat")
    two.set_state(state)
    flat.set_state(state)
    (graph, *found, _), (_, *expected, _) = two.step(actions[1]), flat.step(actions[1])
    for one_tensor, other in zip(found, expected, strict=True):
        assert torch.equal(one_tensor, other)
    assert set(graph) == {"cu", "device", "hop", "between", "present", "context"}


def test_single_precision_is_close():
    fine, coarse = (make_torch("priced", dtype=kind, observation="graph") for kind in ("float64", "float32"))
    for env in (fine, coarse):
        env.reset(seed=0)
    for action in random_actions(fine, ROUNDS):
        a, b = fine.step(action)[0], coarse.step(action)[0]
        for name in a:
            torch.testing.assert_close(a[name], b[name], rtol=1e-5, atol=1e-5)


def test_gradients_reach_what_the_graph_was_built_of():
    """The general form is differentiable where links are: for whoever optimises a layout."""
    env = make_torch("moving", observation="graph")
    env.reset(seed=0)
    gain = env.state.d2d_gain.clone().requires_grad_()
    state = dataclasses.replace(env.state, d2d_gain=gain)
    graph = GraphObserver(env._mdp.world.parameters).build_generic(state)
    graph.hop[..., 1].sum().backward()
    used = graph.hop[..., 1] != 0.0
    torch.testing.assert_close(gain.grad[used], 1.0 / gain.detach()[used])
    assert (gain.grad[~used] == 0.0).all()


@pytest.mark.slow
def test_compiled_equals_eager():
    env = make_torch("moving", observation="graph")
    env.reset(seed=0)
    build = env._mdp.observer.build_generic
    fused = TorchBackend(compiled=True).fuse(build)
    torch.testing.assert_close(fused(env.state), build(env.state), rtol=1e-6, atol=1e-6)
