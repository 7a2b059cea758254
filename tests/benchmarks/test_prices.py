"""The benchmarks of what passes cost, and the page that tells of them."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from collapipe_env.scenario import load_scenario

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import best_micro_batches  # noqa: E402
import pass_costs  # noqa: E402


def test_the_page_shows_the_overheads_that_its_table_has_and_leaves_no_field_out(tmp_path):
    page = (ROOT / "docs/prices.md").read_text()
    path = tmp_path / "priced.yaml"
    path.write_text(re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1])
    shown = load_scenario(path).to_dict()["overheads"]
    assert shown == best_micro_batches.OVERHEADS


def test_the_table_of_the_page_is_that_of_its_command(capsys):
    best_micro_batches.main(["--scenarios", "small"])
    table = capsys.readouterr().out.splitlines()
    assert table[2].startswith("| small | none | 64 |")
    assert table[3].startswith("| small | yes | 16 |")
    page = (ROOT / "docs/prices.md").read_text()
    assert all(line in page for line in table)


def test_a_law_is_found_again():
    sizes = [1, 2, 4, 8, 16]
    alpha, beta = pass_costs.fitted(sizes, 0.003 + 0.0005 * np.array(sizes))
    assert (alpha, beta) == pytest.approx((0.003, 0.0005), rel=1e-9)


def test_passes_are_measured_and_stored(tmp_path, capsys):
    path = tmp_path / "costs.json"
    small = ["--scenario", "small", "--blocks", "1", "--slices", "3", "--output", str(path)]
    assert pass_costs.main(small) == 0
    stored = json.loads(path.read_text())
    assert {row["micro_batches"] for row in stored["mini_batch"]} == {1, 2, 4, 8, 16, 32, 64}
    assert stored["law"]["forward"]["beta_s"] > 0.0
    assert "alpha is" in capsys.readouterr().out
    assert pass_costs.main(["--blocks", "0"]) == 2
