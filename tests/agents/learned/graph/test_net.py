"""The graph net: equivariant in clusters, blind to absent devices, one set of weights for all sizes."""

import graph_net_support as support
import numpy as np
import pytest
import torch

from collapipe_env.agents.learned.graph.graph_files import HEAT
from collapipe_env.agents.learned.graph.graph_parameters import GraphParameters
from collapipe_env.agents.learned.graph.net import Layer, count_logits
from collapipe_env.agents.learned.graph.net_inputs import NetInputs
from collapipe_env.agents.learned.hyperparameters import usual

CLUSTER_FIELDS = ("logits", "power", "log2_micro_batches", "sharpness", "share_residual")


def inputs_for(name, rows=2, seed=0):
    scenario = support.SCENARIOS[name]
    return support.inputs_of(support.observed(scenario, support.played_state(scenario, rows, seed)))


def answered(net, inputs, blocks):
    with torch.no_grad():
        return support.whole_answer(net, inputs, blocks)


def assert_close(first, second):
    for field in CLUSTER_FIELDS:
        torch.testing.assert_close(getattr(first, field), getattr(second, field), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["medium", "unequal"])
def test_clusters_in_another_order_get_the_same_answers_in_that_order(name):
    net, blocks = support.random_net(1), support.SCENARIOS[name].workload.blocks
    inputs = inputs_for(name)
    order = torch.from_numpy(np.random.default_rng(2).permutation(inputs.cu.shape[1]))
    assert (order != torch.arange(len(order))).any()
    first = answered(net, inputs, blocks)
    second = answered(net, NetInputs(*(array[:, order] for array in inputs)), blocks)
    assert_close(type(first)(*(array[:, order] for array in first)), second)
    assert first.power.std(dim=1).min() > 1e-4  # clusters do differ


def reordered(inputs, order):
    """Inputs with the devices of all clusters in another order."""
    nodes = torch.cat((torch.zeros(1, dtype=torch.long), order + 1))
    return inputs._replace(
        device=inputs.device[:, :, order],
        present=inputs.present[:, :, order],
        hop=inputs.hop[:, :, nodes][:, :, :, nodes],
    )


def test_order_of_devices_counts_by_the_direction_of_hops_alone():
    net, order = support.random_net(3), torch.tensor([2, 0, 4, 1, 3])
    inputs = inputs_for("medium")
    blind = inputs._replace(hop=inputs.hop * torch.tensor([1.0, 1.0, 0.0, 0.0]))
    first, second = answered(net, blind, 12), answered(net, reordered(blind, order), 12)
    torch.testing.assert_close(first.logits[:, :, order], second.logits, rtol=1e-9, atol=1e-9)
    # The chain is another one: with directions that belong to the new places answers do change.
    seen = reordered(inputs, order)
    placed = torch.cat((seen.hop[..., :2], inputs.hop[..., 2:]), dim=-1)
    third = answered(net, seen._replace(hop=placed), 12)
    assert (answered(net, inputs, 12).logits[:, :, order] - third.logits).abs().max() > 1e-3


