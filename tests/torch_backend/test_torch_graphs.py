"""Graph observations of tensors; ``test_torch_equals_numpy`` compares them with the NumPy environment's."""

import dataclasses

import pytest
import torch
from state_ways_support import assert_same
from torch_support import ROUNDS, make_torch, random_actions

from collapipe_env.envs.graph_observation import GraphObserver
from collapipe_env.ground.backends.torch_backend import TorchBackend


def test_states_fit_either_observation_and_simulation_leaves_no_trace():
    graph, flat = (
        make_torch("moving", autoreset_mode="Disabled", observation=kind) for kind in ("graph", "flat")
    )
    graph.reset(seed=[3, 1, 4])
    actions = random_actions(graph, 2)
    graph.step(actions[0])
    flat.set_state(graph.get_state())
    simulated = graph.simulate(actions[1])
    found, expected = graph.step(actions[1]), flat.step(actions[1])
    assert_same(found, simulated)
    assert_same(found[1:], expected[1:])


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
