"""``--task`` and ``--dataset``: which scenario they make, and that bad data is known before any work."""

import json
from pathlib import Path

import pytest

from collapipe_env.cli.chosen import chosen_scenario
from collapipe_env.cli.main import main
from collapipe_env.ground.errors import DataError

TAGGED = "Ada B-who\nsings O\n\nBo B-who\nsits O\n\n" * 10


def tagged(folder: Path) -> Path:
    path = folder / "names.v2.conll"
    path.write_text(TAGGED)
    return path


def test_without_options_the_scenario_is_as_it_was() -> None:
    assert chosen_scenario("small", None, None) == chosen_scenario("small", "classification", None)
    assert chosen_scenario("small", None, None).name == "small"


def test_task_and_data_give_name_and_outputs(tmp_path: Path) -> None:
    scenario = chosen_scenario("small", "ner", str(tagged(tmp_path)))
    assert scenario.name == "small-ner-names"
    assert (scenario.workload.task, scenario.workload.outputs) == ("ner", 3)
    assert scenario.learning.dataset == str(tmp_path / "names.v2.conll")
    assert chosen_scenario("small", "translation", None).name == "small-translation"


def test_folders_typed_with_dots_have_names(tmp_path: Path, monkeypatch) -> None:
    for name in ("mine", ".hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.tsv").write_text("good film\t1\nbad film\t0\n" * 10)
        monkeypatch.chdir(tmp_path / name)
        assert chosen_scenario("small", None, ".").name == f"small-{name.strip('.')}"


@pytest.mark.parametrize("dataset", ["absent.tsv", "~nobody-has-this-name/x"])
def test_data_that_is_not_there(dataset: str) -> None:
    with pytest.raises(DataError, match=r"check|no such file"):
        chosen_scenario("small", None, dataset)


NAMED = ("German,English\n" + "eins,one\nzwei,two\n" * 10, "mine.csv: translates en -> de")


@pytest.mark.parametrize(
    ("command", "content", "line"),
    [
        *((command, *NAMED) for command in ("train", "evaluate --learner surrogate", "compare")),
        ("execute", "eins,one\nzwei,two\n" * 10, "mine.csv: translates the first column -> the second"),
    ],
)
def test_every_run_says_the_direction_of_its_translation(
    command: str, content: str, line: str, tmp_path: Path, capsys, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.csv").write_text(content)
    Path("mine.yaml").write_text(
        "name: mine\nbase: small\nworkload: {task: translation}\nlearning: {dataset: mine.csv}\n"
    )
    Path("taken").touch()  # nothing is played: the run's folder cannot be made
    plural = "s" if command.startswith("compare") else ""
    assert main([*command.split(), f"--scenario{plural}", "mine.yaml", "--out", "taken"]) == 2
    assert capsys.readouterr().out.splitlines() == [line]


def test_data_of_another_format_is_refused_whichever_learner_plays(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.tsv").write_text("one\ttwo\tthree\n" * 20)
    with pytest.raises(DataError, match=r"^mine\.tsv:1: 3 columns where 2 are expected"):
        chosen_scenario("small", "translation", "mine.tsv")


def test_a_held_out_label_that_training_lacks_is_refused_without_training(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("good film\tp\nbad film\tn\n" * 5)
    (tmp_path / "test.tsv").write_text("fine film\tp\nodd film\tx\n")
    with pytest.raises(DataError, match=r"test\.tsv:2: label 'x' never occurs in training"):
        chosen_scenario("small", None, str(tmp_path))


def test_every_metric_is_in_the_results_and_they_are_read_again(tmp_path: Path, capsys) -> None:
    command = [
        *("evaluate", "--scenario", "small", "--task", "ner", "--dataset", str(tagged(tmp_path))),
        *("--schedulers", "pipeline", "--episodes", "1", "--rounds", "1", "--processes", "1"),
        *("--learner", "real", "--no-figures", "--out", str(tmp_path / "out")),
    ]
    assert main(command) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    (line,) = results["summary"]
    assert list(line["metrics"]) == ["entity_f1", "entity_precision", "entity_recall", "token_accuracy"]
    assert line["metric"] == line["metrics"]["entity_f1"]
    assert {"tokenizers", "sacrebleu", "nervaluate"} <= set(results["versions"])
    table = (tmp_path / "out" / "table.md").read_text()
    assert "entity F1 (%)" in table
    assert main(command) == 0
    assert (tmp_path / "out" / "table.md").read_text() == table
