"""Memory and work of 16-bit weights, 8-bit moments and recomputation, everywhere that they are priced."""

import dataclasses

import numpy as np
import pytest
from as_python_support import as_python
from round_support import make_case

from collapipe_env.baselines.planning.chain_problem import (
    ChainProblem,
    block_room,
    fits_memory,
    stage_bytes,
)
from collapipe_env.baselines.planning.draft_pricing import PlanArrays, lower_caps
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.physics.allocation import SCHEDULES
from collapipe_env.physics.training_memory import TrainingMemory
from collapipe_env.scenario import block_bytes, load_scenario, working_bytes
from collapipe_env.simulator.build import migration_of, workload_costs
from collapipe_env.simulator.costs import round_costs

HALF = {"train_bits": 16, "stored_activation_bits": 16, "activation_bits": 16, "gradient_bits": 16}


@pytest.mark.parametrize(
    ("train", "moments", "whole", "frozen"),
    # Weight + gradient + two moments; eight-bit moments share a scale of 4 bytes among 256.
    [
        (32, 32, 4 + 4 + 8, 4),
        (16, 32, 2 + 2 + 8, 2),
        (32, 8, 4 + 4 + 2 * (1 + 4 / 256), 4),
        (16, 8, 2 + 2 + 2 * (1 + 4 / 256), 2),
    ],
)
def test_bytes_of_a_block(train, moments, whole, frozen):
    memory = TrainingMemory(train, moments)
    assert memory.block_bytes(1000) == whole * 1000
    assert memory.block_bytes(1000, 10) == frozen * 1000 + whole * 10


def of_medium(**workload):
    return load_scenario("medium").with_overrides({f"workload.{k}": v for k, v in workload.items()})


def test_a_workload_is_priced_with_its_bits():
    plain, half = workload_costs(of_medium()), workload_costs(of_medium(**HALF, moment_bits=8))
    w = plain.block_parameters
    assert plain.block_state_bytes == 16 * w
    assert half.block_state_bytes == (4 + 2 * 260 / 256) * w
    assert (plain.block_copy_bytes, half.block_copy_bytes) == (4 * w, 2 * w)
    assert half.stored_activation_bytes == 64 * 256 * (34 + 5 * 4 * 64 / 256)
    assert half.block_forward_flops == plain.block_forward_flops
    assert half.backward_over_forward == plain.backward_over_forward == 2.0


def test_recomputation_stores_inputs_and_keeps_the_rest_of_one_block_at_work():
    plain, recomputed = workload_costs(of_medium()), workload_costs(of_medium(recompute=True))
    assert recomputed.stored_activation_bytes == 4 * 64 * 256
    assert recomputed.stored_activation_bytes + recomputed.working_bytes == plain.stored_activation_bytes
    assert recomputed.backward_over_forward == 3.0
    few = of_medium(recompute=True, micro_batches=(4, 16))
    assert block_bytes(few) == plain.block_state_bytes + 64 * 4 * 64 * 256
    assert working_bytes(few) == 16 * recomputed.working_bytes
    assert working_bytes(of_medium()) == 0.0


def test_moments_travel_in_the_bits_in_which_they_are_kept():
    def moved(**workload):
        scenario = of_medium(**workload).with_overrides(
            {"dynamics.processes": {"migration": {"moment_bits": 16}}}
        )
        return migration_of(scenario).block_bits

    w = workload_costs(of_medium()).block_parameters
    assert moved() == 2 * 16 * w
    assert moved(moment_bits=8) == 2 * (8 + 32 / 256) * w


def scheduled(plan, schedule, caps, chunks):
    rows = plan.micro_batches.shape
    return dataclasses.replace(
        plan,
        schedule=np.full(rows, schedule),
        caps=np.full(plan.blocks.shape, caps),
        chunks=np.full(rows, chunks),
    )


@pytest.mark.parametrize("schedule", range(len(SCHEDULES)), ids=SCHEDULES)
def test_planners_and_simulator_need_the_same_memory(schedule):
    p, s, a = make_case(5, lead=(1,), recompute=True, link_errors="none")
    a = dataclasses.replace(a, blocks=np.broadcast_to([2, 2, 2, 0], a.blocks.shape).copy())
    a = dataclasses.replace(a, micro_batches=np.full(a.micro_batches.shape, 8))
    chunks = 2 if SCHEDULES[schedule] == "interleaved" else 1
    plan = scheduled(a, schedule, 3, chunks)
    found = round_costs(p, s, plan).memory[0]
    c, M = p.costs, 8
    state = c.block_state_bytes + (c.block_copy_bytes if SCHEDULES[schedule] == "async" else 0.0)
    stored = {"gpipe": 8.0, "interleaved": 1.5}.get(SCHEDULES[schedule], 3.0)
    b = c.batch_size / M
    working = b * c.working_bytes
    if SCHEDULES[schedule] == "zb-h1":  # weight gradients wait for what is made anew
        working *= 2 * stored
    expected = 2 * (state + stored * b * c.stored_activation_bytes) + working
    np.testing.assert_allclose(found, np.broadcast_to([expected] * 3 + [0.0], found.shape))
    problem = ChainProblem(p.numbers, None, np.full(4, expected))
    needed = as_python(stage_bytes)(problem, schedule, 2, stored, M)
    assert needed == pytest.approx(expected)


def test_planners_fill_a_memory_to_the_last_micro_batch():
    p, _, _ = make_case(5, recompute=True)
    c = p.costs
    memory = 2 * (c.block_state_bytes + 5.5 * 2 * c.stored_activation_bytes) + 2 * c.working_bytes
    problem = ChainProblem(p.numbers, None, np.array([memory, 1.0]))
    plan = PlanArrays(np.array([0]), np.array([2]), SCHEDULES.index("1f1b"), np.array([8]), 1, 8)
    as_python(lower_caps)(problem, plan)
    assert plan.caps.tolist() == [5]
    assert as_python(fits_memory)(problem, plan)
    plan.caps[0] = 6
    assert not as_python(fits_memory)(problem, plan)
    assert block_room(problem, 5, 8).tolist() == [2, 0]
    assert block_room(problem, 6, 8).tolist() == [1, 0]


def test_a_scenario_without_room_for_a_working_set_is_refused():
    fields = {"devices.profiles.0.memory_bytes": (5.0e7,), "workload.blocks": 5}
    with pytest.raises(ScenarioError, match=r"room for 0 of 5 .* beside a working set of 74\d{6} bytes"):
        of_medium(recompute=True).with_overrides(fields)
    small = of_medium(recompute=True).with_overrides({**fields, "workload.micro_batches": (8,)})
    assert working_bytes(small) < 1e7


def test_bits_that_contradict_each_other_are_refused():
    with pytest.raises(ScenarioError, match=r"but stored_activation_bits and gradient_bits are 32; set them"):
        of_medium(train_bits=16, activation_bits=16)
    for name, bits in {**HALF, "moment_bits": 8}.items():
        if name not in ("train_bits", "moment_bits"):
            continue
        changes = {**HALF, "train_bits": 32, "moment_bits": 32, name: bits}
        with pytest.raises(
            ScenarioError, match=rf"workload.{name} = {bits} needs learning.optimizer = 'adamw'"
        ):
            of_medium(**changes).with_overrides({"learning.optimizer": "sgd"})
