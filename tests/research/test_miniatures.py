"""The miniatures' solver against enumeration and linear programmes; their rounds against the environment."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse import csr_array

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.simulator.costs import round_costs
from research.miniatures.average_cost import Decisions, action_values, solve
from research.miniatures.cases import Miniature, miniatures
from research.miniatures.deciding import Best, Fixed, Scalars
from research.miniatures.grid import Grid, model_of, solve_model
from research.miniatures.playing import mean_delays
from research.miniatures.system import SmallSystem, splits

CASES = {mini.name: mini for mini in miniatures()}


def random_decisions(seed: int, states: int, actions: int) -> Decisions:
    rng = np.random.default_rng(seed)
    chances = rng.exponential(size=(states * actions, states)) + 0.01  # all communicate
    chances /= chances.sum(axis=1, keepdims=True)
    return Decisions(rng.uniform(1.0, 5.0, (states, actions)), csr_array(chances))


def linear_programme(decisions: Decisions) -> float:
    """Least average cost over all flows of states and actions that balance."""
    states, actions = decisions.cost.shape
    leaving = np.repeat(np.eye(states), actions, axis=1)
    balance = leaving - decisions.successors.toarray().T
    equal = np.vstack((balance, np.ones(states * actions)))
    found = linprog(decisions.cost.ravel(), A_eq=equal, b_eq=[*np.zeros(states), 1.0])
    return float(found.fun)


def smaller(mini: Miniature, blocks: int) -> Miniature:
    overrides = {"workload.blocks": blocks, "workload.micro_batches": [4, 8]}
    return replace(mini, scenario=mini.scenario.with_overrides(overrides))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 4), st.integers(2, 3))
def test_the_least_mean_is_that_of_the_best_policy(seed, states, actions):
    decisions = random_decisions(seed, states, actions)
    means = []
    for policy in itertools.product(range(actions), repeat=states):
        rows = np.arange(states) * actions + np.asarray(policy)
        chain = decisions.successors.toarray()[rows]
        law = np.linalg.lstsq(
            np.vstack((chain.T - np.eye(states), np.ones(states))), [*np.zeros(states), 1.0], rcond=None
        )[0]
        means.append(law @ decisions.cost[np.arange(states), policy])
    found = solve(decisions, 1e-6)
    assert found.low <= min(means) * (1 + 1e-9)
    assert found.high >= min(means) * (1 - 1e-9)
    assert found.mean == pytest.approx(min(means), rel=1e-6)
    # The optimality equation, which its values satisfy.
    gained = action_values(decisions, found.value).min(axis=1) - found.value
    np.testing.assert_allclose(gained, found.mean, rtol=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 5))
def test_the_least_mean_of_a_deterministic_process_is_its_cheapest_cycle(seed, states):
    """Every chain is periodic here: undamped, the values would never settle."""
    rng = np.random.default_rng(seed)
    cost = rng.uniform(1.0, 5.0, (states, states))  # action a goes to state a
    following = np.tile(np.eye(states), (states, 1))
    np.fill_diagonal(cost, 9.0)  # staying is never worth it, so that cycles are
    cycles = (
        np.mean([cost[a, b] for a, b in zip(cycle, (*cycle[1:], cycle[0]), strict=True)])
        for length in range(1, states + 1)
        for cycle in itertools.permutations(range(states), length)
    )
    assert solve(Decisions(cost, csr_array(following)), 1e-6).mean == pytest.approx(min(cycles), rel=1e-5)


def test_states_that_never_meet_have_no_one_mean():
    decisions = Decisions(np.array([[1.0], [2.0]]), csr_array(np.eye(2)))
    with pytest.raises(RuntimeError, match=r"\[1, 2\]"):
        solve(decisions, most_sweeps=50)


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_all_splits_are_there_once(devices):
    found = splits(5, np.full(devices, 9))
    assert len(found) == len(np.unique(found, axis=0)) == math.comb(5 + devices - 1, devices - 1)
    assert (found.sum(axis=1) == 5).all()
    assert (splits(5, np.full(devices, 4)) <= 4).all()


def test_the_law_of_the_load_is_that_of_the_scenario():
    law = SmallSystem(CASES["boards-2-short"].scenario).loads
    np.testing.assert_allclose(law, [[0.8, 0.2, 0.0], [0.1, 0.8, 0.1], [0.0, 0.2, 0.8]], atol=1e-12)


@pytest.mark.parametrize("name", ["boards-2-5mhz", "boards-3-5mhz"])
def test_the_optimum_with_moves_is_that_of_the_linear_programme(name):
    model = model_of(Grid.of(SmallSystem(smaller(CASES[name], 3).scenario)))
    assert (model.moving > 0.0).any()
    assert solve_model(model, 1e-6).mean == pytest.approx(linear_programme(model.decisions), rel=1e-6)


def environment(mini: Miniature, rows: int) -> CollaPipeVectorEnv:
    env = CollaPipeVectorEnv(rows, mini.scenario, IdleLearner(rows), autoreset_mode="Disabled")
    env.reset(seed=0)
    return env


@pytest.mark.parametrize("name", ["boards-3-5mhz", "phones-1.6-pause", "phones-1.1-1.9-ipa", "phones-8-move"])
def test_rounds_and_states_are_those_of_the_environment(name):
    """Random plans are played in the environment, and their ends looked up among the miniature's rounds."""
    mini, rows, rng = CASES[name], 6, np.random.default_rng(1)
    if "pause" in mini.title or "the same" in mini.title:  # random plans hardly warm a phone to 43 C
        cooler = {"dynamics.processes.heat.set_c": 34.0, "dynamics.processes.heat.hysteresis_k": 2.0}
        mini = replace(mini, scenario=mini.scenario.with_overrides(cooler))
    system, env = SmallSystem(mini.scenario), environment(mini, rows)
    model = model_of(Grid.of(system, 8))
    reads = Best(model, np.zeros(model.grid.states))
    seen, levels = 0.0, 0
    for _ in range(25):
        state = env.state
        at, started = reads.coordinates(state)
        rounds, action = system.rounds_from(state), rng.integers(len(system.split_of), size=rows)
        each = np.arange(rows)
        plan = system.plan(system.split_of[action], rounds.micro_batches[each, action])
        env.step_allocation(plan)
        costs = env.last_round.costs
        np.testing.assert_allclose(costs.delay, rounds.delay[each, action], rtol=1e-12)
        if "migration" in costs.terms.once:
            np.testing.assert_allclose(
                costs.terms.once["migration"][:, 0], rounds.moving[each, action], rtol=1e-12
            )
            seen += costs.terms.once["migration"].sum()
        if system.heat is not None:
            heat = env.state.processes["heat"]
            np.testing.assert_allclose(
                heat["temperature"][:, 0], rounds.temperature[each, action], rtol=1e-12
            )
            if system.levels > 1:
                before = state.processes["heat"]
                after = system.levels_after(
                    before["level"][:, 0], heat["temperature"][:, 0], costs.delay, before["remainder"][0]
                )
                np.testing.assert_array_equal(heat["level"][:, 0], after)
                levels += after.sum()
        # The same state by its coordinates, but for gains of links, which fade a little in the environment.
        mine = system.state(at)
        np.testing.assert_allclose(mine.speed, state.speed, rtol=1e-9)
        np.testing.assert_allclose(mine.compute_power, state.compute_power, rtol=1e-9)
        free = round_costs(system.parameters, mine, plan).delay
        np.testing.assert_allclose(np.where(started, free, costs.delay), costs.delay, rtol=0.02)
    assert (seen > 0.0) == system.remembers
    assert (levels > 0) == (system.levels > 1)


