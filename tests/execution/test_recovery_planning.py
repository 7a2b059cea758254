"""Recoveries against the simulator's failed rounds, and second losses against the formulas by hand."""

import itertools
import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from oracles.links import tries_and_success
from oracles.round import Hops
from script_support import a_world, even_plan, replayed_round, scheduled

from collapipe_env.execution.recovery_planning import RecoveryPlanner
from collapipe_env.execution.round_reports import remaining_script
from collapipe_env.execution.script_building import round_script
from collapipe_env.execution.script_replay import replayed_step
from collapipe_env.physics.recovery import BLOCK_PARTS, RecoveryTerms, bits_of_block
from collapipe_env.simulator.failed_rounds import Failures

ROOMY = {"devices.profiles.0.memory_bytes": [4.0e9]}
"""Devices with memory for the whole encoder."""
PAIRS = {
    "blocks": np.array([[[3, 3, 0, 0], [2, 4, 0, 0]]]),
    "stage": np.array([[[0, 1, 0, 1], [0, 1, 1, -1]]]),
    "sample_share": np.array([[[0.25, 0.5, 0.75, 0.5], [1.0, 0.5, 0.5, 0.0]]]),
}


def a_round(kind="light", schedule=None, groups=False, replication="none", steps=3, **sections):
    """World, record, script and terms of a round in which nothing has failed yet."""
    processes = {"presence": {"on_mean_s": 1e7, "graceful": 0.0, "replication": replication}}
    sections.setdefault("dynamics", {"processes": processes})
    workload = {"local_steps": steps, **sections.pop("workload", {})}
    # Speeds of layout 0 leave blocks to both stages of PAIRS when device 4 is lost, and to one without 2.
    cluster = {"clusters": 2, "devices": 4, "layout_seed": 0}
    world = a_world(workload=workload, cluster=cluster, **sections)
    seed = 0
    while not world.state.present.all():
        seed += 1
        world.reset([np.random.default_rng(seed)])
    plan = even_plan(world, 4)
    if groups:
        plan = replace(plan, **PAIRS)
    if schedule is not None:
        plan = scheduled(plan, schedule)
    record = world.step(plan)
    terms = RecoveryTerms(kind, 0.5, 4)
    return world, record, round_script(record, 0, world.parameters), terms


def moving_s(world, record, cluster, source, target, bits):
    """Seconds of blocks' weights and moments over a hop, which sends again what is lost."""
    noise = record.costs.interference[0, cluster]
    hops = Hops(world.parameters, record.state[0], record.allocation[0], cluster, noise)
    tries, _ = tries_and_success(world.parameters, hops.snr(source, target))
    return tries * hops.seconds(source, target, bits)


def assert_as_simulated(world, record, script, terms, cluster, device, at_s):
    """The planned recovery is the simulator's failed round, to 1e-9."""
    planner = RecoveryPlanner(record, 0, script.clusters[cluster], world.parameters, terms)
    found = planner.lost(device, at_s)
    failing = np.full(record.allocation.device_blocks.shape, np.inf)
    failing[0, cluster, device - 1] = at_s
    replayed = Failures(world.parameters, terms).replayed(record.state, record.costs, failing)
    at = (0, cluster)
    wanted = float(record.costs.cluster_delay[at] + replayed.cluster_delay[at])
    failed = replayed.failed
    assert found.dropped == bool(failed.dropped[at])
    assert found.script.delay_s == pytest.approx(wanted, abs=1e-9)
    if not found.dropped:
        assert found.credited == failed.credited[at]
        assert found.reset == tuple(np.flatnonzero(failed.reset[at]))
        assert found.move_s == pytest.approx(float(failed.move_s[at]), abs=1e-12)
        before = {"light": 2.1, "heavy": 4.0}[terms.kind]
        assert found.resume_s == pytest.approx(at_s + before + found.move_s, abs=1e-9)
        # The script itself lasts as long: steps replayed operation by operation, collection and upload.
        phases = replayed_round(found.script)[1]
        assert found.resume_s + phases[-1].end_s == pytest.approx(wanted, abs=1e-9)
        assert {phase.label for phase in phases} <= {"step", "all-reduce", "update", "collect", "upload"}
        held = np.zeros(failed.blocks.shape[-1], dtype=int)
        for stage in found.script.stages:
            assert device not in stage.devices
            for number in stage.devices:
                held[number - 1] = stage.chunks[0][1] - stage.chunks[0][0]
        slots = np.where(failed.stage[at] < 0, 0, failed.stage[at])
        left = np.where(failed.stage[at] < 0, 0, failed.blocks[at][slots])
        np.testing.assert_array_equal(held, left)
        bits = bits_of_block(world.parameters.costs).of_parts
        for move in found.moves:
            size = (move.end_block - move.first_block) * bits[BLOCK_PARTS.index(move.part)]
            stays = move.source == move.target
            way = cluster, move.source, move.target
            expected = 0.0 if stays else moving_s(world, record, *way, size)
            assert move.seconds == pytest.approx(expected, rel=1e-9)
        ends = [move.start_s + move.seconds for move in found.moves] or [found.move_s]
        assert found.move_s == pytest.approx(max(ends), abs=1e-12)
        lines = {}
        for move in found.moves:  # one after another on each line
            lines.setdefault((move.source, move.target) if terms.kind == "light" else None, []).append(move)
        for line in lines.values():
            for one, following in itertools.pairwise(line):
                assert following.start_s == pytest.approx(one.start_s + one.seconds, abs=1e-12)
                assert (following.part, following.first_block) != (one.part, one.end_block) or (
                    (following.source, following.target) != (one.source, one.target)
                )
        assert planner.script is found.script
    assert remaining_script(json.loads(json.dumps(asdict(found)))) == found.script
    return found


