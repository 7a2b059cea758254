"""Synchronous schedules and data parallelism in a stage: executed for real, they give the uncut gradient."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_oracle import StageTimes, interleaved, one_f_one_b, run_orders, split_backward
from test_pipeline_step import BATCH, LOSS, gradients, relative_error, uncut
from test_pipeline_step import setup as setup_of

from collapipe_env.models.cluster_model import additive_mask
from collapipe_env.models.tokenization import PADDING
from collapipe_env.training.pipeline_step import CutModel, InFlight

BLOCKS = 6


def setup():
    return setup_of(BLOCKS)


def assert_uncut_gradient(model, head):
    assert relative_error(gradients(model, head), uncut(*setup())[1]) < 1e-5


class SplitBackward(InFlight):
    """A micro-batch with a split backward pass, as in zero-bubble schedules: inputs first, weights later."""

    def __init__(self, cut, tokens, targets, parameters):
        super().__init__(cut, tokens, targets)
        self._parameters, self._waiting = parameters, {}

    def backward(self, host, weight):
        out = self._sent.pop(host)
        last = host == self._model.hosts - 1
        out, gradient = (out * weight, None) if last else (out, self._received.pop(host + 1).grad)
        if host:
            x = self._received[host]
            (x.grad,) = torch.autograd.grad(out, x, gradient, retain_graph=True)
        self._waiting[host] = out, gradient

    def weight_gradient(self, host):
        out, gradient = self._waiting.pop(host)
        torch.autograd.backward(out, gradient, inputs=self._parameters[host])


def execute(orders_of, blocks, micro_batches, seed, chunks=1, server_blocks=0):
    """Execute a schedule's operations in the order in which the simulator completes them.

    The schedule is a function that gives the orders of so many stages. Every host (control unit, segments,
    server) is a stage; with chunks, host ``c P + s`` is chunk c of stage s. Returns the most micro-batches
    that each host held between forward and backward.
    """
    model, head, tokens, targets = setup()
    at_server = list(model.blocks)[BLOCKS - server_blocks :] if server_blocks else []
    cut = CutModel(model, head, LOSS, blocks, at_server)
    segments = [list(segment) for segment in model.segments([size for size in blocks if size])]
    parameters = [
        [p for module in modules for p in module.parameters()]
        for modules in ([model.embedding], *segments, [*at_server, head])
    ]
    sizes = [len(part) for part in tokens.tensor_split(micro_batches)]
    stages = cut.hosts // chunks
    assert stages * chunks == cut.hosts
    orders = orders_of(stages)
    split = any(kind == "W" for kind, *_ in orders[0])
    in_flight = [
        SplitBackward(cut, *part, parameters) if split else InFlight(cut, *part)
        for part in zip(tokens.tensor_split(micro_batches), targets.tensor_split(micro_batches), strict=True)
    ]
    rng = np.random.default_rng(seed)
    times = StageTimes(
        *(rng.uniform(0.5, 2.0, stages) for _ in range(2)),
        weight=rng.uniform(0.5, 2.0, stages),
        link_forward=rng.uniform(0.0, 1.0, stages if chunks > 1 else stages - 1),
        link_backward=rng.uniform(0.0, 1.0, stages if chunks > 1 else stages - 1),
    )
    held, peaks = np.zeros(cut.hosts, dtype=int), np.zeros(cut.hosts, dtype=int)
    for event in run_orders(orders, times, chunks=chunks):
        if event.is_link:
            continue
        host = event.chunk * stages + event.stage
        micro_batch = in_flight[event.micro_batch]
        if event.kind == "F":
            micro_batch.forward(host)
            held[host] += 1
        elif event.kind == "B":
            micro_batch.backward(host, sizes[event.micro_batch] / BATCH)
            held[host] -= 1
        else:
            micro_batch.weight_gradient(host)
        peaks = np.maximum(peaks, held)
    assert (held == 0).all()
    assert_uncut_gradient(model, head)
    return peaks


def strict(micro_batches, depth=lambda left: left):
    """1F1B with as many micro-batches in flight at each stage as there are stages left, or another depth."""
    return lambda P: [one_f_one_b(min(depth(P - s), micro_batches), micro_batches) for s in range(P)]


@settings(max_examples=15, deadline=None)
@given(
    blocks=st.sampled_from([(6,), (1, 2, 3), (2, 0, 2, 2), (1, 1, 1, 1, 1, 1)]),
    micro_batches=st.integers(1, BATCH),
    link_aware=st.booleans(),
    seed=st.integers(0, 99),
)
def test_one_forward_one_backward(blocks, micro_batches, link_aware, seed):
    def depth(left):
        return 2 * left - 1 if link_aware else left

    peaks = execute(strict(micro_batches, depth), blocks, micro_batches, seed)
    expected = [min(depth(len(peaks) - s), micro_batches) for s in range(len(peaks))]
    np.testing.assert_array_equal(peaks, expected)


def test_one_forward_one_backward_really_interleaves():
    assert execute(strict(6), (2, 2, 2), 6, 0).tolist() == [5, 4, 3, 2, 1]
    gpipe = strict(6, lambda _: 6)
    assert execute(gpipe, (2, 2, 2), 6, 0).tolist() == [6] * 5


@pytest.mark.parametrize(
    ("blocks", "chunks", "micro_batches"), [((1, 2, 0, 1, 2), 2, 6), ((1, 1, 1, 3), 3, 4), ((6,), 1, 3)]
)
def test_interleaved_virtual_stages(blocks, chunks, micro_batches):
    execute(lambda P: interleaved(P, micro_batches, chunks), blocks, micro_batches, 1, chunks=chunks)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("micro_batches", [3, 8])
def test_split_backward(micro_batches, late):
    def orders(P):
        M = micro_batches
        # As in zero-bubble schedules, or all weight gradients at the end.
        return [split_backward(min(P - s, M), M if late else min(s, M), M) for s in range(P)]

    execute(orders, (2, 1, 3), micro_batches, 2)


def test_blocks_on_the_server():
    execute(strict(4), (2, 2), 4, 3, server_blocks=2)


@pytest.mark.parametrize("shares", [(1.0,), (0.5, 0.5), (0.25, 0.75)])
@pytest.mark.parametrize("micro_batches", [1, 3])
def test_data_parallel_stage_with_an_all_reduce(shares, micro_batches):
    """The middle stage runs on several replicas, each with its share of every micro-batch's samples.

    A replica knows only its own samples, so it computes the gradient of its own mean loss; the all-reduce
    then weights replicas by their samples.
    """
    model, head, tokens, targets = setup()
    middle = list(model.blocks)[2:4]
    stages = [[*model.blocks][:2], None, [*model.blocks][4:]]
    reduced = [torch.zeros_like(p) for block in middle for p in block.parameters()]
    for some, goal in zip(
        tokens.tensor_split(micro_batches), targets.tensor_split(micro_batches), strict=True
    ):
        mask, weight = additive_mask(some), len(some) / BATCH
        sent = model.embedding(some)
        for block in stages[0]:
            sent = block(sent, mask)
        sizes = [round(share * len(some)) for share in shares]
        assert sum(sizes) == len(some)
        received = [part.detach().requires_grad_() for part in sent.split(sizes)]
        outs = []
        for x, part_mask in zip(received, mask.split(sizes), strict=True):
            for block in middle:
                x = block(x, part_mask)
            outs.append(x)
        joined = torch.cat([out.detach() for out in outs]).requires_grad_()
        x = joined
        for block in stages[2]:
            x = block(x, mask)
        (LOSS(head(x, some != PADDING), goal) * weight).backward()
        for out, x, size, handed in zip(outs, received, sizes, joined.grad.split(sizes), strict=True):
            own_mean = handed * (BATCH / size)  # the weight 1 / BATCH of a sample becomes 1 / size
            own = torch.autograd.grad(out, [x, *(p for b in middle for p in b.parameters())], own_mean)
            x.grad = own[0] * (size / BATCH)
            for total, gradient in zip(reduced, own[1:], strict=True):
                total += gradient * (size / BATCH)
        sent.backward(torch.cat([x.grad for x in received]))
    for p, gradient in zip((p for block in middle for p in block.parameters()), reduced, strict=True):
        p.grad = gradient
    assert_uncut_gradient(model, head)
