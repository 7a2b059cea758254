"""Moments of moved blocks in real training: to the bit those of an unmoved run, rounded, or new."""

import numpy as np
import pytest
import torch
from learner_support import BLOCKS, N, SmallRun

from collapipe_env.learners.factory import make_learner
from collapipe_env.physics.moves import LOST, STAY, TRAVEL
from collapipe_env.physics.training_memory import TrainingMemory
from collapipe_env.scenario import load_scenario
from collapipe_env.training.federation import Federation

OPTIMIZERS = pytest.mark.parametrize("learning", [{}, {"optimizer": "sgd", "momentum": 0.9}])


def play(run, *rounds):
    for moments in rounds:
        run.train(moments=None if moments is None else np.broadcast_to(moments, (N, BLOCKS)))


def memory(federation, cluster, block):
    """Memory of a block's parameters, everything in one list."""
    replica = federation.replicas[cluster]
    parts = replica.memories(replica.module.blocks[block])
    return [{k: v.clone() for k, v in replica.optimizer.state.get(part, {}).items()} for part in parts]


def same(one, other):
    return all(
        a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
        for a, b in zip(one, other, strict=True)
    )


@OPTIMIZERS
def test_moments_that_travel_are_those_of_an_unmoved_run_to_the_bit(learning):
    unmoved, moved = (SmallRun(moment_bits=32, **learning) for _ in range(2))
    play(unmoved, None, None, None)
    play(moved, None, [TRAVEL, STAY, TRAVEL, TRAVEL], [TRAVEL] * BLOCKS)
    assert torch.equal(unmoved.weights, moved.weights)
    one, other = unmoved.federation, moved.federation
    assert all(same(memory(one, n, k), memory(other, n, k)) for n in range(N) for k in range(BLOCKS))
    if learning:  # AdamW turns the rounding of gradients that are zero into steps
        together = SmallRun(**learning)
        play(together, None, None, None)
        torch.testing.assert_close(together.weights, moved.weights)


@OPTIMIZERS
def test_a_lost_block_steps_as_a_fresh_one(learning):
    """Same weights and batches, all moments fresh in one run and those of a block lost in the other."""
    lost, fresh = (SmallRun(moment_bits=32, **learning) for _ in range(2))
    play(lost, None, None)
    before = [memory(lost.federation, n, 2) for n in range(N)]
    fresh.federation = Federation.from_state(lost.setup, lost.federation.get_state())
    for _, _, optimizer in fresh.federation.replicas:
        optimizer.state.clear()
    play(lost, [STAY, LOST, STAY, STAY])
    play(fresh, None)
    for n in range(N):
        assert same(memory(lost.federation, n, 1), memory(fresh.federation, n, 1))
        assert not same(memory(lost.federation, n, 2), memory(fresh.federation, n, 2))
        assert not same(before[n], memory(fresh.federation, n, 2))
    equal = [
        all(torch.equal(lost.weights[0, part], fresh.weights[0, part]) for part in block)
        for block in lost.places[1:]
    ]
    assert equal == [False, True, False, False]


@pytest.mark.parametrize("eight", [False, True])
def test_sixteen_bits_round_what_travels_and_nothing_else(eight):
    """Eight-bit moments travel as they are."""
    run = SmallRun(moment_bits=16, memory=TrainingMemory(32, 8) if eight else TrainingMemory())
    play(run, None, None)
    for part in run.federation.replicas[0].optimizer.state.values():
        part["step"].fill_(257.0)  # which sixteen bits do not hold
    before = [memory(run.federation, 0, k) for k in range(BLOCKS)]
    moments = np.array([[TRAVEL, LOST, STAY, STAY]] + [[STAY] * BLOCKS] * (N - 1))
    run.federation.open_round(np.zeros(N, int), -1, 1, moments)
    for part, old in zip(memory(run.federation, 0, 0), before[0], strict=True):
        for name, values in part.items():
            expected = old[name] if eight or name == "step" else old[name].bfloat16().float()
            assert torch.equal(values, expected)
            assert torch.equal(values, old[name]) == (eight or name == "step")
    assert memory(run.federation, 0, 1) == [{}, {}]
    assert same(memory(run.federation, 0, 2), before[2])


def test_a_scenario_tells_the_learner_its_bits():
    scenario = load_scenario({"base": "small", "dynamics": {"processes": {"migration": {"moment_bits": 16}}}})
    assert make_learner("real", scenario, 1).training.moment_bits == 16
    assert make_learner("real", load_scenario("small"), 1).training.moment_bits is None
