"""What is compiled depends on all sources that are compiled."""

import pickle
import shutil
from pathlib import Path

import numba
import pytest

from collapipe_env.compiled import _drop_unreadable, _warn_of_no_cache, compiled, source_stamp
from collapipe_env.physics.schedule_times import run_chain


@compiled
def double(x: float) -> float:
    """Twice a number."""
    return 2.0 * x


def test_compiled_functions_compute():
    assert double(3.0) == 6.0


def test_numba_is_told_about_all_sources():
    package = Path(__file__).parents[1] / "collapipe_env"
    for function in (double, run_chain):
        _, stamp = function._cache._cache_file._source_stamp
        assert stamp == source_stamp(package.resolve())


def test_the_stamp_changes_with_any_source_that_is_compiled(tmp_path):
    (tmp_path / "package" / "inner").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "package" / "linked").symlink_to(tmp_path / "elsewhere")
    files = [tmp_path / "package" / "inner" / "a.py", tmp_path / "elsewhere" / "b.py"]
    for path in files:
        path.write_text("from collapipe_env.compiled import compiled\n")
    (tmp_path / "package" / "allocation.py").write_text("GPIPE = 0\n")
    other = tmp_path / "package" / "plain.py"
    other.write_text("x = 1\n")

    def stamp():
        source_stamp.cache_clear()
        return source_stamp(tmp_path / "package")

    stamps = [stamp()]
    for path in (*files, tmp_path / "package" / "allocation.py"):
        path.write_text(path.read_text() + "x = 1\n")
        stamps.append(stamp())
    assert len(set(stamps)) == 4
    other.write_text("x = 2\n")
    assert stamp() == stamps[-1]
    source_stamp.cache_clear()


def test_what_an_earlier_version_kept_is_dropped_if_it_cannot_be_read():
    file = double._cache._cache_file
    double(2.0)
    path = Path(file._index_path)
    kept = path.read_bytes()
    version = pickle.dumps(file._version, protocol=-1)
    assert kept.startswith(version)
    # The reference to a class that does not exist any more, as after a rename.
    path.write_bytes(version + b"ccollapipe_env.kernels.plain_round\nNoSuchClass\n.")
    try:
        with pytest.raises(AttributeError):
            file._load_index()
        _drop_unreadable(file)
        assert not path.exists()
        assert file._load_index() == {}
    finally:
        path.write_bytes(kept)


def test_every_compiled_source_of_the_package_counts(tmp_path):
    package = Path(__file__).parents[1] / "collapipe_env"
    copy = tmp_path / "collapipe_env"
    for folder in ("kernels", "physics"):
        shutil.copytree(package / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))

    def stamp():
        source_stamp.cache_clear()
        return source_stamp(copy)

    before = stamp()
    for path in sorted(copy.rglob("*.py")):
        path.write_text(path.read_text() + "# changed\n")
        after = stamp()
        assert after != before, path.name
        before = after
    source_stamp.cache_clear()


def test_without_a_place_to_keep_code_it_is_compiled_all_the_same(monkeypatch):
    real = numba.njit

    def njit(**options):
        if options.pop("cache", False):
            raise RuntimeError("cannot cache function 'f': no locator available")
        return real(**options)

    monkeypatch.setattr(numba, "njit", njit)
    _warn_of_no_cache.cache_clear()
    with pytest.warns(UserWarning, match="NUMBA_CACHE_DIR"):
        function = compiled(lambda x: x + 1.0)
    assert function(1.0) == 2.0
