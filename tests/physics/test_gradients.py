"""Gradients of a round by autograd against central differences in NumPy."""

import re
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from round_support import make_case

from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import COPIES, SEQUENTIAL, with_schedule
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.general_costs import general_round_costs

OUTPUTS = ("delay", "cluster_delay", "energy", "survival", "memory")
STEP = 1e-6
"""Relative step of the central differences, near the cube root of the rounding error."""


def split(plan, mode):
    """The plan with two blocks of the encoder on the server."""
    single = np.ones_like(plan.micro_batches) if mode == SEQUENTIAL else plan.micro_batches
    return replace(
        plan,
        micro_batches=single,
        server_blocks=np.full(plan.micro_batches.shape, 2),
        server_mode=np.full(plan.micro_batches.shape[:-1], mode),
    )


PLANS = {
    "plain": (False, lambda plan: plan),
    "groups": (True, lambda plan: plan),
    "copies": (False, lambda plan: split(plan, COPIES)),
    "sequential": (True, lambda plan: split(plan, SEQUENTIAL)),
}


def slopes(parameters, state, plan, name, weights):
    """Central differences of the weighted sum of all outputs, entry by entry."""

    def worth(values):
        costs = general_round_costs(parameters, state, replace(plan, **{name: values}))
        return sum(float((weights[out] * getattr(costs, out)).sum()) for out in weights)

    at = getattr(plan, name)
    found = np.zeros_like(at)
    for place in np.ndindex(at.shape):
        step = STEP * max(at[place], 1e-2)
        up, down = at.copy(), at.copy()
        up[place] += step
        down[place] -= step
        found[place] = (worth(up) - worth(down)) / (up[place] - down[place])
    return found


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("mode", ["drop", "arq", "none"])
@pytest.mark.parametrize("kind", PLANS)
def test_gradients_are_central_differences(kind, mode, output):
    groups, change = PLANS[kind]
    links = {"link_errors": mode}
    if mode == "arq":  # hardly anything would be lost, and differences of the survival would be rounding
        links |= {"max_transmissions": 2, "waterfall_threshold": 1.0}
    parameters, state, plan = make_case(4, lead=(2,), steps=2, groups=groups, absent=0.2, **links)
    plan = change(plan)
    rng = np.random.default_rng(0)
    # Random weights: a sum of shares, say, would hide errors that cancel out.
    scale = getattr(round_costs(parameters, state, plan), output)
    weights = {output: rng.uniform(0.5, 1.5, scale.shape) / np.abs(scale).max()}
    names = ["bandwidth", "device_power", "cu_power", *(["sample_share"] if groups else [])]
    tensors = plan.map(torch.tensor)
    for name in names:
        getattr(tensors, name).requires_grad_()
    costs = round_costs(parameters, state.map(torch.tensor), tensors)
    result = (torch.tensor(weights[output]) * getattr(costs, output)).sum()
    if not result.requires_grad:  # memory without shares, survival without losses
        assert (output, groups) == ("memory", False) or (output == "survival" and mode == "none")
        return
    gradients = torch.autograd.grad(
        result, [getattr(tensors, n) for n in names], allow_unused=True, materialize_grads=True
    )
    for name, gradient in zip(names, gradients, strict=True):
        expected = slopes(parameters, state, plan, name, weights)
        if name == "sample_share":  # shares of devices in no stage are not read
            expected, gradient = expected[plan.stage >= 0], gradient[torch.tensor(plan.stage >= 0)]
        # Differences of a survival of 1 - q^R round the more.
        atol = (1e-7 if mode == "arq" else 1e-8) * max(np.abs(expected).max(), 1.0)
        np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=atol, err_msg=name)


def test_plans_that_name_schedules_refuse():
    parameters, state, plan = make_case(2)
    plan = with_schedule(plan, "1f1b", np.array([4, 3, 2, 1])).map(torch.tensor)
    round_costs(parameters, state.map(torch.tensor), plan)
    plan.cu_power.requires_grad_()
    with pytest.raises(AllocationError, match=r"schedule: .* have no gradient; leave schedule"):
        round_costs(parameters, state.map(torch.tensor), plan)


def test_the_example_of_the_docs():
    text = (Path(__file__).parents[2] / "docs/environment.md").read_text()
    section = re.search(r"^### Gradients of a round\n.*?```python\n(.*?)```", text, re.DOTALL | re.MULTILINE)
    assert section is not None
    names = {
        "gymnasium": gymnasium,
        "torch": torch,
        "round_costs": round_costs,
        "system_parameters": system_parameters,
    }
    exec(section[1], names)
    played, found = names["played"], names["plan"].bandwidth.grad
    expected = slopes(
        names["parameters"], played.state, played.allocation, "bandwidth", {"delay": np.ones(1)}
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert found.min() < 0.0
