"""What stages store under each schedule, and what fits a memory: against plain Python."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.schedules import stored_micro_batches as plain_rule

# Registers the formulas for compiled code.
import collapipe_env.kernels.formulas  # noqa: F401
from collapipe_env.ground.compiled import compiled
from collapipe_env.physics.allocation import SCHEDULES, Allocation
from collapipe_env.physics.memory import device_memory, fits, memory_cap_blocks
from collapipe_env.physics.schedules.storage import stored_micro_batches


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), slots=st.integers(1, 5), rows=st.integers(1, 3))
def test_batches_of_plans(seed, slots, rows):
    rng, N = np.random.default_rng(seed), 2
    H = int(rng.integers(1, 4))
    plan = Allocation(
        blocks=rng.integers(0, 7, (rows, N, slots)),
        micro_batches=rng.integers(1, 10, (rows, N)),
        bandwidth=np.full((rows, N), 0.5),
        device_power=np.ones((rows, N, slots)),
        cu_power=np.ones((rows, N)),
        schedule=rng.integers(0, len(SCHEDULES), (rows, N)),
        caps=rng.integers(1, 13, (rows, N, slots)),
        chunks=rng.integers(1, 4, (rows, N)),
    )
    found = stored_micro_batches(plan, H)
    assert found.shape == (rows, N, slots)
    for at in np.ndindex(rows, N):
        chain = plan.caps[at].tolist(), plan.blocks[at].tolist(), int(plan.chunks[at])
        expected = plain_rule(SCHEDULES[plan.schedule[at]], *chain, int(plan.micro_batches[at]), H)
        np.testing.assert_allclose(found[at], expected, rtol=1e-15)


@compiled
def fits_on_numbers(blocks: int, samples: float, state: float, activation: float, memory: float) -> bool:
    return bool(fits(device_memory(blocks, samples, state, activation), memory))


@settings(max_examples=50, deadline=None)
@given(
    memory=st.floats(0.0, 1e9),
    samples=st.integers(1, 64),
    state=st.floats(1e6, 1e8),
    activation=st.floats(1e4, 1e6),
)
def test_as_many_blocks_as_the_cap_says_fit_and_one_more_does_not(memory, samples, state, activation):
    cap = int(memory_cap_blocks(np.array([memory]), samples, state, activation)[0])
    needed = device_memory(np.array([cap, cap + 1.0]), samples, state, activation)
    np.testing.assert_allclose(needed, np.array([cap, cap + 1]) * (state + samples * activation))
    assert fits(needed[0], memory, 1e-12)
    assert not fits(needed[1], memory, -1e-12)
    for blocks in (cap, cap + 1):
        wanted = blocks * (state + samples * activation) <= memory
        assert fits_on_numbers(blocks, float(samples), state, activation, memory) == wanted
