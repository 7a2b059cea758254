"""What stages store under each schedule, and what fits a memory: against plain Python."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

# Registers the formulas for compiled code.
import collapipe_env.kernels.formulas  # noqa: F401
from collapipe_env.ground.compiled import compiled
from collapipe_env.physics.allocation import (
    ASYNC,
    GPIPE,
    INTERLEAVED,
    ONE_F_ONE_B,
    SCHEDULES,
    ZERO_BUBBLE,
    Allocation,
)
from collapipe_env.physics.memory import device_memory, fits, memory_cap_blocks
from collapipe_env.physics.schedules.storage import stored_micro_batches


def plain_rule(kind, caps, held, v, M, H):
    """The rule of `algorithms.md` section 5.2 for one chain, in lists."""
    stored = []
    for s, blocks in enumerate(held):
        if blocks == 0:
            stored.append(0.0)
            continue
        least = min(cap for cap, b in zip(caps[: s + 1], held[: s + 1], strict=True) if b > 0)
        stored.append(
            {
                GPIPE: M,
                ONE_F_ONE_B: min(least, M),
                ASYNC: min(least, H * M),
                ZERO_BUBBLE: min(caps[s], M),
                INTERLEAVED: min(least, M * v) * max(len(range(c, blocks, v)) for c in range(v)) / blocks,
            }[kind]
        )
    return stored


@given(data=st.data(), slots=st.integers(1, 5), rows=st.integers(1, 3))
def test_batches_of_plans(data, slots, rows):
    def whole(low, high, *shape):
        size = int(np.prod(shape))
        values = data.draw(st.lists(st.integers(low, high), min_size=size, max_size=size))
        return np.array(values).reshape(shape)

    N, H = 2, data.draw(st.integers(1, 3))
    plan = Allocation(
        blocks=whole(0, 6, rows, N, slots),
        micro_batches=whole(1, 9, rows, N),
        bandwidth=np.full((rows, N), 0.5),
        device_power=np.ones((rows, N, slots)),
        cu_power=np.ones((rows, N)),
        schedule=whole(0, len(SCHEDULES) - 1, rows, N),
        caps=whole(1, 12, rows, N, slots),
        chunks=whole(1, 3, rows, N),
    )
    found = stored_micro_batches(plan, H)
    assert found.shape == (rows, N, slots)
    for at in np.ndindex(rows, N):
        expected = plain_rule(
            plan.schedule[at],
            plan.caps[at].tolist(),
            plan.blocks[at].tolist(),
            int(plan.chunks[at]),
            int(plan.micro_batches[at]),
            H,
        )
        np.testing.assert_allclose(found[at], expected, rtol=1e-15)


@compiled
def fits_on_numbers(blocks: int, samples: float, state: float, activation: float, memory: float) -> bool:
    return bool(fits(device_memory(blocks, samples, state, activation), memory))


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
