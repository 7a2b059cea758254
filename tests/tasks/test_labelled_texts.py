"""Local data files: every layout is read, every fault is named with file and line."""

import csv
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from trace_support import DATA

from collapipe_env.ground.errors import DataError
from collapipe_env.tasks.labelled_texts import labelled_texts, load_splits
from collapipe_env.tasks.table_files import read_table


def write(folder, name, content, encoding="utf-8"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
    return path


def read_labelled_texts(path: Path, text=None, label=None):
    return labelled_texts(read_table(path), text, label)[0]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("plain.tsv", 'a "fine" film\tgood\na dull film\tbad\n'),
        ("swapped.tsv", 'good\ta "fine" film\nbad\ta dull film\n'),
        ("header.tsv", 'label\tsentence\ngood\ta "fine" film\nbad\ta dull film\n'),
        ("quoted.csv", '"a ""fine"" film",good\n"a dull film",bad\n'),
        ("swapped.csv", 'Label,Text\ngood,"a ""fine"" film"\nbad,a dull film\n'),
        ("excel.csv", '\ufeffsep=,\r\n"a ""fine"" film",good\r\na dull film,bad\r\n'),
        ("german_excel.csv", 'SEP=;\ntext;label\n"a ""fine"" film";good\na dull film;bad\n'),
        (
            "lines.jsonl",
            r'{"text": "a \"fine\" film", "label": "good"}' + '\n{"label": "bad", "text": "a dull film"}',
        ),
        (
            "more.ndjson",
            r'{"id": 1, "category": "good", "score": 0.5, "content": "a \"fine\" film"}' + "\n\n"
            '{"id": 2, "category": "bad", "score": 1, "content": "a dull film"}\r\n',
        ),
        ("two.csv", 'rating,label,target,text\n5,good,x,"a ""fine"" film"\n1,bad,y,a dull film\n'),
    ],
)
def test_layouts(tmp_path, name, content):
    found = read_labelled_texts(write(tmp_path, name, content))
    assert found.inputs == ('a "fine" film', "a dull film")
    assert found.answers == ("good", "bad")


def test_separators_in_texts_do_not_count(tmp_path):
    rows = [("fine, long; good", "1"), ("dull", "0"), ("really\tbad, bad", "0")]
    for separator in ",;\t":
        path = tmp_path / "d.csv"
        with path.open("w", newline="") as file:
            csv.writer(file, delimiter=separator).writerows([("text", "label"), *rows])
        found = read_labelled_texts(path)
        assert list(zip(found.inputs, found.answers, strict=True)) == rows
        assert found.places[2] == f"{path}:4"
    # Semicolons without quotes: their commas are not equally many.
    path.write_text("a fine, good film;1\na dull film;0\n")
    assert read_labelled_texts(path).inputs == ("a fine, good film", "a dull film")
    # Decimal commas also give equally many columns, but fewer; semicolons in quotes give more, but cut texts.
    path.write_text("a fine film;1;0,5\na dull film;0;0,7\nthe film;1;0,5\nno film;0;0,1\n")
    assert read_labelled_texts(path, label=1).answers == ("1", "0", "1", "0")
    path.write_text('1,"fine; long; good"\n0,"dull; bad; short"\n')
    assert read_labelled_texts(path).inputs == ("fine; long; good", "dull; bad; short")
    path.write_text("sep=;\na fine, good film;1\na dull, bad film;0\n")
    found = read_labelled_texts(path)
    assert (found.inputs[1], found.places[1]) == ("a dull, bad film", f"{path}:3")


