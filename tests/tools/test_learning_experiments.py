"""The experiments on learning: what is trained, what is kept, and what is written of it."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import experiment_runs
import generated_parts
import make_learning_experiments as experiments

from collapipe_env.errors import DataError
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.world import World

TINY = {
    "workload.blocks": 2,
    "workload.batch_size": 8,
    "learning.proxy.width": 8,
    "learning.proxy.feedforward": 8,
    "learning.proxy.sequence_length": 8,
    "learning.proxy.vocabulary": 200,
    "learning.evaluation_samples": 20,
    "learning.metric_samples": 20,
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A scenario that trains in no time."""
    path = tmp_path_factory.mktemp("scenario") / "tiny.yaml"
    path.write_text(load_scenario("small").with_overrides({"name": "tiny", **TINY}).to_yaml())
    return path


@pytest.fixture(scope="module")
def trained(tiny, tmp_path_factory):
    """Work folder and page after the command was run once."""
    folder = tmp_path_factory.mktemp("experiments")
    page = folder / "learning.md"
    marks = [
        f"{generated_parts.BEGIN.format(part)}\nold\n{generated_parts.END.format(part)}"
        for part in ("experiments", "experiments command")
    ]
    page.write_text("\n".join(["Words before", *marks, "Words after", ""]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment_runs, "PAGE", page)
        patch.setattr(experiment_runs, "PICTURES", folder / "images")
        assert experiments.main(arguments(tiny, folder)) == 0
    return folder


def arguments(tiny, folder, *more):
    sizes = ("--rounds", "4", "--seeds", "2", "--processes", "1")
    return ["--scenario", str(tiny), *sizes, "--work", str(folder / "work"), *more]


def results(folder):
    return json.loads((folder / "work" / "summary.json").read_text())["results"]


def test_every_case_is_trained_for_every_seed(trained):
    found = results(trained)
    assert set(found) == set(experiments.CASES)
    for case in found.values():
        assert len(case) == 2
        for one in case:
            assert one["rounds"] == [0, 1, 2, 3, 4]
            assert np.all(np.diff(one["seconds"]) > 0.0)
            assert one["delay"] == pytest.approx(one["seconds"][-1] / 4)


def test_cases_differ_in_what_they_are_about(trained):
    found = {name: runs[0] for name, runs in results(trained).items()}
    assert found["fewest"]["segments"] < found["reference"]["segments"]
    assert found["one"]["delay"] > found["reference"]["delay"] > found["many"]["delay"]
    assert min(found["crowded-lossless"]["survival"]) == 1.0
    assert found["crowded-lossless"]["delay"] == found["crowded"]["delay"]
    assert found["steps"]["delay"] > found["reference"]["delay"]
    assert found["skewed"]["loss"] != found["reference"]["loss"]
    assert found["skewed"]["seconds"] == found["reference"]["seconds"]


def test_page_figure_and_table_are_written(trained):
    page = (trained / "learning.md").read_text()
    table = (trained / "work" / "table.md").read_text().strip()
    assert page.startswith("Words before\n")
    assert page.endswith("Words after\n")
    assert table in page
    assert "\nold\n" not in page
    assert "python tools/make_learning_experiments.py --scenario" in page
    assert table.count("\n| ") == len(experiments.CASES)  # the head has none before it
    for picture in (trained / "work", trained / "images"):
        assert (picture / experiments.FIGURE).read_bytes().startswith(b"\x89PNG")


def test_finished_runs_are_not_trained_again(trained, tiny, monkeypatch, capsys):
    def refuse(*_):
        raise AssertionError("trained again")

    monkeypatch.setattr(experiment_runs, "_played", refuse)
    assert experiments.main(arguments(tiny, trained, "--no-page")) == 0
    assert (trained / "work" / "table.md").read_text().strip() in capsys.readouterr().out


def test_a_run_of_other_settings_is_trained_again(trained, tiny):
    options = experiments.Options(scenario=str(tiny), rounds=4, seeds=1, work=trained / "work")
    run = experiments.runs_of(options, load_scenario(str(tiny)))[0]
    assert experiment_runs.finished(run) is not None
    assert experiment_runs.finished(replace(run, micro_batches=2)) is None


def test_a_damaged_file_is_refused_with_its_name(trained, tiny, tmp_path):
    options = experiments.Options(scenario=str(tiny), rounds=4, seeds=1, work=tmp_path)
    run = experiments.runs_of(options, load_scenario(str(tiny)))[0]
    run.folder.mkdir(parents=True)
    run.file.write_text(json.dumps({"key": run.key, "result": {"rounds": []}}))
    with pytest.raises(DataError, match=r"reference-0\.json holds no result"):
        experiment_runs.finished(run)


def test_page_only_without_runs_is_refused(tiny, tmp_path, capsys):
    assert experiments.main(arguments(tiny, tmp_path, "--page-only", "--no-page")) == 2
    assert "leave --page-only out" in capsys.readouterr().err


def test_interruption_says_how_to_go_on(tiny, tmp_path, monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(experiment_runs, "_played", interrupt)
    assert experiments.main(arguments(tiny, tmp_path, "--no-page")) == 130
    assert "python tools/make_learning_experiments.py --scenario" in capsys.readouterr().err


def test_fewest_devices_take_the_largest_memories():
    scenario = load_scenario("medium")
    simulator = World(scenario, IdleLearner(2), 2)
    state = simulator.reset([np.random.default_rng(seed) for seed in range(2)])
    blocks = experiment_runs.fewest_devices(system_parameters(scenario), state, 4).blocks
    assert (blocks.sum(axis=-1) == scenario.blocks).all()
    assert (blocks <= state.memory_cap).all()
    for e in range(2):
        for n in range(scenario.clusters):
            largest = np.sort(state.memory_cap[e, n])[::-1]
            count = int((blocks[e, n] > 0).sum())
            assert largest[:count].sum() >= scenario.blocks > largest[: count - 1].sum()


def test_time_to_a_loss_is_interpolated():
    run = experiment_runs.RunResult(
        rounds=[0, 1, 2], seconds=[0.0, 10.0, 30.0], loss=[1.0, 0.8, 0.4], metrics={}, delay=15.0,
        segments=1.0, survival=[1.0], processor_s=1.0,
    )  # fmt: skip
    assert experiment_runs.time_to_loss(run, 1.0) == 0.0
    assert experiment_runs.time_to_loss(run, 0.9) == pytest.approx(5.0)
    assert experiment_runs.time_to_loss(run, 0.5) == pytest.approx(25.0)
    assert np.isnan(experiment_runs.time_to_loss(run, 0.3))
    assert experiment_runs.reached([1.0, float("nan")]) == "1 of 2 reach it"


@pytest.mark.parametrize(
    ("rounds", "evaluations", "every"), [(150, 30, 5), (7, 30, 1), (150, 20, 6), (97, 20, 1)]
)
def test_the_last_round_is_evaluated(rounds, evaluations, every):
    assert experiment_runs.evaluation_interval(rounds, evaluations) == every
    assert rounds % every == 0


def test_examples_of_the_page_are_valid(tmp_path):
    page = (experiment_runs.DOCS / "learning.md").read_text()
    examples = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert len(examples) >= 4
    for number, example in enumerate(examples):
        path = tmp_path / f"{number}.yaml"
        path.write_text(example)
        assert load_scenario(str(path)).name in example


def test_the_page_has_all_its_marks():
    page = (experiment_runs.DOCS / "learning.md").read_text()
    for part in ("experiments", "experiments command", "tasks", "tasks command"):
        assert page.count(generated_parts.BEGIN.format(part)) == 1
        assert page.count(generated_parts.END.format(part)) == 1


def test_a_page_without_its_marks_is_left_alone(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("nothing to fill\n")
    with pytest.raises(DataError, match="generated: experiments"):
        generated_parts.write_parts(page, {"experiments": "numbers"})
    assert page.read_text() == "nothing to fill\n"
