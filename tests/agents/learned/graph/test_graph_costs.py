"""Costs that the graph net learns from, against the simulator's: one cluster's change with the rest held."""

from dataclasses import replace
from typing import Any

import graph_net_support as support
import numpy as np
import pytest

from collapipe_env.agents.dssra.option_table import option_table, options_with
from collapipe_env.agents.dssra.parallel_rounds import as_record
from collapipe_env.agents.dssra.round_input import round_input
from collapipe_env.agents.learned.graph.graph_costs import compare_counts
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import action_codec, system_parameters
from collapipe_env.simulator.costs import round_costs

SLACK = support.SMALL.with_overrides({"budgets.bandwidth_floor": 0.49})
"""Shares are nearly even whatever the clusters need, so the faster one has time to spare."""
MOVING = load_scenario({"base": "boards", "cluster": {"clusters": 1}})
SCENARIOS = {
    "small": support.SMALL,
    "medium": support.MEDIUM,
    "unequal": support.UNEQUAL,
    "slack": SLACK,
    "moving": MOVING,
}


def compared(scenario, state, plan, samples):
    """The plan with its best shares, worths, costs of samples and costs of numbers of micro-batches."""
    p = system_parameters(scenario)
    record: Any = as_record(p.numbers)
    E, N, S, _ = samples.shape
    share, worth = np.full((E, N), 1.0 / N), np.empty((E, N))
    sample_cost, choice_cost = np.empty((E, N, S)), np.empty((E, N, len(p.micro_batch_choices)))
    option = options_with(option_table(p, 0), plan.micro_batches)
    inputs, power = round_input(p, state, option, exact_drift=True), plan.node_power
    compare_counts(
        inputs, record, plan.blocks, power, option, samples, share, worth, sample_cost, choice_cost
    )  # fmt: skip
    return replace(plan, bandwidth=share), worth, sample_cost, choice_cost


class Held:
    """Costs of changed plans, through the simulator, with the interference of the plan itself."""

    def __init__(self, scenario, state, plan, worth):
        self.p, self.state, self.plan, self.worth = system_parameters(scenario), state, plan, worth
        base = round_costs(self.p, state, plan)
        self.interference, self.deadline = base.interference, base.cluster_delay.max(axis=-1, keepdims=True)
        self.watt = self._price_of_a_watt()

    def parts(self, plan, interference=None):
        """Delays and drifts of the clusters (E, N)."""
        held = self.interference if interference is None else interference
        costs = round_costs(self.p, self.state, plan, interference_w=held)
        z = self.state.backlog
        after = np.maximum(z + costs.energy_ratio - 1.0, 0.0)
        return costs.cluster_delay, 0.5 * (after**2 - np.maximum(z - 1.0, 0.0) ** 2).sum(axis=-1)

    def _price_of_a_watt(self):
        """Price of a watt of each cluster's mean power to the others (E, N), by central differences."""
        noise = self.p.noise_density * self.p.d2d_bandwidth_hz + self.interference
        sides = []
        for side in (-1e-4, 1e-4):
            delay, drift = self.parts(self.plan, self.interference + side * noise)
            sides.append(self.worth * delay + drift)
        slope = (sides[1] - sides[0]) / (2e-4 * noise)
        others = self.state.cross_gain * ~np.eye(self.worth.shape[1], dtype=bool)
        return (others * slope[:, None, :]).sum(axis=-1)

    def cost(self, plan):
        """Costs of the clusters (E, N), each under a change of its own."""
        delay, drift = self.parts(plan)
        active = np.concatenate((np.ones_like(plan.blocks[..., :1]), plan.blocks > 0), axis=-1)
        mean = (plan.node_power * active).sum(axis=-1) / active.sum(axis=-1)
        late = delay - self.deadline
        V, N = self.p.tradeoff_v, self.p.clusters
        spare = V / N * np.maximum(late, 0.0)
        return np.where(self.worth > 0.0, self.worth * late, spare) + drift + self.watt * mean


@pytest.mark.parametrize("name", SCENARIOS)
def test_costs_are_those_of_the_simulator_with_prices_held(name):
    scenario, rng = SCENARIOS[name], np.random.default_rng(4)
    codec, spared = action_codec(scenario), 0
    for seed in range(3):
        state = support.played_state(scenario, 3, seed, mean=[0.3, 2.0, 6.0][seed])
        plan = support.random_plan(codec, state, rng)
        others = [plan, *(support.random_plan(codec, state, rng) for _ in range(4))]
        samples = np.stack([other.blocks for other in others], axis=2)
        plan, worth, sample_cost, choice_cost = compared(scenario, state, plan, samples)
        held = Held(scenario, state, plan, worth)
        np.testing.assert_allclose(worth.sum(axis=-1), scenario.budgets.tradeoff_v, rtol=1e-6)
        for s, other in enumerate(others):
            wanted = held.cost(replace(plan, blocks=other.blocks))
            np.testing.assert_allclose(sample_cost[..., s], wanted, rtol=2e-3, atol=2e-3)
        for c, M in enumerate(held.p.micro_batch_choices):
            wanted = held.cost(replace(plan, micro_batches=np.full_like(plan.micro_batches, M)))
            np.testing.assert_allclose(choice_cost[..., c], wanted, rtol=2e-3, atol=2e-3)
        spared += (worth == 0.0).sum()
    assert spared > 0 or name != "slack"
