"""Worlds, plans and played rounds for tests of scripts."""

from __future__ import annotations

import numpy as np

from collapipe_env.execution.script_replay import replayed_step
from collapipe_env.execution.scripts import ClusterScript
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.physics.allocation import with_schedule
from collapipe_env.physics.schedules.timeline import Event, Phase
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.even_split import even_split
from collapipe_env.simulator.world import World


def a_world(seed=1, rows=1, overrides=None, **sections):
    """A world of two clusters of three devices with ample budgets, after a reset."""
    workload = {"local_steps": 2, **sections.pop("workload", {})}
    scenario = load_scenario(
        {
            "base": "small",
            "workload": workload,
            "budgets": {"device_energy_j": 1e4, "cu_energy_j": 1e4},
            **sections,
        }
    )
    scenario = scenario.with_overrides(overrides or {})
    world = World(scenario, IdleLearner(rows), rows)
    world.reset([np.random.default_rng(seed + row) for row in range(rows)])
    return world


def even_plan(world, micro_batches=None):
    """The even split in the world's state, with given micro-batches."""
    plan = even_split(world.parameters, world.state)
    if micro_batches is not None:
        plan.micro_batches[:] = micro_batches
    return plan


def scheduled(plan, schedule, room=1, chunks=1):
    """The plan under a schedule, with caps that fall along the pipe."""
    stages = plan.blocks.shape[-1]
    caps = np.arange(stages, 0, -1) + room
    if schedule == "interleaved":
        caps = 2 * np.arange(stages, 0, -1) + (chunks - 1) * stages
    return with_schedule(plan, schedule, caps, chunks)


def sorted_events(events):
    """Events as rows of numbers in an order of their own, to compare two lists."""
    kinds = {"forward": 0, "backward": 1, "weight": 2}
    rows = [(e.element, kinds[e.direction], e.start_s, e.micro_batch, e.end_s) for e in events]
    return np.array(sorted(rows))


def replayed_round(script: ClusterScript) -> tuple[list[Event], list[Phase]]:
    """Return events and phases of a cluster's round up to the upload, from the start of its script."""
    events: list[Event] = []
    phases: list[Phase] = []
    now = 0.0

    def add(label: str, length: float) -> None:
        nonlocal now
        if length > 0.0:
            phases.append(Phase(label, now, now + length))
            now += length

    if not script.plays:
        return events, phases
    step_s, one_step = replayed_step(script)
    add("migration", script.migration_s)
    add("relay", script.relay_s)
    for _ in range(script.local_steps):
        events += [
            Event(e.element, e.micro_batch, e.direction, now + e.start_s, now + e.end_s) for e in one_step
        ]
        add("step", step_s)
        add("all-reduce", script.allreduce_s)
        add("update", script.update_s)
        add("replicas", script.replicas_s)
        add("wait", script.barrier_s)
    add("collect", script.collect_s)
    add("upload", script.upload_s)
    return events, phases
