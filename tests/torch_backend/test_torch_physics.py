"""The functions of a round on tensors against NumPy, over random systems and actions."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_support import arrays_of

from collapipe_env.envs.rewards import make_reward
from collapipe_env.physics.queues import update_backlog
from collapipe_env.scenario import draw_layout, load_scenario
from collapipe_env.simulator.build import action_codec, mean_state, reference_delay, system_parameters
from collapipe_env.simulator.costs import round_costs

SCENARIOS = {
    mode: load_scenario({"base": "small", "radio": {"link_errors": mode}, "workload": {"local_steps": steps}})
    for mode, steps in (("drop", 2), ("arq", 1), ("none", 1))
}
SEEDS = st.integers(0, 2**32 - 1)
EXACT = {"rtol": 1e-11, "atol": 1e-14}


def random_state(scenario, rng, rows=4):
    """Random layouts, gains, loads and queues (rows, ...)."""
    states = [mean_state(scenario, draw_layout(scenario, rng)) for _ in range(rows)]
    names = [name for name, _ in arrays_of(states[0])]
    together = dataclasses.replace(
        states[0], **{f: np.stack([np.asarray(getattr(s, f)) for s in states]) for f in names}
    )
    fading = rng.standard_gamma(2.0, together.d2d_gain.shape) / 2.0
    return dataclasses.replace(
        together,
        d2d_gain=together.d2d_gain * (fading + np.swapaxes(fading, -1, -2)),
        speed=together.speed * rng.uniform(0.3, 1.0, together.speed.shape),
        backlog=rng.exponential(5.0, together.backlog.shape),
        round_index=rng.integers(0, 120, rows),
        loss=rng.uniform(0.1, 4.0, rows),
    )


def random_actions(codec, rng, rows=4):
    """Actions (rows, A) with many entries at the bounds, in the middle and beyond."""
    free = rng.uniform(-1.5, 1.5, (rows, codec.action_size))
    special = rng.choice([-1.0, 0.0, 1.0], free.shape)
    return np.where(rng.random(free.shape) < rng.choice([0.0, 0.3, 1.0]), special, free)


def leaves(value, name=""):
    """Arrays of a nested result by dotted name."""
    if dataclasses.is_dataclass(value):
        for f in dataclasses.fields(value):
            yield from leaves(getattr(value, f.name), f"{name}.{f.name}")
    elif hasattr(value, "dtype"):
        yield name, value


def assert_equal_leaves(expected, found):
    expected, found = dict(leaves(expected)), dict(leaves(found))
    assert set(expected) == set(found)
    for name, value in expected.items():
        assert isinstance(found[name], torch.Tensor), name
        assert found[name].dtype == torch.from_numpy(np.asarray(value)).dtype, name
        np.testing.assert_allclose(found[name].numpy(), value, err_msg=name, **EXACT)


@pytest.mark.parametrize("mode", SCENARIOS)
@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_a_round(mode, seed):
    scenario, rng = SCENARIOS[mode], np.random.default_rng(seed)
    state, codec = random_state(scenario, rng), action_codec(scenario)
    actions = random_actions(codec, rng)
    allocation = codec.decode(actions, state.memory_cap)
    tensors = state.map(torch.from_numpy)
    tensor_allocation = codec.decode(torch.from_numpy(actions), tensors.memory_cap)
    assert_equal_leaves(allocation, tensor_allocation)
    parameters = system_parameters(scenario)
    costs = round_costs(parameters, state, allocation)
    tensor_costs = round_costs(parameters, tensors, tensor_allocation)
    assert_equal_leaves(costs, tensor_costs)
    backlog = update_backlog(state.backlog, costs.energy_ratio)
    np.testing.assert_allclose(update_backlog(tensors.backlog, tensor_costs.energy_ratio), backlog, **EXACT)
    for name in ("lyapunov", "drift_plus_penalty", "delay"):
        reward = make_reward(name, scenario, reference_delay(scenario))
        expected = reward(state, costs, dataclasses.replace(state, backlog=backlog))
        found = reward(tensors, tensor_costs, dataclasses.replace(tensors, backlog=torch.from_numpy(backlog)))
        np.testing.assert_allclose(found, expected, rtol=1e-9)
