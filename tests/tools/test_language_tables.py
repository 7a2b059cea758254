"""Tables of what language models cost, against sums on paper."""

import shutil

import make_language_tables as tables
import numpy as np
import pytest

from collapipe_env.feasibility import energy_feasibility
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.world import World

BLOCK = 2 * 896**2 + 2 * 896 * 128 + 3 * 896 * 4864 + 2 * 896 + 896 + 2 * 128
"""Weights of a block of Qwen2.5-0.5B."""
ADAPTERS = 16 * (896 + 896 + 256 + 2 * 896 + 896 + 2 * 4864 + 4864 + 896)
"""Those of its adapters of rank 16."""
KEPT = 2 * 128 * (6 * 896 + 2 * 128 + 4 * 4864 + 14 * 128)
"""Bytes of activations of a sample of 128 tokens in 16 bits."""
STATE = 2 * BLOCK + 12 * ADAPTERS
"""Bytes of a block: frozen weights in two, adapters with gradients and moments in twelve."""
PLAIN = load_scenario("llm-boards").with_overrides({"workload.recompute": False})


@pytest.mark.parametrize("samples", [1, 16])
def test_a_device_alone_on_paper(samples):
    assert tables.alone_bytes(PLAIN, samples) == pytest.approx(24 * (STATE + samples * KEPT))
    recomputed = 24 * (STATE + samples * 2 * 128 * 896) + samples * (KEPT - 2 * 128 * 896)
    assert tables.alone_bytes(load_scenario("llm-boards"), samples) == pytest.approx(recomputed, rel=1e-3)


def test_gpipe_keeps_all_samples_and_1f1b_a_few():
    """Six devices with four blocks each; the first stage has six micro-batches of one sample in flight."""
    gpipe = tables.played(PLAIN, tables.PipeLine, 1)
    one_by_one = tables.played(PLAIN, tables.OneForwardOneBackward, 1)
    assert gpipe.memory == pytest.approx(4 * (STATE + 16 * KEPT))
    assert one_by_one.memory == pytest.approx(4 * (STATE + 6 * KEPT))


def test_parts_of_a_round_of_one_cluster_add_up():
    scenario = load_scenario({"base": "llm-boards", "cluster": {"clusters": 1}})
    found = tables.played(scenario, tables.PipeLine, 3)
    world = World(scenario, IdleLearner(tables.EPISODES), tables.EPISODES)
    world.reset([np.random.default_rng([0, episode]) for episode in range(tables.EPISODES)])
    scheduler = tables.PipeLine(scenario)
    steps = [world.step(scheduler.allocate(world.state)).costs.local_step for _ in range(3)]
    local = found.delay - found.collect - found.upload - found.broadcast
    assert local == pytest.approx(np.mean(steps))
    assert found.exchange_share == pytest.approx(1.0 - local / found.delay)
    assert found.payload == 32 * 24 * ADAPTERS / 2


def test_budgets_are_raised_only_where_they_must_be():
    shipped = load_scenario("llm-phones")
    assert tables.with_feasible_budgets(shipped) == shipped
    full = shipped.with_overrides(tables.FULL)
    assert not energy_feasibility(full).feasible
    raised = tables.with_feasible_budgets(full)
    assert 0.8 < energy_feasibility(raised).energy_ratio.max() <= 0.9 + 1e-6


@pytest.mark.slow
def test_the_page_is_written_whole(tmp_path, monkeypatch, capsys):
    page = tmp_path / "page.md"
    shutil.copy(tables.PAGE, page)
    monkeypatch.setattr(tables, "PAGE", page)
    monkeypatch.setattr(tables, "SCENARIOS", ("llm-phones",))
    tables.main(["--rounds", "1"])
    assert f"wrote {page}" in capsys.readouterr().out
    text = page.read_text(encoding="utf-8")
    assert text.count("`python tools/make_language_tables.py --rounds 1`: 1 rounds of 2 episodes") == 4
    assert "| llm-boards |" not in text
    assert "## Updates on the uplink" in text
