"""The benchmarks of what passes cost, and the page that tells of them."""

import re
from pathlib import Path

import best_micro_batches
import pytest
from ruamel.yaml import YAML
from unpriced_support import NO_OVERHEADS, PAPER_RADIO, unpriced

from collapipe_env.scenario import load_scenario, scenario_names

PAGE = (Path(__file__).parents[2] / "docs/prices.md").read_text()


def test_the_page_shows_the_overheads_of_every_shipped_scenario_and_those_of_the_paper():
    shown, none, *_ = (
        YAML(typ="safe", pure=True).load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    )
    for name in scenario_names():
        own = {"update_s": 0.025} if name in ("phones", "llm-phones") else {}
        assert load_scenario(name).to_dict()["overheads"] == shown["overheads"] | own, name
    assert load_scenario({}).to_dict()["overheads"] == shown["overheads"] == best_micro_batches.OVERHEADS
    assert none["overheads"] == NO_OVERHEADS
    assert all(PAPER_RADIO[name] == value for name, value in none["radio"].items())
    own = {f"radio.{name}": value for name, value in none["radio"].items()}
    assert load_scenario(none) == unpriced("medium").with_overrides({**own, "name": "medium-unpriced"})


# In large the best number, 32, is next to the most, and the delay hardly changes between the two.
@pytest.mark.parametrize(("name", "most"), [("small", 0.97), ("medium", 0.97), ("large", 0.995)])
def test_the_best_number_of_micro_batches_is_inside_its_range_and_without_prices_the_largest(name, most):
    delays, free = (best_micro_batches.delays(s) for s in (load_scenario(name), unpriced(name)))
    few, *inner, many = delays
    assert min(delays[M] for M in inner) < most * min(delays[few], delays[many])
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
    assert all(line in PAGE for line in table)
