"""The least makespan of one cluster's chain over all orders of its operations, by CP-SAT (OptPipe).

The machines are the stages, the server and the links of
:mod:`~collapipe_env.physics.schedules.simulation`; every micro-batch passes

    CU -> stage 0 -> ... -> stage S-1 -> CU -> base station (server) and all the way back,

with the backward pass split into input gradient ``B`` and weight gradient ``W`` on stages and server.

Two observations keep the model small ([X]). Micro-batches are alike, so some optimal schedule serves them in
the same order everywhere: swapping labels changes neither times nor memory. It remains to decide how F, B and
W take turns on a machine. With that order a stage's memory limit becomes a precedence: ``F`` adds a stored
micro-batch, ``W`` removes one, and at most ``C`` may be stored, so ``F`` of micro-batch ``m + C`` starts
after ``W`` of micro-batch ``m`` has ended.

A link's latency is a delay between two steps that occupies no machine ([X]).

Times are rounded *down* to a grid, so the solver's bound is also a bound in seconds; the order found is then
timed with the exact durations.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.physics.schedules.orders import BACKWARD, FORWARD, WEIGHT
from collapipe_env.physics.schedules.simulation import ChainTimes

Turn = tuple[int, int]
"""A step of the chain and a micro-batch."""

TICKS = 100_000
"""Parts into which the makespan of the warm start is divided."""


class Step(NamedTuple):
    """Step that every micro-batch goes through once.

    Attributes:
        resource: Number of the resource as in the simulation.
        machine: Resource that it occupies: under half duplex both directions of a hop are one machine.
        kind: ``FORWARD``, ``BACKWARD`` or ``WEIGHT``.
        seconds: Duration [s].
        latency: Time from its end until the next step may start [s].
        after: Place of the step it follows, -1 for the first one.
    """

    resource: int
    machine: int
    kind: int
    seconds: float
    latency: float
    after: int


class Operation(NamedTuple):
    """One step of one micro-batch in a schedule; times in seconds."""

    step: int
    micro_batch: int
    start: float
    end: float


@dataclass(frozen=True)
class ChainSolution:
    """Result of the solver.

    Attributes:
        seconds: Makespan of the order found, exactly timed [s].
        bound: Lower bound on the makespan of any order [s].
        proven: Whether the solver ended with a proof that there is no faster order (up to the grid).
        operations: The schedule, in an order in which it can be carried out.
        warm_ups: Forwards of each stage before its first input gradient (S,).
        in_flight: Most micro-batches of each stage between start of ``F`` and end of ``B`` (S,).
        stored: The same until the end of ``W``, which is what memory holds (S,).
    """

    seconds: float
    bound: float
    proven: bool
    operations: tuple[Operation, ...]
    warm_ups: IntArray
    in_flight: IntArray
    stored: IntArray


def chain_steps(times: ChainTimes, half_duplex: bool) -> list[Step]:
    """The steps of a chain, each after the one it follows.

    Args:
        times: Seconds of one micro-batch, weight gradients split off.
        half_duplex: Whether hops between devices serve one direction at a time.
    """
    S = len(times.forward) - 1
    out, uplink, back = S + 1, 2 * S + 3, 2 * S + 4
    there = [*(r for s in range(S) for r in (out + s, s)), out + S, uplink, S]
    home = [S, uplink + S + 3, back + S, *(r for s in reversed(range(S)) for r in (s, back + s))]
    # By resource: stages and server, then the links of each direction.
    links = times.link_forward, times.link_backward
    forward, backward = (np.concatenate((own, *links)) for own in (times.forward, times.backward))
    latency = np.concatenate((np.zeros(out), times.latency, times.latency)).tolist()
    steps: list[Step] = []
    at = -1
    for kind, resources, seconds in ((FORWARD, there, forward), (BACKWARD, home, backward)):
        for r in resources:
            machine = r - S - 3 if half_duplex and back <= r <= back + S else r
            steps.append(Step(r, machine, kind, float(seconds[r]), latency[r], at))
            at = len(steps) - 1
            if kind == BACKWARD and r <= S:
                steps.append(Step(r, r, WEIGHT, float(times.weight[r]), 0.0, at))
    return steps


def carried_out(
    steps: Sequence[Step], turns: Sequence[Turn], durations: Sequence[float], delays: Sequence[float]
) -> list[Operation]:
    """Start every operation as early as the order on its machine allows.

    Args:
        turns: All operations, none before one that it follows.
        durations: Duration of each step, in any unit.
        delays: Latency of each step, in the same unit.
    """
    free: dict[int, float] = {}
    arrived: dict[Turn, float] = {}
    operations = []
    for p, m in turns:
        step = steps[p]
        start = max(free.get(step.machine, 0), arrived[step.after, m] if step.after >= 0 else 0)
        end = free[step.machine] = start + durations[p]
        arrived[p, m] = end + delays[p]
        operations.append(Operation(p, m, start, end))
    return operations


def turns_of_events(steps: Sequence[Step], events: FloatArray) -> list[Turn]:
    """All operations in the order of a schedule that the simulation has run, none before one that it follows.

    Args:
        events: (n, 6) of :func:`~.simulation.simulate_chain`. Where the backward pass was not split, its
            weight gradient follows the input gradient at once.
    """
    place = {(step.resource, step.kind): p for p, step in enumerate(steps)}
    weight = {step.after: p for p, step in enumerate(steps) if step.kind == WEIGHT}
    whole = not (events[:, 1] == WEIGHT).any()
    rows = sorted(
        (start, end, place[int(resource), int(kind)], int(m))
        for resource, kind, m, _, start, end in events.tolist()
    )
    turns: list[Turn] = []
    for _, _, p, m in rows:
        turns.append((p, m))
        if whole and p in weight:
            turns.append((weight[p], m))
    return turns


def solve_chain(
    times: ChainTimes,
    limits: IntArray,
    micro_batches: int,
    half_duplex: bool,
    warm_start: FloatArray,
    *,
    deterministic_time: float,
    seed: int = 0,
) -> ChainSolution:
    """Search for the order with the least makespan; the same result every time.

    Args:
        times: As for :func:`chain_steps`, as is ``half_duplex``.
        limits: Micro-batches that each device stage can store (S,), >= 1; the server has no limit.
        micro_batches: ``M``.
        warm_start: Events of a schedule within the limits, as :func:`turns_of_events` reads them.
        deterministic_time: Work limit in CP-SAT's deterministic unit, roughly a second each.
        seed: Seed of the search.
    """
    from ortools.sat.python import cp_model

    M, S = micro_batches, len(limits)
    steps = chain_steps(times, half_duplex)
    exact, latency = [step.seconds for step in steps], [step.latency for step in steps]
    first_turns = turns_of_events(steps, warm_start)
    first = carried_out(steps, first_turns, exact, latency)
    tick = _length(first, latency) / TICKS
    d, wait = ([int(seconds / tick) for seconds in each] for each in (exact, latency))
    hint = carried_out(steps, first_turns, d, wait)
    horizon = int(_length(hint, wait))
    head, tail = _heads_and_tails(steps, d, wait)
    least = _least_makespan(steps, d, head, tail, M)

    latest = [horizon - tail[p] - M * d[p] for p in range(len(steps))]
    model = cp_model.CpModel()
    start = [
        [model.new_int_var(head[p] + m * d[p], latest[p] + m * d[p], f"{p}:{m}") for m in range(M)]
        for p in range(len(steps))
    ]
    makespan = model.new_int_var(least, horizon, "makespan")
    machines: dict[int, list[int]] = {}
    for p, step in enumerate(steps):
        machines.setdefault(step.machine, []).append(p)
        for m in range(M):
            if step.after >= 0:
                model.add(start[p][m] >= start[step.after][m] + d[step.after] + wait[step.after])
            if m + 1 < M:
                model.add(start[p][m + 1] >= start[p][m] + d[p])
        model.add(makespan >= start[p][M - 1] + d[p] + tail[p])
    for shared in machines.values():
        # A single step takes its micro-batches in turn anyway, and steps that take no time block nothing.
        if len(shared) > 1 and any(d[p] for p in shared):
            turns = itertools.product(shared, range(M))
            model.add_no_overlap(
                [model.new_fixed_size_interval_var(start[p][m], d[p], f"i{p}:{m}") for p, m in turns]
            )
    place = {(step.resource, step.kind): p for p, step in enumerate(steps)}
    for s, limit in enumerate(limits.tolist()):
        f, w = place[s, FORWARD], place[s, WEIGHT]
        for m in range(M - limit):
            model.add(start[f][m + limit] >= start[w][m] + d[w])
    model.minimize(makespan)
    for p, m, begin, _ in hint:
        model.add_hint(start[p][m], int(begin))
    model.add_hint(makespan, horizon)

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.max_deterministic_time = deterministic_time
    status = solver.solve(model)
    best = first
    if status in (cp_model.INFEASIBLE, cp_model.MODEL_INVALID):  # the warm start satisfies all constraints
        raise RuntimeError(f"CP-SAT calls a program with a solution {solver.status_name(status)}")
    if status != cp_model.UNKNOWN:
        found = sorted(
            (solver.value(start[p][m]), solver.value(start[p][m]) + d[p], p, m)
            for p, m in itertools.product(range(len(steps)), range(M))
        )
        timed = carried_out(steps, [(p, m) for _, _, p, m in found], exact, latency)
        if _length(timed, latency) < _length(first, latency):
            best = timed
    bound = max(least, solver.best_objective_bound) * tick
    proven = status == cp_model.OPTIMAL
    return ChainSolution(_length(best, latency), bound, proven, tuple(best), *_counts(steps, best, S))


def _length(operations: Sequence[Operation], delays: Sequence[float]) -> float:
    return max(op.end + delays[op.step] for op in operations)


def _heads_and_tails(
    steps: Sequence[Step], d: Sequence[int], wait: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Least time before each step starts and after it has ended, for a micro-batch alone."""
    head = [0] * len(steps)
    tail = list(wait)
    for p, step in enumerate(steps):
        if step.after >= 0:
            head[p] = head[step.after] + d[step.after] + wait[step.after]
    for p in range(len(steps) - 1, -1, -1):
        after = steps[p].after
        if after >= 0:
            tail[after] = max(tail[after], wait[after] + d[p] + tail[p])
    return head, tail


