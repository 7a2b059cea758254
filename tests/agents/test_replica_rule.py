"""Rule by which DSSRA+ decides who keeps replicas."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from variants_support import mostly_slow

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.agents.dssra.hazard_memory import RISK
from collapipe_env.agents.dssra.plus import DSSRAPlus
from collapipe_env.agents.dssra.replica_rule import best_replicas, expected_loss
from collapipe_env.dynamics.presence import PRESENCE
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.physics.recovery import RecoveryTerms, bits_of_block
from collapipe_env.physics.replication import REPLICATION_KINDS
from collapipe_env.schedulers import SCHEDULERS
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.failed_rounds import Failures
from tests.simulator.test_replication import a_state, scenario_of

LORA = {"update_compression": "lora"}


def a_plan(**options):
    scenario = scenario_of(opened=True, **options)
    return scenario, a_state(scenario), system_parameters(scenario)


def played_loss(parameters, terms, state, costs, points=40):
    """What a failure of each device adds, mean over times, by playing it; summed over devices (E, N) [s]."""
    failures, total = Failures(parameters, terms), np.zeros(costs.cluster_delay.shape)
    for device in range(state.present.shape[-1]):
        for share in (np.arange(points) + 0.5) / points:
            at = np.full(state.present.shape, np.inf)
            at[..., device] = share * costs.cluster_delay
            replayed = failures.replayed(state, costs, at)
            total += 0.0 if replayed is None else replayed.cluster_delay / points
    return total


@pytest.mark.parametrize("scheduler", mostly_slow(["pipeline", "dssra"], [1]))
@pytest.mark.parametrize("workload", mostly_slow([{}, LORA]), ids=["all", "adapters"])
@pytest.mark.parametrize("kind", ["light", "heavy"])
def test_expected_losses_are_near_those_that_are_played(kind, workload, scheduler):
    scenario, state, parameters = a_plan(steps=6, kind=kind, workload=workload)
    plan = SCHEDULERS.get(scheduler)(scenario).act(None, state)
    terms, bits = RecoveryTerms(kind, 0.5, 4), bits_of_block(parameters.costs)
    devices = (plan.device_blocks > 0).sum(axis=-1)
    expected, played = [], []
    for place in range(len(REPLICATION_KINDS)):
        costs = round_costs(
            parameters, state, replace(plan, replication=np.full(plan.micro_batches.shape, place))
        )
        certain = np.ones(state.present.shape)
        loss = expected_loss(parameters, state, costs, certain, terms=terms, bits=bits)
        expected.append(loss / devices)
        played.append(played_loss(parameters, terms, state, costs) / devices)
    scale = round_costs(parameters, state, plan).cluster_delay
    found, right = np.array(expected) / scale, np.array(played) / scale
    # Where blocks end up is estimated, and how long a local step takes then ...
    assert_allclose(found, right, atol=0.3)
    # ... but that is nearly the same with any replicas, and the gain by them is what decides.
    assert_allclose(found[0] - found[1:], right[0] - right[1:], atol=0.15)
    assert (right[0] > right[1:]).all()


def test_what_nobody_loses_is_worth_no_replicas_and_what_costs_nothing_is():
    scenario, state, parameters = a_plan(steps=6)
    plan = SCHEDULERS.get("pipeline")(scenario).act(None, state)
    terms, bits = RecoveryTerms("light", 0.5, 4), bits_of_block(parameters.costs)

    def kinds(parameters, risk):
        return best_replicas(
            parameters,
            state,
            plan,
            np.full(state.present.shape, risk),
            terms=terms,
            bits=bits,
            tradeoff_v=1.0,
            extra_price=None,
        )

    assert_array_equal(kinds(parameters, 0.0), 0)
    tiny = replace(parameters, replication=parameters.replication._replace(block_bits=1.0))
    assert (kinds(tiny, 0.2) > 0).all()
    assert_array_equal(kinds(tiny, 0.0), 0)


def test_more_risk_never_takes_replicas_away():
    scenario, state, parameters = a_plan(steps=6, workload=LORA)
    plan = SCHEDULERS.get("dssra")(scenario).act(None, state)
    terms, bits = RecoveryTerms("light", 0.5, 4), bits_of_block(parameters.costs)
    kept = [
        (
            best_replicas(
                parameters,
                state,
                plan,
                np.full(state.present.shape, risk),
                terms=terms,
                bits=bits,
                tradeoff_v=1.0,
                extra_price=None,
            )
            > 0
        ).sum()
        for risk in (0.0, 1e-4, 1e-3, 1e-2, 0.1)
    ]
    assert kept == sorted(kept)
    assert kept[0] == 0
    assert kept[-1] == plan.micro_batches.size


@pytest.mark.parametrize("workload", [{}, LORA], ids=["all", "adapters"])
def test_dssra_plus_keeps_replicas_where_it_decides_about_them(workload):
    scenario = scenario_of(opened=True, steps=8, workload=workload)
    env = CollaPipeVectorEnv(2, scenario, "surrogate", reward="delay")
    env.reset(seed=1)
    policy, plain = DSSRAPlus(scenario), DSSRA(scenario)
    kept = 0
    for _ in range(6):
        plan, without = policy.allocate(env.state), plain.allocate(env.state)
        assert without.replication is None
        for name in ("blocks", "micro_batches", "bandwidth", "device_power", "cu_power"):
            assert_array_equal(getattr(plan, name), getattr(without, name))
        kept += int((plan.replication > 0).sum())
        env.step(env.codec.encode(plan))
        assert_array_equal(env.last_round.allocation.replication, plan.replication)
    assert kept > 0 if workload else kept == 0


def test_devices_that_have_announced_their_end_do_not_fail_in_the_round():
    scenario = scenario_of(opened=True, steps=2)
    presence = {**dict(scenario.dynamics.processes)[PRESENCE].__dict__, "graceful": 0.5}
    scenario = scenario.with_overrides({"dynamics.processes.presence": presence})
    env = CollaPipeVectorEnv(8, scenario, "surrogate", reward="delay")
    env.reset(seed=0)
    policy, announced = DSSRAPlus(scenario, failure_price=1.0), 0
    for _ in range(5):
        state = env.state
        shown = policy._risk.added(state).processes[PRESENCE]
        leaving = np.asarray(shown["announced"], dtype=bool)
        announced += int(leaving.sum())
        assert_array_equal(shown[RISK][leaving], 0.0)
        assert (shown[RISK][~leaving] > 0.0).all()
        env.step(np.zeros(env.action_space.shape, np.float32))
    assert announced > 0
