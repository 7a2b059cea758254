"""Tokeniser and classification data: from the training split alone, the same in every process."""

import numpy as np
import pytest
import torch
from checkpoint_support import bert_checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st

from collapipe_env.models.architecture import Architecture
from collapipe_env.models.tokenization import PADDING
from collapipe_env.tasks import TaskSpec, get_task
from collapipe_env.tasks.classification import matthews_correlation


def spec(**changes):
    sizes = {"blocks": 2, "width": 8, "feedforward": 16, "heads": 2, "sequence_length": 16, "vocabulary": 500}
    sizes |= {name: changes.pop(name) for name in sizes.keys() & changes.keys()}
    return TaskSpec(**{"architecture": Architecture(**sizes), "outputs": 2, **changes})


def test_the_constant_answer_is_the_most_frequent_class_of_training(tmp_path):
    task = get_task("classification")
    assert task.constant_answer(spec(), "test") == pytest.approx(293 / 475)
    assert task.constant_answer(spec(), "dev") == pytest.approx(153 / 245)
    # Where another class is more frequent in the part that is asked for, training's still counts.
    for part, labels in (("train", "aaab"), ("dev", "abb"), ("test", "bbbba")):
        lines = [f"sentence {i} of {part}\t{label}" for i, label in enumerate(labels)]
        (tmp_path / f"{part}.tsv").write_text("\n".join(lines) + "\n")
    assert task.constant_answer(spec(dataset=str(tmp_path)), "test") == pytest.approx(1 / 5)


def test_strata_are_classes_and_lengths_count_tokens():
    data = get_task("classification").load(spec())
    assert data.classes == get_task("classification").classes(spec(outputs=7)) == ("0", "1")
    np.testing.assert_array_equal(data.strata, data.train.targets)
    assert data.lengths.tolist() == [sum(token != PADDING for token in row) for row in data.train.tokens]
    assert (data.lengths.min(), data.lengths.max()) == (2, 16)


def test_numeric_labels_sort_as_numbers(tmp_path):
    (tmp_path / "d.tsv").write_text("".join(f"some text {i}\t{i % 11}\n" for i in range(110)))
    data = get_task("classification").load(spec(dataset=str(tmp_path / "d.tsv"), outputs=11))
    assert data.classes == tuple(str(i) for i in range(11))


@pytest.mark.parametrize("odd", ["²", "+-1", "--2", "9" * 5000])
def test_labels_that_only_look_like_numbers_sort_as_text(tmp_path, odd):
    (tmp_path / "d.tsv").write_text(f"good film\t{odd}\nbad film\t1\n" * 5, encoding="utf-8")
    classes = get_task("classification").classes(spec(dataset=str(tmp_path / "d.tsv"), label_column=1))
    assert classes == tuple(sorted((odd, "1")))


def test_tokeniser_of_a_checkpoint(tmp_path):
    texts = {"train": "Good films.\t1\nbad odd film\t0\n", "dev": "good good good bad bad\t1\n"}
    for part, lines in (texts | {"test": texts["train"]}).items():
        (tmp_path / f"{part}.tsv").write_text(lines)
    words = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "##s", "."]
    checkpoint = bert_checkpoint(tmp_path / "bert", words)
    changes = {"checkpoint": checkpoint, "sequence_length": 6, "vocabulary": 11}
    data = get_task("classification").load(spec(dataset=str(tmp_path), **changes))
    # [CLS] ... [SEP]; what does not fit goes, the closing token stays.
    assert data.train.tokens.tolist() == [[3, 6, 8, 9, 10, 4], [3, 7, 2, 8, 4, 0]]
    assert data.dev.tokens.tolist() == [[3, 6, 6, 6, 7, 4]]
    assert data.lengths.tolist() == [6, 5]


@settings(max_examples=80, deadline=None)
@given(
    classes=st.integers(2, 5),
    pairs=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40),
)
def test_matthews_correlation_is_the_correlation_of_indicators(classes, pairs):
    truth, said = (np.array(side) % classes for side in zip(*pairs, strict=True))
    # Gorodkin's definition: covariances of one-hot rows, summed over classes.
    x, y = (np.eye(classes)[side] - np.eye(classes)[side].mean(axis=0) for side in (truth, said))
    scale = np.sqrt((x * x).sum() * (y * y).sum())
    wanted = (x * y).sum() / scale if scale > 1e-9 else 0.0
    assert matthews_correlation(truth, said, classes) == pytest.approx(wanted, abs=1e-9)


@pytest.mark.slow
def test_matthews_correlation_is_that_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    for classes in (2, 3, 7):
        truth = rng.integers(0, classes, 200)
        said = np.where(rng.random(200) < 0.5, truth, rng.integers(0, classes, 200))
        wanted = metrics.matthews_corrcoef(truth, said)
        assert matthews_correlation(truth, said, classes) == pytest.approx(wanted, rel=1e-12)


def test_scores():
    task = get_task("classification")
    data = task.load(spec())
    always = task.score(np.ones_like(data.test.targets), data.test, data)
    assert dict(always) == {"accuracy": pytest.approx(293 / 475), "mcc": 0.0}
    assert dict(task.score(data.test.targets, data.test, data)) == {"accuracy": 1.0, "mcc": 1.0}
    assert task.score(1 - data.test.targets, data.test, data)["mcc"] == -1.0
    assert tuple(always) == task.metrics


def test_head_and_prediction():
    task, sizes = get_task("classification"), spec(outputs=3)
    head = task.build_head(sizes, torch.Generator().manual_seed(0))
    hidden = torch.randn(4, 16, 8, generator=torch.Generator().manual_seed(1))
    mask = torch.arange(16).expand(4, 16) < torch.tensor([[1], [5], [16], [2]])
    said = task.predict(head, hidden, mask, sizes)
    for row, real, answer in zip(hidden, mask, said, strict=True):
        scores = head.weight @ row[real].mean(dim=0) + head.bias
        assert answer == scores.argmax()
