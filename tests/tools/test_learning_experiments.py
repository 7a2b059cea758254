"""The experiments on learning: what is trained, what is kept, and what is written of it."""

from dataclasses import replace

import fixed_plans
import generated_parts
import numpy as np
import pytest
from studies import learning_experiments as experiments
from studies import learning_runs
from tool_support import tiny_scenario

import docs as tool
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.episode import HELD_OUT_SEED
from collapipe_env.evaluation.plotting import new_figure
from collapipe_env.ground.errors import DataError
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.even_split import even_split
from collapipe_env.simulator.world import World

WHOLE = tool.entries()["learning/experiments"]
CASES = ("reference", "fewest", "one", "many", "crowded", "crowded-lossless", "skewed", "steps")
ENTRY = {
    **WHOLE,
    "cases": {name: WHOLE["cases"][name] for name in CASES},
    "panels": {
        name: dict(list(of.items())[: 2 if name == "segments" else 1]) for name, of in WHOLE["panels"].items()
    },
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_scenario(tmp_path_factory.mktemp("scenario"))


@pytest.fixture(scope="module")
def options(tiny, tmp_path_factory):
    return learning_runs.Training(str(tiny), 4, 2, tmp_path_factory.mktemp("experiments"), 1, drawn=False)


@pytest.fixture(scope="module")
def results(options, tiny):
    return experiments.trained(ENTRY, options, load_scenario(str(tiny)))


def test_cases_differ_in_what_they_are_about(results):
    assert set(results) == set(ENTRY["cases"])
    for case in results.values():
        for one, delay in zip(case.curves, case.delays, strict=True):
            assert len(one.loss) == len(one.seconds) == 1 + len(one.metric) == 5
            assert delay == pytest.approx(one.seconds[-1] / 4)
    delay = {name: one.delays[0] for name, one in results.items()}
    assert results["fewest"].segments < results["reference"].segments
    assert delay["one"] > delay["reference"] > delay["many"]
    assert results["crowded"].arrived.min() < results["crowded-lossless"].arrived.min() == 1.0
    assert delay["crowded-lossless"] == delay["crowded"]
    assert delay["steps"] > delay["reference"]
    skewed, reference = (results[name].curves[0] for name in ("skewed", "reference"))
    assert (skewed.loss != reference.loss).any()
    assert (skewed.seconds == reference.seconds).all()


def test_the_reference_is_what_the_environment_does(results, tiny):
    """Played here by hand, with the even split and the real learner."""
    changes = {**ENTRY["with"], **learning_runs.evaluations(4, 30)}
    scenario = load_scenario(str(tiny)).with_overrides(changes)
    env = CollaPipeVectorEnv(1, scenario, "real", reward="delay", autoreset_mode="Disabled")
    env.reset(seed=HELD_OUT_SEED)
    losses, arrived = [], []
    for _ in range(4):
        env.step_allocation(even_split(system_parameters(scenario), env.state, 4))
        losses.append(float(env.last_round.learning.loss[0]))
        arrived.append(env.last_round.surviving_fraction()[0])
    first = results["reference"].curves[0]
    np.testing.assert_allclose(first.loss[1:], losses, rtol=1e-6)
    second = CollaPipeVectorEnv(1, scenario, "surrogate", reward="delay", autoreset_mode="Disabled")
    second.reset(seed=HELD_OUT_SEED + 1)
    for _ in range(4):
        second.step_allocation(even_split(system_parameters(scenario), second.state, 4))
        arrived.append(second.last_round.surviving_fraction()[0])
    np.testing.assert_allclose(results["reference"].arrived, np.mean(arrived, axis=0))


def small_figure(width, height):
    figure = new_figure(width, height)
    figure.set_dpi(20)
    figure.set_layout_engine("none")
    return figure


def test_the_table_and_the_picture_hold_every_case(results, options, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(learning_runs, "PICTURES", tmp_path)
    monkeypatch.setattr(learning_runs.Training, "of", lambda *_: replace(options, drawn=True))
    monkeypatch.setattr(experiments, "trained", lambda *_: results)
    monkeypatch.setattr(experiments, "new_figure", small_figure)
    text = experiments.study(ENTRY, False)
    assert text.count("\n| ") == len(ENTRY["cases"])  # the head has none before it
    assert "4 rounds, 2 seeds" in text
    assert (tmp_path / experiments.FIGURE).read_bytes().startswith(b"\x89PNG")


def test_finished_runs_are_not_trained_again(results, options, tiny):
    played = {path: path.stat().st_mtime_ns for path in options.work.rglob("*.npz")}
    assert len(played) == 2 * len(ENTRY["cases"])
    again = experiments.trained(ENTRY, options, load_scenario(str(tiny)))
    assert {path: path.stat().st_mtime_ns for path in played} == played
    assert again["many"].delays == results["many"].delays


def test_fewest_devices_take_the_largest_memories():
    scenario = load_scenario("medium")
    simulator = World(scenario, IdleLearner(2), 2)
    state = simulator.reset([np.random.default_rng(seed) for seed in range(2)])
    blocks = fixed_plans.FewestDevices(scenario).allocate(state).blocks
    assert (blocks.sum(axis=-1) == scenario.blocks).all()
    assert (blocks <= state.memory_cap).all()
    for e in range(2):
        for n in range(scenario.clusters):
            largest = np.sort(state.memory_cap[e, n])[::-1]
            count = int((blocks[e, n] > 0).sum())
            assert largest[:count].sum() >= scenario.blocks > largest[: count - 1].sum()


@pytest.mark.parametrize(
    ("plan", "count"), [(fixed_plans.OneMicroBatch, 1), (fixed_plans.ManyMicroBatches, 64)]
)
def test_fixed_numbers_of_micro_batches(plan, count):
    scenario = load_scenario("medium")
    state = World(scenario, IdleLearner(1), 1).reset([np.random.default_rng(0)])
    assert (plan(scenario).allocate(state).micro_batches == count).all()


def test_time_to_a_loss_is_interpolated():
    run = learning_runs.Curve(np.array([0.0, 10.0, 30.0]), np.array([1.0, 0.8, 0.4]), np.zeros(2))
    assert learning_runs.time_to_loss(run, 1.0) == 0.0
    assert learning_runs.time_to_loss(run, 0.9) == pytest.approx(5.0)
    assert learning_runs.time_to_loss(run, 0.5) == pytest.approx(25.0)
    assert learning_runs.time_to_loss(run, 0.4) == 30.0
    assert np.isnan(learning_runs.time_to_loss(run, 0.3))
    assert learning_runs.reached([1.0, float("nan")]) == "1 of 2 reach it"


@pytest.mark.parametrize(
    ("rounds", "evaluations", "every"), [(150, 30, 5), (7, 30, 1), (150, 20, 6), (97, 20, 1)]
)
def test_the_last_round_is_evaluated(rounds, evaluations, every):
    assert learning_runs.evaluations(rounds, evaluations)["learning.evaluate_every"] == every
    assert rounds % every == 0


def test_a_page_without_its_marks_is_left_alone(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("nothing to fill\n")
    with pytest.raises(DataError, match="generated: experiments"):
        generated_parts.write_parts(page, {"experiments": "numbers"})
    assert page.read_text() == "nothing to fill\n"
