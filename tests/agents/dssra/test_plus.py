"""DSSRA+: DSSRA with neutral scalars, and what each scalar changes."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import scheduler_support as support
from oracles.splits import splits
from record_support import leaves

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.agents.dssra.gain_memory import ShrunkGains
from collapipe_env.agents.dssra.plus import DSSRAPlus
from collapipe_env.agents.link_filter import fading_deviation_db, usual_drifts_db
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.costs import round_costs

HEAT = {"governor": "pause", "capacity_j_per_k": 8.0, "set_c": 32.0, "critical_c": 36.0}
SLOW = load_scenario(
    {
        "base": "boards",
        "name": "slow moves",
        "cluster": {"clusters": 1, "devices": 2},
        "workload": {"blocks": 8, "batch_size": 64},
        "budgets": {"device_energy_j": 1e4, "cu_energy_j": 1e4},
        "dynamics": {"rounds": 100, "load_levels": [0.3, 1.0], "load_stay_probability": 0.97},
    }
)
"""One cluster of two devices that change between two speeds and stay there for 33 rounds on average."""
WARM = load_scenario(
    {
        "base": "small",
        "name": "warm",
        "budgets": {"device_energy_j": 1e3, "cu_energy_j": 1e2},
        "dynamics": {"processes": {"heat": HEAT}},
    }
)
BOTH = load_scenario(
    {
        "base": "small",
        "name": "both",
        "dynamics": {"load_levels": [0.5, 1.0], "processes": {"heat": HEAT, "migration": {}}},
    }
)
PER_SECOND = WARM.with_overrides(
    {"name": "per second", "budgets": {"per": "second", "device_energy_j": 12.0, "cu_energy_j": 1.0}}
)


def playing(scenario, rows=4, seed=0):
    env = CollaPipeVectorEnv(rows, scenario, "surrogate", autoreset_mode="Disabled")
    env.reset(seed=seed)
    return env


CHURN = load_scenario({"base": "small", "name": "churn", "dynamics": {"processes": {"presence": {}}}})


@pytest.mark.parametrize(
    ("scenario", "scalars"),
    [
        *((scenario, {}) for scenario in (BOTH, PER_SECOND, support.MOVING, support.ARQ)),
        (CHURN, {"failure_price": 0.0}),
        (support.SMALL, {"migration_weight": 0.1, "heat_price": 5.0, "heat_start": 0.1}),
        (support.SMALL, {"failure_price": 5.0, "gain_caution": 2.0}),
    ],
    ids=lambda s: "-".join(s) if isinstance(s, dict) else s.name,
)
@pytest.mark.parametrize("drift", ["exact", "bound"])
def test_with_neutral_scalars_or_such_without_a_meaning_it_is_dssra_bit_for_bit(
    scenario, scalars, drift
) -> None:
    env = playing(scenario)
    dssra, plus = DSSRA(scenario, drift=drift), DSSRAPlus(scenario, drift=drift, **scalars)
    for _ in range(2 if scalars else 4):
        plan = dssra.allocate(env.state)
        support.assert_same(plan, plus.allocate(env.state))
        np.testing.assert_array_equal(dssra.objective(env.state, plan), plus.objective(env.state, plan))
        env.step_allocation(plan)


def test_weight_0_does_not_see_moves_and_is_charged_for_them() -> None:
    off = SLOW.with_overrides({"dynamics.processes.migration": False})
    env, charged = playing(SLOW), 0.0
    blind, without = DSSRAPlus(SLOW, migration_weight=0.0), DSSRA(off)
    for _ in range(30):
        plan = blind.allocate(env.state)
        support.assert_same(plan, without.allocate(replace(env.state, processes={})))
        env.step_allocation(plan)
        charged += float(env.last_round.costs.terms.once["migration"].sum())
    assert charged > 0.0


@pytest.mark.parametrize("weight", [0.25, 3.0])
def test_its_objective_counts_moments_so_often(weight) -> None:
    """On a system without queues the objective is ``V T``, in which the phase of moments is weighed."""
    scenario = BOTH.with_overrides({"dynamics.processes.heat": False, "dynamics.load_levels": [1.0]})
    env = playing(scenario)
    env.step_allocation(DSSRA(scenario).allocate(env.state))
    state = replace(env.state, backlog=np.zeros_like(env.state.backlog), budget=env.state.budget * 1e9)
    for seed in range(5):
        plan = support.random_plan(scenario, state, seed)
        plus = DSSRAPlus(scenario, migration_weight=weight)
        costs = round_costs(DSSRA(scenario).parameters, state, plan)
        longest = (costs.cluster_delay + (weight - 1.0) * costs.terms.once["migration"]).max(axis=-1)
        expected = system_parameters(scenario).tradeoff_v * (longest + costs.broadcast)
        np.testing.assert_allclose(plus.objective(state, plan), expected, rtol=1e-9)
        assert (costs.terms.once["migration"] > 0.0).any()


def warm_state(scenario, rows=3):
    state = support.loaded_state(scenario, rows, 0, 0.5)
    headroom = np.random.default_rng(0).uniform(0.0, 1.5, state.present.shape)
    heat = {**state.processes["heat"], "headroom": headroom}
    return replace(state, processes={**state.processes, "heat": heat})


@pytest.mark.parametrize("scenario", [WARM, PER_SECOND], ids=lambda s: s.name)
def test_the_price_of_heat_is_paid_per_joule(scenario) -> None:
    state = warm_state(scenario)
    dssra = DSSRA(scenario)
    plus = DSSRAPlus(scenario, heat_price=0.3, heat_start=0.4)
    plan = dssra.allocate(state)
    costs = round_costs(dssra.parameters, state, plan)
    headroom = state.processes["heat"]["headroom"]
    expected = dssra.objective(state, plan)
    for e, n, k in np.ndindex(headroom.shape):
        ramp = max(headroom[e, n, k] - 0.4, 0.0) / 0.6
        expected[e] += system_parameters(scenario).tradeoff_v * 0.3 * ramp * costs.busy_energy[e, n, k + 1]
    np.testing.assert_allclose(plus.objective(state, plan), expected, rtol=1e-12)


@pytest.mark.parametrize("scenario", [WARM, PER_SECOND], ids=lambda s: s.name)
@pytest.mark.parametrize("drift", ["exact", "bound"])
def test_its_plans_are_the_best_of_all_segments(scenario, drift) -> None:
    """No other segments of a cluster are better at the same powers, shares and micro-batches."""
    state = warm_state(scenario, 6)
    plus = DSSRAPlus(scenario, heat_price=0.5, heat_start=0.2, drift=drift)
    plan = plus.allocate(state)
    found, least = plus.objective(state, plan), np.full(6, np.inf)
    every = splits(scenario.blocks, [scenario.blocks] * scenario.max_devices)
    for n, counts in itertools.product(range(scenario.clusters), every):
        other = np.array(plan.blocks)
        fits = (np.array(counts) <= np.where(state.present, state.memory_cap, 0)[:, n]).all(axis=-1)
        other[fits, n] = counts
        least = np.minimum(least, plus.objective(state, replace(plan, blocks=other)))
    assert (found <= least * (1.0 + 2e-3)).all()
    plain = DSSRA(scenario, drift=drift).allocate(state)
    assert (found <= plus.objective(state, plain) * (1.0 + 1e-3)).all()
    assert (plain.blocks != plan.blocks).any()


def test_a_row_is_decided_alike_in_any_batch_and_after_a_reset() -> None:
    env = playing(support.SMALL, 3)
    states = []
    for _ in range(5):
        states.append(env.state.map(np.copy))
        env.step_allocation(DSSRA(support.SMALL).allocate(env.state))
    together = DSSRAPlus(support.SMALL, channel_weight=0.4, gain_caution=1.0)
    plans = [together.allocate(state) for state in states]
    alone = DSSRAPlus(support.SMALL, channel_weight=0.4, gain_caution=1.0)
    for row in (2, 0):
        alone.reset()
        for state, plan in zip(states, plans, strict=True):
            support.assert_same(alone.allocate(state[row : row + 1]), plan[row : row + 1])
    changed = DSSRA(support.SMALL).allocate(states[-1])
    assert (changed.bandwidth != plans[-1].bandwidth).any()


class Lowered(ShrunkGains):
    """Gains less ``caution`` deviations of hops, from the recursion for one mean seen in fresh noise."""

    def __init__(self, scenario, weight, caution):
        super().__init__(weight)
        fading = fading_deviation_db(scenario.radio.diversity) ** 2
        self.drift = usual_drifts_db(scenario)[1] ** 2
        self.caution, self.fading, self.noise = caution, fading, fading + 3.0**2
        self.variance = None

    def update(self, state):
        if self.variance is None:  # the first round shows means with the error of a measurement
            self.variance = 3.0**2
        else:
            ahead = self.variance + self.drift
            self.variance = ahead * self.noise / (ahead + self.noise)
        deviation = np.sqrt(self.variance + self.drift + self.fading)
        shrunk = super().update(state)
        return replace(shrunk, d2d_gain=shrunk.d2d_gain * 10.0 ** (-self.caution * deviation / 10.0))


def test_caution_takes_hops_deviations_lower() -> None:
    scenario = load_scenario("small-stale")
    states, env = [], playing(scenario)
    cautious = DSSRAPlus(scenario, channel_weight=0.6, gain_caution=4.0)
    by_hand = DSSRAPlus(scenario, gain_caution=0.0, gain_filter=Lowered(scenario, 0.6, 4.0))
    plain = DSSRAPlus(scenario, channel_weight=0.6, gain_caution=0.0)
    bold = DSSRAPlus(scenario, gain_caution=0.0, gain_filter=ShrunkGains(0.6))
    changed = False
    for _ in range(16):
        states.append(env.state.map(np.copy))
        plan, other = cautious.allocate(states[-1]), plain.allocate(states[-1])
        for (name, ours), (_, theirs) in zip(leaves(plan), leaves(by_hand.allocate(states[-1])), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, err_msg=name)
        support.assert_same(other, bold.allocate(states[-1]))
        changed |= bool((plan.blocks != other.blocks).any())
        env.step_allocation(plan)
    assert changed
    cautious.reset()
    again = DSSRAPlus(scenario, channel_weight=0.6, gain_caution=4.0)
    support.assert_same(cautious.allocate(states[0]), again.allocate(states[0]))


def test_another_filter_takes_the_place_of_the_shrinkage() -> None:
    class Doubled:
        resets = 0

        def reset(self) -> None:
            self.resets += 1

        def update(self, state):
            return replace(state, uplink_gain=2.0 * state.uplink_gain)

    own = Doubled()
    plus = DSSRAPlus(support.SMALL, channel_weight=0.1, gain_filter=own)
    state = support.loaded_state(support.SMALL, 2, 0)
    doubled = replace(state, uplink_gain=2.0 * state.uplink_gain)
    support.assert_same(plus.allocate(state), DSSRA(support.SMALL).allocate(doubled))
    plus.reset()
    assert own.resets == 1


def test_scalars_come_from_the_scenario_and_arguments_override_them() -> None:
    scenario = load_scenario({"base": "small", "dssra_plus": {"migration_weight": 0.25, "heat_price": 2}})
    plus = DSSRAPlus(scenario, heat_price=3.0)
    assert (plus.migration_weight, plus.heat_price, plus.heat_start, plus.channel_weight) == (0.25, 3, 0.5, 1)
    assert load_scenario(scenario.to_dict()) == scenario
    said = scenario.to_dict()["dssra_plus"]
    assert (said["migration_weight"], said["heat_price"], said["heat_start"]) == (0.25, 2.0, 0.5)


@pytest.mark.parametrize("value", [-0.1, 11.0, "x", True])
def test_a_scalar_out_of_range_is_refused_in_scenarios_too(value) -> None:
    with pytest.raises(ScenarioError, match="gain_caution"):
        load_scenario({"base": "small", "dssra_plus": {"gain_caution": value}})