@pytest.mark.parametrize("name", ["phones-1.8-pause", "phones-1.1-1.9-step", "phones-8-move"])
def test_the_table_of_rounds_is_that_of_each_state(name):
    grid = Grid.of(SmallSystem(CASES[name].scenario), 8)
    model, actions = model_of(grid), len(grid.system.split_of)
    states = np.random.default_rng(0).choice(grid.states, 40, replace=False)
    at = grid.coordinates(states)
    rounds = grid.system.rounds(at)
    np.testing.assert_allclose(model.decisions.cost[states], rounds.delay, rtol=1e-12)
    np.testing.assert_allclose(model.moving[states], rounds.moving, rtol=1e-12)
    rows = (states[:, None] * actions + np.arange(actions)).ravel()
    chances = model.decisions.successors[rows]
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=1e-12)
    # Linear interpolation keeps the mean temperature, within the grid.
    ends = grid.coordinates(np.arange(grid.states)).temperature
    within = np.clip(rounds.temperature.reshape(-1, 2), grid.temperatures[0], grid.temperatures[-1])
    np.testing.assert_allclose(chances @ ends, within, rtol=1e-9)


def test_what_moves_a_miniature_is_checked():
    with pytest.raises(ValueError, match="one cluster"):
        SmallSystem(CASES["boards-2-5mhz"].scenario.with_overrides({"cluster.clusters": 2}))
    walking = CASES["boards-2-5mhz"].scenario.with_overrides({"dynamics.processes.mobility": {}})
    with pytest.raises(ValueError, match="mobility"):
        SmallSystem(walking)


