"""Tuning of DSSRA+: the search, what candidates cost, files, and what is chosen."""

import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collapipe_env.agents.dssra.plus import DSSRAPlus
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation import episode as episodes_module
from collapipe_env.evaluation import tuning
from collapipe_env.evaluation.episode import HELD_OUT_SEED, play_episode
from collapipe_env.evaluation.tuning import CHECK_SEED, TUNING_SEED, TuningPlan, tune
from collapipe_env.evaluation.tuning_report import against, tuning_page, tuning_record
from collapipe_env.evaluation.tuning_space import RANGES, neutral_scalars, tunable
from collapipe_env.evaluation.tuning_study import search
from collapipe_env.evaluation.tuning_trial import Candidate, Trial, play_candidate
from collapipe_env.ground.errors import DataError, ScenarioError
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters

SCENARIO = load_scenario(
    {
        "base": "small",
        "name": "moving",
        "radio": {"d2d_total_hz": 8e6},
        "dynamics": {"rounds": 12, "load_levels": [0.3, 1.0], "processes": {"migration": {}}},
    }
)


def plan_of(folder, **changes) -> TuningPlan:
    usual = TuningPlan(
        scenario=SCENARIO,
        scheduler="dssra-plus",
        names=("migration_weight",),
        candidates=2,
        episodes=2,
        check_episodes=2,
        rounds=3,
        seed=0,
        store=folder / "candidates.db",
    )
    return replace(usual, **changes)


def trial(priced, weight=1.0, whole=True, excess=0.0, delay=None) -> Trial:
    E = len(priced)
    delay = priced if delay is None else delay
    over = (excess,) * E
    return Trial({"migration_weight": weight}, tuple(delay), tuple(priced), over, over, whole)


def test_only_scalars_that_mean_something_are_tuned() -> None:
    def names(processes):
        return tunable(load_scenario({"base": "small", "dynamics": {"processes": processes}}))

    assert names({"migration": {}}) == ("migration_weight",)
    assert names({"heat": {}}) == ("heat_price", "heat_start")
    assert names({"heat": {}, "migration": {}}) == ("migration_weight", "heat_price", "heat_start")
    assert names({"channel_knowledge": {}}) == ("channel_weight", "gain_caution")
    assert names({"channel_knowledge": {"modes": ["mean"]}}) == ("gain_caution",)
    for processes in ({}, {"migration": {"moments": "reset"}}):
        with pytest.raises(ScenarioError, match=r"'custom' has nothing to tune: .* dssra-plus equals dssra"):
            names(processes)


def searched(names, candidates, seed, cost, failed=lambda _: False):
    """Batches and costs of a search; both functions take coordinates from 0 to 1 within the ranges."""
    batches = []

    def play(asked):
        batches.append(list(asked.values()))
        found = []
        for one in asked.values():
            at = np.array([place(name, one[name]) for name in names])
            value, over = (cost(at),), (float(failed(at)),)
            found.append(Trial(one, value, value, over, over, True))
        return found

    return batches, search(names, candidates, seed, play)


def place(name: str, value: float) -> float:
    low, high, log = RANGES[name]
    low, high, at = np.log([low, high, max(value, low)]) if log else (low, high, value)
    return float((at - low) / (high - low))


@pytest.mark.parametrize("names", [("migration_weight",), ("migration_weight", "heat_price", "heat_start")])
def test_the_search_gets_nearer_than_chance(names) -> None:
    goal = np.array([0.31, 0.77, 0.6])[: len(names)]

    def cost(at):
        return float(np.square(at - goal).sum())

    found, drawn = [], []
    for seed in range(3):
        batches, trials = searched(names, 60, seed, cost)
        assert batches[0][0] == neutral_scalars(names)
        assert list(map(len, batches)) == [20, *[6] * 6, 4]
        for one in trials[1:]:
            for name, value in one.scalars.items():
                assert RANGES[name].low <= value == float(f"{value:.4g}") <= RANGES[name].high
        found.append(min(trial.score for trial in trials))
        drawn.append(min(trial.score for trial in trials[:20]))
        uniform = np.random.default_rng(seed).random((60, len(names)))
        drawn.append(min(map(cost, uniform)))
    assert np.median(found) < 0.3 * np.median(drawn)


def test_the_search_keeps_away_from_candidates_over_their_budgets() -> None:
    """The least delay is where the energy budgets are overdrawn; the rest is best at the edge."""
    found, within = [], 0
    for seed in range(5):
        _, trials = searched(("heat_start",), 30, seed, lambda at: at[0], failed=lambda at: at[0] < 0.4)
        over, least = min(trial.rank for trial in trials)
        assert not over
        found.append(least)
        within += sum(not trial.gate.failed for trial in trials[10:])
    assert np.median(found) == pytest.approx(0.4, abs=0.02)
    assert within > 50  # of 100


