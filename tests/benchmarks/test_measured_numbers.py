"""Numbers that the benchmarks make of what they measured: against closed forms and made-up clocks."""

import json
from dataclasses import replace
from functools import partial

import decision_time
import dssra_gap
import dssra_search_gap
import execution_clock
import first_decision
import gpu
import learner_rate
import moment_resets
import numpy as np
import pass_costs
import pytest
import step_rate
from evolution import Evolution
from measuring import Figure
from side_by_side import Timing

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.baselines.oracle import Oracle
from collapipe_env.execution.price_comparison import ComparedCluster, ComparedPhase, ComparedRound
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.physics.queues import idle_drift, lyapunov
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.names import TIERS
from collapipe_env.simulator.build import action_codec, reference_delay
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split
from collapipe_env.simulator.process_registry import active_processes

SMALL = load_scenario("small")
NAME = "CollaPipeSurrogate-Small-v0"
BOARDS = "CollaPipeSurrogate-Boards-v0"


@pytest.mark.parametrize("form", ["exact", "bound"])
def test_a_bad_decision_has_a_gap(form, monkeypatch):
    """The gap is that of the objectives without broadcast and, in the exact form, the drift of idle nodes."""
    scheduler = DSSRA(SMALL, drift=form)
    (state,) = dssra_search_gap.states_of(SMALL, 1, 3)
    state = replace(state, backlog=state.backlog + 40.0)
    even = even_split(scheduler.parameters, state)
    monkeypatch.setattr(scheduler, "allocate", lambda *_: even)
    found = dssra_search_gap.gaps(scheduler, state, 1000, np.random.default_rng(0))
    given = scheduler.tradeoff_v * round_costs(scheduler.parameters, state, even).broadcast
    given = given + (idle_drift(state.backlog) if form == "exact" else 0.0)
    ours, best = (scheduler.objective(state, plan) - given for plan in (even, found.best))
    assert found.gap == pytest.approx(ours / best - 1.0, rel=1e-6)
    assert (found.gap > 0.1).all()
    assert (found.alone <= found.gap + 1e-9).all()


@pytest.mark.parametrize("form", [pytest.param("exact", marks=pytest.mark.slow), "bound"])
def test_the_search_finds_the_optimum(form):
    """Where the oracle knows it; the search is never better, and knows nothing of the oracle's means."""
    scenario = dssra_gap.scenario_of((1, 3, 4), "drop")
    state = dssra_gap.draw_state(scenario, 3.0, np.random.default_rng(5))
    scheduler, oracle = DSSRA(scenario, drift=form), Oracle(scenario, drift=form, restarts=0)
    search = Evolution(
        action_codec(scenario),
        state.map(lambda a: a[None]),
        partial(dssra_search_gap.objective, scheduler),
        np.random.default_rng(0),
    )
    (value,) = search.run(2000).value
    best = oracle.solve(state).objective
    assert best - 1e-6 * abs(best) <= value <= best + 1e-3 * abs(best)


def test_with_budgets_per_second_plans_are_priced_with_the_wait_that_pays_best():
    scenario = load_scenario({"base": "small", "budgets": {"per": "second"}})
    scheduler, (state,) = DSSRA(scenario), dssra_search_gap.states_of(scenario, 1, 3)
    state = replace(state, backlog=state.backlog + np.linspace(0.0, 8.0, 8)[:, None, None])
    plan = even_split(scheduler.parameters, state)
    costs = round_costs(scheduler.parameters, state, plan)
    delay = costs.delay + np.linspace(0.0, 200.0, 20_001)[:, None]
    granted = (delay / reference_delay(scenario))[..., None, None]
    queue = np.maximum(state.backlog + costs.energy_ratio - granted, 0.0)
    values = scheduler.tradeoff_v * delay + lyapunov(queue) - lyapunov(state.backlog)
    assert dssra_search_gap.objective(scheduler, state, plan) == pytest.approx(values.min(axis=0), rel=1e-4)
    assert set(values.argmin(axis=0) > 0) == {False, True}