@pytest.mark.parametrize("kind", ["light", "heavy"])
@pytest.mark.parametrize("schedule", [None, "1f1b", "zb-h1"])
def test_recoveries_are_the_simulators(kind, schedule):
    world, record, script, terms = a_round(kind, schedule)
    for cu, part in itertools.product(script.clusters, (0.0, 0.5, 0.9)):
        for stage in cu.stages:
            who = cu.cluster, stage.devices[0], part * (cu.delay_s - cu.upload_s)
            found = assert_as_simulated(world, record, script, terms, *who)
            assert found.restored
            assert found.reset == tuple(range(*stage.chunks[0]))


@pytest.mark.parametrize("kind", ["light", "heavy"])
def test_groups_lose_nothing(kind):
    world, record, script, terms = a_round(kind, "1f1b", groups=True)
    cu = script.clusters[0]
    for part, device in itertools.product((0.1, 0.6, 0.95), (1, 2, 3, 4)):
        at = part * (cu.delay_s - cu.upload_s)
        found = assert_as_simulated(world, record, script, terms, 0, device, at)
        assert not found.restored
        step = cu.delay_s - cu.collect_s - cu.upload_s
        assert found.credited == min(int(3 * at / step), 3)
        assert len(found.script.arrived) == 3 - found.credited
        assert all(move.part == "state" for move in found.moves)


@pytest.mark.parametrize("kind", ["light", "heavy"])
@pytest.mark.parametrize("replication", ["next_stage", "cu"])
def test_replicas_keep_local_steps(kind, replication):
    world, record, script, terms = a_round(kind, replication=replication)
    cu = script.clusters[0]
    at = 0.7 * (cu.delay_s - cu.collect_s - cu.upload_s)
    for stage, host in zip(cu.stages, cu.hosts, strict=True):
        found = assert_as_simulated(world, record, script, terms, 0, stage.devices[0], at)
        assert found.credited == 2
        assert set(found.script.hosts) == {None}
        from_host = [move for move in found.moves if move.part == "replica"]
        if kind == "light":
            covered = [b for move in from_host for b in range(move.first_block, move.end_block)]
            assert sorted(covered) == list(range(*stage.chunks[0]))
        else:
            assert all(move.target == 0 for move in from_host)
        assert {move.source for move in from_host} == ({host} if kind == "light" or host else set())


def test_adapters_bring_their_frozen_weights_from_the_cu():
    world, record, script, terms = a_round(replication="next_stage", workload={"update_compression": "lora"})
    cu = script.clusters[0]
    at = 0.7 * (cu.delay_s - cu.collect_s - cu.upload_s)
    found = assert_as_simulated(world, record, script, terms, 0, cu.stages[1].devices[0], at)
    assert {move.part for move in found.moves} >= {"frozen", "replica"}
    assert {move.source for move in found.moves if move.part == "frozen"} == {0}


def test_relays_and_migrations_are_finished_first():
    world, record, script, terms = a_round(workload={"distribution": "relay"})
    cu = script.clusters[0]
    assert cu.relay_s > 0.0
    found = assert_as_simulated(world, record, script, terms, 0, cu.stages[0].devices[0], 0.25 * cu.relay_s)
    assert min(move.start_s for move in found.moves) == pytest.approx(0.75 * cu.relay_s)


