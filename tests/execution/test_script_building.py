"""Scripts built from rounds, against the simulator's timelines and the record's own numbers."""

from dataclasses import replace

import numpy as np
import pytest
from script_support import a_world, even_plan, replayed_round, scheduled, sorted_events

from collapipe_env.execution.predicted import predicted_events
from collapipe_env.execution.script_building import round_script, stage_orders
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import with_schedule
from collapipe_env.physics.schedules.makespans import ZERO_BUBBLE_VARIANTS

SCHEDULED = ("gpipe", "1f1b", "zb-h1", "interleaved")
ONE_STAGE = {
    "blocks": np.array([[[6, 0, 0], [6, 0, 0]]]),
    "stage": np.array([[[0, 0, 0], [0, 0, -1]]]),
    "sample_share": np.array([[[0.25, 0.5, 0.25], [0.5, 0.5, 0.0]]]),
}
GROUPS = {
    "blocks": np.array([[[4, 2, 0], [2, 4, 0]]]),
    "stage": np.array([[[0, 1, 0], [0, 1, 1]]]),
    "sample_share": np.array([[[0.25, 1.0, 0.75], [1.0, 0.5, 0.5]]]),
}
OTHER_SLOTS = {
    "blocks": np.array([[[1, 2, 3], [0, 2, 4]]]),
    "stage": np.array([[[2, 0, 1], [1, 2, -1]]]),
    "sample_share": np.array([[[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]]]),
}
"""Slots in another order than the devices."""


def assert_as_predicted(record, script, row=0):
    """Replays of all clusters are the simulator's timelines."""
    for n, cluster in enumerate(script.clusters):
        predicted = predicted_events(record, row, n)
        events, phases = replayed_round(cluster)
        # The simulator's last wait, for slower clusters, and the broadcast are not the cluster's own.
        played = {(p.label, round(p.start_s, 9)) for p in phases}
        wanted = [
            p
            for p in predicted.phases
            if p.label not in ("wait", "broadcast") or (p.label, round(p.start_s, 9)) in played
        ]
        assert [p.label for p in phases] == [p.label for p in wanted]
        ends = [(p.start_s, p.end_s) for p in wanted]
        np.testing.assert_allclose([(p.start_s, p.end_s) for p in phases], ends, rtol=0.0, atol=1e-9)
        assert len(events) == len(predicted.events) > 0
        found, expected = sorted_events(events), sorted_events(predicted.events)
        np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-9)
        assert cluster.delay_s == pytest.approx(float(record.costs.cluster_delay[row, n]), rel=1e-12)
        assert max(cluster.collect_each_s) == pytest.approx(cluster.collect_s, rel=1e-12)
    assert script.delay_s == pytest.approx(float(record.costs.delay[row]), rel=1e-12)


@pytest.mark.parametrize(("micro_batches", "latency"), [(1, 0.04), (4, 0.0), (16, 0.04)])
@pytest.mark.parametrize("schedule", [None, *SCHEDULED])
def test_replayed_scripts_are_the_simulators_timelines(schedule, micro_batches, latency):
    world = a_world(overheads={"latency_s": latency, "edge_latency_s": 2.0 * latency})
    plan = even_plan(world, micro_batches)
    if schedule == "interleaved":
        if micro_batches == 1:
            plan = with_schedule(replace(plan, **ONE_STAGE), schedule, np.full(3, 1), 1)
        else:
            plan = replace(plan, blocks=np.array([[[3, 0, 3], [2, 4, 0]]]))
            plan = scheduled(plan, schedule, chunks=2)
    elif schedule is not None:
        plan = scheduled(plan, schedule)
    record = world.step(plan)
    script = round_script(record, 0, world.parameters)
    assert_as_predicted(record, script)


@pytest.mark.parametrize("bandwidth_mhz", [1, 10])
@pytest.mark.parametrize("room", [0, 2, 4])
def test_zero_bubble_orders_are_the_best_of_their_variants(room, bandwidth_mhz):
    world = a_world(seed=3, radio={"d2d_total_hz": 4e6 * bandwidth_mhz})
    record = world.step(scheduled(even_plan(world, 8), "zb-h1", room))
    script = round_script(record, 0, world.parameters)
    assert_as_predicted(record, script)
    if (room, bandwidth_mhz) == (2, 10):
        # Here the fastest order of one cluster fills gaps, and the other's does not.
        variants = range(0, ZERO_BUBBLE_VARIANTS, 2)
        fixed = [stage_orders("zb-h1", [5, 4, 3], 8, 1, variant) for variant in variants]
        orders = [[stage.order for stage in (*c.stages, c.server)] for c in script.clusters]
        assert [own in fixed for own in orders] == [False, True]


