"""What holds for every scheduler of the package: a row for each in the registry, a new one included."""

import importlib.util
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from baseline_support import PRICED, RECOMPUTED, SMALL, UNEVEN, decide
from record_support import leaves
from unpriced_support import unpriced

from collapipe_env.agents.dssra import DSSRA, price_plan
from collapipe_env.agents.learned.graph.graph_scheduler import GraphScheduler
from collapipe_env.baselines.oracle import Oracle
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.episode import (
    pack_allocations,
    play_episode,
    replayed_rounds,
    unpack_allocations,
)
from collapipe_env.ground.errors import AllocationError, ScenarioError
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.decision_names import COLLAPIPE
from collapipe_env.schedulers import SCHEDULERS, Scheduler, scheduler_names
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs

NAMES = scheduler_names()
BASELINES = tuple(name for name in NAMES if not name.startswith("dssra") and name != "random")
FROM_STATE = tuple(name for name in NAMES if name != "random")
SPLIT_MODELS = ("vanilla_fl", "asteroid", "splitfed_v1", "splitfed_v2", "pipar")
SEARCHES = ("adaptis", "optpipe", "flexpipe", "xpipe")
GPIPE = tuple(name for name in NAMES if name not in SPLIT_MODELS + SEARCHES)
"""Those that hold blocks within GPipe's memory caps; the others go by the memories themselves."""
NEEDS_NO_MEMORY = ("pipeline", "random")
"""Those that play on in a cluster whose devices cannot hold the blocks; the round then refuses their plan."""
CHOOSE_MICRO_BATCHES = ("pipar", "adaptis", "optpipe", "flexpipe")
ONE_MICRO_BATCH = ("titanic", "splitfed_v1", "splitfed_v2")
REMEMBER = ("random", "optpipe")
"""Those that go on with earlier draws or plans."""
QUICK = {"optpipe": {"solver_time": 0.0, "max_micro_batches": 4}}
"""Options with which a scheduler decides quickly."""

KINDS = {
    "uneven": UNEVEN,
    "priced": PRICED,
    "recomputed": RECOMPUTED,
    "per second": SMALL.with_overrides({"budgets.per": "second"}),
    "contended": SMALL.with_overrides({"server.terms": "contended", "server.energy_budget_j": 4.0}),
    "open": SMALL.with_overrides({"decisions": [*COLLAPIPE, "recompute", "participation", "local_steps"]}),
    **{
        name: load_scenario(name)
        for name in ("medium", "boards", "llm-phones", "small-trace-like", "small-thermal", "small-stale")
    },
    **{name: load_scenario(name) for name in ("small-churn", "small-wild")},
}


def made(name, scenario=SMALL):
    if name == "optpipe" and importlib.util.find_spec("ortools") is None:
        pytest.skip("OptPipe needs the extra 'optimize'")
    return SCHEDULERS.get(name)(scenario, **QUICK.get(name, {}))


@cache
def state_of(kind):
    """A state after two rounds of random actions, from which devices are gone where they come and go."""
    env = CollaPipeVectorEnv(3, KINDS.get(kind, SMALL), "surrogate", autoreset_mode="Disabled")
    env.reset(seed=4)
    rng = np.random.default_rng(4)
    for _ in range(2):
        env.step(rng.uniform(-1.0, 1.0, env.action_space.shape).astype(np.float32))
    return env.state


