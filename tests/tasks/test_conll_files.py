"""CoNLL column files: words and tags stay in step in every layout, faults are named with file and line."""

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collapipe_env.tasks.conll_files import load_tagged, read_column_file, sentences_of

WORDS = (("Anna", "saw", "Oslo"), ("Yes", "."))
TAGS = (("B-per", "O", "B-loc"), ("O", "O"))


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(path, words=None):
    return sentences_of(read_column_file(path, words))


def numbered(count, mark="w"):
    return "\n".join(f"{mark}{i}\tB-x\n" for i in range(count))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tabs.conll", "Anna\tB-per\nsaw\tO\nOslo\tB-loc\n\nYes\tO\n.\tO\n"),
        ("aligned.bio", "Anna   B-per\nsaw    O\nOslo   B-loc  \n   \nYes    O\n.      O\n\n\n"),
        ("four.iob", "Anna NNP I-NP B-per\nsaw VB I-VP O\nOslo NNP I-NP B-loc\n\nYes UH O O\n. . O O\n"),
        ("lone_tab.tsv", "\n\t\nAnna\tB-per\nsaw\tO\nOslo\tB-loc\n\t\n\nYes\tO\n.\tO\n\t\n"),
        (
            "documents.txt",
            "-DOCSTART- -X- O O\n\nAnna a B-per\nsaw a O\nOslo a B-loc\n-DOCSTART- O\nYes a O\n. a O\n",
        ),
        (
            "multiconer.conll",
            "# id 7f2a domain=en\nAnna _ _ B-per\nsaw _ _ O\nOslo _ _ B-loc\n\n\n# id 7f2b domain=en\n"
            "Yes _ _ O\n. _ _ O\n",
        ),
        (
            "conllu.tsv",
            "# sent_id = 1\n# text = Anna saw O\n1\tAnna\tB-per\n2\tsaw\tO\n3\tOslo\tB-loc\n\n"
            "# sent_id = 2\n1\tYes\tO\n2\t.\tO\n",
        ),
        (
            "germeval.tsv",
            "#\thttp://de.wikipedia.org/wiki/A [2009-10-17]\n1\tAnna\tB-per\n2\tsaw\tO\n3\tOslo\tB-loc\n\n"
            "#\thttp://de.wikipedia.org/wiki/B [2009-10-17]\n1\tYes\tO\n2\t.\tO\n",
        ),
        ("UPPER.CONLL", "Anna\tB-per\nsaw\tO\nOslo\tB-loc\n\nYes\tO\n.\tO\n"),
    ],
)
def test_layouts(tmp_path, name, content):
    numbered_words = name in ("conllu.tsv", "germeval.tsv")
    found = read(write(tmp_path, name, content), int(numbered_words))
    assert (found.inputs, found.answers) == (WORDS, TAGS)


def test_odd_words_stay_in_step_with_their_tags(tmp_path):
    odd = ["", "\u00a0", "\u200b", "New York", "\u2028", "\x0c", '"', "#", "\u0085", "a\u00a0b"]
    found = read(write(tmp_path, "d.tsv", "".join(f"{w}\tO\n" for w in odd) + "last\tB-x\n"))
    assert found.inputs == ((*odd, "last"),)
    assert found.answers == (("O",) * len(odd) + ("B-x",),)
    spaced = read(write(tmp_path, "d.txt", " O\n\u00a0 B-x\n"))
    assert (spaced.inputs, spaced.answers) == ((("", "\u00a0"),), (("O", "B-x"),))


@settings(max_examples=50)
@given(
    data=st.lists(
        st.lists(
            st.tuples(
                st.text(st.characters(exclude_characters="\t\n\r ", codec="utf-8")).filter(
                    lambda word: word[:1] not in ("\ufeff", "-")
                ),
                st.sampled_from(["O", "B-x", "I-x"]),
            ),
            min_size=1,
            max_size=4,
        ),
        min_size=1,
        max_size=4,
    )
)
def test_whatever_is_written_with_tabs_is_read_back(tmp_path_factory, data):
    text = "\n".join("".join(f"{word}\t{tag}\n" for word, tag in sentence) for sentence in data)
    found = read(write(tmp_path_factory.getbasetemp(), "h.conll", text))
    assert [list(zip(*pair, strict=True)) for pair in zip(found.inputs, found.answers, strict=True)] == data


def test_a_hash_with_a_tag_is_a_word(tmp_path):
    for separator in " \t":
        text = f"#{separator}O\nAnna{separator}B_per\n\n# id 17\n#{separator}B_per\n1{separator}I_per\n"
        found = read(write(tmp_path, "d.conll", text))
        assert found.inputs == (("#", "Anna"), ("#", "1"))
        assert found.answers == (("O", "B_per"), ("B_per", "I_per"))
        assert found.places[1].endswith(":5")


def test_single_file_is_cut_in_file_order(tmp_path):
    parts = load_tagged(write(tmp_path, "d.conll", numbered(25)))
    assert [len(part) for part in parts] == [20, 2, 3]
    assert [sentence[0] for part in parts for sentence in part.inputs] == [f"w{i}" for i in range(25)]
    assert parts[2].places[0].endswith(":45")
    assert [len(part) for part in load_tagged(write(tmp_path, "d.conll", numbered(10)))] == [8, 1, 1]


def test_the_only_entity_of_a_type_is_trained_on_wherever_it_stands(tmp_path):
    for odd in range(30):
        text = "\n".join(f"w{i}\tB-{'once' if i == odd else 'x'}\n" for i in range(30))
        for name in ("d.conll", "train.conll"):
            path = write(tmp_path, name, text)
            parts = load_tagged(path if name == "d.conll" else tmp_path)
            assert [("B-once",) in part.answers for part in parts] == [True, False, False]
            assert sorted(word for part in parts for word in part.inputs) == sorted(
                (f"w{i}",) for i in range(30)
            )
            path.unlink()
    # In its own place the sentence moves nothing else.
    assert [len(part) for part in parts] == [24, 3, 3]


@pytest.mark.parametrize(
    "names",
    [
        ("eng.train.txt", "eng.testa.txt.gz", "eng.testb.txt"),
        ("eng.train", "eng.testa", "eng.testb"),
        ("esp.train.gz", "esp.testa.gz", "esp.testb.gz"),
        ("ned.train", "ned.testa", "ned.testb"),
    ],
)
def test_files_of_a_folder(tmp_path, names):
    for name, mark in zip(names, ("a", "b", "c"), strict=True):
        content = numbered(3, mark).encode()
        write(tmp_path, name, gzip.compress(content) if name.endswith(".gz") else content)
    write(tmp_path, "README.md", "train, dev, test")
    assert [part.inputs[0][0] for part in load_tagged(tmp_path)] == ["a0", "b0", "c0"]