@pytest.mark.parametrize(
    ("schedule", "changes", "devices", "chunks"),
    [
        ("gpipe", GROUPS, [[(1, 3), (2,)], [(1,), (2, 3)]], [((0, 4),), ((4, 6),)]),
        ("1f1b", GROUPS, [[(1, 3), (2,)], [(1,), (2, 3)]], [((0, 4),), ((4, 6),)]),
        ("1f1b", OTHER_SLOTS, [[(2,), (3,), (1,)], [(1,), (2,)]], [((0, 1),), ((1, 3),), ((3, 6),)]),
    ],
)
def test_stages_are_those_of_the_plan(schedule, changes, devices, chunks):
    world = a_world()
    record = world.step(scheduled(replace(even_plan(world, 4), **changes), schedule))
    script = round_script(record, 0, world.parameters)
    assert_as_predicted(record, script)
    assert [[stage.devices for stage in cluster.stages] for cluster in script.clusters] == devices
    first = script.clusters[0]
    assert [stage.chunks for stage in first.stages] == chunks
    if changes is GROUPS:
        assert [stage.shares for stage in first.stages] == [(0.25, 0.75), (1.0,)]
        assert first.allreduce_s > 0.0


def test_blocks_of_the_server_and_lost_micro_batches():
    world = a_world(radio={"link_errors": "drop", "waterfall_threshold": 5.0})
    plan = even_plan(world, 4)
    plan = replace(plan, **plan.server._asdict(), blocks=np.array([[[2, 1, 1], [2, 2, 0]]]))
    plan.server_blocks[:] = 2
    plan.server_mode[:] = 0
    record = world.step(plan)
    script = round_script(record, 0, world.parameters)
    assert_as_predicted(record, script)
    assert script.server_mode == 0
    assert script.clusters[0].server.chunks == ((4, 6),)
    for n, cluster in enumerate(script.clusters):
        np.testing.assert_array_equal(np.array(cluster.arrived), record.arrivals.survived[0, n, :2, :4])
    assert {one for cluster in script.clusters for step in cluster.arrived for one in step} == {True, False}


def test_every_phase_of_a_round():
    """Migration, relay, replicas and the barrier of the common head, in one plan after another."""
    presence = {"on_mean_s": 1e7, "graceful": 0.0, "replication": "next_stage"}
    world = a_world(
        workload={"head": "common", "distribution": "relay"},
        dynamics={"processes": {"presence": presence, "migration": {}}},
        overrides={"devices.profiles.0.memory_bytes": [4.0e9]},  # room for replicas
    )
    seed = 0
    while not world.state.present.all():
        seed += 1
        world.reset([np.random.default_rng(seed)])
    world.step(replace(even_plan(world, 4), blocks=np.array([[[1, 1, 4], [4, 2, 0]]])))
    plan = even_plan(world, 4)
    record = world.step(replace(plan, blocks=np.array([[[2, 0, 4], [3, 3, 0]]])))
    script = round_script(record, 0, world.parameters)
    assert_as_predicted(record, script)
    for cluster in script.clusters:
        assert min(cluster.migration_s, cluster.relay_s, cluster.replicas_s, cluster.update_s) > 0.0
    assert max(cluster.barrier_s for cluster in script.clusters) > 0.0
    # The first cluster's stages are devices 1 and 3: each keeps the other's replica.
    assert script.clusters[0].hosts == (3, 1)


def test_clusters_that_sit_out_and_own_local_steps():
    world = a_world(
        workload={"local_steps_choices": [1, 2, 3]},
        decisions=["segments", "micro_batches", "bandwidth", "powers", "participation", "local_steps"],
    )
    plan = even_plan(world, 4)
    plan = replace(plan, participates=np.array([[1, 0]]), local_steps=np.array([[3, 1]]))
    record = world.step(plan)
    script = round_script(record, 0, world.parameters)
    assert script.clusters[0].local_steps == 3
    assert len(script.clusters[0].arrived) == 3
    assert not script.clusters[1].plays
    assert script.clusters[1].stages == ()
    assert replayed_round(script.clusters[1]) == ([], [])
    assert predicted_events(record, 0, 1).events == ()
    assert script.delay_s == pytest.approx(float(record.costs.delay[0]), rel=1e-12)


def test_recomputation_is_said():
    world = a_world(decisions=["segments", "micro_batches", "bandwidth", "powers", "recompute"])
    for other in (0, -1):  # -1 stands for what the scenario says
        plan = replace(even_plan(world, 2), recompute=np.array([[1, other]]))
        record = world.step(plan)
        script = round_script(record, 0, world.parameters)
        assert [cluster.recompute for cluster in script.clusters] == [True, False]
        assert_as_predicted(record, script)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda plan: scheduled(plan, "async"), "async"),
        (
            lambda plan: replace(plan, server_mode=np.array([1]), server_blocks=np.array([[0, 0]])),
            "sequential",
        ),
    ],
)
def test_plans_that_are_not_executed_are_refused(change, word):
    world = a_world()
    record = world.step(change(even_plan(world, 1)))
    with pytest.raises(AllocationError, match=word):
        round_script(record, 0, world.parameters)