def test_labels_of_json_lines_keep_their_digits(tmp_path):
    rows = [{"sentence": f"film {i}", "labels": value} for i, value in enumerate([1, 10**20, "01", True])]
    path = write(tmp_path, "d.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert read_labelled_texts(path).answers == ("1", "1" + "0" * 20, "01", "True")
    # pandas writes whole numbers as floats where some are missing; other columns never take their place.
    rows = [{"stars": i, "text": f"film {i}", "label": float(i % 2)} for i in range(4)]
    path = write(tmp_path, "d.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert read_labelled_texts(path).answers == ("0", "1", "0", "1")


def test_quoted_line_breaks_keep_line_numbers(tmp_path):
    path = write(tmp_path, "d.csv", 'text,label\n"first,\nsecond",1\n\nthird,0\n')
    found = read_labelled_texts(path)
    assert found.inputs == ("first,\nsecond", "third")
    assert found.places == (f"{path}:2", f"{path}:5")


WORDS = ("a fine film", "a rather dull film", "one more film", "such a long film")


def test_every_part_has_its_share_of_every_class(tmp_path):
    random = np.random.default_rng(3)
    for _ in range(25):
        counts = np.append(1, random.integers(1, 80, random.integers(1, 8)))
        labels = random.permutation(np.repeat(np.arange(len(counts)), counts)).tolist()
        if len(labels) < 20:
            continue
        lines = [f"{WORDS[i % 4]}, number {i}\tc{label}\n" for i, label in enumerate(labels)]
        parts = load_splits(write(tmp_path, "d.tsv", "text\tlabel\n" + "".join(lines)))
        tenth = len(labels) // 10
        assert [len(part) for part in parts] == [len(labels) - 2 * tenth, tenth, tenth]
        assert sorted(text for part in parts for text in part.inputs) == sorted(
            line.split("\t")[0] for line in lines
        )
        for name, count in enumerate(counts.tolist()):
            train, dev, test = (part.answers.count(f"c{name}") for part in parts)
            assert train >= 1
            assert abs(dev - test) <= 1
            # Rounded to one of the two neighbours, both parts together; a class of one stays in training.
            assert abs(dev + test - min(2 * tenth * count / len(labels), count - 1)) <= 1


def test_a_missing_part_has_its_share_of_every_class(tmp_path):
    write(tmp_path, "train.tsv", "".join(f"{WORDS[i % 4]} {i}\t{i // 30}\n" for i in range(60)))
    write(tmp_path, "dev.tsv", "a film\t0\n")
    _, dev, test = load_splits(tmp_path)
    assert (dev.inputs, Counter(test.answers)) == (("a film",), {"0": 3, "1": 3})


def test_as_many_classes_as_training_has_room_for_are_all_trained_on(tmp_path):
    for labels in ("aabbccddee" + "fghijk", "aaa" + "bcdefgh"):
        lines = [f"{WORDS[i % 4]} {i}\t{label}\n" for i, label in enumerate(labels)]
        for shift in range(len(lines)):
            path = write(tmp_path, "d.tsv", "text\tlabel\n" + "".join(lines[shift:] + lines[:shift]))
            assert set(load_splits(path)[0].answers) == set(labels)


def test_a_first_line_that_may_be_a_header_is_taken_as_the_columns_say(tmp_path):
    lines = "words\tgold\n" + "good\t1\nbad\t0\n" * 10
    path = write(tmp_path, "d.tsv", lines)
    with pytest.raises(DataError, match=r"d\.tsv:1: .*to its names, otherwise to the columns' indices"):
        load_splits(path)
    assert "gold" in load_splits(path, 0, 1)[0].answers
    assert {name for part in load_splits(path, "words", "gold") for name in part.answers} == {"0", "1"}


@pytest.mark.parametrize("classes", [("comment", "question"), ("topic", "body"), ("title", "label")])
@pytest.mark.parametrize("columns", [(0, 1), (None, None)])
def test_a_class_with_the_usual_name_of_a_column_is_no_header(tmp_path, classes, columns):
    lines = [f"a rather long film {i}\t{classes[i % 2]}\n" for i in range(20)]
    path = write(tmp_path, "d.tsv", "".join(lines))
    assert read_labelled_texts(path, *columns).answers == classes * 10
    path = write(tmp_path, "d.tsv", "sentence\tlabel\n" + "".join(lines))
    assert read_labelled_texts(path, *columns).answers == classes * 10
    # With indices, a single sample of a class is enough.
    path = write(tmp_path, "d.tsv", "".join([lines[0], *lines[1::2]]))
    if classes[0] != "topic":
        assert read_labelled_texts(path, 0, 1).answers == (classes[0], *classes[1:] * 10)


LABELLED = "sentence\tlabel\n" + "".join(f"a film {i}\t{i % 2}\n" for i in range(40))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("test.tsv", "index\tsentence\n0\ta long film\n1\ta short film\n"),
        ("test.tsv", "sentence\na long film\na short film\n"),
        ("test.txt", "a long film\na short film\n"),
        ("test.tsv", "sentence\tlabel\na long film\t-1\na short film\t-1\n"),
        ("test.tsv", "a long film\t\na short film\t\n"),
        ("test.csv", "id;Sentence\n0;a long film\n1;a short film\n"),
        ("test.csv", "category,content\n-1,a long film\n-1,a short film\n"),
        ("test.jsonl", '{"text": "a long film"}\n{"text": "a short film"}\n'),
        ("test.jsonl", '{"text": "a long film", "label": null}\n{"text": "a short film", "label": -1}\n'),
    ],
)
@pytest.mark.parametrize("header", [True, False])
def test_a_test_part_without_labels_is_none(tmp_path, name, content, header):
    write(tmp_path, "train.tsv", LABELLED if header else LABELLED.partition("\n")[2])
    write(tmp_path, "dev.tsv", "sentence\tlabel\na good film\t1\n")
    whole = load_splits(tmp_path)
    write(tmp_path, name, content)
    with pytest.warns(
        UserWarning, match=rf"{name} has no labels, so a tenth of the training part is the test"
    ):
        assert load_splits(tmp_path) == whole
    assert [len(part) for part in whole] == [36, 1, 4]


