"""The benchmark of DSSRA's open search runs, stores its figures, and refuses bad options."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import open_search


def test_runs_and_stores_ratios_of_all_openings(tmp_path, capsys):
    path = tmp_path / "open.json"
    arguments = ["--scenarios", "small", "--rounds", "2", "--environments", "2", "--output", str(path)]
    assert open_search.main(arguments) == 0
    figures = json.loads(path.read_text())["figures"]
    assert [figure["name"].split(", ", 1)[1] for figure in figures] == [
        ", ".join(opening) for opening in open_search.OPENINGS
    ]
    assert all(figure["value"] > 0.0 for figure in figures)
    printed = capsys.readouterr().out
    assert "objective / V falls by" in printed
    assert open_search.main(["--rounds", "0"]) != 0
