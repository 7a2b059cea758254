"""The benchmarks of what passes cost, and the page that tells of them."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ruamel.yaml import YAML
from unpriced_support import NO_OVERHEADS, unpriced

from collapipe_env.scenario import load_scenario, scenario_names

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import best_micro_batches  # noqa: E402
import pass_costs  # noqa: E402


def test_the_page_shows_the_overheads_of_every_shipped_scenario_and_those_of_the_paper():
    page = (ROOT / "docs/prices.md").read_text()
    shown, none, *_ = (
        YAML(typ="safe").load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    )
    for name in scenario_names():
        own = {"update_s": 0.025} if name in ("phones", "llm-phones") else {}
        assert load_scenario(name).to_dict()["overheads"] == shown["overheads"] | own, name
    assert load_scenario({}).to_dict()["overheads"] == shown["overheads"] == best_micro_batches.OVERHEADS
    assert none["overheads"] == NO_OVERHEADS
    assert load_scenario(none) == replace(unpriced("medium"), name="medium-unpriced")


@pytest.mark.parametrize("name", ["small", "medium", "large"])
def test_the_best_number_of_micro_batches_is_inside_its_range_and_without_prices_the_largest(name):
    delays, free = (best_micro_batches.delays(s) for s in (load_scenario(name), unpriced(name)))
    few, *inner, many = delays
    assert min(delays[M] for M in inner) < 0.97 * min(delays[few], delays[many])
    assert min(free, key=free.get) == many
    # Where the bottleneck stays the same element, each micro-batch more costs as much as the one before.
    extra = {M: delays[M] - free[M] for M in delays}
    assert 0.0 < extra[few] < extra[many]
    assert extra[64] - extra[32] == pytest.approx(2.0 * (extra[32] - extra[16]), rel=0.02)


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


@pytest.mark.slow
def test_passes_are_measured_and_stored(tmp_path, capsys):
    path = tmp_path / "costs.json"
    small = ["--scenario", "small", "--blocks", "1", "--slices", "3", "--output", str(path)]
    assert pass_costs.main(small) == 0
    stored = json.loads(path.read_text())
    assert {row["micro_batches"] for row in stored["mini_batch"]} == {1, 2, 4, 8, 16, 32, 64}
    assert stored["law"]["forward"]["beta_s"] > 0.0
    assert "alpha is" in capsys.readouterr().out


def test_a_segment_of_no_blocks_is_refused(capsys):
    assert pass_costs.main(["--blocks", "0"]) == 2
    assert "--blocks" in capsys.readouterr().err
