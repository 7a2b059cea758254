"""What is compiled depends on all sources that are compiled."""

from pathlib import Path

from collapipe_env.compiled import compiled, source_stamp
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
