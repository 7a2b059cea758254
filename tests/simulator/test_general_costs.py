"""Costs of a round on any library: reference cases of the system model to 1e-9, and gradients by autograd."""

import json
import re
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from round_support import links_of, make_case, on_server

from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import COPIES, SEQUENTIAL, Allocation, with_schedule
from collapipe_env.physics.block_costs import (
    block_parameters,
    forward_flops,
    linear_maps,
    stored_activation_bytes,
    weight_flops,
)
from collapipe_env.physics.radio import Sharing
from collapipe_env.physics.workload import WorkloadCosts, decoder_forward_flops, decoder_weight_flops
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.general_costs import general_round_costs
from collapipe_env.simulator.state import Parameters, SystemState

CASES = json.loads((Path(__file__).parents[1] / "reference_cases.json").read_text())["cases"]


def build(case):
    w, r = case["workload"], case["radio"]
    costs = WorkloadCosts(
        blocks=w["L"],
        batch_size=w["B"],
        local_steps=w["H"],
        block_forward_flops=forward_flops(linear_maps(w["d"], w["dff"]), w["d"], w["q"]),
        decoder_forward_flops=decoder_forward_flops(
            w["Ldec"], w["d"], w["dff"], w["q"], w["Vout"], positions=w["q"]
        ),
        block_weight_flops=weight_flops(linear_maps(w["d"], w["dff"]), w["q"]),
        decoder_weight_flops=decoder_weight_flops(
            w["Ldec"], w["d"], w["dff"], w["q"], w["Vout"], positions=w["q"]
        ),
        block_parameters=block_parameters(w["d"], w["dff"]),
        embedding_parameters=w["emb_params"],
        stored_activation_bytes=stored_activation_bytes(w["d"], w["a"], w["q"], 32),
        activation_bits=w["q"] * w["d"] * w["act_bits"],
        gradient_bits=w["q"] * w["d"] * w["act_bits"],
        weight_bits=w["w_bits"],
    )
    parameters = Parameters(
        costs=costs,
        noise_density=r["N0"],
        bs_noise_density=r["N0"],
        d2d_bandwidth_hz=r["Wd"],
        sharing=Sharing(1.0, len(case["speed_flops"])),
        uplink_bandwidth_hz=r["Wup"],
        downlink_bandwidth_hz=r["Wdl"],
        bs_power_w=r["Pbs"],
        external_interference_w=r["Iext"],
        **links_of("none", r["m"]),
        server_flops=case["server_flops"],
        clusters=case["clusters"],
        power_min_w=0.002,
        power_max_w=0.2,
        tradeoff_v=1.0,
        micro_batch_choices=(1,),
        bandwidth_floor=0.0,
    )
    devices = len(case["speed_flops"]) - 1
    blocks = np.zeros((1, devices), dtype=np.int64)
    stage = np.full((1, devices), -1)
    share = np.zeros((1, devices))
    for slot, s in enumerate(case["plan"]):
        blocks[0, slot] = s["blocks"]
        for member in s["group"]:
            stage[0, member["device"] - 1] = slot
            share[0, member["device"] - 1] = member["share"]
    allocation = Allocation(
        blocks=blocks,
        micro_batches=np.array([case["micro_batches"]]),
        bandwidth=np.array([case["beta"]]),
        device_power=np.array([case["power_w"][1:]]),
        cu_power=np.array([case["power_w"][0]]),
        stage=stage,
        sample_share=share,
    )
    ones = np.ones((1, devices))
    state = SystemState(
        uplink_gain=np.array([case["uplink_gain"]]),
        d2d_gain=np.array([case["gain"]]),
        cross_gain=np.zeros((1, 1)),
        speed=np.array([case["speed_flops"][1:]]),
        clock=np.full((1, len(case["speed_flops"]) - 1), 1e9),
        compute_power=np.array([case["compute_power_w"][1:]]),
        full_speed=ones,
        cubic_power=ones > 0,
        memory_bytes=ones,
        memory_cap=ones,
        present=ones > 0,
        budget=np.ones((1, devices + 1)),
        backlog=np.zeros((1, devices + 1)),
        round_index=np.array(0),
        loss=np.array(0.0),
        server_share=np.array(1.0),
    )
    return parameters, state, allocation, np.array([case["interference_w"]])


