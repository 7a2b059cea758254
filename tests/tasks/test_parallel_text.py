"""Parallel text: what is read, what is carved out, and what is refused in which words."""

import csv
import gzip
import json

import pytest
from trace_support import DATA

from collapipe_env.ground.errors import DataError
from collapipe_env.tasks.data_parts import PARTS, Samples
from collapipe_env.tasks.parallel_text import load_parallel, pairs_of_tables, read_lines
from collapipe_env.tasks.table_files import read_table

MULTI30K = DATA / "mt" / "multi30k_en_de"


def write(path, content):
    data = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)


def part(folder, name, count, languages=("en", "de"), gz=""):
    for language in languages:
        write(folder / f"{name}.{language}{gz}", "".join(f"{name} {language} {i}\n" for i in range(count)))


def read_pairs(path, languages=None):
    return pairs_of_tables(dict.fromkeys(PARTS, read_table(path)), "d", languages)[0]


def expect(path, *words, languages=None):
    with pytest.raises(DataError) as caught:
        load_parallel(path, languages)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "endings",
    [
        ("eng", "deu"),
        ("english", "german"),
        ("tok.en", "tok.de"),
        ("tags.en-de.en", "tags.en-de.de"),
        ("en_US", "de_DE"),
        ("EN", "DE"),
        ("en.txt", "de.txt"),
        ("en.tok", "de.tok"),
    ],
)
def test_endings_name_languages_in_many_ways(tmp_path, endings):
    for name in ("train", "dev", "test"):
        part(tmp_path, name, 5, languages=endings)
    for turned, (one, other) in (
        ((), endings),
        (("de", "en"), endings[::-1]),
        (endings[::-1], endings[::-1]),
    ):
        train, dev, _ = load_parallel(tmp_path, turned or None)
        assert train.inputs[4] == f"train {one} 4"
        assert dev.answers[3] == f"dev {other} 3"
        assert train.languages == dev.languages == (("de", "en") if turned else ("en", "de"))


@pytest.mark.parametrize(
    ("header", "sides", "languages"),
    [
        (["en", "de"], (0, 1), ("en", "de")),
        (["de", "en"], (1, 0), ("en", "de")),
        (["fra", "deu"], (1, 0), ("de", "fr")),
        (["target", "source"], (1, 0), ("source", "target")),
        (["id", "de_DE", "en_US"], (2, 1), ("en", "de")),
        (["source", "de", "en"], (2, 1), ("en", "de")),
        (["text_de", "text_en"], (1, 0), ("en", "de")),
        (["sentence_deu_Latn", "sentence_eng_Latn"], (1, 0), ("en", "de")),
        (["Français", "English"], (1, 0), ("en", "fr")),
        (["ca", "es"], (0, 1), ("ca", "es")),
        (["no", "en"], (1, 0), ("en", "no")),
    ],
)
@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "nested.jsonl"])
def test_columns_are_known_by_languages(tmp_path, header, sides, languages, kind):
    rows = [[f'{name}; "{i}", said' for name in header] for i in range(4)]
    path = tmp_path / f"train.{kind}"
    with path.open("w", newline="") as file:
        if kind == "csv":
            csv.writer(file).writerows([header, *rows])
        elif kind == "tsv":
            file.writelines("\t".join(row) + "\n" for row in [header, *rows])
        else:
            objects = [dict(zip(header, row, strict=True)) for row in rows]
            nested = [{"id": i, "translation": one} for i, one in enumerate(objects)]
            file.writelines(json.dumps(one) + "\n" for one in (nested if "nested" in kind else objects))
    pairs = read_pairs(path)
    assert pairs == Samples(*(tuple(row[side] for row in rows) for side in sides))
    assert pairs.languages == languages
    assert read_pairs(path, languages[::-1]) == Samples(pairs.answers, pairs.inputs)