@pytest.mark.parametrize(("kind", "schedule"), [("drop-round", None), ("light", "interleaved")])
def test_rounds_that_are_given_up(kind, schedule):
    world, record, script, terms = a_round(kind)
    if schedule is not None:
        plan = replace(record.allocation, blocks=np.array([[[3, 3, 0, 0], [2, 4, 0, 0]]]))
        record = world.step(scheduled(plan, schedule, chunks=2))
        script = round_script(record, 0, world.parameters)
    cu = script.clusters[1]
    for at in (0.5, cu.delay_s - cu.upload_s - 0.01):
        found = assert_as_simulated(world, record, script, terms, 1, cu.stages[0].devices[0], at)
        assert found.dropped
        assert not found.script.plays
        assert replayed_round(found.script) == ([], [])


def test_measured_times_stand_in_for_the_formulas():
    world, record, script, terms = a_round(groups=True)
    plain = RecoveryPlanner(record, 0, script.clusters[0], world.parameters, terms).lost(1, 1.0)
    planner = RecoveryPlanner(record, 0, script.clusters[0], world.parameters, terms)
    found = planner.lost(1, 1.0, detect_s=0.25, completed=2)
    assert found.resume_s == pytest.approx(1.25 + terms.planning_s + found.move_s)
    assert (found.credited, found.script.local_steps) == (2, 1)
    assert found.move_s == plain.move_s
    step = replayed_step(plain.script)[0] + plain.script.allreduce_s + plain.script.update_s
    saved = (2 - plain.credited) * step + plain.resume_s - found.resume_s
    assert plain.script.delay_s - found.script.delay_s == pytest.approx(saved, abs=1e-9)


def test_steps_that_are_left_are_the_last_ones_and_all_after_a_loss_of_blocks():
    world, record, script, terms = a_round(groups=True, overrides=ROOMY)
    arrived = ((True, False), (False, True), (False, False))
    cluster = replace(script.clusters[0], arrived=arrived)
    for counts, expected in (
        ((0, 0), (arrived, arrived)),
        ((1, 0), (arrived[1:], arrived[1:])),
        ((1, 1), (arrived[1:], arrived[2:])),
        ((2, 1), (arrived[2:], ())),
        ((3, 0), ((), ())),
    ):
        planner = RecoveryPlanner(record, 0, cluster, world.parameters, terms)
        # Each stage has two devices, of which one is left: no block is lost.
        for device, count, left in zip((4, 3), counts, expected, strict=True):
            found = planner.lost(device, planner.script.delay_s / 2, completed=count)
            assert not found.restored
            assert (found.script.arrived, found.script.local_steps) == (left, len(left))
        # One of the two that are left has the only copy of its blocks.
        if found.script.local_steps:
            last = planner.lost(2, found.resume_s, completed=0)
            assert last.restored
            assert (last.script.arrived, last.script.local_steps) == (arrived, 3)


def test_idle_devices_change_nothing_but_are_gone():
    world, record, script, terms = a_round(groups=True)
    planner = RecoveryPlanner(record, 0, script.clusters[1], world.parameters, terms)
    assert planner.lost(4, 0.5) is None
    assert planner.script is script.clusters[1]
    later = planner.lost(script.clusters[1].devices[0], 0.6).script
    assert later.plays
    assert 4 not in later.devices


def test_a_second_loss_starts_from_the_plan_that_was_left():
    """Two devices of one pair of stages: what the first loss left is what the second one finds."""
    world, record, script, terms = a_round(groups=True)
    planner = RecoveryPlanner(record, 0, script.clusters[0], world.parameters, terms)
    first = planner.lost(4, 0.5)
    assert [stage.devices for stage in first.script.stages] == [(1, 3), (2,)]
    step = replayed_step(first.script)[0] + first.script.allreduce_s + first.script.update_s
    at = first.resume_s + 1.5 * step
    second = planner.lost(3, at)
    # Each stage still has a device: nothing is lost, one more local step counts.
    assert (first.credited, second.credited, second.restored) == (0, 1, False)
    assert second.script.local_steps == 2
    assert [stage.devices for stage in second.script.stages] == [(1,), (2,)]
    # By hand: the boundary moves to where speeds say, and blocks from the second stage's side or to it.
    speed = record.state.speed[0, 0]
    boundary = int(np.ceil(6 * speed[0] / (speed[0] + speed[1]) - 1e-9))
    before = first.script.stages[0].chunks[0][1]
    assert second.script.stages[0].chunks == ((0, boundary),)
    assert boundary == before - 1
    size = bits_of_block(world.parameters.costs)
    seconds = moving_s(world, record, 0, 1, 2, size.weights + size.moments)
    (move,) = second.moves
    assert (move.source, move.target, move.first_block, move.end_block) == (1, 2, boundary, before)
    assert (move.part, move.seconds) == ("state", pytest.approx(seconds, rel=1e-9))
    assert second.resume_s == pytest.approx(at + 2.0 + 0.1 + seconds)
    phases = replayed_round(second.script)[1]
    assert second.script.delay_s == pytest.approx(second.resume_s + phases[-1].end_s, abs=1e-9)


