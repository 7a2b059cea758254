"""Systems and groups to train on: valid, within their bounds, the same for a seed, and mortal."""

from collections import Counter
from types import SimpleNamespace

import graph_net_support as support
import numpy as np
import pytest

from collapipe_env.agents.learned.graph import systems
from collapipe_env.agents.learned.graph.graph_parameters import (
    GraphParameters,
    require_scenarios,
    with_new_layouts,
)
from collapipe_env.agents.learned.graph.graph_training import wild_scenarios
from collapipe_env.agents.learned.graph.systems import Group, new_group, random_system
from collapipe_env.agents.learned.hyperparameters import usual
from collapipe_env.feasibility import energy_feasibility
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.kernels.channels import split_links
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.even_split import even_split


@pytest.mark.parametrize("most", [2, 16])
def test_systems_are_valid_and_of_the_sizes_asked_for(most):
    drawn = [random_system(np.random.default_rng([most, seed]), most) for seed in range(12)]
    for scenario in drawn:
        assert 2 <= scenario.clusters <= most
        assert all(3 <= devices <= 16 for devices in scenario.cluster.devices_per_cluster)
        assert 6 <= scenario.workload.blocks <= 48
        assert scenario.cluster.layout == "per_episode"
        budgets = scenario.budgets
        assert budgets.bandwidth_floor * scenario.clusters == pytest.approx(0.08)
        assert 1.5 <= budgets.tradeoff <= 25.0
        assert 0.0 <= budgets.tightness <= 0.7  # between what is needed and what the even split uses
        assert scenario.radio.idle_w in (0.0, 0.1, 0.3)
        assert 15e6 <= scenario.radio.uplink_bandwidth_hz / scenario.clusters <= 40e6
        load_scenario(scenario.to_dict())  # holds all rules of a scenario file
    assert len({scenario.clusters for scenario in drawn}) >= min(most - 1, 5)
    assert len({scenario.workload.blocks for scenario in drawn}) > 5


@pytest.mark.slow
def test_systems_differ_in_what_moves_is_repeated_and_is_sent_on():
    """Each of them in more than one draw of 250; the physics they are for can be played."""
    drawn = [random_system(np.random.default_rng([9, seed]), 4) for seed in range(250)]
    moving = [dict(s.dynamics.processes)["migration"] for s in drawn if s.dynamics.processes]
    seen = Counter(spec.route for spec in moving)
    seen.update(spec.moment_bits for spec in moving)
    seen.update(s.radio.link_errors for s in drawn)
    seen.update(s.workload.distribution for s in drawn)
    assert all(spec.moments == "move" for spec in moving)
    assert 1 < len(moving) < 150
    assert all(seen[kind] > 1 for kind in ("direct", "cu", 16, 32, "drop", "arq", "relay"))
    odd = [s for s in drawn if s.dynamics.processes and s.radio.link_errors == "arq"]
    odd = [s for s in odd if s.workload.distribution != "cu"]
    for scenario in odd[:2]:
        group = Group(scenario, 2, 10, seed=0)
        assert group.decider.moves(group.known)
        group.env.step_allocation(even_split(group.parameters, group.env.state))
        assert np.isfinite(group.env.last_round.costs.delay).all()
    assert odd


def test_systems_like_the_tier_wild_differ_from_it_in_size_density_and_budgets():
    drawn = [random_system(np.random.default_rng([3, seed]), 20, "wild") for seed in range(8)]
    wild = load_scenario("large-wild")
    for scenario in drawn:
        assert 3 <= scenario.clusters <= 20
        assert all(4 <= devices <= 16 for devices in scenario.cluster.devices_per_cluster)
        assert 8 <= scenario.workload.blocks <= 16
        assert scenario.dynamics == wild.dynamics
        assert scenario.budgets.tradeoff == wild.budgets.tradeoff
        for name in ("uplink_bandwidth_hz", "bs_power_w"):
            each = getattr(scenario.radio, name) / scenario.clusters
            assert each == pytest.approx(getattr(wild.radio, name) / wild.clusters)
        load_scenario(scenario.to_dict())
    assert len({scenario.clusters for scenario in drawn}) > 4
    assert [s.clusters for s in wild_scenarios()] == [16, 48]


def test_no_valid_draw_is_an_error(monkeypatch):
    def refuse(_, __):
        raise ScenarioError("too little memory")

    monkeypatch.setattr(systems, "_ladder_system", refuse)
    with pytest.raises(ScenarioError, match="no valid system in 50 draws with at most 3 clusters"):
        random_system(np.random.default_rng(0), 3)


def of(scenarios, random, **changes):
    """Systems to train on."""
    sizes = {"most_clusters": 2, "clusters": 4} | changes
    return usual(GraphParameters, scenarios=scenarios, random_groups=random, **sizes)