def test_one_scalar_at_its_neutral_value_is_one_step_dssra():
    """Where a hop is at its ceiling, the best plan may have fewer micro-batches and other segments."""
    mini = CASES["boards-3-5mhz"]
    system, env = SmallSystem(mini.scenario), environment(mini, 12)
    model, dssra = model_of(Grid.of(system)), DSSRA(mini.scenario)
    here, blind = (Scalars(model, [w] * 12, [0.0] * 12, [0.0] * 12) for w in (1.0, 0.0))
    dearer, gaps = 0.0, []
    for _ in range(25):
        state = env.state
        theirs, ours, free = (
            round_costs(system.parameters, state, s.allocate(state)).delay for s in (dssra, here, blind)
        )
        gaps.append(theirs / ours - 1.0)
        dearer += (free - ours).sum()
        env.step_allocation(here.allocate(state))
    assert np.min(gaps) > -1e-3
    assert np.max(gaps) < 1e-3
    assert dearer > 1.0  # who does not see the price of moving pays more in the round at hand


@pytest.mark.slow
def test_the_optimum_of_hot_devices_beats_every_alternation_of_two_plans():
    """Exhaustive: each pair of actions taken in turn, in the environment, against the best schedule there."""
    mini = smaller(CASES["phones-1.1-1.9-pause"], 6)
    mini = replace(mini, scenario=mini.scenario.with_overrides({"workload.local_steps": 8}))
    model = model_of(Grid.of(SmallSystem(mini.scenario), 32))
    actions = len(model.grid.system.split_of)
    solution = solve_model(model)

    class InTurn(Fixed):
        """Two actions in turn."""

        def allocate(self, state):
            self.action = pairs[:, int(state.round_index[0]) % 2]
            return super().allocate(state)

    pairs = np.array(list(itertools.combinations_with_replacement(range(actions), 2)))
    turns = mean_delays(mini.scenario, InTurn(model, pairs[:, 0]), len(pairs), 1, 150, 50)[:, 0]
    best = mean_delays(mini.scenario, Best(model, solution.value), 1, 2, 150, 50).mean()
    assert best <= turns.min() * 1.003
    assert best == pytest.approx(solution.mean, rel=0.02)
    assert turns[pairs[:, 0] == pairs[:, 1]].min() > best * 1.01  # no fixed plan does


@pytest.mark.slow
def test_the_optimum_keeps_hot_devices_out_of_the_pause_by_its_micro_batches():
    mini = CASES["phones-1.6-pause"]
    model = model_of(Grid.of(SmallSystem(mini.scenario), 64))
    slowed, numbers = {}, {}
    for scheduler in (Best(model, solve_model(model).value), DSSRA(mini.scenario)):
        env = environment(mini, 1)
        capped, used = [], set()
        for index in range(160):
            plan = scheduler.act(None, env.state)
            env.step_allocation(plan)
            if index >= 60:
                capped.append((env.state.processes["heat"]["share"] < 1.0).any())
                used.add(int(plan.micro_batches[0, 0]))
        slowed[scheduler.name], numbers[scheduler.name] = np.mean(capped), used
    assert slowed["optimum"] == 0.0
    assert slowed["DSSRA"] > 0.05
    assert numbers == {"optimum": {8, 16}, "DSSRA": {16}}
