"""Priced costs agree with the real modules'."""

import make_costs_table as costs
import pytest
import torch
from variants_support import mostly_slow


@pytest.mark.parametrize("name", mostly_slow(costs.SCENARIOS, [0, 1]))
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


def test_the_memory_of_a_large_model_on_paper():
    """Qwen2.5-0.5B: d = 896, d_ff = 4864, d_kv = 128, 14 heads; 4 of its blocks, 8 samples of 128 tokens."""
    block = 2 * 896**2 + 2 * 896 * 128 + 3 * 896 * 4864 + 2 * 896 + 896 + 2 * 128
    adapters = 8 * (896 + 896 + 256 + 2 * 896 + 896 + 2 * 4864 + 4864 + 896)
    numbers = 128 * (8 * 896 + 2 * 128 + 4 * 4864 + 14 * 128)
    whole = costs.memory_figures({}, 4, lora=True)
    assert whole["weights"] == 4 * 4 * (block + adapters)
    assert whole["gradients and moments"] == 4 * 12 * adapters
    assert whole["stored activations"] == 4 * 8 * 4 * numbers
    assert whole["working set"] == 0.0
    least = costs.memory_figures(costs.FORMS["all three"], 4, lora=True)
    assert least["weights"] == 4 * 2 * (block + adapters)
    assert least["gradients and moments"] == pytest.approx(4 * (2 + 2 * 260 / 256) * adapters)
    assert least["stored activations"] == 4 * 8 * 2 * 128 * 896
    assert least["working set"] == 2 * (numbers - 128 * 3 * 896)  # without ratios, and the stored input
    assert least["backward over forward"] == 3.0


def test_the_page_shows_that_memory():
    assert costs.memory_table() in costs.PAGE.read_text()
