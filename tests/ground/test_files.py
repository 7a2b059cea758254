"""Data files that would take minutes, fill the memory or be waited for are refused with their limit."""

import gzip
import os
import tracemalloc
from pathlib import Path

import pytest

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

MIB = 1024**2


def test_what_archives_may_unpack_to() -> None:
    assert unpacked_limit(800_000) == 80_000_000
    assert unpacked_limit(1) == 64 * MIB


def test_gzip_in_several_members_is_read_whole(tmp_path: Path) -> None:
    file = tmp_path / "a.gz"
    file.write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n"))
    assert read_gzip(file, 100) == b"one\ntwo\n"


def test_files_above_a_limit(tmp_path: Path) -> None:
    file = tmp_path / "table.tsv"
    file.write_bytes(b"x" * 11)
    assert read_regular(file, 11) == b"x" * 11
    with pytest.raises(OSError, match="it has 11 bytes, above the limit of 10"):
        read_regular(file, 10)


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


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero")
def test_devices_pipes_and_folders_are_no_files(tmp_path: Path) -> None:
    link = tmp_path / "table.tsv"
    link.symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.tsv")  # which nobody writes into
    for path in (link, tmp_path / "pipe.tsv"):
        with pytest.raises(OSError, match="not a regular file"):
            open_regular(path, 100)
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path, 100)
    with pytest.raises(OSError, match="null"):
        open_regular(Path("a\0b"), 100)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[" * 100_000, "nested deeper than 64 levels"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "nested deeper than 64 levels"),
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


def test_home_is_expanded_and_nothing_need_be_there(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert given_path("~/absent.tsv") == tmp_path / "absent.tsv"
    assert given_path("some/where") == Path("some/where")


def test_folders_that_cannot_be_listed(monkeypatch, tmp_path):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DataError, match=r"looked up \(Permission denied\); .* permissions"):
        given_path(str(tmp_path))
