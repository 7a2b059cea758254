"""Local data files: every layout is read, every fault is named with file and line."""

import os
from pathlib import Path

import numpy as np
import pytest

from collapipe_env.errors import DataError
from collapipe_env.tasks.text_files import load_splits, read_labelled_texts

DATA = Path(os.environ.get("COLLAPIPE_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))


def write(folder, name, content, encoding="utf-8"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("plain.tsv", 'a "fine" film\tgood\na dull film\tbad\n'),
        ("swapped.tsv", 'good\ta "fine" film\nbad\ta dull film\n'),
        ("header.tsv", 'label\tsentence\ngood\ta "fine" film\nbad\ta dull film\n'),
        ("bom.tsv", '\ufeffsentence\tlabel\na "fine" film\tgood\n\na dull film\tbad\n'),
        ("crlf.tsv", 'a "fine" film\tgood\r\na dull film\tbad\r\n'),
        ("quoted.csv", '"a ""fine"" film",good\n"a dull film",bad\n'),
        ("swapped.csv", 'Label,Text\ngood,"a ""fine"" film"\nbad,a dull film\n'),
        ("no_newline.csv", '"a ""fine"" film",good\na dull film,bad'),
    ],
)
def test_layouts(tmp_path, name, content):
    found = read_labelled_texts(write(tmp_path, name, content))
    assert found.texts == ('a "fine" film', "a dull film")
    assert found.labels == ("good", "bad")


def test_quoted_line_breaks_keep_line_numbers(tmp_path):
    path = write(tmp_path, "d.csv", 'text,label\n"first,\nsecond",1\n\nthird,0\n')
    found = read_labelled_texts(path)
    assert found.texts == ("first,\nsecond", "third")
    assert found.places == (f"{path}:2", f"{path}:5")


def test_columns_by_name_and_index(tmp_path):
    path = write(tmp_path, "d.tsv", "id\twords\tgold\tnote\n1\tgood film\tp\tx\n2\tbad film\tn\tx\n")
    by_name = read_labelled_texts(path, "words", "gold")
    assert (by_name.texts, by_name.labels) == (("good film", "bad film"), ("p", "n"))
    path = write(tmp_path, "e.tsv", "g1\t1\t\tThe film was good.\ng2\t0\t*\tFilm the good.\n")
    by_index = read_labelled_texts(path, label=1)
    assert (by_index.texts, by_index.labels) == (("The film was good.", "Film the good."), ("1", "0"))


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        (
            "d.tsv",
            "good film\t1\nbad film 0\n",
            {},
            r"d\.tsv:2: 1 columns where line 1 has 2; check the separators",
        ),
        ("d.csv", "good film,1\n\nbad, film,0\n", {}, r"d\.csv:3: 3 columns .* and quotes"),
        ("d.csv", 'a,1\n"b,0\n', {}, r"d\.csv:2: .* check the quotes"),
        ("d.tsv", "good film\t1\n \t0\n", {}, r"d\.tsv:2: the text is empty"),
        ("d.tsv", "good film\t1\nbad film\t\n", {}, r"d\.tsv:2: the label is empty"),
        ("d.tsv", b"good film\t1\nbad \xff film\t0\n", {}, r"d\.tsv:2: not UTF-8"),
        ("d.tsv", "", {}, "empty file"),
        ("d.tsv", "text\tlabel\n", {}, "a header and no samples"),
        ("d.tsv", "only text\nmore text\n", {}, r"d\.tsv:1: one column only"),
        ("d.json", "{}", {}, "unknown ending '.json'"),
        (
            "d.tsv",
            "words\tgold\na b\t1\n",
            {"text": "wrods"},
            r"d\.tsv:1: no column 'wrods'.*did you mean 'words'",
        ),
        ("d.tsv", "a b\t1\nc d\t0\n", {"label": 2}, "label_column 2 is out of range; .* 0 to 1"),
        ("d.tsv", "a b\t1\nc d\t0\n", {"label": 1, "text": 1}, "both as text and as label"),
        (
            "d.tsv",
            "p\tq\tlong text one\nq\tp\tlong text two\n",
            {},
            "2 of the 3 columns look like a class label",
        ),
        (
            "d.tsv",
            "words\tgold\n" + "good\t1\nbad\t0\n" * 10,
            {},
            r"d\.tsv:1: label 'gold' occurs in this line only",
        ),
        ("d.tsv", "".join(f"long text {i}\t{i}\n" for i in range(300)), {}, "300 distinct values"),
    ],
)
def test_faults_are_named(tmp_path, name, content, options, message):
    with pytest.raises(DataError, match=message):
        read_labelled_texts(write(tmp_path, name, content), **options)


def test_single_file_is_split_deterministically(tmp_path):
    path = write(tmp_path, "d.tsv", "".join(f"text number {i}\t{i % 2}\n" for i in range(50)))
    train, held_out = load_splits(path)
    assert (len(train.texts), len(held_out.texts)) == (40, 10)
    assert sorted(train.texts + held_out.texts) == sorted(f"text number {i}" for i in range(50))
    assert load_splits(path) == (train, held_out)


def test_folder_prefers_test_to_dev_to_a_split(tmp_path):
    lines = "".join(f"text {i}\t{i % 2}\n" for i in range(10))
    write(tmp_path, "train.tsv", lines)
    assert [len(part.texts) for part in load_splits(tmp_path)] == [8, 2]
    write(tmp_path, "dev.csv", "in dev,1\n")
    assert load_splits(tmp_path)[1].texts == ("in dev",)
    write(tmp_path, "test.tsv", "in test\t1\n")
    assert load_splits(tmp_path)[1].texts == ("in test",)
    write(tmp_path, "test.csv", "in test,1\n")
    with pytest.raises(DataError, match=r"both test\.tsv and test\.csv"):
        load_splits(tmp_path)


def test_missing_paths(tmp_path):
    with pytest.raises(DataError, match=r"no train\.tsv or train\.csv"):
        load_splits(tmp_path)
    with pytest.raises(DataError, match="no such file or folder"):
        load_splits(tmp_path / "absent")


@pytest.mark.skipif(not (DATA / "cls").is_dir(), reason="no test data (set COLLAPIPE_DATA)")
def test_real_sets():
    train, test = load_splits(DATA / "cls" / "sst2")
    assert (len(train.texts), len(test.texts)) == (6920, 1821)
    assert train.labels.count("1") == 3610
    dev = read_labelled_texts(DATA / "cls" / "sst2" / "dev.tsv")
    assert (dev.texts[0], dev.labels[0], len(dev.texts)) == ("one long string of cliches", "0", 872)
    news = read_labelled_texts(DATA / "cls" / "ag_news" / "test.csv")
    assert len(news.texts) == 7600
    assert np.unique(news.labels, return_counts=True)[1].tolist() == [1900] * 4
    cola = read_labelled_texts(DATA / "cls" / "cola" / "in_domain_train.tsv", label=1)
    assert len(cola.texts) == 8551
    assert cola.texts[0].endswith(".")
