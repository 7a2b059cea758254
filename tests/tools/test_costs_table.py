"""Priced costs agree with the real modules'."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import make_costs_table as costs


@pytest.mark.parametrize("name", costs.SCENARIOS)
def test_parameters_flops_and_payloads_are_priced_exactly(name):
    torch.set_num_threads(1)
    for comparison in costs.exact_figures(costs.scenario_named(name)):
        assert comparison.measured == pytest.approx(comparison.priced, rel=1e-12), comparison.quantity


@pytest.mark.parametrize("name", ["medium", "bert-small", "bert-base", "transformer-base"])
def test_stored_activations_are_priced_within_what_the_page_says(name):
    figures = costs.activation_figures(costs.scenario_named(name))
    assert 0.95 <= figures["materialised, dropout"].ratio <= 1.15
    assert 0.57 <= figures["fused, as trained"].ratio <= figures["materialised"].ratio <= 1.0


def test_a_wrong_price_shows():
    """The measurement does not copy the formula: another width in the module gives another figure."""
    scenario = costs.scenario_named("medium")
    wider = scenario.with_overrides({"workload.feedforward": 2048})
    priced = costs.activation_figures(scenario)["materialised"].priced
    assert costs.activation_figures(wider)["materialised"].measured > 1.2 * priced


def test_the_page_holds_the_tables_and_keeps_its_words(tmp_path):
    page = tmp_path / "costs.md"
    page.write_text("words\n<!-- generated: exact -->\nold\n<!-- end of generated: exact -->\nmore words\n")
    costs.write_parts(page, {"exact": "| new |"})
    assert page.read_text().split("\n") == [
        "words", "<!-- generated: exact -->", "| new |", "<!-- end of generated: exact -->", "more words", "",
    ]  # fmt: skip