def test_the_search_is_the_same_for_the_same_seed_whatever_else_draws() -> None:
    def run(seed, disturbed):
        np.random.seed(1 + disturbed)  # noqa: NPY002 - the global generator is what is asked about

        def cost(at):
            np.random.random(disturbed)  # noqa: NPY002
            return float(at.sum())

        return searched(("migration_weight", "heat_price"), 20, seed, cost)[0]

    assert run(0, 0) == run(0, 3)
    assert run(0, 0) != run(1, 0)


def test_a_candidate_costs_what_an_evaluation_finds(monkeypatch) -> None:
    """Episode by episode with the code of evaluations, and the price by DSSRA's own objectives."""
    plan = plan_of(Path(), rounds=10, episodes=3)
    task = plan.candidate("candidate 1", {"migration_weight": 0.3}, TUNING_SEED, 3)
    found, scenario = play_candidate(task), task.scenario
    monkeypatch.setattr(episodes_module, "HELD_OUT_SEED", TUNING_SEED)
    for index in range(3):
        alone = play_episode("dssra-plus", DSSRAPlus(scenario), scenario, index, 10, "surrogate").result
        assert found.delay[index] == pytest.approx(np.mean(alone.delay), rel=1e-12)
        assert found.energy_excess[index] == pytest.approx(alone.worst_energy_ratio - 1.0, rel=1e-9)
        assert found.backlog_slope[index] == pytest.approx(alone.backlog_slope, rel=1e-9)
    env = CollaPipeVectorEnv(3, scenario, "surrogate", autoreset_mode="Disabled")
    env.reset(seed=TUNING_SEED)
    plus, total = DSSRAPlus(scenario), np.zeros(3)
    full = DSSRAPlus(scenario, migration_weight=1.0)  # its objective counts moves as they are charged
    for _ in range(10):
        state = env.state.map(np.copy)
        plan = plus.allocate(state)
        total += full.objective(state, plan)
        env.step_allocation(plan)
    V = system_parameters(scenario).tradeoff_v
    np.testing.assert_allclose(found.priced, total / (10 * V), rtol=1e-9)


def test_seeds_are_nobody_elses() -> None:
    most = 10_000 * 4999 + 1000
    assert TUNING_SEED + most < CHECK_SEED
    assert CHECK_SEED + most < 1_100_000_000 < HELD_OUT_SEED


@pytest.mark.slow  # the contract of commands has it, too
def test_interrupted_and_gone_on_with_it_finds_the_same(tmp_path) -> None:
    whole = tune(plan_of(tmp_path / "whole", candidates=5))
    assert whole.trials[0].scalars == {"migration_weight": 1.0}
    assert len(whole.trials) == 5
    rounds = 0

    def stop_in_the_fourth() -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 3 * 3 + 1:
            raise KeyboardInterrupt

    parts = plan_of(tmp_path / "parts", candidates=5)
    with pytest.raises(KeyboardInterrupt):
        tune(parts, stop_in_the_fourth)
    kept, played = [], 0

    def count() -> None:
        nonlocal played
        played += 1

    again = tune(parts, count, lambda place, _, known: kept.append(place) if known else None)
    assert again == whole
    assert kept == ["candidate 0", "candidate 1", "candidate 2"]
    checks = 0 if whole.check is None else 2
    assert played == (5 - 3 + checks) * 3
    played = 0
    assert tune(parts, count) == whole
    assert played == 0


def test_candidates_of_something_else_are_measured_again(tmp_path) -> None:
    first = tune(plan_of(tmp_path, candidates=1))
    longer = tune(plan_of(tmp_path, candidates=1, rounds=4))
    assert longer.trials[0].delay != first.trials[0].delay


def change(file: Path, name: str, value: str) -> None:
    with sqlite3.connect(file) as data:
        done = data.execute("UPDATE trial_user_attributes SET value_json = ? WHERE key = ?", (value, name))
        assert done.rowcount
    data.close()


def other_tables(file: Path) -> None:
    file.unlink()
    data = sqlite3.connect(file)
    data.execute("CREATE TABLE birds (name)")
    data.close()


def of_pages(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[:4096] + b"?" * (len(content) - 4096))


def other_study(file: Path) -> None:
    import optuna

    file.unlink()
    storage = optuna.storages.RDBStorage(f"sqlite:///{file}")
    optuna.create_study(storage=storage, study_name="other")
    storage.remove_session(), storage.engine.dispose()