def test_first_pairs_that_look_like_no_header_are_read(tmp_path):
    for first in ("English\tEnglisch", "I speak English\tIch spreche en", "German\tDeutsch"):
        write(tmp_path / "t.tsv", first + "\nyes\tja\n")
        assert read_pairs(tmp_path / "t.tsv").answers == (first.split("\t")[1], "ja")
        assert read_pairs(tmp_path / "t.tsv").languages is None
    expect(tmp_path / "t.tsv", "t.tsv:1: no columns named en and de", "first line", languages=("en", "de"))
    for first in ("No\tNein", "I see\tAch so", "Yes\tJa"):
        write(tmp_path / "t.tsv", first + "\nthis is a sentence\tdas ist ein Satz\n")
        assert read_pairs(tmp_path / "t.tsv").inputs == (first.split("\t")[0], "this is a sentence")


@pytest.mark.parametrize(
    "first",
    [
        ("German sentence", "English sentence"),
        ("Quechua", "English"),
        ("qu", "ay"),
        ("QUE", "AYM"),
        ("text", "label"),
        ("review", "stars"),
    ],
)
def test_a_first_line_that_may_be_a_header_is_no_pair(tmp_path, first):
    path = tmp_path / "t.csv"
    lines = "das ist der Satz,this is the sentence\nund noch einer,and one more\n"
    write(path, ",".join(first) + "\n" + lines)
    expect(path, "t.csv:1:", first[0], "set languages", "source and target", "classification")
    german, english = ("das ist der Satz", "und noch einer"), ("this is the sentence", "and one more")
    assert read_pairs(path, first) == Samples(german, english)
    assert read_pairs(path, first[::-1]) == Samples(english, german)
    write(path, "source,target\n" + ",".join(first) + "\n" + lines)
    assert read_pairs(path).inputs == (first[0], *german)


@pytest.mark.parametrize("names", [('"de"', '"en"'), ("#de", "en")])
def test_names_in_quotes_are_names(tmp_path, names):
    write(tmp_path / "t.tsv", "\t".join(names) + "\neins\tone\n")
    assert read_pairs(tmp_path / "t.tsv") == Samples(("one",), ("eins",))


def test_columns_of_one_language_are_no_two_sides(tmp_path):
    path = tmp_path / "t.jsonl"
    write(path, '{"text_1": "eins", "text_2": "one"}\n')
    expect(path, "text_1 and text_2", "set languages")
    assert read_pairs(path, ("text_2", "text_1")) == Samples(("one",), ("eins",))
    assert read_pairs(path, ("text_2", "text_1")).languages == ("text_2", "text_1")
    write(path, '{"source": "eins", "target": ["one", "a"], "id": "x1"}\n')
    expect(path, "t.jsonl:1: 'target' holds ['one', 'a']", "learning.languages")


def test_which_files_are_the_held_out_parts(tmp_path):
    part(tmp_path, "train", 2)
    for name in ("test_b", "test_a", "valid", "dev"):
        part(tmp_path, name, 2)
    _, dev, test = load_parallel(tmp_path)
    assert (dev.inputs[0], test.inputs[0]) == ("dev en 0", "test_a en 0")
    part(tmp_path, "test", 2, gz=".gz")
    assert load_parallel(tmp_path)[2].inputs[0] == "test en 0"


def test_lines_are_cleaned_and_blank_pairs_skipped(tmp_path):
    write(tmp_path / "a.en", b"\xef\xbb\xbf one \r\n\r\nthree\x0cform\rfeed\r\n\r\n\r\n")
    write(tmp_path / "a.de", "eins\n \ndrei\u2028Zeile")
    table = read_lines(tmp_path / "a.en", tmp_path / "a.de", ("en", "de"))
    assert table.rows == [("one", "eins"), ("three\x0cform\rfeed", "drei\u2028Zeile")]


def test_a_sample_for_each_part_is_enough(tmp_path):
    part(tmp_path, "train", 2)
    expect(tmp_path, "2 samples cannot be split")
    part(tmp_path, "dev", 1)
    assert [len(p) for p in load_parallel(tmp_path)] == [1, 1, 1]