@pytest.mark.slow
def test_places_hold_scenarios_as_they_are_then_with_new_layouts_then_random_systems():
    p = of(("small", "boards", "small"), 1, clusters=8, most_clusters=4, longest_backlog=40.0)
    assert p.groups == 7
    assert of((), 3).groups == 3
    for place in range(7):
        group, again = (new_group(p, place, np.random.default_rng([1, place])) for _ in range(2))
        np.testing.assert_array_equal(group.env.state.d2d_gain, again.env.state.d2d_gain)
        assert group.life == again.life
        assert group.longest_backlog == 40.0
        assert 60 <= group.life < (400 if place < 3 else 240)
        assert group.env.num_envs == max(1, 8 // group.scenario.clusters)
        assert group.scenario.cluster.layout == ("fixed" if place < 3 else "per_episode")
        if place < 6:
            assert group.scenario.name == ("small", "boards", "small")[place % 3]
            assert group.decider.moves(group.known) == (place % 3 == 1)
        else:
            assert group.scenario.name.startswith("random-")


def test_budgets_of_new_layouts_can_be_met_and_a_tier_that_has_new_ones_keeps_its_own():
    small, wild = load_scenario("small"), load_scenario("small-wild")
    assert not energy_feasibility(small.with_overrides({"cluster.layout": "per_episode"})).feasible
    assert energy_feasibility(with_new_layouts(small)).feasible
    assert with_new_layouts(wild) is wild


def test_a_fixed_layout_is_the_scenarios_and_others_are_new():
    p = of(("small",), 0)
    memories = [
        [new_group(p, place, np.random.default_rng(seed)).env.state.memory_cap for seed in (1, 2)]
        for place in range(2)
    ]
    np.testing.assert_array_equal(*memories[0])
    assert (memories[1][0] != memories[1][1]).any()


def test_a_scenario_that_new_layouts_do_not_suit_is_an_error(tmp_path):
    """Its own layout has room for the encoder, the worst draw has not."""
    memories = {"devices.profiles.0.memory_bytes": [130e6, 2e9], "cluster.layout_seed": 0}
    tight = tmp_path / "tight.yaml"
    tight.write_text(load_scenario("small").with_overrides(memories).to_yaml())
    p = of((str(tight),), 0)
    with pytest.raises(ScenarioError, match=r"--graph\.scenarios: .*worst draw of the layout"):
        require_scenarios(p, "--graph.")
    assert new_group(p, 0, np.random.default_rng(0)).scenario.name == "small"
    with pytest.raises(ScenarioError, match="worst draw of the layout"):
        new_group(p, 1, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("age", "queues", "ended"),
    [
        (2, [0.0, 0.0], False),
        (3, [0.0, 0.0], True),
        (0, [160.0, 0.0, 0.0, 0.0], False),
        (0, [160.0, 0.1, 0.0, 0.0], True),
    ],
)
def test_a_group_ends_with_its_life_or_when_the_mean_of_its_longest_queues_runs_away(age, queues, ended):
    group = Group(support.SMALL, 2, 3, seed=0, longest_backlog=40.0)
    assert not group.ended
    backlog = np.zeros((len(queues), 2, 4))
    backlog[:, 1, 2] = queues  # of each environment
    group.age, group.env = age, SimpleNamespace(state=SimpleNamespace(backlog=backlog))
    assert group.ended == ended


@pytest.mark.parametrize(
    "name", ["small", "small-migration", "small-churn", "small-stale", "small-trace-like"]
)
def test_gains_are_exact_where_the_known_ones_are_those_of_the_round(name):
    group = Group(load_scenario(name), 2, life=10, seed=3)
    known, truth = group.known, group.truth
    same = [np.array_equal(getattr(known, of), getattr(truth, of)) for of in ("uplink_gain", "d2d_gain")]
    assert group.exact == all(same)


def test_possible_truths_differ_from_the_truth_in_fading_of_the_right_spread_alone():
    scenario = support.LATE.with_overrides({"radio.diversity": 4})
    group, draws = Group(scenario, 2, life=10, seed=3), 4000
    truths, truth = group.possible_truths(draws, np.random.default_rng(1)), group.env.truth
    np.testing.assert_array_equal(truths.speed, truth.speed[np.repeat([0, 1], draws)])
    path, _ = split_links(np.asarray(group.env.path_gains), None, (scenario.clusters, scenario.max_devices))
    ratio = truths.uplink_gain.reshape(2, draws, -1) / path[:, None]
    np.testing.assert_allclose(ratio.mean(axis=1), 1.0, atol=5.0 * 0.5 / np.sqrt(draws))
    np.testing.assert_allclose(ratio.var(axis=1), 1.0 / 4.0, rtol=0.15)
    np.testing.assert_array_equal(truths.d2d_gain, truths.d2d_gain.swapaxes(-1, -2))


@pytest.mark.parametrize(
    "changes",
    [{"dynamics.processes.channel_knowledge": {"modes": ["noisy"]}}, {"radio.fading_correlation": 0.9}],
)
def test_fading_of_which_something_is_known_is_not_drawn_anew(changes):
    group = Group(support.LATE.with_overrides(changes), 2, life=10, seed=3)
    np.testing.assert_array_equal(
        group.possible_truths(8, np.random.default_rng(1)).d2d_gain, group.truth.d2d_gain
    )


def test_failures_come_with_their_estimated_probabilities_and_costs_of_replayed_rounds():
    scenario = load_scenario("medium-churn")
    group, draws = Group(scenario, 3, life=20, seed=4), 3000
    net = support.scheduler(scenario, 1)
    for _ in range(3):
        plan = net.allocate(group.known)
        group.play(plan)
    plan, state, rng = net.allocate(group.known), group.known, np.random.default_rng(2)
    found = group.possible_failures(plan, draws, rng).reshape(3, draws, *state.present.shape[1:])
    risk = np.where(state.present, state.processes["presence"]["risk"], 0.0)
    assert risk.max() > 0.03
    struck = found > 0.0
    costly = struck.sum() / (risk.sum() * draws)  # some failures come too late to matter
    assert 0.2 < costly <= 1.01
    np.testing.assert_allclose(struck.mean(axis=1), risk * costly, atol=5.0 * 0.5 / np.sqrt(draws))
    assert not struck.any(axis=1)[~state.present].any()
    # A cluster that loses a device loses at most the round and a slower repetition of it.
    assert 0.2 < np.median(found[struck]) < 1.5
