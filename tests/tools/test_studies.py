"""Studies and pictures of the documentation against closed forms, real modules and what was played."""

from pathlib import Path

import fit_traces
import numpy as np
import player
import pytest
import torch
from matplotlib.image import imread
from player import Play, rounds
from studies import priced_models, radio_links, round_pictures
from trace_support import data, needs_data  # noqa: F401 - a fixture
from variants_support import mostly_slow

import docs as tool
from collapipe_env.dynamics.trace_like import PROFILES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/traces.md").read_text()


@pytest.mark.parametrize("name", mostly_slow(priced_models.SCENARIOS, [0, 1]))
def test_parameters_flops_and_payloads_are_priced_exactly(name):
    torch.set_num_threads(1)
    for comparison in priced_models.exact_figures(priced_models.scenario_named(name)):
        assert comparison.measured == pytest.approx(comparison.priced, rel=1e-12), comparison.quantity


@pytest.mark.parametrize("name", ["medium", "bert-small", "bert-base", "transformer-base"])
def test_stored_activations_are_priced_within_what_the_page_says(name):
    figures = priced_models.activation_figures(priced_models.scenario_named(name))
    assert 0.95 <= figures["materialised, dropout"].ratio <= 1.15
    assert 0.57 <= figures["fused, as trained"].ratio <= figures["materialised"].ratio <= 1.0


def test_a_wrong_price_shows():
    """The measurement does not copy the formula: another width in the module gives another figure."""
    scenario = priced_models.scenario_named("medium")
    wider = scenario.with_overrides({"workload.feedforward": 2048})
    priced = priced_models.activation_figures(scenario)["materialised"].priced
    assert priced_models.activation_figures(wider)["materialised"].measured > 1.2 * priced


def test_the_memory_of_a_large_model_on_paper():
    """Qwen2.5-0.5B: d = 896, d_ff = 4864, d_kv = 128, 14 heads; 4 of its blocks, 8 samples of 128 tokens."""
    block = 2 * 896**2 + 2 * 896 * 128 + 3 * 896 * 4864 + 2 * 896 + 896 + 2 * 128
    adapters = 8 * (896 + 896 + 256 + 2 * 896 + 896 + 2 * 4864 + 4864 + 896)
    numbers = 128 * (8 * 896 + 2 * 128 + 4 * 4864 + 14 * 128)
    whole = priced_models.memory_figures({}, 4, lora=True)
    assert whole["weights"] == 4 * 4 * (block + adapters)
    assert whole["gradients and moments"] == 4 * 12 * adapters
    assert whole["stored activations"] == 4 * 8 * 4 * numbers
    assert whole["working set"] == 0.0
    least = priced_models.memory_figures(priced_models.FORMS["all three"], 4, lora=True)
    assert least["weights"] == 4 * 2 * (block + adapters)
    assert least["gradients and moments"] == pytest.approx(4 * (2 + 2 * 260 / 256) * adapters)
    assert least["stored activations"] == 4 * 8 * 2 * 128 * 896


def test_gains_of_walking_devices_move_and_keep_their_law(monkeypatch):
    monkeypatch.setattr(radio_links, "LAGS", (1, 2))
    plain, shadowed = (radio_links.gains_db(db, 60) for db in (0.0, 6.0))
    assert plain.shape == shadowed.shape == (3, 60 * 4 * 15)
    assert (plain[1] != plain[0]).all()  # the environment moves every link
    # Devices walk the same ways, so what is added is shadowing: 6 dB in every round.
    np.testing.assert_allclose((shadowed - plain).std(axis=1), 6.0, rtol=0.05)
    assert plain[2].std() == pytest.approx(plain[0].std(), rel=0.05)


@pytest.mark.parametrize("share", [1.0, 0.25, 0.01])
@pytest.mark.parametrize("power", [1.0, 0.1])
def test_rates_of_gains_over_rates_as_capacities_are_ratios_of_logarithms(share, power):
    """``log2(1 + p snr / beta) / log2(1 + snr)``, as the declared link has the scenario's band and noise."""
    rates = np.array([0.5e6, 5e6, 40e6])
    snr = 2.0 ** (rates / (0.6 * 20e6)) - 1.0
    expected = np.log2(1.0 + power * snr / share) / np.log2(1.0 + snr)
    np.testing.assert_allclose(radio_links.over_capacity(rates, share, power), expected, rtol=1e-9)