def _least_makespan(
    steps: Sequence[Step], d: Sequence[int], head: Sequence[int], tail: Sequence[int], M: int
) -> int:
    """Work of the busiest set of steps of a machine, plus their least head and their least tail."""
    bound = 0
    for p, q in itertools.product(range(len(steps)), repeat=2):
        # None of the steps chosen starts before p can, and each still has q's tail after it.
        chosen = [
            d[r]
            for r, step in enumerate(steps)
            if steps[p].machine == steps[q].machine == step.machine
            and head[r] >= head[p]
            and tail[r] >= tail[q]
        ]
        if chosen:
            bound = max(bound, head[p] + M * sum(chosen) + tail[q])
    return bound


def _counts(steps: Sequence[Step], operations: Sequence[Operation], S: int) -> IntArray:
    """Warm-ups, most micro-batches in flight and most stored of each stage (3, S)."""
    counts = np.zeros((3, S), dtype=np.int64)
    for s in range(S):
        done = np.array([steps[op.step].kind for op in operations if steps[op.step].resource == s])
        forwards, backwards, weights = (np.cumsum(done == kind) for kind in (FORWARD, BACKWARD, WEIGHT))
        counts[:, s] = forwards[backwards == 0][-1], (forwards - backwards).max(), (forwards - weights).max()
    return counts
