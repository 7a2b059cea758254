"""Rounds of an episode that was played again, packed for a page: plans, pipelines, places and queues.

Under GPipe the times of a pipeline's elements decide everything in a local step, so the page holds these
times and computes the events. For other schedules it holds the events, for as many rounds as there is room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from collapipe_env.evaluation.episode import HELD_OUT_SEED, replayed_rounds
from collapipe_env.evaluation.episode_result import REMEDY, EpisodeResult
from collapipe_env.evaluation.view.packing import packed, packed_length
from collapipe_env.evaluation.view.stored_run import AGAIN, StoredScenario
from collapipe_env.ground.arrays import on_host
from collapipe_env.ground.errors import CollaPipeError, DataError, reason
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.schedules.timeline import Element, Event, RoundTimeline
from collapipe_env.rendering.colours import PHASES, known_phase
from collapipe_env.rendering.round_view import played_timeline, runs_gpipe
from collapipe_env.scenario import Layout, Scenario, draw_layout, fixed_layout
from collapipe_env.simulator.randomness import episode_seeds
from collapipe_env.simulator.record import RoundRecord
from collapipe_env.simulator.system import MOBILITY, reach_of, walking_side

KINDS = ("hop", "compute", "uplink", "server")
"""Kinds of a pipeline's elements, as the page numbers them."""
DIRECTIONS = ("forward", "backward", "weight")
"""Directions of events, as the page numbers them."""
HATCHED, REBUILT, LISTED, LEFT_OUT = range(4)
"""Sources of a cluster's events: none exist; computed from the elements' times; listed in the page; left out
of this round for lack of room."""
EVENT_BYTES = 9
"""Bytes of an event in the page, before base64."""
EVENTS_SHARE = 0.6
"""Share of an episode's room for listed events."""
DETAILED = 4
"""Clusters of a round whose events are listed, the slowest ones."""
AGREES = 1e-6
"""Largest relative difference of a replayed round's delay from the stored one: other processors and libraries
may round differently."""


Chain = tuple[int, ...]
"""Kind, node and number of the label of each element of a pipeline, one after another."""
ELEMENT_LETTERS = 10
"""Approximate number of characters of a chain's element in the page."""


@dataclass
class _Columns:
    """Lists that grow round by round."""

    rounds: list[int] = field(default_factory=list)
    per_node: dict[str, list[npt.NDArray[Any]]] = field(default_factory=dict)
    lists: dict[str, list[float]] = field(default_factory=dict)
    chains: dict[Chain, int] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    latency: dict[int, float] = field(default_factory=dict)

    def add(self, name: str, array: npt.NDArray[Any]) -> None:
        self.per_node.setdefault(name, []).append(np.array(array))

    def extend(self, name: str, values: Sequence[float]) -> None:
        self.lists.setdefault(name, []).extend(values)

    def chain(self, elements: Sequence[Element]) -> int:
        """Number of a pipeline; plans recur often, so each pipeline is kept once."""
        chain = tuple(
            number
            for e in elements
            for number in (
                KINDS.index(e.kind),
                e.node,
                self.labels.setdefault(e.label, len(self.labels)),
            )
        )
        self.latency.update((KINDS.index(e.kind), e.latency_s) for e in elements)
        return self.chains.setdefault(chain, len(self.chains))


_KIND_OF = {
    "ratio": "<f4", "backlog": "<f4", "blocks": "<u2", "present": "<u1", "micro_batches": "<u2",
    "bandwidth": "<f4", "cluster_delay": "<f4", "arrivals": "<f4", "plays": "<u1", "mode": "<u1",
    "places": "<f4", "allowance": "<f4",
    "phase_count": "<u4", "phase": "<u1", "phase_end": "<f4",
    "chain": "<u4", "element_count": "<u4", "element_forward": "<f4", "element_backward": "<f4",
    "event_count": "<u4", "event_element": "<u2", "event_batch": "<u2", "event_direction": "<u1",
    "event_start": "<u2", "event_end": "<u2",
}  # fmt: skip
"""Type of each array; the ``*_count`` arrays have a number for each round and cluster."""
EVENT_STEPS = 65535
"""Parts of a local step, in which starts and ends of listed events are given."""


