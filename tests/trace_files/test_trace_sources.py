"""Sources of traces: files in order, checksums, splits by whole files, and known sets."""

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_support import DATA, data, needs_data, write_trace  # noqa: F401 - a fixture

from collapipe_env.ground.errors import DataError
from collapipe_env.trace_files import (
    Columns,
    checksum,
    known_sets,
    source_files,
    source_traces,
    verify_set,
)
from collapipe_env.trace_files.trace_sources import split


@pytest.fixture
def folder(tmp_path):
    for number in range(7):
        write_trace(tmp_path / "set" / f"t{number}.csv", [-90.0 - number] * 5)
    (tmp_path / "set" / "README.md").write_text("not a trace")
    (tmp_path / "set" / ".hidden.csv").write_text("not a trace")
    return tmp_path / "set"


def names(source, part="all"):
    return [trace.name for trace in source_traces(str(source), Columns(), part)]


def test_whole_files_in_the_order_of_their_names(folder):
    assert names(folder) == [f"t{number}.csv" for number in range(7)]
    assert names(folder, "train") == ["t0.csv", "t1.csv", "t2.csv", "t5.csv", "t6.csv"]
    assert names(folder, "dev") == ["t3.csv"]
    assert names(folder, "test") == ["t4.csv"]
    listed = tuple(str(folder / f"t{number}.csv") for number in (6, 0, 3))
    assert [path.name for path in source_files(listed)] == ["t0.csv", "t3.csv", "t6.csv"]


@given(st.integers(0, 200))
def test_parts_share_nothing_and_leave_nothing_out(count):
    parts = [split(range(count), part) for part in ("train", "dev", "test")]
    assert sorted([*parts[0], *parts[1], *parts[2]]) == list(range(count)) == split(range(count), "all")
    assert all(index % 5 == 3 for index in parts[1])
    assert all(index % 5 == 4 for index in parts[2])
    assert all(index % 5 < 3 for index in parts[0])


def test_a_file_belongs_to_one_part_whatever_is_read_of_it(tmp_path):
    """Files without RSRP are left out, but not counted out."""
    for number in range(10):
        power = "-" if number in (0, 3) else "-90"
        rows = f"a,LTE,{power},1\nb,LTE,{power},1\nc,LTE,{power},1\n"
        (tmp_path / f"t{number}.csv").write_text("Timestamp,NetworkMode,RSRP,DL_bitrate\n" + rows)
    for part, expected in (("train", "1256 7"), ("dev", "8"), ("test", "49")):
        power, rates = (
            {trace.name[1] for trace in source_traces(str(tmp_path), Columns("ucc-5g", quantity), part)}
            for quantity in ("rsrp", "rate")
        )
        assert power == set(expected) - {" "}
        assert rates - power == {"train": {"0"}, "dev": {"3"}, "test": set()}[part]


def test_relative_paths_are_looked_for_below_the_data_folder(folder, monkeypatch, tmp_path):
    monkeypatch.delenv("COLLAPIPE_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    assert len(names("set")) == 7
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(DataError, match=r"traces: set: no such file or folder; .* set COLLAPIPE_DATA"):
        names("set")
    monkeypatch.setenv("COLLAPIPE_DATA", str(tmp_path))
    assert len(names("set")) == 7
    with pytest.raises(DataError, match=r"sets and .*/sets: no such file or folder; check the path$"):
        names("sets")


def test_sources_that_are_refused(folder, tmp_path):
    (tmp_path / "empty").mkdir()
    write_trace(tmp_path / "other" / "t1.csv", [-80.0] * 4)
    for source, message in (
        ((), "empty list: name a folder or files"),
        ("", "is not a path"),
        (str(tmp_path / "empty"), "holds no trace files, .csv"),
        ((str(folder), str(tmp_path / "other")), "t1.csv have the same name"),
        (str(folder / "t1.csv") + "\0", "cannot be looked up"),
    ):
        with pytest.raises(DataError, match=message):
            source_files(source)
    with pytest.raises(
        DataError, match=r"the part 'test' of .* holds none of its 3 traces: choose split: all"
    ):
        source_traces([str(folder / f"t{i}.csv") for i in range(3)], Columns(), "test")


def test_the_checksum_is_of_names_and_contents_wherever_files_lie(folder, tmp_path):
    lines = ""
    for number in range(7):
        content = (folder / f"t{number}.csv").read_bytes()
        lines += f"t{number}.csv\0{hashlib.sha256(content).hexdigest()}\n"
    first = checksum(source_files(str(folder)))
    assert first == hashlib.sha256(lines.encode()).hexdigest()
    folder.rename(tmp_path / "moved")
    moved = tmp_path / "moved"
    assert checksum(source_files(str(moved))) == first
    (moved / "t2.csv").rename(moved / "t9.csv")
    renamed = checksum(source_files(str(moved)))
    (moved / "t9.csv").rename(moved / "t2.csv")
    write_trace(moved / "t2.csv", [-92.0] * 4 + [-93.0])
    assert len({first, renamed, checksum(source_files(str(moved)))}) == 3


def test_the_manifest_is_complete_and_holds_no_data():
    sets = known_sets()
    assert {name: len(known.files) for name, known in sets.items()} == {
        "ucc-5g-driving": 16,
        "ucc-5g-static": 5,
        "nyu-lte": 7,
        "nyu-multivariate": 5,
        "norway-3g": 80,
        "radio-power-5g": 2,
    }
    for known in sets.values():
        assert all(re.fullmatch("[0-9a-f]{64}", digits) for digits in known.files.values())
        assert Columns(known.format, next(iter(Columns(known.format).layout.columns)))


@needs_data
def test_the_data_sets_are_those_of_the_manifest(data):  # noqa: F811
    stated = dict(reversed(line.split()) for line in (DATA / "MANIFEST.sha256").read_text().splitlines())
    for name, known in known_sets().items():
        verify_set(name)
        for file, digits in known.files.items():
            assert stated[f"./{known.folder}/{file}"] == digits


def test_a_set_that_is_not_the_known_one_is_refused(folder, monkeypatch):
    from collapipe_env.trace_files import trace_manifest as module

    known = {f"t{i}.csv": hashlib.sha256((folder / f"t{i}.csv").read_bytes()).hexdigest() for i in range(7)}

    def check(**files):
        found = module.KnownSet("csv", str(folder), files)
        monkeypatch.setattr(module, "known_sets", lambda: {"mine": found})
        module.verify_set("mine", str(folder))

    check(**known)
    with pytest.raises(DataError, match=r"lacks t9.csv of mine: fetch the set again"):
        check(**known, **{"t9.csv": "0" * 64})
    with pytest.raises(
        DataError, match=r"t3.csv in .* is not that of mine: its SHA-256 is .* not 000000000000"
    ):
        check(**{**known, "t3.csv": "0" * 64})
    with pytest.raises(DataError, match=r"holds t6.csv, which is not part of mine: remove it"):
        check(**{name: digits for name, digits in known.items() if name != "t6.csv"})
    monkeypatch.undo()
    with pytest.raises(DataError, match=r"no known set of traces 'ucc-5g-drivin'; did you mean"):
        verify_set("ucc-5g-drivin")
