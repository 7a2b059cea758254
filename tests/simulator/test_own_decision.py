"""A decision of one's own: one row and one line, and everything else follows."""

from dataclasses import replace

import numpy as np
import pytest
from process_support import Idle

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.dynamics import register_process
from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.envs.wrappers import MultiDiscreteActions
from collapipe_env.evaluation.episode import pack_allocations, unpack_allocations
from collapipe_env.ground.errors import AllocationError, ScenarioError
from collapipe_env.ground.records import Declared
from collapipe_env.physics.allocation import Allocation, own_arrays, stack_allocations
from collapipe_env.scenario.decision_names import ROWS
from collapipe_env.simulator.build import action_codec, system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import PRICES, round_costs
from collapipe_env.simulator.decision import Decision, Part
from collapipe_env.simulator.even_split import even_split
from collapipe_env.simulator.feature import Feature
from collapipe_env.simulator.round import Terms
from tests.opened_support import STATE, opened, same

LONGEST = 0.9
FIELDS = {"cu_sleep": Declared("N", low=0.0, high=LONGEST, neutral=0.0)}


def queue(state):
    return state.backlog[..., 0]


ROW = Decision(
    name="cu_sleep",
    fields=FIELDS,
    parts=(
        Part(
            "cu_sleep",
            "N",
            lambda _: f"share of the round that the control unit sleeps: -1 for 0, 1 for {LONGEST:g}",
            lambda _: 0,
            lambda _, plan: 2.0 * np.asarray(plan.said("cu_sleep", FIELDS["cu_sleep"])) / LONGEST - 1.0,
        ),
    ),
    decode=lambda _, entries: {"cu_sleep": 0.5 * LONGEST * (entries["cu_sleep"].clip(-1.0, 1.0) + 1.0)},
    otherwise=", so control units stay awake",
    features=lambda scenario, _: (
        Feature(
            "cluster_queue",
            "N",
            "budgets",
            0.0,
            scenario.budgets.backlog_cap,
            "queue of the unit",
            queue,
            array="queue",
            log1p=True,
        ),
    ),
)


@pytest.fixture(autouse=True)
def registered():
    ROWS.register("cu_sleep", ROW)
    yield
    del ROWS._added["cu_sleep"]


def plans(scenario):
    """A plan without the decision, and the same one with it."""
    plain = even_split(system_parameters(scenario), STATE)
    asleep = np.linspace(0.0, LONGEST, plain.micro_batches.size).reshape(plain.micro_batches.shape)
    return plain, replace(plain, others={"cu_sleep": asleep})


def test_scenarios_may_open_it_once_it_is_registered():
    scenario = opened("cu_sleep", "recompute")
    assert scenario.decisions[-2:] == ("recompute", "cu_sleep")
    with pytest.raises(ScenarioError, match="decision 'cu_slep' is not known: did you mean 'cu_sleep'"):
        opened("cu_slep")
    with pytest.raises(ScenarioError, match="register a Decision of that name"):
        ROWS.register("cu_nap", ROW)
    clash = replace(ROW, name="cu_nap", fields={"map": FIELDS["cu_sleep"]})
    with pytest.raises(ScenarioError, match="needs a neutral number, and a name that plans do not use"):
        ROWS.register("cu_nap", clash)


def test_the_action_box_grows_by_its_entries_and_inverts_them():
    scenario, closed = opened("cu_sleep", "clock_cap"), opened("clock_cap")
    codec = action_codec(scenario)
    assert codec.action_size == action_codec(closed).action_size + scenario.clusters
    assert codec.parts["cu_sleep"].description.endswith("-1 for 0, 1 for 0.9")
    _, plan = plans(scenario)
    back = codec.decode(codec.encode(plan), STATE.memory_cap, STATE.memory_bytes)
    np.testing.assert_allclose(back.others["cu_sleep"], plan.others["cu_sleep"], atol=1e-6)
    check_allocation(system_parameters(scenario), STATE, back)
    same(codec.decode(codec.encode(back), STATE.memory_cap, STATE.memory_bytes), back)
    levels = MultiDiscreteActions(CollaPipeEnv(scenario=scenario, learner="surrogate"), clock_levels=5)
    assert (codec.split(levels.action_space.nvec)["cu_sleep"] == 5).all()


def test_a_plan_without_it_is_neutral():
    scenario, closed = opened("cu_sleep"), opened()
    plain, _ = plans(scenario)
    codec = action_codec(scenario)
    action = codec.encode(plain)
    assert (codec.split(action)["cu_sleep"] == -1.0).all()
    back = codec.decode(action, STATE.memory_cap, STATE.memory_bytes)
    assert (back.others["cu_sleep"] == 0.0).all()
    silent = action_codec(closed).decode(action_codec(closed).encode(plain), STATE.memory_cap)
    costs = [
        round_costs(system_parameters(one), STATE, plan) for one, plan in ((scenario, back), (closed, silent))
    ]
    np.testing.assert_array_equal(costs[0].delay, costs[1].delay)
    check_allocation(system_parameters(closed), STATE, replace(plain, others=back.others))