def episode_detail(
    stored: StoredScenario, result: EpisodeResult, room: int, on_round: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Play an episode again and pack its rounds.

    Args:
        stored: The stored run.
        room: Approximate number of characters for the packed rounds; if they need more, only every second,
            third ... round is packed.
        on_round: Called after each round.

    Returns:
        Plain data for the page.

    Raises:
        DataError: If the decisions are missing or damaged, or lead to other delays than the stored ones.
    """
    scenario = stored.scenario
    decisions = stored.decisions(result)
    columns = _Columns()
    every = every_events = 0
    station: npt.NDArray[Any] | None = None
    for index, record in enumerate(_replayed(stored, result, decisions)):
        if not every:
            every, every_events = _strides(record, scenario, len(decisions), room)
        if index % every == 0:
            listed = index % (every * every_events) == 0
            _add(columns, record, scenario, index, listed)
            walk = record.state.processes.get(MOBILITY)
            if walk is not None and station is None:
                station = on_host(walk["cu_position"])[0]
        on_round()
    layout = episode_layout(scenario, result.episode)
    N, K = layout.present.shape
    arrays = {name: packed(np.stack(values), _KIND_OF[name]) for name, values in columns.per_node.items()} | {
        name: packed(values, _KIND_OF[name]) for name, values in columns.lists.items()
    }
    if "places" not in arrays:
        offset = layout.device_position - layout.cu_position[:, None]
        arrays["places"] = packed(offset, "<f4")
    return {
        "name": result.scheduler,
        "title": result.title,
        "run": result.run,
        "clusters": N,
        "devices": K,
        "moves": "places" in columns.per_node,
        "side": walking_side(scenario) if "places" in columns.per_node else scenario.cluster.area_side_m,
        "reach": reach_of(scenario),
        "every": every,
        "everyEvents": every_events,
        "local_steps": scenario.workload.local_steps,
        "chains": list(columns.chains),
        "labels": list(columns.labels),
        "latency": [columns.latency.get(kind, 0.0) for kind in range(len(KINDS))],
        "rounds": packed(columns.rounds, "<u4"),
        "centres": packed(layout.cu_position if station is None else station, "<f4"),
        "arrays": arrays,
    }


def detail_length(detail: dict[str, Any]) -> int:
    """Characters that a packed episode takes, without a few names."""
    elements = sum(map(len, detail["chains"])) // 3
    return packed_length(detail["arrays"].values()) + ELEMENT_LETTERS * elements


def episode_layout(scenario: Scenario, episode: int) -> Layout:
    """The layout of a held-out episode at its start."""
    if scenario.cluster.layout == "fixed":
        return fixed_layout(scenario)
    seeds = episode_seeds(np.array([0]), [np.random.default_rng(HELD_OUT_SEED + episode)], ())
    return draw_layout(scenario, np.random.default_rng(int(seeds["layout"][0])))


def _replayed(
    stored: StoredScenario, result: EpisodeResult, decisions: Sequence[Allocation]
) -> Iterator[RoundRecord]:
    """Play an episode again, and refuse decisions that do not fit this scenario, or lead to other delays."""
    rounds = replayed_rounds(stored.scenario, result.episode, decisions)
    for index in range(len(decisions)):
        try:
            record = next(rounds)
        except CollaPipeError as error:
            raise DataError(
                f"episode {result.episode} of {result.scheduler!r} cannot be played again in {stored.file} "
                f"({reason(error)}): this file was changed since then, or the stored decisions are damaged: "
                f"{AGAIN}"
            ) from None
        _require_same(record, result, index)
        yield record


def _require_same(record: RoundRecord, result: EpisodeResult, index: int) -> None:
    """Refuse a replay that differs from the stored episode, as in another version of the package."""
    now, then = float(record.costs.delay[0]), result.delay[index]
    if not abs(now - then) <= AGREES * max(abs(then), 1e-12):
        raise DataError(
            f"round {index + 1} of episode {result.episode} of {result.scheduler!r} takes {now:.6g} s when "
            f"it is played again, but took {then:.6g} s: another version of the package, or of a "
            f"process of your own, played it, or its files are damaged: {REMEDY}"
        )


def _strides(record: RoundRecord, scenario: Scenario, rounds: int, room: int) -> tuple[int, int]:
    """Strides of the packed rounds, and of those with listed events among them."""
    one = _Columns()
    _add(one, record, scenario, 0, True)
    total = 0
    counts = {name: sum(array.size for array in arrays) for name, arrays in one.per_node.items()}
    counts |= {name: len(values) for name, values in one.lists.items()}
    for name, count in counts.items():
        if not name.startswith("event_") or name == "event_count":
            total += count * np.dtype(_KIND_OF[name]).itemsize
    events = EVENT_BYTES * sum(one.lists.get("event_count", [0]))
    # Base64 has four characters for three bytes; rounds differ, so some room is kept free.
    plain, listed = (rounds * size * 4.0 / 3.0 * 1.1 for size in (total, events))
    plain += rounds * ELEMENT_LETTERS * sum(map(len, one.chains)) / 3
    share = 1.0 - EVENTS_SHARE if listed else 1.0
    every = max(1, int(np.ceil(plain / (share * room))))
    return every, max(1, int(np.ceil(listed / every / (EVENTS_SHARE * room))))


def _add(columns: _Columns, record: RoundRecord, scenario: Scenario, index: int, listed: bool) -> None:
    """Add a round."""
    costs, plan = record.costs, record.allocation
    N = costs.cluster_delay.shape[-1]
    plays = costs.plays[0]
    columns.rounds.append(index + 1)
    columns.add("ratio", costs.energy_ratio[0])
    columns.add("backlog", record.backlog[0])
    columns.add("blocks", plan.device_blocks[0] * plays[:, None])
    columns.add("present", record.state.present[0])
    columns.add("micro_batches", plan.micro_batches[0])
    columns.add("bandwidth", plan.bandwidth[0] * plays)
    columns.add("cluster_delay", costs.cluster_delay[0])
    columns.add("arrivals", record.surviving_fraction()[0])
    columns.add("plays", plays)
    columns.add("allowance", np.asarray(costs.allowance[0]))
    walk = record.state.processes.get(MOBILITY)
    if walk is not None:
        half = 0.5 * walking_side(scenario)
        places = np.stack([on_host(walk["x"])[0] - half, on_host(walk["y"])[0] - half], axis=-1)
        columns.add("places", places)
    slowest = set(np.argsort(-costs.cluster_delay[0])[:DETAILED].tolist())
    modes = []
    for n in range(N):
        gpipe = runs_gpipe(plan, 0, n)
        wanted = not gpipe and n in slowest and listed
        timeline = played_timeline(record, 0, n, wanted)
        mode = HATCHED
        if plays[n]:
            mode = REBUILT if gpipe else LEFT_OUT if not wanted else LISTED if timeline.events else HATCHED
        modes.append(mode)
        _add_timeline(columns, timeline)
    columns.add("mode", np.array(modes))


def _add_timeline(columns: _Columns, timeline: RoundTimeline) -> None:
    """Add a cluster's elements, phases and listed events."""
    columns.extend("phase_count", [len(timeline.phases)])
    columns.extend("phase", [list(PHASES).index(known_phase(p.label)) for p in timeline.phases])
    columns.extend("phase_end", [p.end_s for p in timeline.phases])
    columns.extend("element_count", [len(timeline.elements)])
    columns.extend("chain", [columns.chain(timeline.elements)])
    columns.extend("element_forward", [e.forward_s for e in timeline.elements])
    columns.extend("element_backward", [e.backward_s for e in timeline.elements])
    step = next((p for p in timeline.phases if p.label == "step"), None)
    events: Sequence[Event] = timeline.events if step is not None else ()
    columns.extend("event_count", [len(events)])
    if step is None or not events:
        return
    length = max(step.end_s - step.start_s, 1e-12)
    starts, ends = (
        np.rint(np.clip((np.array(times) - step.start_s) / length, 0.0, 1.0) * EVENT_STEPS).tolist()
        for times in ([e.start_s for e in events], [e.end_s for e in events])
    )
    columns.extend("event_element", [e.element for e in events])
    columns.extend("event_batch", [e.micro_batch for e in events])
    columns.extend("event_direction", [DIRECTIONS.index(e.direction) for e in events])
    columns.extend("event_start", starts)
    columns.extend("event_end", ends)


def chosen_records(
    stored: StoredScenario, result: EpisodeResult, wanted: Sequence[int]
) -> Iterator[tuple[int, RoundRecord]]:
    """Play an episode again, and yield some of its rounds with their indices, one after another.

    Args:
        stored: The stored run.
        wanted: Indices of the rounds, from 0, at least one.

    Raises:
        DataError: As :func:`episode_detail`.
    """
    chosen, decisions = set(wanted), stored.decisions(result)[: max(wanted) + 1]
    for index, record in enumerate(_replayed(stored, result, decisions)):
        if index in chosen:
            yield index, record
