"""The table of tasks: baselines by hand, and what the command writes and keeps."""

import gzip

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="a baseline is scikit-learn's")
from studies import learning_runs
from studies import simple_baselines as baselines
from studies import task_results as tasks
from tool_support import tiny_scenario

import docs as tool
from collapipe_env.evaluation.episode_files import EpisodeFiles
from collapipe_env.scenario import load_scenario

ENTRY = tool.entries()["learning/tasks"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A data folder with one small set of sentences, in place of SST-2."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "cls" / "sst2").mkdir(parents=True)
    for part, count in (("train", 40), ("dev", 10), ("test", 10)):
        lines = [f"{'good' if i % 2 else 'bad'} film number {i % 3}\t{i % 2}" for i in range(count)]
        (folder / "cls" / "sst2" / f"{part}.tsv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """Folder of the runs, the picture and the part, on sets at sizes that train in no time."""
    folder = tmp_path_factory.mktemp("tasks")
    sets = {name: ENTRY["sets"][name] | {"with": {}, "rounds": 2} for name in ("reviews", "sst2", "wnut17")}
    options = learning_runs.Training(str(tiny_scenario(folder)), 2, 2, folder / "runs", 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLLAPIPE_DATA", str(data))
        patch.setattr(learning_runs, "PICTURES", folder)
        patch.setattr(learning_runs.Training, "of", lambda *_: options)
        return folder, tasks.study(ENTRY | {"sets": sets}, False)


def test_numbers_are_those_of_the_runs_and_the_picture_is_written(trained):
    folder, text = trained
    found = [EpisodeFiles(folder / "runs" / "sst2", "dssra", episode).read() for episode in range(2)]
    mean = np.mean([episode.metrics["accuracy"] for episode in found])
    line = next(line for line in text.splitlines() if "| SST-2 | accuracy |" in line)
    assert f"| {mean:.3f}" in line
    assert "| 0.500 (majority class) |" in line
    assert "Left out, since the data was missing: WNUT-17" in text
    assert (folder / tasks.FIGURE).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ENTRY["sets"])
def test_settings_of_every_set_are_valid(name):
    chosen = ENTRY["sets"][name]
    scenario = load_scenario("small").with_task(chosen["task"])
    changed = scenario.with_overrides({**ENTRY["with"], **chosen.get("with", {})})
    assert changed.workload.task == chosen["task"]


def test_shortened_pairs_are_the_first(tmp_path):
    whole = tmp_path / "pairs"
    whole.mkdir()
    for language in ("en", "de"):
        text = "".join(f"{language} {i}\n" for i in range(5)).encode()
        (whole / f"train.{language}.gz").write_bytes(gzip.compress(text))
        (whole / f"val.{language}").write_bytes(text)
    folder = tasks.shortened(whole, 2, tmp_path / "short")
    assert sorted(path.name for path in folder.iterdir()) == ["train.de", "train.en", "val.de", "val.en"]
    assert (folder / "train.de").read_text() == "de 0\nde 1\n"
    assert (folder / "val.en").read_text().count("\n") == 5


def test_majority_class_by_hand():
    found = baselines.majority_class((["a"] * 3, ["x", "y", "x"]), (["b"] * 4, ["x", "x", "x", "y"]))
    assert found.scores == {"accuracy": 0.75, "mcc": 0.0}


def test_matthews_correlation_by_hand():
    # 2 true positives, 3 true negatives, 1 false positive, 2 false negatives.
    said = list("11010000")
    right = list("11001100")
    by_hand = (2 * 3 - 1 * 2) / np.sqrt(3 * 4 * 4 * 5)
    assert baselines.class_scores(said, right)["mcc"] == pytest.approx(by_hand)
    assert baselines.class_scores(right, right)["mcc"] == pytest.approx(1.0)


def test_naive_bayes_by_hand():
    train = (["good good film", "bad film"], ["1", "0"])
    found = baselines.naive_bayes(train, (["good", "bad", "good bad film"], ["1", "0", "1"]))
    # Vocabulary bad, film, good, smoothed by one: P(good|1) = 3/6, P(bad|1) = 1/6; P(good|0) = 1/5,
    # P(bad|0) = 2/5, and P(film) = 2/6 against 2/5. "good bad film" thus is 0: 6/216 < 4/125.
    assert found.scores["accuracy"] == pytest.approx(2 / 3)


def test_memorised_tags_by_hand():
    train = ([["Ann", "met", "Bo"], ["Ann", "May"]], [["B-per", "O", "B-per"], ["B-per", "I-per"]])
    words = [["Ann", "May", "met", "Eve"], ["Bo"]]
    right = [["B-per", "I-per", "O", "B-per"], ["O"]]
    # Found: Ann May (right) and Bo (wrong); missed: Eve.
    assert baselines.memorised_tags(train, (words, right)).scores["entity_f1"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("said", "right", "f1"),
    [
        (["B-a", "I-a", "O"], ["B-a", "I-a", "O"], 1.0),
        (["B-a", "O", "O"], ["B-a", "I-a", "O"], 0.0),
        (["B-a", "B-a"], ["B-a", "I-a"], 0.0),
        (["I-a", "I-b"], ["B-a", "B-b"], 1.0),
        (["O", "O"], ["O", "B-a"], 0.0),
        (["O"], ["O"], 0.0),
    ],
)
def test_entity_f1_by_hand(said, right, f1):
    assert baselines.entity_f1([said], [right]) == f1


def test_entity_f1_does_not_join_sentences():
    assert baselines.entity_f1([["B-a"], ["I-a"]], [["B-a"], ["B-a"]]) == 1.0


def test_copying_scores_what_is_the_same():
    same = ["the quick brown fox jumps", "over the lazy dog today"]
    other = ["völlig anders hier drin", "nichts davon gleich heute"]
    assert baselines.translation_scores(same, same)["bleu"] == pytest.approx(1.0)
    assert baselines.translation_scores(same, other)["bleu"] == pytest.approx(0.0, abs=0.02)


def test_nearest_sentence_by_hand():
    train = (["a red dog runs", "two cats sleep here"], ["ein roter Hund rennt", "zwei Katzen schlafen hier"])
    test = (["Two cats sleep", "a dog runs"], ["zwei Katzen schlafen hier", "ein roter Hund rennt"])
    assert baselines.nearest_target(train, test).scores["bleu"] == pytest.approx(1.0)
    unknown = baselines.nearest_target(train, (["nothing known"], ["ein roter Hund rennt"]))
    assert unknown.scores["bleu"] == pytest.approx(1.0)  # no word in common: the first