def test_bad_values_are_refused_by_name_place_and_range():
    scenario = opened("cu_sleep")
    parameters, codec = system_parameters(scenario), action_codec(scenario)
    _, plan = plans(scenario)
    wrong = plan.others["cu_sleep"].copy()
    wrong[1, 2] = 0.95
    for check in (lambda given: check_allocation(parameters, STATE, given), codec.encode):
        with pytest.raises(
            AllocationError, match=r"cu_sleep of environment 1, cluster 2 is 0.95, .*\[0, 0.9\]"
        ):
            check(replace(plan, others={"cu_sleep": wrong}))
    with pytest.raises(AllocationError, match=r"cu_sleep has shape \(3, 1\), expected \(3, 4\)"):
        check_allocation(parameters, STATE, replace(plan, others={"cu_sleep": wrong[:, :1]}))
    with pytest.raises(
        AllocationError, match="0: this scenario's decisions do not list cu_sleep, so control"
    ):
        check_allocation(system_parameters(opened()), STATE, plan)
    with pytest.raises(AllocationError, match="cu_slep: no decision has such a field"):
        check_allocation(parameters, STATE, replace(plan, others={"cu_slep": wrong}))
    with pytest.raises(AllocationError, match="cu_sleep: a masked array"):
        own_arrays(replace(plan, others={"cu_sleep": np.ma.masked_array(wrong)}))


def test_plans_with_it_are_mapped_stacked_and_stored():
    plain, plan = plans(opened("cu_sleep"))
    rows = [plan[row] for row in range(3)]
    stacked = stack_allocations(rows)
    np.testing.assert_array_equal(stacked.others["cu_sleep"], plan.others["cu_sleep"])
    with pytest.raises(AllocationError, match="cu_sleep: give it in all plans that are joined, or in none"):
        stack_allocations([plain[0], rows[1]])
    for one, two in zip(unpack_allocations(pack_allocations(rows), 3), rows, strict=True):
        assert isinstance(one, Allocation)
        same(one, two)


@pytest.mark.parametrize("observation", ["flat", "graph"])
def test_an_environment_plays_shows_and_saves_it(observation, tmp_path):
    scenario = opened("cu_sleep", base="small")
    env = CollaPipeEnv(scenario=scenario, learner="surrogate", observation=observation)
    env.reset(seed=0)
    action = np.random.default_rng(0).uniform(-1.0, 1.0, env.action_space.shape).astype(np.float32)
    for _ in range(2):
        seen = env.step(action)[0]
    asleep = env.last_round.allocation.others["cu_sleep"][0]
    np.testing.assert_allclose(asleep, LONGEST * (env.codec.split(action)["cu_sleep"] + 1.0) / 2, rtol=1e-6)
    layout, backlog = env.observation_layout, env.state.backlog[0, :, 0]
    assert backlog.max() > 0.0
    if observation == "flat":
        found = layout.physical(seen)["cluster_queue"]
    else:
        found = layout.physical(seen)["queue"]["queue"]
    np.testing.assert_allclose(found, np.minimum(backlog, scenario.budgets.backlog_cap), rtol=1e-4, atol=1e-6)
    env.save_state(tmp_path / "state")
    other = CollaPipeEnv(scenario=scenario, learner="surrogate", observation=observation)
    other.reset(seed=1)
    other.load_state(tmp_path / "state")
    same(other.last_round.allocation, env.last_round.allocation)


class Rest(Idle):
    """Carries nothing that matters; its name switches the price on."""

    name = "rest"


def test_dssra_decides_it_by_its_price(monkeypatch):
    """Sleep shortens a round up to 0.5 and lengthens it beyond."""
    monkeypatch.setattr(PRICES, "_added", {})
    PRICES.register(
        "rest",
        lambda *given: Terms(delay=20.0 * (given[-1].said("cu_sleep", FIELDS["cu_sleep"]) - 0.5) ** 2),
    )
    register_process(Rest)
    scenario = opened("cu_sleep", base="small", **{"dynamics.processes": {"rest": {}}})
    scheduler = DSSRA(scenario, threads=1)
    env = CollaPipeVectorEnv(2, scenario, learner="surrogate")
    env.reset(seed=0)
    plan = scheduler.allocate(env.state)
    check_allocation(scheduler.parameters, env.state, plan)
    # Its neighbours are an eighth of the range away.
    np.testing.assert_allclose(plan.others["cu_sleep"], 4.0 / 8.0 * LONGEST, atol=1e-9)
