"""Rounds of an episode that was played again, packed for a page: plans, pipelines, places and queues."""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from collapipe_env.evaluation.episode import HELD_OUT_SEED
from collapipe_env.evaluation.episode_result import EpisodeResult
from collapipe_env.evaluation.view.replayed import replayed
from collapipe_env.evaluation.view.stored_run import StoredScenario
from collapipe_env.physics.schedules.timeline import RoundTimeline
from collapipe_env.rendering.colours import known_phase
from collapipe_env.rendering.round_view import RoundView, slowest
from collapipe_env.scenario import Layout, Scenario, draw_layout, fixed_layout
from collapipe_env.simulator.randomness import episode_seeds
from collapipe_env.simulator.system import MOBILITY

PARTS = 100_000
"""Parts of a round in which events are given."""
DIRECTIONS = {"forward": 0, "backward": 1, "weight": 2}
"""Directions of events, as the page numbers them."""


def packed_episode(
    stored: StoredScenario, result: EpisodeResult, room: int, on_round: Callable[[], object]
) -> dict[str, Any]:
    """Play an episode again and pack its rounds into plain data.

    Args:
        room: Most characters of the rounds; if they need more, every second, fourth, eighth ... is packed.
        on_round: Called after each round.

    Raises:
        DataError: If the episode cannot be played again as it was.
    """
    layout = episode_layout(stored.scenario, result.episode)
    still = layout.device_position - layout.cu_position[:, None]
    every, taken, rounds = 1, 0, list[str]()
    for index, view in enumerate(replayed(stored, result)):
        if index % every == 0:
            text = json.dumps(round_data(view, still), separators=(",", ":"))
            rounds.append(base64.b64encode(zlib.compress(text.encode(), 9)).decode())
            taken += len(rounds[-1])
        while taken > room and len(rounds) > 1:
            every, rounds = 2 * every, rounds[::2]
            taken = sum(map(len, rounds))
        on_round()
    about = {"name": result.scheduler, "title": result.title, "side": view.side_m, "reach": view.reach_m}
    return {**about, "every": every, "rounds": rounds}


def rounded(values: npt.ArrayLike, digits: int = 5) -> list[float | None]:
    """Numbers as a flat list, to some digits; ``None`` for those that are not finite."""
    numbers = np.ravel(values).tolist()
    return [float(f"{number:.{digits}g}") if math.isfinite(number) else None for number in numbers]


def round_data(view: RoundView, still: npt.NDArray[np.floating]) -> dict[str, Any]:
    """A round as plain data.

    Args:
        still: Places of devices that stand still, from their CU [m], (N, K, 2).
    """
    record = view.round
    plan, costs, walk = record.allocation, record.costs, record.state.processes.get(MOBILITY)
    arrived, plays, places = record.surviving_fraction(), costs.plays, still
    if walk is not None:
        places = np.stack([walk["x"], walk["y"]], axis=-1) - 0.5 * (view.side_m or 0.0)
    clusters, slow = [], slowest(view.charts)
    for n, chart in enumerate(view.charts):
        shares = rounded([chart.delay_s, 100.0 * plan.bandwidth[n] * plays[n], 100.0 * arrived[n]])
        clusters.append({
            "name": chart.name,
            "plays": bool(plays[n]),
            "slow": n in slow,
            **dict(zip(("delay", "uplink", "arrived"), shares, strict=True)),
            "batches": chart.micro_batches,
            "blocks": (plan.device_blocks[n] * plays[n]).tolist(),
            "there": record.state.present[n].astype(bool).tolist(),
            "places": rounded(places[n]),
            "energy": rounded(costs.energy_ratio[n]),
            "queue": rounded(record.backlog[n]),
            "phases": [
                [known_phase(p.label), *rounded([p.start_s, p.end_s], 6)] for p in chart.timeline.phases
            ],
            "elements": [[e.kind, e.node, e.label] for e in chart.timeline.elements],
            "events": _events(chart.timeline),
        })  # fmt: skip
    return {"allowance": rounded(costs.allowance)[0], "clusters": clusters}


def _events(timeline: RoundTimeline) -> list[list[int]]:
    """Element, direction, micro-batch, start and length of each event, as columns.

    Neighbours in a column differ little, and starts are differences from the one before: this deflates well.
    """
    scale = PARTS / max(timeline.end_s, 1e-12)
    rows = [
        (e.element, DIRECTIONS[e.direction], e.micro_batch, scale * e.start_s, scale * (e.end_s - e.start_s))
        for e in timeline.events
    ]
    table = np.array(sorted(rows)).reshape(-1, 5).round().astype(np.int64)
    table[:, 3] = np.diff(table[:, 3], prepend=0)
    columns: list[list[int]] = table.T.tolist()
    return columns


def episode_layout(scenario: Scenario, episode: int) -> Layout:
    """The layout of a held-out episode at its start."""
    if scenario.cluster.layout == "fixed":
        return fixed_layout(scenario)
    seeds = episode_seeds(np.array([0]), [np.random.default_rng(HELD_OUT_SEED + episode)], ())
    return draw_layout(scenario, np.random.default_rng(int(seeds["layout"][0])))
