"""Heat of devices in a round, row by row, by the formulas of :mod:`collapipe_env.physics.thermal`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.ground.compiled import compiled
from collapipe_env.physics.delay import stage_time
from collapipe_env.physics.energy import compute_time
from collapipe_env.physics.overheads import cycles_time
from collapipe_env.physics.parameters import Numbers
from collapipe_env.physics.thermal import (
    HeatNumbers,
    allocated_power,
    clock_share,
    governor_moves,
    headroom_after,
    held_back,
    moved_level,
    warmed,
)


class HeatPlan(NamedTuple):
    """Work of devices in a round; the names are those of plans, states and costs.

    ``energy`` (R, N, K+1) is that of all nodes. ``sample_share`` (R, N, K) is empty without groups,
    and ``ratio`` (R, N), each cluster's ``rho``, where all have the workload's.
    """

    micro_batches: IntArray
    blocks: IntArray
    sample_share: FloatArray
    steps: FloatArray
    ratio: FloatArray
    device_power: FloatArray
    energy: FloatArray


class HeatSystem(NamedTuple):
    """The state's arrays, as :class:`~collapipe_env.simulator.state.SystemState` names them."""

    speed: FloatArray
    clock: FloatArray
    compute_power: FloatArray
    present: BoolArray


@compiled
def heat_rows(
    record: Any,
    own_record: Any,
    levels: FloatArray,
    plan: HeatPlan,
    system: HeatSystem,
    seconds: FloatArray,
    temperature: FloatArray,
    ambient: FloatArray,
    paused: BoolArray,
    remainder: FloatArray,
    level: IntArray,
    full_power: FloatArray,
    cubic: BoolArray,
) -> tuple[FloatArray, BoolArray, FloatArray, IntArray]:
    """Heat and cool devices over a round and move their governors; see :class:`~.dynamics.heat.Heat`.

    Args:
        record: The parameters as a record (1,).
        own_record: :class:`HeatNumbers` without levels as a record (1,).
        levels: Shares of the full clock, descending.
        seconds: Seconds that passed (R,).
        temperature: (R, N, K) [C].
        ambient: (R, N) [C].
        paused: (R, N, K).
        remainder: (R,) [s].
        level: (R, N, K); empty for a governor that caps the power.
        full_power: (R, N, K) [W]; empty for a governor with levels, as ``cubic``.

    Returns:
        Temperature, reading, headroom and share of the clock (4, R, N, K), whether devices pause (R, N, K),
        the time since the last moves (R,), and the levels.
    """
    c: Numbers = record[0]
    own: HeatNumbers = own_record[0]
    last = len(levels) - 1
    R, N, K = temperature.shape
    found, pauses = np.empty((4, R, N, K)), np.empty((R, N, K), dtype=np.bool_)
    left, following = np.empty(len(remainder)), np.empty(level.shape, dtype=np.int64)
    stepped = level.shape[0] > 0
    for r in range(R):
        moves = 0.0
        if stepped:
            moves, left[r] = governor_moves(remainder[r], seconds[r], own.period_s)
        for n in range(N):
            M, steps = float(plan.micro_batches[r, n]), plan.steps[r, n]
            ratio = plan.ratio[r, n] if plan.ratio.shape[0] else c.backward_over_forward
            for k in range(K):
                blocks, clock = float(plan.blocks[r, n, k]), system.clock[r, n, k]
                pass_s = stage_time(c.batch_size / M, blocks, c.block_forward_flops, system.speed[r, n, k])
                if plan.sample_share.shape[0]:
                    pass_s *= plan.sample_share[r, n, k]
                pass_s += cycles_time(blocks, c.overheads.block_cycles, clock)
                updates = steps * cycles_time(blocks, c.overheads.update_cycles, clock)
                warm, reading = warmed(
                    own,
                    c.radio_power,
                    temperature[r, n, k],
                    ambient[r, n],
                    plan.device_power[r, n, k],
                    plan.energy[r, n, k + 1],
                    compute_time(steps * M, pass_s, ratio) + updates,
                    system.compute_power[r, n, k],
                    own.idle_w if system.present[r, n, k] else 0.0,
                    seconds[r],
                )
                pauses[r, n, k] = held_back(own, reading, paused[r, n, k])
                if stepped:
                    j = moved_level(level[r, n, k], reading, moves, last, own.set_c, own.hysteresis_k)
                    following[r, n, k] = j
                    share = levels[j]
                else:
                    power = allocated_power(reading, own.on_c, own.set_c, own.sustainable_w, own.least_w)
                    share = clock_share(power, full_power[r, n, k], cubic[r, n, k])
                found[0, r, n, k] = warm
                found[1, r, n, k] = reading
                found[2, r, n, k] = headroom_after(reading, own.set_c)
                found[3, r, n, k] = min(share, levels[last]) if pauses[r, n, k] else share
    return found, pauses, left, following
