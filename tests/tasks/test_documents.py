"""Documents: from text files, folders and JSON lines, each fault in one line with its place."""

import json

import numpy as np
import pytest

from collapipe_env.ground.errors import DataError
from collapipe_env.tasks.documents import documents_of, load_documents, read_file
from collapipe_env.tasks.preparation import EMBEDDED

STORIES = EMBEDDED / "stories"


def rows(count, **more):
    return "".join(json.dumps({"text": f"text {i}", **more}) + "\n" for i in range(count))


def test_a_text_file_has_documents_between_blank_lines(tmp_path):
    file = tmp_path / "book.txt"
    file.write_bytes("\ufeffone\r\nstill one\r\n \r\n\r\ntwo\n\n\n  three \n".encode())
    assert documents_of(read_file(file)).inputs == ("one\nstill one", "two", "three")


def test_in_a_folder_without_parts_every_text_file_is_a_document(tmp_path):
    for i in range(12):
        (tmp_path / f"essay{i:02}.txt").write_text(f"title {i}\n\nbody\n")
    (tmp_path / "more.jsonl").write_text(rows(8, source="web"))
    train, dev, test = load_documents(tmp_path)
    assert [len(part) for part in (train, dev, test)] == [16, 2, 2]
    assert train.answers == ()  # the essays have no kind
    every = {*train.inputs, *dev.inputs, *test.inputs}
    (tmp_path / "Essay07.md").write_text("title 7")
    with pytest.raises(DataError, match=r"both Essay07\.md and essay07\.txt exist; keep one"):
        load_documents(tmp_path)
    assert every == {f"title {i}\n\nbody" for i in range(12)} | {f"text {i}" for i in range(8)}


def test_json_lines_have_fields(tmp_path):
    file = tmp_path / "d.jsonl"
    file.write_text(
        '{"text": " one\\r\\n", "source": "web", "body": "1", "year": 1}\n\n'
        '{"text": "zwei \\u00e4\\u2028b", "source": "news", "body": "2", "year": 2}\n'
    )
    found = documents_of(read_file(file))
    assert found.inputs == ("one", "zwei ä\u2028b")
    assert found.answers == ("web", "news")
    assert documents_of(read_file(file), "body", "year").inputs == ("1", "2")
    assert documents_of(read_file(file), "body", "year").answers == ("1", "2")
    assert found.subset(np.array([1])).answers == ("news",)
    with file.open("a") as more:
        more.write('{"text": "three"}\n')
    assert documents_of(read_file(file)).answers == ()
    file.write_text(rows(2, source=0.5))  # no name of a kind
    assert documents_of(read_file(file)).answers == ()


def test_embedded_stories():
    parts = load_documents(STORIES)
    assert [len(part) for part in parts] == [700, 80, 100]
    texts = [set(part.inputs) for part in parts]
    assert not texts[0] & texts[1]
    assert not texts[0] & texts[2]
    assert not texts[1] & texts[2]
    for part in parts:
        assert set(part.answers) == {"coast", "forest", "mountain", "town"}
        assert all(text.isascii() and "{" not in text and len(text) > 200 for text in part.inputs)
