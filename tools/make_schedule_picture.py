"""Draw one round in which every cluster runs another schedule, for ``docs/schedules.md``.

Run ``python tools/make_schedule_picture.py``; it writes ``docs/images/schedules.png`` and prints the table
of the page.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.image import imsave

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.physics.allocation import SCHEDULES, Allocation, ScheduleName, with_schedule
from collapipe_env.rendering import draw_round
from collapipe_env.rendering.round_view import RoundView
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split

TARGET = Path(__file__).parents[1] / "docs" / "images" / "schedules.png"
STAGES = 4


def plan(base: Allocation, name: ScheduleName, room: int = 0) -> Allocation:
    """Four stages of three blocks under one schedule.

    Args:
        base: Everything except segments and schedule.
        room: Micro-batches (or chunks) in flight beyond the default.
    """
    blocks = np.zeros_like(base.blocks)
    blocks[..., :STAGES] = 3
    depth = np.maximum(STAGES - np.arange(blocks.shape[-1]), 0)
    chunks = 3 if name == "interleaved" else 1
    if name == "interleaved":
        caps = np.where(depth > 0, 2 * (depth - 1) + (chunks - 1) * STAGES + 1, 0)
    elif name == "zb-h1":
        caps = np.where(depth > 0, STAGES + 1, 0)
    else:
        caps = np.where(depth > 0, depth + 1, 0)
    return with_schedule(replace(base, blocks=blocks), name, np.where(depth > 0, caps + room, 0), chunks)


def main() -> None:
    """Print delays and memory under every schedule and draw four of them side by side."""
    env = CollaPipeVectorEnv(num_envs=1, scenario="medium", learner="surrogate")
    env.reset(seed=0)
    parameters = system_parameters(env.scenario)
    print("| schedule | M | local step of cluster 0 (s) | round delay (s) | most memory of a device (MB) |")
    print("|---|---:|---:|---:|---:|")
    for M in (8, 64):
        base = even_split(parameters, env.state, M)
        rows: list[tuple[ScheduleName, int]] = [(name, 0) for name in SCHEDULES]
        rows.insert(2, ("1f1b", STAGES))
        for name, room in rows:
            costs = round_costs(parameters, env.state, plan(base, name, room))
            label = f"{name}, {room} more in flight" if room else name
            print(
                f"| {label} | {M} | {costs.local_step[0, 0]:.2f} | {costs.delay[0]:.2f} "
                f"| {costs.memory.max() / 1e6:.0f} |"
            )
    base = even_split(parameters, env.state, 8)
    each = [plan(base, name) for name in ("gpipe", "1f1b", "interleaved", "zb-h1")]
    mixed = Allocation(
        **{
            field: None if values[0] is None else np.stack([v[0, n] for n, v in enumerate(values)])[None]
            for field in each[0].__dataclass_fields__
            for values in [[getattr(a, field) for a in each]]
        }
    )
    env.step_allocation(mixed)
    assert env.last_round is not None
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    imsave(TARGET, draw_round(RoundView(env.last_round, "c0 GPipe · c1 1F1B · c2 interleaved · c3 ZB-H1")))
    print(f"wrote {TARGET}")


if __name__ == "__main__":
    main()