def test_losses_of_blocks_start_the_round_again():
    world, record, script, terms = a_round(overrides=ROOMY)
    planner = RecoveryPlanner(record, 0, script.clusters[0], world.parameters, terms)
    assert len(script.clusters[0].stages) == 4
    first = planner.lost(2, 0.5)
    step = replayed_step(first.script)[0] + first.script.update_s
    holds = {stage.devices[0]: set(range(*stage.chunks[0])) for stage in first.script.stages}
    second = planner.lost(3, first.resume_s + 1.5 * step)
    assert first.restored
    assert second.restored
    # Local steps since the first loss are lost, too; moments that were reset once are nowhere.
    assert second.credited == 0
    assert second.script.local_steps == 3
    assert set(second.reset) == set(first.reset) | holds[3]
    assert set(second.reset) > set(first.reset)
    third = planner.lost(1, second.resume_s)
    assert [stage.devices for stage in third.script.stages] == [(4,)]
    assert third.script.hop_forward_s[0] > 0.0
    last = planner.lost(4, third.resume_s + 0.1)
    assert last.dropped
    assert last.script.delay_s >= third.script.delay_s


@pytest.mark.parametrize("part", [0.5, 0.99, 1.01, 2.0])
def test_blocks_under_way_are_lost_with_their_sender(part):
    """Device 4, alone with the last three blocks, sends them to devices 1 and 3 when it is lost."""
    # Without the ceiling, which both hops reach, one is faster.
    world, record, script, terms = a_round(groups=True, overrides={**ROOMY, "radio.rate_ceiling": None})
    planner = RecoveryPlanner(record, 0, script.clusters[0], world.parameters, terms)
    first = planner.lost(2, 0.5)
    moves = sorted(first.moves, key=lambda move: move.seconds)
    assert [(m.source, m.first_block, m.end_block) for m in moves] == [(4, 3, 6)] * 2
    assert moves[1].seconds > 1.02 * moves[0].seconds
    at = first.resume_s - first.move_s + part * moves[0].seconds
    second = planner.lost(4, at)
    if part == 2.0:
        assert second is None  # both have all blocks, and it holds none any more
        return
    # The rest of the first recovery comes before the second one's moves.
    rest = first.resume_s - at
    assert all(move.start_s == pytest.approx(rest, abs=1e-12) for move in second.moves)
    assert second.move_s == pytest.approx(max(m.start_s + m.seconds for m in second.moves), abs=1e-12)
    if part < 1.0:
        assert second.reset == (3, 4, 5)
        assert sorted((m.source, m.target, m.part) for m in second.moves) == [
            (0, 1, "weights"),
            (0, 3, "weights"),
        ]
    else:
        # One of the two has them, and hands them on.
        (move,) = second.moves
        assert (move.source, move.target) == (moves[0].target, moves[1].target)
        assert (move.first_block, move.end_block, move.part) == (3, 6, "state")
        assert second.reset == ()


def test_what_the_cu_waited_for_is_lost_with_its_sender():
    world, record, script, terms = a_round("heavy", groups=True, overrides=ROOMY)
    planner = RecoveryPlanner(record, 0, script.clusters[0], world.parameters, terms)
    first = planner.lost(2, 0.5)
    ups = [move for move in first.moves if move.target == 0]
    (up,) = [move for move in ups if move.source == 4]
    begin = first.resume_s - first.move_s
    second = planner.lost(4, begin + up.start_s + 0.5 * up.seconds)
    assert second.reset == tuple(range(up.first_block, up.end_block))
    again = RecoveryPlanner(record, 0, script.clusters[0], world.parameters, terms)
    again.lost(2, 0.5)
    later = again.lost(4, begin + up.start_s + 1.01 * up.seconds)
    assert later is None  # the CU has them by then, and the device has no blocks of its own
