"""A price of one's own: one function and one line; the round, the picture and schedulers know it."""

from dataclasses import replace

import numpy as np
import pytest
from process_support import Idle, registered
from state_ways_support import assert_same

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.own_parts import own_parts
from collapipe_env.execution.script_building import round_script
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.rendering.round_view import cluster_round_timeline
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.costs import PRICES, round_costs
from collapipe_env.simulator.round import Terms


class Toll(Idle):
    """Carries nothing that matters; its name switches the price on."""

    name = "toll"


def toll(costs, parameters, state, plan):
    """A gate before the round, a stamp after every local step, and what both cost."""
    seconds = 0.0 * costs.cluster_delay + dict(parameters.processes)["toll"].size
    joules = 0.0 * costs.energy + 0.25
    return Terms(
        {"gate": seconds}, {"stamp": 0.1 * seconds}, energy=joules, memory=8.0, notes={"paid": seconds}
    )


@pytest.fixture
def system(monkeypatch):
    monkeypatch.setattr(PRICES, "_added", {})
    PRICES.register("toll", toll)
    changes = {
        "base": "small",
        "workload": {"local_steps": 3, "head": "common"},
        "budgets": {"device_energy_j": 1e3, "cu_energy_j": 1e3},
    }
    plain = load_scenario({**changes, "name": "free"})
    with registered(Toll):
        yield plain, plain.with_overrides({"name": "tolled", "dynamics.processes": {"toll": {"size": 2.0}}})


def test_a_price_is_one_function_and_one_line(system) -> None:
    plain, priced = system
    env = CollaPipeVectorEnv(2, priced, "surrogate", render_mode="rgb_array")
    env.reset(seed=1)
    plan = DSSRA(priced).allocate(env.state)
    plan = replace(plan, participates=np.ones_like(plan.micro_batches))
    parameters = system_parameters(priced)
    free, costs = (round_costs(system_parameters(s), env.state, plan) for s in (plain, priced))
    pace = (free.local_step + 0.2).max(axis=-1, keepdims=True)
    steps = 3 * (pace - free.local_step)
    expected = free.cluster_delay + 2.0 + steps - 3 * free.barrier
    np.testing.assert_allclose(costs.cluster_delay, expected, rtol=1e-12)
    np.testing.assert_allclose(costs.delay, expected.max(axis=-1) + free.broadcast, rtol=1e-12)
    np.testing.assert_allclose(costs.busy_energy, free.busy_energy + 0.25, rtol=1e-12)
    np.testing.assert_allclose(costs.energy_ratio, costs.energy / env.state.budget, rtol=1e-12)
    np.testing.assert_array_equal(costs.memory, free.memory + 8.0)
    assert (costs.terms.notes["paid"] == 2.0).all()

    env.step_allocation(plan)
    record = env.last_round
    np.testing.assert_array_equal(record.costs.delay, costs.delay)
    drawn = cluster_round_timeline(record, 0, 0)
    lengths = [(p.label, p.end_s - p.start_s) for p in drawn.phases]
    assert lengths[0] == ("gate", 2.0)
    assert [round(s, 9) for label, s in lengths if label == "stamp"] == [0.2] * 3
    assert env.render() is not None
    # DSSRA prices its own plan with it, and an executed round lasts as long.
    assert DSSRA(priced).objective(env.state, plan) is not None
    script = round_script(record, 0, parameters)
    assert script.clusters[0].delay_s == pytest.approx(record.costs.cluster_delay[0, 0], rel=1e-9)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        (2.0, "the price 'toll' returned float: return Terms"),
        (Terms({"gate": -1.0}), r"returned -1.0 in once\['gate'\] at .*: return numbers from 0 to"),
        (Terms({"gate": np.ones(7)}), r"once\['gate'\] as float64 \(7,\): expected numbers \(2, 2\)"),
        (Terms(step={"stamp": float("nan")}), r"return numbers from 0 to 1e\+30 \[s\]"),
        (Terms(energy=float("inf")), r"'energy' at .*: return finite numbers \[J\]"),
        (Terms(memory=-8.0), r"'memory' at .*: return numbers from 0 to 1e\+30 \[byte\]"),
        (Terms(server_j="much"), "'server_j' as str: expected numbers"),
        (Terms({"wait": 1.0}), "a phase named 'wait': name it .* other than relay, step"),
        (Terms({"a\nb": 1.0}), "name it by one line of text"),
        (Terms(once=5), "'once' as int: expected a dictionary"),
    ],
)
def test_terms_of_ones_own_are_checked(system, terms, message) -> None:
    _, priced = system
    env = CollaPipeVectorEnv(2, priced, "surrogate")
    env.reset(seed=1)
    action, before = np.zeros(env.action_space.shape, dtype=np.float32), env.get_state()
    PRICES.register("toll", lambda *_: terms, replace=True)
    with pytest.raises(ScenarioError, match=message):
        env.step(action)
    assert_same(before, env.get_state())


def test_a_price_of_ones_own_counts_as_ones_own(monkeypatch) -> None:
    """Other processes of the machine do not know it, also where it prices a process of the package."""
    monkeypatch.setattr(PRICES, "_added", {})
    hot = load_scenario({"base": "small", "dynamics": {"processes": {"heat": {}}}})
    assert own_parts(hot) == []
    PRICES.register("heat", toll)
    assert own_parts(hot) == ["price 'heat'"]
    assert own_parts(load_scenario("small")) == []
