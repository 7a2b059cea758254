"""Tokeniser and classification data: from the training split alone, the same in every process."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest

from collapipe_env.errors import DataError, ScenarioError
from collapipe_env.learners.architecture import Architecture
from collapipe_env.tasks import TaskSpec, get_task, register_task, task_names
from collapipe_env.tasks.classification import EMBEDDED
from collapipe_env.tasks.text_files import load_splits
from collapipe_env.tasks.tokenization import PADDING, UNKNOWN, encode, train_tokenizer


def spec(**changes):
    sizes = {"blocks": 2, "width": 8, "feedforward": 16, "heads": 2, "sequence_length": 16, "vocabulary": 500}
    sizes |= {name: changes.pop(name) for name in sizes.keys() & changes.keys()}
    return TaskSpec(**{"architecture": Architecture(**sizes), "outputs": 2, **changes})


def test_embedded_reviews():
    data = get_task("classification").load(spec())
    assert data.train.tokens.shape == (1980, 16)
    assert data.test.tokens.shape == (475, 16)
    assert data.classes == ("0", "1")
    assert data.train.targets.sum() == 1221
    assert data.train.tokens.max() < 500
    assert (data.train.tokens[:, 0] != PADDING).all()
    assert (EMBEDDED / "NOTICE").read_text().count("Permission is hereby granted") == 1


def test_data_is_cached_and_read_only():
    task = get_task("classification")
    assert task.load(spec()) is get_task("classification").load(spec())
    with pytest.raises(ValueError, match="read-only"):
        task.load(spec()).train.tokens[0, 0] = 1


def test_tokens_are_the_same_in_every_process():
    code = (
        "import hashlib; from collapipe_env.tasks import TaskSpec, get_task;"
        "from collapipe_env.learners.architecture import Architecture;"
        "s = TaskSpec(Architecture(2, 8, 16, 2, 16, 500), 2);"
        "print(hashlib.sha256(get_task('classification').load(s).train.tokens.tobytes()).hexdigest())"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert found == hashlib.sha256(get_task("classification").load(spec()).train.tokens.tobytes()).hexdigest()


def test_held_out_texts_do_not_shape_the_tokeniser(tmp_path):
    train = "".join(f"{word} film\t{i % 2}\n" for i, word in enumerate(["good", "bad", "fine", "dull"]))
    rows = []
    for i, held_out in enumerate(("zebra zebra zebra\t0\n", "quartz quartz\t1\n")):
        folder = tmp_path / str(i)
        folder.mkdir()
        (folder / "train.tsv").write_text(train)
        (folder / "test.tsv").write_text(held_out)
        rows.append(get_task("classification").load(spec(dataset=str(folder))).train.tokens)
    np.testing.assert_array_equal(*rows)


@pytest.mark.parametrize("vocabulary", [64, 300, 2000])
def test_vocabulary_is_never_exceeded(vocabulary):
    texts = load_splits(EMBEDDED)[0].texts
    tokenizer = train_tokenizer([*texts, "".join(chr(0x4E00 + i) for i in range(300))], vocabulary)
    assert tokenizer.get_vocab_size() <= vocabulary
    rows = encode(tokenizer, ["Good film", "", "good " * 50, "\u20ac"], 12)
    assert rows.shape == (4, 12)
    assert (rows[:, 0] != PADDING).all()
    assert rows[1, 0] == UNKNOWN
    assert (rows[2] != PADDING).all()


def test_numeric_labels_sort_as_numbers(tmp_path):
    (tmp_path / "d.tsv").write_text("".join(f"some text {i}\t{i % 11}\n" for i in range(110)))
    data = get_task("classification").load(spec(dataset=str(tmp_path / "d.tsv"), outputs=11))
    assert data.classes == tuple(str(i) for i in range(11))


def test_held_out_label_unknown_in_training(tmp_path):
    (tmp_path / "train.tsv").write_text("good film\tp\nbad film\tn\n")
    (tmp_path / "test.tsv").write_text("fine film\tp\nodd film\tx\n")
    with pytest.raises(DataError, match=r"test\.tsv:2: label 'x' never occurs in training"):
        get_task("classification").load(spec(dataset=str(tmp_path)))


def test_registry():
    assert "classification" in task_names()
    with pytest.raises(ScenarioError, match="did you mean 'classification'"):
        get_task("clasification")
    with pytest.raises(ScenarioError, match="registered already"):
        register_task("classification", "a:B")
    with pytest.raises(ScenarioError, match="lacks a colon"):
        register_task("new", "a.B")