DAMAGES = {
    "lengths": lambda file: change(file, "delay", "[1.0]"),
    "text": lambda file: change(file, "priced", '["much", 1.0, 1.0]'),
    "no number": lambda file: change(file, "priced", "[null, 1.0, 1.0]"),
    "no JSON": lambda file: change(file, "energy_excess", "{"),
    "key": lambda file: change(file, "key", "[]"),
    "study": other_study,
    "pages": of_pages,
    "other tables": other_tables,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named_with_the_remedy(tmp_path, kept, damage) -> None:
    plan = replace(kept[0], store=tmp_path / "candidates.db")
    shutil.copy(kept[0].store, plan.store)
    DAMAGES[damage](plan.store)
    with pytest.raises(DataError, match=r"^cannot use .*candidates\.db .*: delete it, and .*--out$") as told:
        tune(plan)
    assert "\n" not in str(told.value)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A plan that was carried out, and its outcome."""
    plan = plan_of(tmp_path_factory.mktemp("kept"), candidates=1, episodes=3)
    return plan, tune(plan)


def test_what_a_deleted_database_left_behind_does_no_harm(tmp_path, kept) -> None:
    plan = replace(kept[0], store=tmp_path / "candidates.db")
    Path(f"{plan.store}-journal").write_bytes(b"of another database" * 100)
    assert tune(plan) == kept[1]


def test_what_is_kept_can_be_looked_at_with_optuna(tmp_path) -> None:
    import optuna

    tuned = tune(plan_of(tmp_path, names=("migration_weight", "heat_price"), candidates=2))
    storage = optuna.storages.RDBStorage(f"sqlite:///{tmp_path}/candidates.db")
    trials = {
        t.user_attrs["candidate"]: t for t in optuna.load_study(study_name=None, storage=storage).trials
    }
    storage.remove_session(), storage.engine.dispose()
    neutral, other = trials["candidate 0"], trials["candidate 1"]
    assert neutral.params == {"migration_weight": 1.0, "heat_price": 0.001}  # the nearest in the range
    assert other.params == tuned.trials[1].scalars
    assert other.value == pytest.approx(np.mean(tuned.trials[1].priced))


def test_who_fails_the_energy_gate_comes_last() -> None:
    cheap = trial([5.0, 5.0], 0.1, excess=0.05)
    dear = trial([9.0, 9.0], 0.2, excess=0.01)
    assert cheap.gate.failed
    assert not dear.gate.failed
    assert cheap.rank > dear.rank
    assert trial([5.0, 5.0], whole=False, excess=0.05).rank == (False, 5.0)


def test_differences_are_of_the_same_episodes() -> None:
    first, second = trial([10.0, 20.0], delay=[5.0, 5.0]), trial([8.0, 24.0], delay=[4.0, 6.0])
    assert against(first, second).mean == pytest.approx((10 / 8 + 20 / 24) / 2 - 1)
    assert against(first, second, "delay").mean == pytest.approx((5 / 4 + 5 / 6) / 2 - 1)


def played_by(scores, monkeypatch):
    """Let candidates cost what a function of their weight and the first seed says."""

    def play(task: Candidate, on_round) -> Trial:
        weight = task.scalars["migration_weight"]
        return trial([scores(weight, task.seed)] * task.episodes, weight)

    monkeypatch.setattr(tuning, "play_candidate", play)


def test_fresh_episodes_decide_between_the_best_and_neutral(tmp_path, monkeypatch) -> None:
    def lucky(weight, seed):
        better = weight != 1.0 and seed < CHECK_SEED
        return 5.0 if better else 6.0 + (weight != 1.0)

    played_by(lucky, monkeypatch)
    plan = plan_of(tmp_path, candidates=4, check_episodes=5)
    tuned = tune(plan)
    assert tuned.best != 0
    assert tuned.chosen == {"migration_weight": 1.0}
    text = tuning_page(plan, tuned).markdown()
    assert "no difference beyond chance; the neutral scalars stay" in text


def test_what_is_better_on_fresh_episodes_is_chosen(tmp_path, monkeypatch) -> None:
    played_by(lambda weight, _: abs(weight - 0.3) + 1.0, monkeypatch)
    plan = plan_of(tmp_path, candidates=5, check_episodes=5)
    tuned = tune(plan)
    assert tuned.chosen == tuned.trials[tuned.best].scalars
    assert abs(tuned.chosen["migration_weight"] - 0.3) < 0.7
    text = tuning_page(plan, tuned).markdown()
    assert "better beyond chance" in text
    assert tuning_record(tuned)["chosen"] == tuned.chosen
    few = tuning_page(replace(plan, check_episodes=4), tuned).markdown()
    assert "too few episodes to tell" in few


def test_where_nothing_is_better_there_is_no_check(tmp_path, monkeypatch) -> None:
    played_by(lambda weight, _: 1.0 + abs(np.log(weight)), monkeypatch)
    plan = plan_of(tmp_path)
    tuned = tune(plan)
    assert (tuned.best, tuned.check, tuned.chosen) == (0, None, {"migration_weight": 1.0})
    assert "No candidate is better than the neutral scalars" in tuning_page(plan, tuned).markdown()