def test_rates_above_the_limit_lose_what_is_above_it():
    most = 0.95 * np.log2(1.0 + 1e3) * 0.6 * 20e6
    assert radio_links.over_capacity(np.array([2.0 * most]), 1.0, 1.0) == pytest.approx(0.5, rel=1e-9)


@pytest.mark.parametrize(
    "name",
    [
        "traces/capacities",
        "churn/recoveries",
        "prices/memory",
        "decisions/orders",
        "reference_scenario/fields",
    ],
)
def test_pages_show_the_tables_of_studies_that_play_nothing(name):
    page, _, part = name.partition("/")
    entry = tool.entries()[name]
    made = tool.function_of(entry)(entry, False)
    assert made in tool.parts_of(tool.DOCS / f"{page}.md")[part]


def test_pictures_show_the_rounds_that_were_played(monkeypatch):
    monkeypatch.setattr(round_pictures, "ROUNDS", 3)
    above, below = round_pictures.heat().axes
    records = [seen.record for seen in rounds(Play("medium-thermal", rounds=3, seed=round_pictures.SEED))]
    hottest = [record.state.processes["heat"]["temperature"][0].max() for record in records]
    np.testing.assert_allclose(above.lines[0].get_ydata(), hottest)
    np.testing.assert_allclose(below.lines[0].get_ydata(), [record.costs.delay[0] for record in records])
    gain, present = round_pictures.walks().axes
    assert len(gain.lines) == len(present.lines) == 1
    assert (present.lines[0].get_ydata() <= 20).all()


def test_the_front_is_drawn_from_its_table(tmp_path, monkeypatch):
    monkeypatch.setattr(player, "KEPT", tmp_path)
    entry = dict(tool.entries()["views/front"])
    rows = [{"head": "scheduler", "of": {f"DSSRA, {v} V": {"v": v} for v in (0.02, 1.0, 50.0)}}]
    short = {**entry, "rows": rows, "tables": {"`small`:": {"base": "small"}}, "episodes": 1, "rounds": 20}
    monkeypatch.setattr(tool, "entries", lambda: {"views/front": short})
    (axes,) = round_pictures.front().axes
    delays, energies = axes.lines[0].get_data()
    assert list(delays) == sorted(delays, reverse=True)
    assert list(energies) == sorted(energies)


def test_images_of_rounds_are_drawn(tmp_path):
    place = tool.drawn(round_pictures.plain_round(), tmp_path / "round.png")
    picture = imread(place)
    assert min(picture.shape[:2]) > 300
    assert picture.std() > 0.05


def test_the_picture_of_traces_is_drawn_without_data(monkeypatch):
    monkeypatch.delenv("COLLAPIPE_DATA", raising=False)
    monkeypatch.chdir(ROOT / "tests")
    axes = round_pictures.traces().axes
    assert [one.get_title() for one in axes[:2]] == ["made, profile driving", "another one"]
    assert len(axes[2].lines) == 4


@pytest.mark.slow
@needs_data
def test_fits_of_today_are_those_of_the_page_and_of_the_package(data, monkeypatch, tmp_path, capsys):  # noqa: F811
    (tmp_path / "traces.md").write_text(PAGE)
    monkeypatch.setattr(fit_traces, "PAGE", tmp_path / "traces.md")
    fit_traces.main()
    assert (tmp_path / "traces.md").read_text() == PAGE
    assert capsys.readouterr().out.count("Profile(") == len(PROFILES)
    axes = round_pictures.traces().axes
    assert axes[1].get_title() == "measured, UCC 5G driving"
    assert len(axes[2].lines) == 8
    at = dict(zip(round_pictures.LAGS_S, axes[2].lines[1].get_ydata(), strict=True))
    assert [round(at[lag], 2) for lag in (1, 10, 60)] == [0.98, 0.87, 0.53]