def chain(case, costs, direction):
    """Lay the elements out in the order of the reference: hops, compute stages, edge link, server."""
    e = costs.elements
    hop = getattr(e, f"hop_{direction}")[0]
    compute = getattr(e, f"compute_{direction}")[0]
    leaders = [min(m["device"] for m in s["group"]) for s in case["plan"]]
    edge = e.uplink[0] if direction == "forward" else e.downlink[0]
    # A hop's forward sender is the group before it, its backward sender the group after it.
    senders = [0, *leaders] if direction == "forward" else [*leaders, 0]
    server = getattr(e, f"server_{direction}")[0]
    return [*(hop[i] for i in senders), *(compute[i - 1] for i in leaders), edge, server]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_reference_case(case):
    parameters, state, allocation, interference = build(case)
    costs = round_costs(parameters, state, allocation, interference)
    expect = case["expect"]
    close = {"rtol": 1e-9, "atol": 0.0}
    np.testing.assert_allclose(chain(case, costs, "forward"), expect["element_forward_s"], **close)
    np.testing.assert_allclose(chain(case, costs, "backward"), expect["element_backward_s"], **close)
    np.testing.assert_allclose(costs.local_step[0], expect["local_step_s"], **close)
    np.testing.assert_allclose(costs.collect[0], expect["collect_s"], **close)
    np.testing.assert_allclose(costs.upload[0], expect["upload_s"], **close)
    np.testing.assert_allclose(costs.cluster_delay[0], expect["cluster_delay_s"], **close)
    np.testing.assert_allclose(costs.energy[0], expect["energy_j"], **close)
    for device, size in expect["memory_bytes"].items():
        np.testing.assert_allclose(costs.memory[0, int(device) - 1], size, **close)
    assert parameters.costs.update_payload_bits == expect["payload_bits"]


OUTPUTS = ("delay", "cluster_delay", "energy", "survival", "memory")
STEP = 1e-6
"""Relative step of the central differences, near the cube root of the rounding error."""


TWO = np.full((2, 3), 2)
PLANS = {
    "plain": (False, lambda plan: plan),
    "groups": (True, lambda plan: plan),
    "copies": (False, lambda plan: on_server(plan, TWO, COPIES)),
    "sequential": (True, lambda plan: on_server(plan, TWO, SEQUENTIAL)),
}


def slopes(parameters, state, plan, name, weights):
    """Central differences of a weighted sum of each output, entry by entry of a field."""

    def worth(values):
        costs = general_round_costs(parameters, state, replace(plan, **{name: values}))
        return {out: float((weight * getattr(costs, out)).sum()) for out, weight in weights.items()}

    at = getattr(plan, name)
    found = {out: np.zeros_like(at) for out in weights}
    for place in np.ndindex(at.shape):
        step = STEP * max(at[place], 1e-2)
        up, down = at.copy(), at.copy()
        up[place] += step
        down[place] -= step
        above, below = worth(up), worth(down)
        for out in weights:
            found[out][place] = (above[out] - below[out]) / (up[place] - down[place])
    return found


@pytest.mark.parametrize("mode", ["drop", "arq", "none"])
@pytest.mark.parametrize("kind", PLANS)
def test_gradients_are_central_differences(kind, mode):
    groups, change = PLANS[kind]
    links = {"link_errors": mode}
    if mode == "arq":  # hardly anything would be lost, and differences of the survival would be rounding
        links |= {"max_transmissions": 2, "waterfall_threshold": 1.0}
    parameters, state, plan = make_case(4, lead=(2,), steps=2, groups=groups, absent=0.2, **links)
    plan = change(plan)
    rng, priced = np.random.default_rng(0), round_costs(parameters, state, plan)
    # Random weights: a sum of shares, say, would hide errors that cancel out.
    scales = {out: getattr(priced, out) for out in OUTPUTS}
    weights = {out: rng.uniform(0.5, 1.5, scale.shape) / np.abs(scale).max() for out, scale in scales.items()}
    names = ["bandwidth", "device_power", "cu_power", *(["sample_share"] if groups else [])]
    tensors = plan.map(torch.tensor)
    for name in names:
        getattr(tensors, name).requires_grad_()
    costs = round_costs(parameters, state.map(torch.tensor), tensors)
    expected = {name: slopes(parameters, state, plan, name, weights) for name in names}
    for out in OUTPUTS:
        result = (torch.tensor(weights[out]) * getattr(costs, out)).sum()
        if not result.requires_grad:  # memory without shares, survival without losses
            assert (out, groups) == ("memory", False) or (out == "survival" and mode == "none")
            continue
        options = {"allow_unused": True, "materialize_grads": True, "retain_graph": True}
        gradients = torch.autograd.grad(result, [getattr(tensors, n) for n in names], **options)
        for name, gradient in zip(names, gradients, strict=True):
            wanted = expected[name][out]
            if name == "sample_share":  # shares of devices in no stage are not read
                wanted, gradient = wanted[plan.stage >= 0], gradient[torch.tensor(plan.stage >= 0)]
            # Differences of a survival of 1 - q^R round the more.
            atol = (1e-7 if mode == "arq" else 3e-8) * max(np.abs(wanted).max(), 1.0)
            np.testing.assert_allclose(gradient, wanted, rtol=1e-5, atol=atol, err_msg=f"{out}, {name}")


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
    )["delay"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert found.min() < 0.0