def test_devices_that_are_not_there_change_nothing():
    net = support.random_net(4)
    inputs = inputs_for("medium")
    wider = [
        torch.nn.functional.pad(inputs.device, (0, 0, 0, 2)),
        torch.nn.functional.pad(inputs.hop, (0, 0, 0, 2, 0, 2)),
        torch.nn.functional.pad(inputs.present, (0, 2)),
    ]
    first = answered(net, inputs, 12)
    second = answered(net, inputs._replace(device=wider[0], hop=wider[1], present=wider[2]), 12)
    torch.testing.assert_close(second.logits[:, :, :5], first.logits, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(second.power[..., :6], first.power, rtol=1e-9, atol=1e-9)
    for field in CLUSTER_FIELDS[2:]:
        torch.testing.assert_close(getattr(second, field), getattr(first, field), rtol=1e-9, atol=1e-9)
    # Nor does anything that stands where they would be.
    junk = [array.clone() for array in wider[:2]]
    junk[0][:, :, 5:] = 3.0
    junk[1][:, :, 6:] = -2.0
    junk[1][:, :, :, 6:] = 5.0
    third = answered(net, inputs._replace(device=junk[0], hop=junk[1], present=wider[2]), 12)
    torch.testing.assert_close(third.logits[:, :, :5], first.logits, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", support.SCENARIOS)
def test_one_set_of_weights_answers_every_size_with_finite_gradients(name):
    scenario = support.SCENARIOS[name]
    net = support.random_net(7).double()
    answer = support.answer(net, scenario, support.played_state(scenario, 2))
    N, K, L = scenario.clusters, max(scenario.cluster.devices_per_cluster), scenario.workload.blocks
    assert answer.logits.shape == (2, N, K, L + 1)
    assert answer.power.shape == (2, N, K + 1)
    assert ((answer.power > 0.0) & (answer.power < 1.0)).all()
    assert (answer.sharpness > 0.0).all()
    sum(array.sum() for array in answer).backward()
    for name, parameter in net.named_parameters():
        if name in (HEAT, "risk.weight"):  # no device of these warms up or fails
            assert parameter.grad is None
            continue
        assert torch.isfinite(parameter.grad).all()
        # Of one cluster the gate is always 1.
        assert (parameter.grad != 0.0).any() or (N == 1 and "gate" in name)


@pytest.mark.parametrize("blocks", [1, 5, 8, 9, 30])
def test_logits_of_counts_are_a_bell_with_offsets_of_few_blocks(blocks):
    """``-s (sqrt(1 + (c - w)^2) - 1)`` plus offsets, number by number; finite and with bounded slopes."""
    rng = np.random.default_rng(8)
    raw = rng.standard_normal((2, 3, 11))
    mean = np.array([1.5, 4.0])
    found = count_logits(torch.from_numpy(raw), torch.from_numpy(mean), blocks).numpy()
    assert found.shape == (2, 3, blocks + 1)
    for n, k, count in np.ndindex(*found.shape):
        wanted = np.log1p(np.exp(raw[n, k, 0] + 0.5413)) * mean[n]
        steep = 8.0 / (1.0 + np.exp(1.5 - raw[n, k, 1]))
        value = -steep * (np.hypot(1.0, count - wanted) - 1.0)
        value += raw[n, k, 2 + count] if count < 9 else 0.0
        assert found[n, k, count] == pytest.approx(value, rel=1e-9, abs=1e-9)
    assert np.log1p(np.exp(0.5413)) == pytest.approx(1.0, abs=1e-4)  # a fresh net wants an even split


PARTS = ("edges", "pooling", "plan")


def without(*parts, seed=9):
    net = support.random_net(seed)
    net.leave_out(parts)
    return net


def other_hops(inputs):
    return inputs._replace(hop=inputs.hop * torch.tensor([1.3, 0.8, 1.0, 1.0]))


def other_first_cluster(inputs):
    device, cu = inputs.device.clone(), inputs.cu.clone()
    device[:, 0, :, 1] += 0.5
    cu[:, 0] -= 0.5
    return inputs._replace(device=device, cu=cu)


@pytest.mark.parametrize(
    ("part", "change", "clusters"),
    [("edges", other_hops, slice(None)), ("pooling", other_first_cluster, slice(1, None))],
)
def test_without_a_part_counts_do_not_depend_on_what_it_reads(part, change, clusters):
    """The second inputs tell the rest of the chains' hops and compare them, unless they are left out, too."""
    inputs = inputs_for("medium")
    for net, blind in (
        (support.random_net(9), ()),
        (without(part), ("logits",)),
        (without(part, "plan"), CLUSTER_FIELDS),
    ):
        first, second = (answered(net, x, 12) for x in (inputs, change(inputs)))
        for field in blind or CLUSTER_FIELDS:
            a, b = getattr(first, field)[:, clusters], getattr(second, field)[:, clusters]
            if blind:
                torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
            else:
                assert (a - b).abs().max() > 1e-5


def test_without_second_inputs_the_rest_does_not_depend_on_the_counts():
    inputs = inputs_for("medium")
    plans = np.full((2, 4, 5), 2), np.tile([0, 6, 0, 4, 2], (2, 4, 1))
    for net, blind in ((without("plan"), True), (support.random_net(9), False)):
        with torch.no_grad():
            first, second = (support.whole_answer(net, inputs, 12, counts=counts) for counts in plans)
        for field in CLUSTER_FIELDS[1:]:
            apart = (getattr(first, field) - getattr(second, field)).abs().max()
            assert apart == 0.0 if blind else apart > 1e-5


@pytest.mark.parametrize("parts", [("edges",), ("pooling",), ("plan",), PARTS])
def test_what_is_left_out_stays_so_while_the_rest_learns(parts):
    net, inputs = without(*parts).float(), inputs_for("small")
    inputs = NetInputs(*(array.float() for array in inputs))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    adam, d = torch.optim.Adam(net.parameters(), lr=0.01), net.sizes.width
    counts = np.full((2, 2, 3), 2)
    for _ in range(5):
        tokens = net.tokens(inputs)
        said = net(tokens, support.chains_of(inputs, counts))
        loss = sum(value.square().mean() for value in (net.count_logits(tokens, inputs, 6), *said))
        adam.zero_grad()
        loss.backward()
        adam.step()
    silent = {
        "edges": ["edge_out.weight", "edge_out.bias"],
        "pooling": [f"layers.{i}.shared.{kind}" for i in range(2) for kind in ("weight", "bias")],
        "plan": [],
    }
    zero = {name for part in parts for name in silent[part]}
    for name, value in net.state_dict().items():
        if name in (HEAT, "risk.weight"):  # no device of these warms up or fails
            assert (value == 0.0).all()
            continue
        if "plan" in parts and name in ("node_in.weight", "chain_in.weight", "share_in.weight"):
            assert (value[:, d:] == 0.0).all()
            assert (value[:, :d] != before[name][:, :d]).any()
            continue
        assert ((value == 0.0).all()) == (name in zero)
        # Nothing reaches what stands before a part that is left out.
        stuck = ("edge_in" in name and "edges" in parts) or ("gate" in name and "pooling" in parts)
        assert (value != before[name]).any() == (name not in zero and not stuck)


def test_a_layer_is_pytorchs_attention_among_the_nodes_of_a_cluster_and_a_message_from_all_of_them():
    d, heads, clusters, nodes = 12, 3, 4, 5
    layer = Layer(usual(GraphParameters, width=d, heads=heads, hidden=7)).double()
    rng = np.random.default_rng(5)
    x, bias = (
        torch.from_numpy(rng.standard_normal(shape))
        for shape in ((clusters, nodes, d), (clusters, heads, nodes, nodes))
    )
    attention = torch.nn.MultiheadAttention(d, heads, batch_first=True).double()
    attention.load_state_dict(
        {f"in_proj_{kind}": getattr(layer.qkv, kind) for kind in ("weight", "bias")}
        | {f"out_proj.{kind}": getattr(layer.out, kind) for kind in ("weight", "bias")}
    )
    with torch.no_grad():
        wanted = x + attention(*[layer.before(x)] * 3, attn_mask=bias.flatten(0, 1))[0]
        wanted = wanted + layer.down(torch.relu(layer.up(layer.between(wanted))))
        cus = wanted[:, 0]
        gated = (layer.gate(cus).exp() * cus).sum(dim=0) / layer.gate(cus).exp().sum()
        wanted = wanted + layer.shared(torch.cat((cus.mean(dim=0), gated)))
        torch.testing.assert_close(layer(x, bias), wanted, rtol=1e-9, atol=1e-9)
