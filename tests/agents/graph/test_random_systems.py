"""Random systems and groups to train on: valid, within their bounds, the same for a seed, and mortal."""

from types import SimpleNamespace

import numpy as np
import pytest

from collapipe_env.agents.learned.graph import random_systems
from collapipe_env.agents.learned.graph.random_systems import random_system
from collapipe_env.agents.learned.graph.training_groups import LONGEST_BACKLOG, Curriculum, Group
from collapipe_env.errors import ScenarioError
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.even_split import even_split


@pytest.mark.parametrize("most", [2, 5, 16])
def test_systems_are_valid_and_of_the_sizes_asked_for(most):
    drawn = [random_system(np.random.default_rng([most, seed]), most) for seed in range(25)]
    for scenario in drawn:
        assert 2 <= scenario.clusters <= most
        assert all(3 <= devices <= 16 for devices in scenario.cluster.devices_per_cluster)
        assert 6 <= scenario.workload.blocks <= 16
        assert scenario.cluster.layout == "per_episode"
        budgets = scenario.budgets
        assert budgets.bandwidth_floor * scenario.clusters == pytest.approx(0.08)
        assert 0.08 <= budgets.tradeoff_v * scenario.workload.local_steps <= 3.0
        assert 3e6 <= scenario.radio.uplink_bandwidth_hz / scenario.clusters <= 8e6
        load_scenario(scenario.to_dict())  # holds all rules of a scenario file
    assert len({scenario.clusters for scenario in drawn}) >= min(most - 1, 5)
    assert len({scenario.workload.blocks for scenario in drawn}) > 5
    assert {bool(scenario.dynamics.processes) for scenario in drawn} == {False, True}  # of boards: migration


def test_the_seed_decides_the_system():
    first, second, other = (random_system(np.random.default_rng(seed)) for seed in (4, 4, 5))
    assert first == second
    assert first != other


def test_no_valid_draw_is_an_error(monkeypatch):
    def refuse(_, __):
        raise ScenarioError("too little memory")

    for family in ("_wide", "_like_the_ladder"):
        monkeypatch.setattr(random_systems, family, refuse)
    with pytest.raises(ScenarioError, match="no valid system in 50 draws with at most 3 clusters"):
        random_system(np.random.default_rng(0), 3)


def test_places_of_the_curriculum_hold_shipped_scenarios_and_random_systems():
    curriculum = Curriculum(random=2, most_clusters=4, clusters=8, longest_life=90)
    assert len(curriculum) == 6
    for place in range(6):
        group = curriculum.group(place, np.random.default_rng([1, place]))
        again = curriculum.group(place, np.random.default_rng([1, place]))
        np.testing.assert_array_equal(group.env.state.d2d_gain, again.env.state.d2d_gain)
        assert group.life == again.life
        assert 60 <= group.life < (90 if place < 2 else 160)
        assert group.env.num_envs == max(1, 8 // group.scenario.clusters)
        name = ("small", "medium", "small", "medium")[place] if place < 4 else None
        assert group.scenario.cluster.layout == ("fixed" if place < 2 else "per_episode")
        if name:
            assert group.scenario.clusters == load_scenario(name).clusters
        else:
            assert group.scenario.name.startswith("random-")


def test_a_fixed_layout_is_the_scenarios_and_others_are_new():
    curriculum = Curriculum(random=2, clusters=8)

    def memories(place, seed):
        return curriculum.group(place, np.random.default_rng(seed)).env.state.memory_cap

    np.testing.assert_array_equal(memories(0, 1), memories(0, 2))
    assert (memories(2, 1) != memories(2, 2)).any()


def test_a_group_ends_with_its_life():
    group = Group(load_scenario("small"), 2, 3, seed=0)
    assert not group.ended
    group.age = 2
    assert not group.ended
    group.age = 3
    assert group.ended


def test_a_group_whose_queues_run_away_ends():
    starved = load_scenario("small").with_overrides({"budgets.device_energy_j": 1.0})
    group = Group(starved, 2, 1000, seed=0)
    assert not group.ended
    rounds = 0
    while not group.ended:
        before = group.env.state.backlog.max(axis=(-2, -1)).mean()
        assert before <= LONGEST_BACKLOG
        group.env.step_allocation(even_split(group.parameters, group.env.state))
        rounds += 1
    assert 1 <= rounds < 50
    assert group.env.state.backlog.max(axis=(-2, -1)).mean() > LONGEST_BACKLOG


def test_one_environment_with_a_long_queue_does_not_end_a_group():
    group = Group(load_scenario("small"), 2, 10, seed=0)
    backlog = np.zeros((4, 2, 4))
    backlog[0, 1, 2] = 4 * LONGEST_BACKLOG  # the mean of the four is not above the limit
    group.env = SimpleNamespace(state=SimpleNamespace(backlog=backlog))
    assert not group.ended
    backlog[1, 0, 0] = 0.1
    assert group.ended
