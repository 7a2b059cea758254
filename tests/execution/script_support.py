"""Scripts for tests: of chains with given times, and of played rounds."""

from __future__ import annotations

import numpy as np

from collapipe_env.execution.script_building import stage_orders
from collapipe_env.execution.script_replay import replayed_step
from collapipe_env.execution.scripts import ClusterScript, StageScript
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.physics.allocation import with_schedule
from collapipe_env.physics.schedules.timeline import Event, Phase
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.even_split import even_split
from collapipe_env.simulator.world import World


def chain_script(times, schedule, caps, micro_batches, chunks=1, variant=0, local_steps=1):
    """A script of a chain.

    Args:
        times: ``ChainTimes`` of the simulation.
        schedule: Name.
        caps: Caps of the stages.
        micro_batches: ``M``.
        chunks: ``v``.
        variant: That of ``zb-h1``; odd ones have no weight gradients, which fill gaps.
        local_steps: ``H``.
    """
    S, M = len(caps), micro_batches
    orders = stage_orders(schedule, caps, M, chunks, variant)

    def stage(s):
        v = chunks if s < S else 1
        return StageScript(
            devices=(s + 1,) if s < S else (),
            shares=(1.0,) if s < S else (),
            chunks=tuple((s + c * S, s + c * S + 1) for c in range(v)),
            order=orders[s],
            forward_s=float(times.forward[s]),
            backward_s=float(times.backward[s]),
            weight_s=float(times.weight[s]),
            chunk_share=tuple(times.chunk_share[s, :v].tolist()),
        )

    there, back = times.link_forward.tolist(), times.link_backward.tolist()
    return ClusterScript(
        cluster=0,
        plays=True,
        local_steps=local_steps,
        micro_batches=M,
        schedule=schedule,
        recompute=False,
        stages=tuple(stage(s) for s in range(S)),
        server=stage(S),
        hop_forward_s=tuple(there[: S + 1]),
        hop_backward_s=tuple(back[: S + 1]),
        wrap_forward_s=there[S + 1],
        wrap_backward_s=back[S + 1],
        uplink_s=there[S + 2],
        downlink_s=back[S + 2],
        latency_s=float(times.latency[0]),
        edge_latency_s=float(times.latency[S + 2]),
        collect_each_s=(0.0,) * S,
        hosts=(None,) * S,
        arrived=((True,) * M,) * local_steps,
    )


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
    """Return all local steps of a cluster and the phases of its round up to the upload.

    Args:
        script: The cluster's script.

    Returns:
        Events and phases, from the start of the script; phases that take no time are left out.
    """
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
