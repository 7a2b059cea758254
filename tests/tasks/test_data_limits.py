"""Data files that would take minutes, fill the memory or be waited for are refused with their limit."""

import gzip
import os
import random
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from collapipe_env.ground import files
from collapipe_env.ground.errors import DataError
from collapipe_env.ground.files import (
    open_regular,
    parse_json,
    read_gzip,
    read_json,
    read_regular,
    unpacked_limit,
)
from collapipe_env.ground.typed_paths import given_path
from collapipe_env.tasks import table_files
from collapipe_env.tasks.conll_files import load_column_splits
from collapipe_env.tasks.hub import fetch
from collapipe_env.tasks.labelled_texts import load_splits
from collapipe_env.tasks.parallel_text import load_parallel
from collapipe_env.tasks.table_files import LONGEST_LINE, LONGEST_WORD

MIB = 1024**2


def pairs_with(folder: Path, line: str) -> Path:
    for language in ("en", "de"):
        (folder / f"train.{language}").write_text("hello world\n" * 30 + line + "\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("x" * 1_000_000, "1,000,000 characters in a line, above the limit of 200,000"),
        ("ab " * 100_000, "300,000 characters in a line, above the limit"),
        ("x" * (LONGEST_WORD + 1), "5,001 characters without a space or punctuation mark, above the limit"),
        ("a " + "😀" * (LONGEST_WORD + 1), "5,001 characters without a space"),
        ("a\r" * 100 + "x" * (LONGEST_LINE + 1), "200,001 characters in a line"),
    ],
    ids=lambda _: "case",
)
def test_lines_that_no_data_set_has(line: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train\.en:31: ") as caught:
        load_parallel(pairs_with(tmp_path, line))
    assert reason in str(caught.value)
    table = tmp_path / "table.tsv"
    table.write_text("good\t1\nbad\t0\n" * 10 + f"{line}\t1\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"table\.tsv:21: "):
        load_splits(table)
    column = tmp_path / "column.conll"
    column.write_text("word\tO\n\n" * 20 + f"{line}\tO\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"column\.conll:41: "):
        load_column_splits(column)


@pytest.mark.parametrize(
    "line",
    [
        "word " * (LONGEST_LINE // 5),
        "x" * LONGEST_WORD,
        "这是一个没有空格的很长的文件。" * 1_000,  # punctuation of all scripts ends words
        "a_b-c" * 4_000,
    ],
    ids=["line", "word", "Chinese", "ASCII"],
)
def test_long_lines_of_ordinary_words_are_read(line: str, tmp_path: Path) -> None:
    train, _, _ = load_parallel(pairs_with(tmp_path, line))
    assert max(map(len, train.sources)) in (11, len(line.strip()))


def test_old_line_ends_are_no_long_line(tmp_path: Path) -> None:
    table = tmp_path / "table.tsv"
    table.write_bytes(b"good text\t1\rbad text\t0\r" * 20_000)
    assert sum(map(len, load_splits(table))) == 40_000


def test_a_small_gzip_of_much_is_not_unpacked_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "UNPACKED_ANYWAY", 2 * MIB)
    bomb = tmp_path / "table.tsv.gz"
    bomb.write_bytes(gzip.compress(bytes(50 * MIB), 1) + gzip.compress(bytes(50 * MIB), 1))
    most = unpacked_limit(bomb.stat().st_size)
    assert most < 50 * MIB
    unpacked = 0
    read = gzip.GzipFile.read

    def counted(self: gzip.GzipFile, size: int | None = -1) -> bytes:
        nonlocal unpacked
        chunk = read(self, size)
        unpacked += len(chunk)
        return chunk

    monkeypatch.setattr(gzip.GzipFile, "read", counted)
    with pytest.raises(DataError, match=f"it unpacks to more bytes than the limit of {most:,}"):
        load_splits(bomb)
    assert unpacked <= most + MIB


def test_what_archives_may_unpack_to() -> None:
    assert unpacked_limit(800_000) == 80_000_000
    assert unpacked_limit(1) == 64 * MIB


def test_gzip_in_several_members_is_read_whole(tmp_path: Path) -> None:
    file = tmp_path / "a.gz"
    file.write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n"))
    assert read_gzip(file, 100) == b"one\ntwo\n"


def test_files_above_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "table.tsv"
    file.write_bytes(b"x" * 11)
    assert read_regular(file, 11) == b"x" * 11
    with pytest.raises(OSError, match="it has 11 bytes, above the limit of 10"):
        read_regular(file, 10)
    monkeypatch.setattr(table_files, "LARGEST", 10)
    with pytest.raises(DataError, match=r"table\.tsv: cannot be read \(it has 11 bytes, above the limit"):
        load_splits(file)


def test_a_small_file_takes_little_memory_whatever_its_limit(tmp_path: Path) -> None:
    file = tmp_path / "table.tsv"
    file.write_bytes(b"x" * (3 * MIB // 2))
    tracemalloc.start()
    try:
        assert len(read_regular(file, 2048 * MIB)) == 3 * MIB // 2
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 8 * MIB


def test_a_file_that_tells_no_size_is_read_to_the_limit_only() -> None:
    endless = Path("/proc/self/maps")  # a regular file of 0 bytes, says the system
    if not endless.is_file():
        pytest.skip("needs /proc")
    with pytest.raises(OSError, match="more bytes than the limit of 10"):
        read_regular(endless, 10)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    """In a process of its own, which can be given up."""
    for name in ("table.tsv", "table.tsv.gz", "tags.conll", "train.en", "train.de", "run.json"):
        os.mkfifo(tmp_path / name)
    program = """
import sys
import tracemalloc
from pathlib import Path
from collapipe_env.ground.errors import DataError
from collapipe_env.ground.files import read_json
from collapipe_env.tasks import conll_files, parallel_text, table_files
folder = Path(sys.argv[1])
for read, name in (
    (table_files.read_table, "table.tsv"), (table_files.read_table, "table.tsv.gz"),
    (conll_files.load_column_splits, "tags.conll"), (parallel_text.load_parallel, "table.tsv"),
    (lambda path: parallel_text.read_files(path, path.with_name("train.de")), "train.en"),
    (lambda path: read_json(path, "delete it"), "run.json"),
):
    try:
        read(folder / name)
    except DataError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert [line.count("not a regular file") for line in done.stdout.splitlines()] == [1] * 6


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero")
def test_devices_and_folders_are_no_files(tmp_path: Path) -> None:
    link = tmp_path / "table.tsv"
    link.symlink_to("/dev/zero")
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(link, 100)
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path, 100)
    with pytest.raises(OSError, match="null"):
        open_regular(Path("a\0b"), 100)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[" * 100_000, "nested deeper than 64 levels"),
        (b'{"a":' * 70 + b"1" + b"}" * 70, "nested deeper than 64 levels"),
        (b"9" * 4000, "an integer of 13,288 bits"),
        (b'{"a": [' + b"9" * 5000 + b"]}", "Exceeds the limit"),
        (b'"\xff"', "utf-8"),
        (b'{"a": 1', "delimiter"),
    ],
    ids=lambda _: "case",
)
def test_json_beyond_the_limits(content: bytes, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_json(content)
    file = tmp_path / "run.json"
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"run\.json is damaged .*: delete it"):
        read_json(file, "delete it")


def test_json_within_the_limits() -> None:
    assert parse_json(b'{"a":' * 64 + b"1" + b"}" * 64)
    assert parse_json(b'[1, -2.5, 1e400, "x", null, true]')[2] == float("inf")


def test_damaged_json_gives_data_errors_or_an_object(tmp_path: Path) -> None:
    chance, file = random.Random(2), tmp_path / "run.json"
    whole = b'{"a": [1, 2.5e3, {"b": "\\u00e9", "c": null}], "seed": 12345678901234567890, "d": true}'
    for _ in range(500):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 2, 5))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        file.write_bytes(data)
        try:
            found = read_json(file, "delete it")
        except DataError:
            continue
        assert isinstance(found, dict)


@pytest.mark.parametrize(
    "name", ["hf:" + "x" * 100_000, "hf:" + "a/" * 50_000, "hf:a\0b"], ids=lambda _: "case"
)
def test_names_of_data_sets_that_no_file_can_have(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DataError, match="cannot load dataset") as caught:
        fetch(name)
    assert len(str(caught.value)) < 2000


def test_paths_that_no_file_can_have() -> None:
    with pytest.raises(DataError) as caught:
        given_path("x" * 100_000)
    assert "cannot be looked up" in str(caught.value)
    assert len(str(caught.value)) < 1000
