"""Other tenants of the server, and the queue of its energy: laws, environments, saved states."""

import numpy as np
import pytest

from collapipe_env.dynamics.tenants import Tenants, TenantsSpec
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.physics.allocation import COPIES, Allocation
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.even_split import equal_resources
from collapipe_env.simulator.process_registry import active_processes

CONTENDED = load_scenario({"base": "small", "server": {"terms": "contended"}, "dynamics": {"rounds": 50}})


def split_plan(env, kept=3):
    """Every cluster's first device that can hold them trains the first blocks, the server the last ones."""
    cap, L = env.state.memory_cap, env.scenario.blocks
    own = np.arange(cap.shape[-1]) == np.argmax(cap, axis=-1)[..., None]
    E, N, _ = own.shape
    return Allocation(
        blocks=np.where(own, L - kept, 0),
        micro_batches=np.full((E, N), 4),
        **equal_resources(system_parameters(env.scenario), own.shape),
        server_blocks=np.full((E, N), kept),
        server_mode=np.full(E, COPIES),
    )


@pytest.mark.parametrize("levels", [(0.3,), (0.0, 0.5), (0.1, 0.2, 0.4, 0.95)])
def test_any_levels_are_a_chain_in_its_stationary_law(levels):
    """Against the transition matrix, written down entry by entry."""
    process = Tenants(CONTENDED, TenantsSpec(levels=levels, stay_probability=0.7))
    n = len(levels)
    matrix = np.eye(n) if n == 1 else 0.7 * np.eye(n)
    for i in range(n if n > 1 else 0):
        near = [j for j in (i - 1, i + 1) if 0 <= j < n]
        for j in near:
            matrix[i, j] += 0.3 / len(near)
    draws = np.linspace(0.0, 1.0, 20_001)[:-1, None] + 1e-9

    class System:
        speed = np.ones((len(draws), 1, 1))

    law = np.bincount(process.begin(System, draws)["level"], minlength=n) / len(draws)
    np.testing.assert_allclose(law @ matrix, law, atol=2e-4)
    for i in range(n):
        start = {"level": np.full(len(draws), i), "share": np.full(len(draws), levels[i])}
        after = process.advance(start, None, None, draws, None)
        np.testing.assert_array_equal(after["share"], np.array(levels)[after["level"]])
        found = np.bincount(after["level"], minlength=n) / len(draws)
        np.testing.assert_allclose(found, matrix[i], atol=2e-4)


def test_the_share_is_observed_and_divides_the_servers_times():
    env = CollaPipeVectorEnv(64, CONTENDED, "surrogate")
    observation, _ = env.reset(seed=2)
    share = env.state.processes["tenants"]["share"]
    assert set(share) == {0.2, 0.6, 0.9}
    np.testing.assert_allclose(env.state.server_share, 1.0 - share, rtol=1e-15)
    seen = env.observation_layout.physical(observation)
    np.testing.assert_allclose(seen["tenants_share"], share, rtol=1e-6)
    env.step_allocation(split_plan(env))
    costs = env.last_round.costs
    launch = env.scenario.overheads.server_s
    seconds = (costs.elements.server_forward - launch) * (1.0 - share)[:, None]
    np.testing.assert_allclose(seconds, np.broadcast_to(seconds[0, 0], seconds.shape), rtol=1e-12)


def test_the_queue_is_the_sum_of_what_was_spent_over_the_budget():
    # Every device has room for all blocks.
    roomy = {"devices.profiles.0.memory_bytes": [1e9]}
    scenario = CONTENDED.with_overrides({"server.energy_budget_j": 1.0, **roomy})
    env = CollaPipeVectorEnv(3, scenario, "surrogate")
    env.reset(seed=5)
    queue = np.zeros(3)
    rng = np.random.default_rng(0)
    c = system_parameters(scenario).costs
    for kept in rng.integers(0, 4, 12):
        observation, _, _, _, info = env.step_allocation(split_plan(env, int(kept)))
        joules = 2 * kept * 3 * c.local_steps * c.batch_size * c.block_forward_flops * 35e-12 * 1.4
        queue = np.maximum(queue + joules / 1.0 - 1.0, 0.0)
        np.testing.assert_allclose(env.state.server_backlog, queue, rtol=1e-12)
        np.testing.assert_allclose(env.last_round.server_backlog, queue, rtol=1e-12)
        held = queue + env.last_round.backlog.sum(axis=(-2, -1))
        np.testing.assert_allclose(info["backlog"], held, rtol=1e-12)
        over = np.maximum(env.last_round.costs.energy_ratio - 1.0, 0.0).sum(axis=(-2, -1))
        np.testing.assert_allclose(info["cost"], over + max(joules / 1.0 - 1.0, 0.0), rtol=1e-12)
        seen = env.observation_layout.physical(observation)["server_backlog"]
        np.testing.assert_allclose(seen, np.minimum(queue, scenario.budgets.backlog_cap), rtol=1e-5)
    assert (queue > 0.0).all()