def test_the_time_of_a_decision_is_that_of_one_environment(monkeypatch):
    """Every call takes 6 s by the clock and 12 s of processor time, for 3 environments."""
    clocks = {"perf_counter": 0.0, "process_time": 0.0}

    def ticking(name, step):
        def read():
            clocks[name] += step
            return clocks[name]

        return read

    monkeypatch.setattr(decision_time.time, "perf_counter", ticking("perf_counter", 6.0))
    monkeypatch.setattr(decision_time.time, "process_time", ticking("process_time", 12.0))
    found = decision_time.measure(DSSRA(SMALL, threads=1), "dssra", 3, 2, 0)
    assert (found.low, found.value, found.high) == pytest.approx((2000.0, 2000.0, 2000.0))
    assert found.note.startswith("4000.000 ms")


def test_a_figure_at_its_goal_meets_it():
    verdicts = [Figure("x", value, "s", goal=2.0).verdict for value in (2.0, 3.0, None)]
    assert verdicts == ["met", "missed by 1.50 x", "skipped"]


def compared(number, steps, delay_s):
    """A round that is priced at 2 s a step and 10 s in all; measured steps of its clusters."""
    clusters = tuple(
        ComparedCluster(
            cluster=n, schedule="1f1b", micro_batches=4, step_priced_s=2.0,
            step_measured_s=step,
            delay_priced_s=9.0, delay_measured_s=9.0, late_mean_s=1e-3 * (n + 1), late_most_s=4e-3 * (n + 1),
            begun_late_mean_s=2e-3, begun_late_most_s=7e-3, overruns=3 * n, lost=(), given_up=False,
            recovery_s=0.0, phases=(),
        )
        for n, step in enumerate(steps)
    )  # fmt: skip
    return ComparedRound(number, clusters, 10.0, delay_s, None, {}, ComparedPhase("broadcast", 1.0, 1.0))


def cell(schedule="1f1b", error=0.0):
    rounds = [compared(1, (2.0, 2.0 * (1.0 + error)), 10.0), compared(2, (2.0, 2.0), 10.5)]
    return execution_clock.cell_of(rounds, schedule, 4, 1.5, 0.7)


def test_a_cell_of_the_wall_clock_has_means_and_the_largest_errors_with_their_signs():
    found = cell(error=-0.04)
    assert found["T_step priced (s)"] == 2.0
    assert found[execution_clock.STEP_ERROR] == pytest.approx((-1.0, -4.0))
    assert found[execution_clock.ROUND_ERROR] == pytest.approx((2.5, 5.0))
    assert found["ends late (ms): mean, largest"] == pytest.approx((1.5, 8.0))
    assert found["begins late (ms): mean, largest"][1] == pytest.approx(7.0)
    assert found["overruns"] == pytest.approx(1.5)
    assert "| 1f1b | 4 | 1.50 | 2.000 | -1.000, -4.000 |" in execution_clock.table([found])


def test_cells_that_cannot_be_planned_are_left_out_and_the_goal_is_counted(tmp_path, monkeypatch, capsys):
    def measured(options, schedule, micro_batches):
        if schedule == "interleaved":
            raise ScenarioError("no such plan")
        return cell(schedule, 0.03 if schedule == "zb-h1" else 0.01)

    monkeypatch.setattr(execution_clock, "measured", measured)
    path = tmp_path / "clock.json"
    assert execution_clock.main(["--micro-batches", "4", "--output", str(path)]) == 0
    assert "largest error of T_step at most 2 %: 2 of 3 cells" in capsys.readouterr().out
    content = json.loads(path.read_text())
    assert [one["schedule"] for one in content["cells"]] == ["gpipe", "1f1b", "zb-h1"]
    assert content["left_out"] == ["interleaved, M = 4: no such plan"]


def test_first_decisions_take_turns_cold_and_warm_and_medians_are_stored(monkeypatch, tmp_path):
    folders = []

    def measure(folder):
        folders.append(folder)
        return {"first step": float(len(folders)), "first decision": 10.0 * len(folders)}

    monkeypatch.setattr(first_decision, "_first_decision", measure)
    path = tmp_path / "first.json"
    assert first_decision.main(["--processes", "3", "--output", str(path)]) == 0
    # A warm process has the folder of the cold one before it.
    assert folders[0] == folders[1] != folders[2] == folders[3]
    found = {f["name"]: f for f in json.loads(path.read_text())["figures"]}
    assert found["cold, first decision"]["value"] == 30.0
    assert found["cold, first decision"]["verdict"] == "missed by 3.00 x"
    assert found["warm, first step"]["value"] == 4.0