def test_labels_that_only_look_missing_are_read(tmp_path):
    write(tmp_path, "train.jsonl", "".join(f'{{"text": "film {i}", "label": {i % 2}}}\n' for i in range(40)))
    write(tmp_path, "dev.jsonl", '{"text": "a film", "label": 1.0}\n')
    assert load_splits(tmp_path)[1].answers == ("1",)
    write(tmp_path, "dev.jsonl", '{"text": "a film", "label": 0.5}\n')
    with pytest.raises(DataError, match=r"dev\.jsonl:1: 'label' holds 0\.5"):
        load_splits(tmp_path)
    for name in ("train.jsonl", "dev.jsonl"):
        (tmp_path / name).unlink()
    write(tmp_path, "train.tsv", "".join(f"a film {i}\t{(-1) ** i}\n" for i in range(40)))
    write(tmp_path, "test.tsv", "a long film\t-1\na short film\t-1\n")
    assert load_splits(tmp_path)[2].answers == ("-1", "-1")
    write(tmp_path, "test.tsv", "topic\tlabel\ttext\nx\t-1\ta long film\nx\t1\ta short film\n")
    assert load_splits(tmp_path)[2].answers == ("-1", "1")
    write(tmp_path, "test.tsv", "a long film\t1\na short film\t\n")
    with pytest.raises(DataError, match=r"test\.tsv:2: the label is empty"):
        load_splits(tmp_path)


def test_several_text_columns_are_joined(tmp_path):
    path = write(tmp_path, "d.csv", '1,Old title,A body\n2,,"Only, body"\n')
    assert read_labelled_texts(path, "1+2").inputs == ("Old title A body", "Only, body")
    named = write(tmp_path, "e.csv", "kind,head,body\n1,Old title,A body\n2,,Only body\n")
    assert read_labelled_texts(named, "body + head", "kind").inputs == ("A body Old title", "Only body")
    assert read_labelled_texts(named, "head+2", "kind").inputs == ("Old title A body", "Only body")
    with pytest.raises(DataError, match="no column 'haed' for text_column; did you mean 'head'"):
        read_labelled_texts(named, "haed+body", "kind")
    with pytest.raises(DataError, match="column 1 is requested both"):
        read_labelled_texts(path, "1+2", 1)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"a second\team, gave\no sign", "a second team, gave no sign"),
        (r"first.\\Second", "first. Second"),
        (r"first.\n\nSecond\n", "first. Second"),
    ],
)
def test_backslashes_in_csv_files_are_line_breaks(tmp_path, written, meant):
    path = write(tmp_path, "d.csv", f'1,"{written}"\n2,other text\n')
    assert read_labelled_texts(path).inputs[0] == meant
    path = write(tmp_path, "d.tsv", f"1\t{written}\n2\tother text\n")
    assert read_labelled_texts(path).inputs[0] == written


def test_held_out_files_are_read_like_the_training_file(tmp_path):
    # On its own, the test file's first column looks like the text.
    write(tmp_path, "train.tsv", "".join(f"long text number {i}\t{10**9 + i % 2}\n" for i in range(20)))
    write(tmp_path, "test.tsv", "no\t1000000001\nyes\t1000000000\n")
    assert load_splits(tmp_path)[2].inputs == ("no", "yes")
    # A header of its own wins.
    write(tmp_path, "dev.tsv", "label\ttext\n1000000000\tsome text\n")
    dev = load_splits(tmp_path)[1]
    assert (dev.inputs, dev.answers) == (("some text",), ("1000000000",))


def test_whole_numbers_decide_between_columns_of_few_values(tmp_path):
    rows = "".join(f"{'ab'[i // 10]}\t{i % 2}\t{'*' * (i % 2)}\tThe text number {i}.\n" for i in range(20))
    assert set(read_labelled_texts(write(tmp_path, "d.tsv", rows)).answers) == {"0", "1"}


needs_data = pytest.mark.skipif(not (DATA / "cls").is_dir(), reason="no test data (set COLLAPIPE_DATA)")


@needs_data
@pytest.mark.parametrize(
    ("name", "sizes", "counts", "first"),
    [
        ("sst2", [6920, 872, 1821], {"0": 3310, "1": 3610}, "one long string of cliches"),
        ("cola", [8551, 527, 516], {"0": 2528, "1": 6023}, "The sailors rode the breeze clear of the rocks."),
    ],
)
def test_real_sets_with_parts(name, sizes, counts, first):
    parts = load_splits(DATA / "cls" / name)
    assert parts[1].inputs[0] == first
    assert [len(part) for part in parts] == sizes
    assert Counter(parts[0].answers) == counts


@needs_data
def test_real_set_without_parts():
    parts = load_splits(DATA / "cls" / "ag_news", "1+2")
    assert [len(part) for part in parts] == [6080, 760, 760]
    assert Counter(label for part in parts for label in part.answers) == dict.fromkeys("1234", 1900)
    assert not any("\\" in text for part in parts for text in part.inputs)
    news = read_labelled_texts(DATA / "cls" / "ag_news" / "test.csv", "1+2")
    assert news.inputs[0].startswith("Fears for T N pension after talks Unions representing workers")
    assert news.answers[0] == "3"