def test_per_second_the_round_grants_what_it_lasts():
    scenario = CONTENDED.with_overrides({"server.energy_budget_j": 1.0, "budgets.per": "second"})
    env = CollaPipeVectorEnv(2, scenario, "surrogate")
    env.reset(seed=5)
    period = system_parameters(scenario).budget_period_s
    queue = np.zeros(2)
    for _ in range(5):
        env.step_allocation(split_plan(env))
        costs = env.last_round.costs
        spent, granted = costs.terms.server_j.sum(axis=-1) / 1.0, costs.delay / period
        queue = np.maximum(queue + spent - granted, 0.0)
        np.testing.assert_allclose(env.state.server_backlog, queue, rtol=1e-12)


def test_summaries_count_the_server():
    env = CollaPipeVectorEnv(2, CONTENDED, "surrogate", autoreset_mode="Disabled")
    env.reset(seed=8)
    nodes = 0.0
    for _ in range(6):
        env.step_allocation(split_plan(env))
        nodes = nodes + env.last_round.costs.energy_ratio[0] / 6.0
    summary, used = env.summary(0), env.last_round.costs.server_ratio
    # Every round was the same plan.
    assert summary["energy_ratio_max"] == pytest.approx(max(nodes.max(), float(used[0])), rel=1e-12)
    held = env.state.server_backlog[0] + env.state.backlog[0].sum()
    assert summary["final_backlog"] == pytest.approx(held, rel=1e-12)


def test_what_names_or_gives_no_tenants():
    def on(terms, **processes):
        scenario = load_scenario({"base": "small", "server": terms, "dynamics": {"processes": processes}})
        return [p.name for p in active_processes(scenario) if p.name in ("tenants", "server")]

    assert on({}) == []
    assert on({"terms": "metered"}) == ["server"]
    assert on({"terms": "contended"}) == ["tenants", "server"]
    assert on({"terms": "contended", "tenants": 0.575}) == ["server"]
    assert on({"energy_budget_j": 5.0}) == ["server"]
    assert on({}, tenants={}) == ["tenants"]
    with pytest.raises(ScenarioError, match=r"server\.tenants = 0\.5 is a constant share"):
        on({"tenants": 0.5}, tenants={})


@pytest.mark.parametrize("terms", ["free", "contended"])
def test_the_graph_shows_the_server_only_where_its_terms_move(terms):
    scenario = CONTENDED.with_overrides({"server.terms": terms, "server.energy_budget_j": None})
    env = CollaPipeVectorEnv(2, scenario, "surrogate", observation="graph")
    observation, _ = env.reset(seed=2)
    layout = env.observation_layout
    assert ("server" in observation) == ("server" in layout) == (terms == "contended")
    if terms == "contended":
        seen = layout.physical(observation)["server"]
        np.testing.assert_allclose(seen["tenants"], 1.0 - env.state.server_share, rtol=1e-6)
        assert (seen["backlog"] == 0.0).all()
        server = layout.physical(observation)["cu"]["server_s"]
        c = system_parameters(scenario)
        free = 3.0 * c.costs.local_steps * c.costs.batch_size * c.costs.decoder_forward_flops * c.clusters
        expected = free / scenario.cluster.server_flops / env.state.server_share
        np.testing.assert_allclose(server, expected[:, None] + 0.0 * server, rtol=1e-3, atol=1e-9)