def test_ratios_are_taken_turn_by_turn():
    times = {"a": np.array([1.0, 2.0, 4.0, 8.0, 16.0]), "b": np.array([2.0, 2.0, 2.0, 16.0, 4.0])}
    times = {"a": times["a"], learner_rate.SAME: times["b"]}
    _, figure = learner_rate.figures_of("group", times, rounds=2)
    assert (figure.name, figure.unit, figure.note) == (f"group: {learner_rate.SAME}", "x a", "1000.00 ms")
    assert (figure.value, figure.low, figure.high, figure.verdict) == (1.0, 0.5, 2.0, "met")


def test_a_slower_course_is_found_to_be_as_much_slower():
    rounds = np.arange(1, 101)

    def course(t):
        return 0.3 + 0.4 * np.exp(-t / 60)

    assert moment_resets.slowdown(course(rounds), course(0.6 * rounds)) == pytest.approx(0.4, abs=0.011)
    assert moment_resets.slowdown(course(rounds), course(rounds)) == pytest.approx(0.0, abs=0.005)


def test_the_law_of_a_pass_is_found_again():
    sizes = [1, 2, 4, 8, 16]
    alpha, beta = pass_costs.fitted(sizes, 0.003 + 0.0005 * np.array(sizes))
    assert (alpha, beta) == pytest.approx((0.003, 0.0005), rel=1e-9)


class Row(str):
    """A contestant that is its name."""

    name = property(str)


def test_rates_of_steps_carry_the_goals_of_the_ladder_and_others_keep_their_names(monkeypatch):
    """Every contestant is there, but nothing is played: 1 us for each letter of its row."""

    def take_turns(contestants, seconds, repeats):
        return {row: Timing(row, 1, (1e-6 * len(row),) * repeats) for row in contestants}

    monkeypatch.setattr(step_rate, "take_turns", take_turns)
    for kind in ("single", "vector"):
        monkeypatch.setattr(step_rate, kind, lambda row, *_, **__: Row(row))
    found = {(f.name, f.unit): f for f in step_rate.figures(step_rate.Options(num_envs=(2, 256)))}
    cartpole = f"x {step_rate.YARDSTICK}"
    goals = {key: f.goal for key, f in found.items() if f.goal is not None and "2 in a" not in key[0]}
    twins = [
        (f"{size}-{tier}", rows)
        for size in ("small", "medium")
        for tier in ("churn", "wild")
        for rows in ("single", "256 in a vector")
    ]
    assert goals == {
        ("small, single", cartpole): 10.0,
        ("medium, single", cartpole): 10.0,
        ("xlarge, single", cartpole): 30.0,
        ("medium, 256 in a vector", cartpole): 0.3,
        ("xlarge over medium, 256 in a vector", "x medium, 256 in a vector"): 50.0,
        **{(f"{name}, {rows}", f"x {name}, static, {rows}"): 3.0 for name, rows in twins},
    }
    assert ("xlarge over medium, 2 in a vector", "x medium, 2 in a vector") in found
    for (name, unit), figure in found.items():
        row = name.replace(" over medium", "")
        assert figure.value == pytest.approx(len(row) / len(unit.removeprefix("x ")))
    options = step_rate.Options(ids=(BOARDS,), tiers=(), num_envs=())
    others = {f.name: f.goal for f in step_rate.figures(options)}
    assert others == dict.fromkeys(("CartPole-v1", "Pendulum-v1", f"{BOARDS}, single"))


def test_a_call_counts_every_environment():
    assert step_rate.single("row", NAME).units == 1
    assert step_rate.vector("row", NAME, 5).units == 5
    assert gpu.torch_contestant("small", 4, "cpu", "float32").units == 4


@pytest.mark.parametrize("tier", TIERS)
def test_the_twin_of_a_tier_differs_in_what_moves_alone(tier):
    scenario = load_scenario(f"small-{tier}")
    twin = step_rate.static_twin(scenario)
    assert {p.name for p in active_processes(twin)} <= {"shadowing", "fading"}
    assert {p.name for p in active_processes(scenario)} > {p.name for p in active_processes(twin)}
    for section in ("workload", "cluster", "radio", "budgets", "devices", "overheads"):
        assert getattr(twin, section) == getattr(scenario, section)
