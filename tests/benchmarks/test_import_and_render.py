"""The benchmark of imports and frames runs, checks its options and stores what it prints."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import import_and_render


def test_runs_and_stores_its_table(tmp_path, capsys):
    path = tmp_path / "new" / "times.json"
    arguments = ["--scenarios", "small", "--processes", "1", "--frames", "2", "--output", str(path)]
    import_and_render.main(arguments)
    printed = capsys.readouterr().out
    content = json.loads(path.read_text())
    results = {f["name"]: f for f in content["figures"]}
    assert list(results) == [
        "import collapipe_env",
        "heavy modules after the import",
        "make, reset and first step, medium",
        "heavy modules after the first step",
        "first frame, small",
        "later frame, small",
    ]
    assert all(name in printed for name in results)
    assert results["heavy modules after the import"]["value"] == 0.0
    assert all(f["value"] > 0.0 for f in content["figures"] if f["unit"] == "s")
    assert content["options"] == {"scenarios": ["small"], "processes": 1, "frames": 2}


def test_figures_are_medians_with_goals(monkeypatch):
    """Made-up processes: the n-th of each kind takes n seconds, its later frames a tenth, a fifth, ..."""
    asked = []

    def ask(code, *arguments):
        asked.append((code, *arguments))
        n = float(asked.count(asked[-1]))
        if code == import_and_render.FRAMES:
            return {"seconds": [n, *(n * (i + 1) / 10 for i in range(int(arguments[1]) - 1))]}
        return {"seconds": n, "heavy": ["scipy"] if n == 2.0 else []}

    monkeypatch.setattr(import_and_render, "_ask", ask)
    found = {f.name: f for f in import_and_render.figures(("small", "medium"), processes=3, frames=4)}
    assert [a[1:] for a in asked[:4]] == [(), ("medium",), ("small", "4"), ("medium", "4")]
    assert asked[:4] * 3 == asked
    goals = {name: f.goal for name, f in found.items() if f.goal is not None}
    assert goals == {
        "import collapipe_env": 1.0,
        "heavy modules after the import": 0.0,
        "later frame, medium": 0.1,
    }
    imported = found["import collapipe_env"]
    assert (imported.value, imported.low, imported.high) == (2.0, 1.0, 3.0)
    heavy = found["heavy modules after the import"]
    assert (heavy.value, heavy.note) == (1.0, "scipy")
    later = found["later frame, medium"]
    assert (later.value, later.low, later.high) == pytest.approx((0.4, 0.2, 0.6))
    assert found["first frame, small"].value == 2.0


def test_a_process_that_fails_is_reported():
    with pytest.raises(RuntimeError, match=r"code 1(?s:.*)no such luck"):
        import_and_render._ask("raise SystemExit('no such luck')")


@pytest.mark.parametrize(
    "arguments",
    [["--scenarios", "tiny"], ["--processes", "0"], ["--frames", "1"], ["--output", "."]],
    ids=lambda a: a[0],
)
def test_bad_options_are_refused(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        import_and_render.parse_arguments(arguments)
    assert stop.value.code == 2
    assert arguments[0] in capsys.readouterr().err
