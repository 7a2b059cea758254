"""Moments of moved blocks in real training: to the bit those of an unmoved run, rounded, or new."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from federation_support import make
from learner_support import BLOCKS, B, N, single_outcome, small_learner

from collapipe_env.learners.factory import make_learner
from collapipe_env.physics.allocation import COMMON
from collapipe_env.physics.moves import LOST, STAY, TRAVEL
from collapipe_env.scenario import load_scenario
from collapipe_env.training.federation import Federation


def run_of(moment_bits=32, **learning):
    return make(moment_bits=moment_bits, **learning)


def play(learner, *rounds):
    for moments in rounds:
        outcome = single_outcome([(2, 2, 0), (1, 0, 3), (4, 0, 0)], np.ones((N, 1, B), bool))
        given = None if moments is None else np.broadcast_to(moments, (1, N, BLOCKS)).copy()
        learner.train_round(replace(outcome, moments=given))


def memory(run, cluster, block):
    """Memory of a block's parameters, everything in one list."""
    replica = run.replicas[cluster]
    return [replica.optimizer.state.get(part, {}) for part in replica.memories(replica.module.blocks[block])]


def same(one, other):
    return all(
        a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("learning", [{}, {"optimizer": "sgd", "momentum": 0.9}])
def test_moments_that_travel_are_those_of_an_unmoved_run_to_the_bit(learning):
    (unmoved, still), (moved, run) = run_of(**learning), run_of(**learning)
    play(unmoved, None, None, None)
    play(moved, None, [TRAVEL, STAY, TRAVEL, TRAVEL], [TRAVEL] * BLOCKS)
    assert torch.equal(still._parameters, run._parameters)
    assert all(same(memory(still, n, k), memory(run, n, k)) for n in range(N) for k in range(BLOCKS))
    if learning:  # AdamW turns the rounding of gradients that are zero into steps
        together = small_learner(1, **learning)
        play(together, None, None, None)
        torch.testing.assert_close(together._runs[0]._parameters, run._parameters)


@pytest.mark.parametrize("learning", [{}, {"optimizer": "sgd", "momentum": 0.9}])
def test_a_lost_block_steps_as_a_fresh_one(learning):
    """Same weights and batches, all moments fresh in one run and those of a block lost in the other."""
    _, run = lost = run_of(**learning)
    play(lost[0], None, None)
    fresh, other = run_of(**learning)
    other._set_state(run.get_state())
    for _, _, optimizer in other.replicas:
        optimizer.state.clear()
    before = [memory(run, n, 2) for n in range(N)]
    play(lost[0], [STAY, LOST, STAY, STAY])
    play(fresh, None)
    place = [run.replicas[0].flat.slices([run.replicas[0].module.blocks[k]]) for k in range(BLOCKS)]
    for n in range(N):
        assert same(memory(run, n, 1), memory(other, n, 1))
        assert not same(memory(run, n, 2), memory(other, n, 2))
        assert not same(before[n], memory(other, n, 2))
    for part in place[1]:
        assert torch.equal(run._parameters[0, part], other._parameters[0, part])
    for part in place[2]:
        assert not torch.equal(run._parameters[0, part], other._parameters[0, part])


def test_sixteen_bits_round_what_travels_and_nothing_else():
    learner, run = run_of(16)
    play(learner, None, None)
    before = [[{k: v.clone() for k, v in part.items()} for part in memory(run, 0, k)] for k in range(BLOCKS)]
    moments = np.array([[TRAVEL, STAY, STAY, STAY]] + [[STAY] * BLOCKS] * (N - 1))
    run.open_round(np.zeros(N, int), COMMON, 1, moments)
    for part, old in zip(memory(run, 0, 0), before[0], strict=True):
        for name in ("exp_avg", "exp_avg_sq"):
            assert torch.equal(part[name], old[name].bfloat16().float())
            assert not torch.equal(part[name], old[name])
        assert part["step"] == old["step"]
    assert same(memory(run, 0, 1), before[1])


def test_a_saved_run_goes_on_with_each_block_as_old_as_it_is():
    learner, run = run_of()
    play(learner, None, [LOST, STAY, STAY, STAY])
    again = Federation.from_state(run._setup, run.get_state())
    for n, k in ((0, 0), (2, 0), (1, 3)):
        assert same(memory(run, n, k), memory(again, n, k))
    steps = [float(memory(run, 0, k)[0]["step"]) for k in range(2)]
    assert steps == [1.0, 2.0]


def test_a_scenario_tells_the_learner_its_bits():
    scenario = load_scenario({"base": "small", "dynamics": {"processes": {"migration": {"moment_bits": 16}}}})
    assert make_learner("real", scenario, 1).training.moment_bits == 16
    assert make_learner("real", load_scenario("small"), 1).training.moment_bits is None