def same(first, second):
    for (name, one), (_, other) in zip(leaves(first), leaves(second), strict=True):
        np.testing.assert_array_equal(one, other, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_plans_can_be_played_and_depend_on_the_row_alone(name, kind):
    scenario, state = KINDS[kind], state_of(kind)
    before = state.map(np.copy)
    plan = decide(made(name, scenario), state)
    check_allocation(system_parameters(scenario), state, plan)
    same(state, before)
    rows = slice(0, 1) if name == "random" else slice(2, 3)
    other = made(name, scenario)
    assert isinstance(other, Scheduler)
    if name != "random":
        other.reset(seed=7)
    alone, plan = decide(other, state[rows]), plan[rows]
    if name not in SEARCHES:
        same(alone, plan)
        return
    # These number the stages of all rows by devices, or all by their order, which means the same.
    costs = [round_costs(system_parameters(scenario), state[rows], one) for one in (alone, plan)]
    for field in ("cluster_delay", "energy", "memory"):
        np.testing.assert_allclose(*(getattr(each, field) for each in costs), rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_an_episode_is_played_stored_replayed_and_resumed(name):
    played = play_episode(name, made(name), SMALL, 2, 3, "surrogate")
    assert len(played.result.delay) == 3
    assert np.isfinite(played.result.delay).all()
    allocations = unpack_allocations(pack_allocations(played.allocations), len(played.allocations))
    *_, last = replayed_rounds(SMALL, 2, allocations)
    assert last.costs.delay[0] == played.result.delay[2]
    if name not in REMEMBER:
        same(decide(made(name), last.state)[0], played.allocations[2])


@pytest.mark.parametrize("name", BASELINES)
def test_baselines_leave_what_they_do_not_decide_at_the_common_defaults(name):
    for scenario in (UNEVEN, PRICED):
        scheduler = made(name, scenario)
        plan, parameters = decide(scheduler, state_of("uneven")), scheduler.parameters
        np.testing.assert_allclose(plan.bandwidth, 1.0 / scenario.clusters)
        np.testing.assert_allclose(plan.node_power, parameters.power_max_w)
        if name not in CHOOSE_MICRO_BATCHES:
            wanted = 1 if name in ONE_MICRO_BATCH else 4 if 4 in parameters.micro_batch_choices else 2
            assert (plan.micro_batches == wanted).all()


@pytest.mark.parametrize("name", NAMES)
def test_absent_devices_take_no_part_and_full_memories_are_respected(name):
    """Neither the fastest one, nor where its memory is still known."""
    state, scheduler = state_of("small")[:1], made(name)
    present, speed = state.present.copy(), state.speed.copy()
    present[0, :, 1], speed[0, :, 1] = False, 10.0 * speed.max()
    # Actions are decoded with the caps of the simulator, which are 0 for absent devices.
    for kept in (name != "random", False):
        cap, memory = np.array([[[3, 9, 3], [1, 9, 5]]]), state.memory_bytes.copy()
        cap[~present], memory[~present] = kept * cap[~present], kept * memory[~present]
        seen = replace(state, present=present, speed=speed, memory_bytes=memory, memory_cap=cap)
        plan = decide(scheduler, seen)
        assert not plan.device_blocks[0, :, 1].any()
        if name in GPIPE:
            assert plan.blocks.tolist() == [[[3, 0, 3], [1, 0, 5]]]
        else:
            check_allocation(scheduler.parameters, seen, plan)


@pytest.mark.parametrize("name", NAMES)
def test_a_cluster_that_cannot_hold_the_encoder_is_named_in_one_line(name):
    state = state_of("small")
    memory, cap = state.memory_bytes.copy(), state.memory_cap.copy()
    memory[1, 0], cap[1, 0] = 1e3, 0
    scheduler, seen = made(name), replace(state, memory_bytes=memory, memory_cap=cap)
    with pytest.raises(AllocationError, match="environment 1, cluster 0") as caught:
        check_allocation(system_parameters(SMALL), seen, decide(scheduler, seen))
    assert "\n" not in str(caught.value)
    if name in GPIPE and name not in NEEDS_NO_MEMORY:
        cap[1, 0] = [1, 2, 0]
        with pytest.raises(AllocationError, match=r"environment 1, cluster 0.* 3 blocks"):
            scheduler.act(None, replace(state, memory_cap=cap))


@pytest.mark.parametrize("name", FROM_STATE)
def test_what_is_not_a_state_of_the_scenario_is_refused(name):
    torch = pytest.importorskip("torch")
    scheduler, state = made(name), state_of("small")
    for given, words in (
        (None, "decides from the state, which is None: give env"),
        (state.map(torch.as_tensor), r"NumPy arrays, the state is of torch: give state\.map"),
        (state_of("medium"), r"2 clusters of up to 3 devices, .* shape \(3, 4, 5\)"),
        (state[0], r"expected \(environments, 2, 3\)"),
    ):
        with pytest.raises(AllocationError, match=words):
            scheduler.act(None, given)
    with pytest.raises(AllocationError, match=r"\('small'\): expected a Scenario"):
        made(name, "small")


@pytest.mark.parametrize("name", NAMES)
def test_options_that_it_does_not_know_are_refused(name):
    with pytest.raises(TypeError, match="speling"):
        SCHEDULERS.get(name)(SMALL, speling=1)


COUNTS = ("sweeps", "exploring_sweeps", "turns", "threads", "tolerance", "tradeoff_v", "convergence_weight")
SCALARS = ("migration_weight", "heat_start", "gain_caution")


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        *(("dssra", {option: -1}, rf"DSSRA\({option}: expected .* got -1") for option in COUNTS),
        ("dssra", {"turns": "x"}, "a whole number .* got 'x'"),
        ("dssra", {"turns": 1.5}, "a whole number .* got 1.5"),
        ("dssra", {"drift": ["exact"]}, "drift: expected 'bound' or 'exact', got "),
        ("dssra", {"tradeoff_v": float("nan")}, "got nan"),
        ("dssra-plus", {"migration_weight": -0.1}, "migration_weight: expected a number from 0 to .*-0.1"),
        ("dssra-plus", {"heat_price": float("nan")}, "heat_price: expected a number from 0 to .*nan"),
        ("dssra-plus", {"heat_start": 1.0}, "heat_start: expected a number from 0 to .*1.0"),
        ("dssra-plus", {"channel_weight": 1.1}, "channel_weight: expected a number from 0 to .*1.1"),
        ("dssra-plus", {"gain_caution": 11.0}, "gain_caution: expected a number from 0 to .*11.0"),
        *(("dssra-plus", {n: v}, f"{n}: expected a number") for n in SCALARS for v in ("x", True, [0.5], 1j)),
        ("dssra-target", {"price_of_progress": 0.0}, "price_of_progress: expected a finite number above 0"),
        ("dssra-target", {"price_of_progress": "x"}, "price_of_progress: expected a finite number above 0"),
        ("dssra-target", {"participation": "no"}, "participation: expected True or False, got 'no'"),
        *(
            ("dssra-target", {"local_steps": steps}, r"local_steps: expected some of \[1, 2, 4, 8, 16\]")
            for steps in ([3], [], [1, 32], 4)
        ),
        ("adaptis", {"restarts": -1}, "restarts = -1"),
        ("titanic", {"client_price_s": -1.0}, "client_price_s"),
        ("titanic", {"client_price_s": float("nan")}, "client_price_s"),
        ("titanic", {"client_price_s": float("inf")}, "client_price_s"),
        ("flexpipe", {"beam": 0}, "beam = 0"),
        ("flexpipe", {"schedules": "1f1b"}, "give a list of at least one"),
        ("flexpipe", {"schedules": ["1f1b m=5"]}, "m=5 is not allowed, use one of "),
        ("flexpipe", {"schedules": ["1f1b d=0,3"]}, "clusters have 3 devices at most"),
        ("flexpipe", {"schedules": ["2f2b"]}, "is not a schedule"),
    ],
)
def test_values_out_of_range_are_refused_by_name(name, options, words):
    with pytest.raises(AllocationError, match=words):
        SCHEDULERS.get(name)(KINDS["open"], **options)


