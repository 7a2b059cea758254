"""Scenarios on made traces: what they are, that they need no files, and that schedulers can play them."""

import re
from pathlib import Path

import numpy as np
import pytest

import collapipe_env
from collapipe_env.dynamics.trace_like import made_traces
from collapipe_env.evaluation.declared_sight import seen_by, sees_truth
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import fixed_layout, load_scenario
from collapipe_env.scenario.names import TIER_SIZES, TRACED
from collapipe_env.schedulers import also_playing


@pytest.mark.parametrize(("size", "name"), list(zip(TIER_SIZES, TRACED, strict=True)))
def test_it_is_the_ladder_on_made_traces(size, name):
    """Nothing but uplinks, CU budgets and scalars of DSSRA+ differs."""
    scenario, ladder = load_scenario(name), load_scenario(size)
    assert [key for key, _ in scenario.dynamics.processes] == ["traces"]
    spec = dict(scenario.dynamics.processes)["traces"]
    assert (spec.made, spec.level, spec.checksum) == (True, "layout", "")
    plain = scenario.with_overrides(
        {
            "name": size,
            "dynamics.processes": {"traces": "off"},
            "budgets.cu_energy_j": ladder.budgets.cu_energy_j,
            "dssra_plus.channel_weight": 1.0,
        }
    )
    assert plain == ladder
    assert scenario.budgets.cu_energy_j > ladder.budgets.cu_energy_j


@pytest.mark.parametrize("name", TRACED)
def test_it_needs_no_files(name, monkeypatch):
    """Uplinks are on average, in dB, those of the layout; made traces have a mean gain of 0 dB around it."""
    monkeypatch.delenv("COLLAPIPE_DATA", raising=False)
    env = collapipe_env.CollaPipeVectorEnv(64, load_scenario(name), "surrogate")
    env.reset(seed=0)
    ratio = 10.0 * np.log10(env.truth.uplink_gain / fixed_layout(env.scenario).d2e_path_gain)
    within = np.mean([trace.values.std() for trace in made_traces("driving")])
    assert abs(ratio.mean()) < 4.0 * within / np.sqrt(ratio.size)
    assert 0.6 * within < ratio.std() < within + 0.5


@pytest.mark.parametrize("name", ["small-trace-like", "medium-trace-like"])
def test_schedulers_play_and_those_who_know_more_are_faster(name):
    scenario = load_scenario(name)
    assert {"dssra-truth"} <= set(also_playing(scenario))
    delays = {}
    for which in ("dssra", "dssra-truth", "dssra-plus", "pipeline"):
        env = collapipe_env.CollaPipeVectorEnv(4, scenario, "surrogate")
        env.reset(seed=0)
        scheduler = make_scheduler(which, scenario)
        scheduler.reset(seed=0)
        total = 0.0
        for _ in range(20):
            plan = scheduler.act(None, seen_by(env, oracle=sees_truth(scheduler)))
            assert isinstance(plan, Allocation)
            env.step_allocation(plan)
            total += float(env.last_round.costs.delay.mean())
        delays[which] = total
    assert delays["dssra-truth"] < delays["dssra"]
    assert delays["dssra-truth"] < delays["dssra-plus"]


def test_the_page_shows_each_and_who_knows_more_is_faster_there():
    page = (Path(__file__).parents[2] / "docs" / "traces.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+-trace-like)` \|(.*)$", page, re.MULTILINE)
    assert tuple(name for name, _ in rows) == TRACED
    for _, cells in rows:
        truth, dssra, plus, _ = (float(x) for x in re.findall(r"([\d.]+) s", cells))
        assert truth < plus < dssra
