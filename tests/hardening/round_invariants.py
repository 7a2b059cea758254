"""What holds in every round whatever was decided, worked out anew from the record's plain arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from playing_support import check_observation

CLOSE = {"rtol": 1e-9, "atol": 1e-12}


def check_round(env: Any, found: tuple[Any, ...], began: np.ndarray) -> None:
    """Check the round that a vector environment has just played.

    Args:
        env: The environment, of NumPy arrays.
        found: What ``step`` returned.
        began: Rows that were reset in this step (E,), whose round belongs to the episode before.
    """
    observation, reward, terminated, truncated, info = found
    check_observation(env.observation_space, observation)
    assert np.isfinite(reward).all(), f"reward {reward}"
    live = ~began
    assert not (terminated & began).any()
    assert not (truncated & began).any()
    record = env.last_round
    check_plan(env, record)
    check_costs(env, record)
    after = check_queues(env, record)
    np.testing.assert_allclose(env.truth.backlog[live], after[live], **CLOSE)
    assert (env.truth.backlog[began] == 0.0).all()
    np.testing.assert_array_equal(
        env.truth.round_index, np.where(began, 0, record.state.round_index + 1), "round"
    )
    for name, values in info.items():
        if name not in ("metric", "_metric"):
            assert np.isfinite(np.asarray(values, dtype=float)).all(), f"info {name} is {values}"
    np.testing.assert_allclose(info["delay"][live], record.costs.delay[live], **CLOSE)
    held = after.sum(axis=(-2, -1))
    if record.server_backlog is not None:
        held = held + record.server_backlog
    np.testing.assert_allclose(info["backlog"][live], held[live], **CLOSE)


def playing(record: Any) -> np.ndarray:
    """Clusters that take part (E, N)."""
    said = record.allocation.participates
    return np.ones(record.state.uplink_gain.shape, bool) if said is None else np.asarray(said) > 0


def check_plan(env: Any, record: Any) -> None:
    """All blocks are placed on devices that are there, within memory, bandwidth and power."""
    plan, state, scenario = record.allocation, record.state, env.scenario
    plays = playing(record)
    blocks = np.asarray(plan.blocks)
    assert (blocks >= 0).all()
    served = 0 if plan.server_blocks is None else plan.server_blocks
    assert ((blocks.sum(axis=-1) + served == scenario.blocks) | ~plays).all(), "blocks are lost"
    held = (plan.device_blocks > 0) & plays[..., None]
    assert not (held & ~state.present).any(), "blocks on a device that is away"
    needed = np.where(held, record.costs.memory, 0.0)
    assert (needed <= state.memory_bytes * (1.0 + 1e-9)).all(), "more memory than there is"
    share = np.where(plays, plan.bandwidth, 0.0)
    assert (share[plays] >= 0.999 * scenario.budgets.bandwidth_floor).all(), f"share {share[plays].min()}"
    assert (share.sum(axis=-1) <= 1.0 + 1e-9).all(), f"bandwidth {share.sum(axis=-1).max()}"
    devices = scenario.devices
    for power in (plan.device_power, plan.cu_power):
        assert (power >= devices.power_min_w * (1.0 - 1e-9)).all()
        assert (power <= devices.power_max_w * (1.0 + 1e-9)).all()
    micro = np.asarray(plan.micro_batches)
    assert (micro >= 1).all()
    assert (scenario.workload.batch_size % micro == 0).all()


def check_costs(env: Any, record: Any) -> None:
    """Delays are positive, the slowest cluster's is the round's, and no energy is negative."""
    costs, state, plays = record.costs, record.state, playing(record)
    assert np.isfinite(costs.delay).all(), "a delay without end"
    assert (costs.delay > 0.0).all(), f"delay {costs.delay.min()}"
    assert (costs.broadcast >= 0.0).all()
    assert (np.where(plays, costs.cluster_delay, 1.0) > 0.0).all()
    least = np.where(plays, costs.cluster_delay, 0.0).max(axis=-1)
    assert (costs.delay >= least * (1.0 - 1e-9)).all(), "a round ends before its slowest cluster"
    assert np.isfinite(costs.energy).all()
    assert (costs.energy >= 0.0).all(), f"energy {costs.energy.min()}"
    there = np.concatenate((np.ones_like(plays)[..., None], state.present), axis=-1)
    ratio = np.where(there, costs.energy / state.budget, 0.0)
    np.testing.assert_allclose(costs.energy_ratio, ratio, **CLOSE)
    idle = np.where(plays[..., None], 0.0, costs.energy)
    assert (idle == 0.0).all(), "a cluster that sits out uses energy"
    assert (costs.survival >= 0.0).all()
    assert (costs.survival <= 1.0).all()
    assert (record.arrivals.counts >= 0).all()
    assert (record.arrivals.counts.max(axis=-1) <= record.allocation.micro_batches).all()


def check_queues(env: Any, record: Any) -> np.ndarray:
    """Queues after the round: ``max(z + e - a, 0)``, those of who was not there as they were."""
    state, costs, plays = record.state, record.costs, playing(record)
    granted = np.ones_like(costs.delay)
    if env.scenario.budgets.per == "second":
        granted = costs.delay / costs.budget_period_s
    moved = np.maximum(state.backlog + costs.energy_ratio - granted[..., None, None], 0.0)
    takes_part = np.concatenate((np.ones_like(plays)[..., None], state.present), axis=-1) & plays[..., None]
    after = np.where(takes_part, moved, state.backlog)
    np.testing.assert_allclose(record.backlog, after, **CLOSE)
    assert (record.backlog >= 0.0).all()
    return after
