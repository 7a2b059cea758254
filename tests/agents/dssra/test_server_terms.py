"""Model-based schedulers under terms of the server: what they know of it."""

from dataclasses import replace

import numpy as np
import pytest
import scheduler_support as support

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.physics.allocation import COPIES
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import SCHEDULERS
from collapipe_env.simulator.build import reference_delay, system_parameters
from collapipe_env.simulator.costs import round_costs

# Heads that weigh on a round: a slow server, and rounds of several steps.
SLOW = load_scenario(
    {
        "base": "small",
        "workload": {"task": "language-modelling", "vocabulary": 8000},
        "cluster": {"server_flops": 2e10},
    }
)


@pytest.mark.parametrize("name", ["dssra", "dssra-bound", "asteroid", "pipeedge", "adaptis", "greedy_dpp"])
def test_a_share_that_moves_is_read_as_one_that_stays(name) -> None:
    """Schedulers see .9 of the server gone in the state, and plan as where that is a constant."""
    state = support.loaded_state(SLOW, 3)
    constant = SLOW.with_overrides({"server.tenants": 0.9})
    # Its usual round is longer, so that the same V is another weight.
    longer = reference_delay(constant) / reference_delay(SLOW)
    constant = constant.with_overrides({"budgets.tradeoff": longer * SLOW.budgets.tradeoff})
    moving = replace(state, server_share=np.full(len(state.loss), 1.0 - 0.9))
    expected, found = (
        SCHEDULERS.get(name)(constant).act(None, state),
        SCHEDULERS.get(name)(SLOW).act(None, moving),
    )
    np.testing.assert_array_equal(found.blocks, expected.blocks)
    np.testing.assert_array_equal(found.micro_batches, expected.micro_batches)
    np.testing.assert_allclose(found.bandwidth, expected.bandwidth, rtol=1e-6)
    np.testing.assert_allclose(found.node_power, expected.node_power, rtol=1e-6)
    free = SCHEDULERS.get(name)(SLOW).act(None, state)
    slow = round_costs(system_parameters(SLOW), moving, found).delay
    assert (slow > round_costs(system_parameters(SLOW), state, free).delay).all()


@pytest.mark.parametrize(("drift", "per"), [("exact", "round"), ("bound", "round"), ("exact", "second")])
def test_dssras_objective_counts_the_servers_queue(drift, per) -> None:
    scenario = SLOW.with_overrides({"server.energy_budget_j": 2.0, "budgets.per": per})
    state = support.loaded_state(scenario, 3)
    z = np.array([0.0, 0.7, 4.0])
    state = replace(state, processes={**state.processes, "server": {"backlog": z}})
    scheduler = DSSRA(scenario, drift=drift)
    plan = DSSRA(scenario).allocate(state)
    kept = np.where(plan.blocks.argmax(axis=-1) >= 0, 1, 0)
    blocks = plan.blocks.copy()
    for place in np.ndindex(kept.shape):
        blocks[place][np.flatnonzero(blocks[place])[-1]] -= 1
    plan = replace(plan, blocks=blocks, server_blocks=kept, server_mode=np.full(3, COPIES))
    costs = round_costs(scheduler.parameters, state, plan)
    found = scheduler.objective(state, plan)
    a = costs.allowance
    for e in range(3):
        value = scheduler.tradeoff_v * costs.delay[e]
        pairs = [*zip(state.backlog[e].ravel(), costs.energy_ratio[e].ravel(), strict=True)]
        pairs.append((z[e], float(costs.terms.server_j[e].sum()) / 2.0))
        for queue, ratio in pairs:
            if drift == "bound":
                value += queue * ratio
            else:
                value += 0.5 * (max(queue + ratio - a[e], 0.0) ** 2 - queue**2)
        assert found[e] == pytest.approx(value, rel=1e-9)