@pytest.mark.parametrize("option", ["tradeoff_v", "restarts", "largest"])
def test_the_oracle_refuses_them_too(option):
    with pytest.raises(AllocationError, match=f"{option}.*-1"):
        Oracle(SMALL, **{option: -1})


SECONDS = KINDS["per second"]
SEVERAL = unpriced({"base": "small", "workload": {"micro_batches": [2, 4]}})


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Oracle(SECONDS), r"budgets\.per is 'second': set it to 'round', or use dssra"),
        (lambda: GraphScheduler(SECONDS, None), r"budgets\.per is 'second': set it to 'round', or use dssra"),
        (
            lambda: price_plan(
                SECONDS, state_of("per second"), DSSRA(SECONDS).allocate(state_of("per second"))
            ),
            r"budgets\.per is 'second': set it to 'round', or use dssra",
        ),
        (lambda: made("splitfed_v1", SEVERAL), r"micro_batches is \[2, 4\], but SplitFed .* add 1"),
        (lambda: made("splitfed_v2", SEVERAL), r"micro_batches is \[2, 4\], but SplitFed .* add 1"),
    ],
    ids=["oracle", "graph", "price_plan", "splitfed_v1", "splitfed_v2"],
)
def test_what_it_cannot_price_is_refused_in_one_line(build, words):
    with pytest.raises(ScenarioError, match=words) as caught:
        build()
    assert "\n" not in str(caught.value)