def test_lines_that_do_not_pair_are_named(tmp_path):
    part(tmp_path, "train", 3)
    write(tmp_path / "train.de", "a\nb\nc\nd\ne\n")
    expect(tmp_path, "train.en:4: blank or missing", "train.en has 3 lines, train.de 5")
    write(tmp_path / "train.de", "a\nb\n")
    expect(tmp_path, "train.de:3: blank or missing", "train.en:3")
    write(tmp_path / "train.de", "a\n  \nc\n")
    expect(tmp_path, "train.de:2: blank or missing", "train.en:2")
    write(tmp_path / "train.de", "a\nb\nc\n")
    write(tmp_path / "train.en", "a\n\nc\n")
    expect(tmp_path, "train.en:2: blank", "train.de:2")


def test_missing_and_surplus_files_are_named(tmp_path):
    expect(tmp_path, "0 files train.LANGUAGE", "add")
    part(tmp_path, "train", 3)
    (tmp_path / "train.de").rename(tmp_path / "train.fr")
    part(tmp_path, "train", 3, languages=["de"])
    expect(tmp_path, "3 files", "de, en, fr", "set languages")
    load_parallel(tmp_path, ("en", "fr"))
    expect(tmp_path, "no files train.LANGUAGE for 'it'", "de, en, fr", languages=("en", "it"))
    (tmp_path / "train.fr").unlink()
    part(tmp_path, "dev", 3, languages=["de"])
    expect(tmp_path, "no dev.en")
    (tmp_path / "dev.de").unlink()
    part(tmp_path, "test_x", 3, languages=["en"])
    expect(tmp_path, "no test_x.de")


def pairs_table(folder, name, count, header="", flip=False):
    rows = [(f"{name} en {i}", f"{name} de {i}") for i in range(count)]
    write(folder / name, header + "".join("\t".join(row[::-1] if flip else row) + "\n" for row in rows))


def test_tables_without_header_are_read_like_the_training_table(tmp_path):
    pairs_table(tmp_path, "train.tsv", 2, header="tgt\tsrc\n", flip=True)
    pairs_table(tmp_path, "dev.tsv", 2, flip=True)
    pairs_table(tmp_path, "test.tsv", 2, header="src\ttgt\n")
    for pairs, name in zip(load_parallel(tmp_path), ("train", "dev", "test"), strict=True):
        assert pairs == Samples(
            (f"{name}.tsv en 0", f"{name}.tsv en 1"), (f"{name}.tsv de 0", f"{name}.tsv de 1")
        )


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ("de\ten\n", "fr\ten\n", ("en -> fr", "en -> de")),
        ("", "de\ten\n", ("en -> de", "source -> target")),
        ("tgt\tsrc\n", "de\ten\n", ("en -> de", "source -> target")),
        ("de\ten\n", "src\ttgt\n", ("source -> target", "en -> de")),
    ],
)
def test_held_out_tables_have_the_languages_of_training(tmp_path, ours, theirs, said):
    pairs_table(tmp_path, "train.tsv", 20, header=ours)
    pairs_table(tmp_path, "dev.tsv", 2, header=theirs)
    expect(tmp_path, "dev.tsv: its columns say", *said, "same header")
    pairs_table(tmp_path, "train.tsv", 20, header="de\ten\n", flip=True)
    pairs_table(tmp_path, "dev.tsv", 2, header="English\tGerman\n")
    assert load_parallel(tmp_path)[1].inputs == ("dev.tsv en 0", "dev.tsv en 1")


def test_line_files_go_first_whatever_tables_lie_beside_them(tmp_path):
    pairs_table(tmp_path, "train.tsv", 20)
    part(tmp_path, "train", 20)
    assert load_parallel(tmp_path)[0].inputs[0].startswith("train en")


@pytest.mark.skipif(not MULTI30K.is_dir(), reason=f"Multi30k is not at {MULTI30K}; set COLLAPIPE_DATA")
def test_multi30k():
    train, dev, test = load_parallel(MULTI30K)
    assert [len(p) for p in (train, dev, test)] == [29_000, 1_014, 1_000]
    assert train.languages == ("en", "de")
    assert train.inputs[0] == "Two young, White males are outside near many bushes."
    assert train.answers[0] == "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche."
