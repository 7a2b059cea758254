"""The benchmark of DSSRA's search finds the gaps there are, stores them, and refuses bad options."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import dssra_search_gap

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.even_split import even_split


def test_runs_and_stores_gaps_of_both_forms(tmp_path, capsys):
    path = tmp_path / "gaps.json"
    arguments = ["--scenarios", "small", "--states", "16", "--starts", "2", "--output", str(path)]
    assert dssra_search_gap.main(arguments) == 0
    gaps = json.loads(path.read_text())["gaps"]
    assert set(gaps) == {"small, exact", "small, bound"}
    for found in gaps.values():
        assert len(found) == 16
        assert min(found) >= 0.0
        assert np.median(found) < 0.05
    assert "small, bound drift, 16 states: worst gap" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["exact", "bound"])
def test_a_bad_decision_has_a_gap(form, monkeypatch):
    scenario = load_scenario("small")
    scheduler = DSSRA(scenario, drift=form)
    (state,) = dssra_search_gap.states_of(scenario, 1, 3)
    even = even_split(scheduler.parameters, state)
    monkeypatch.setattr(scheduler, "allocate", lambda *_: even)
    best = DSSRA(scenario, drift=form, tolerance=0.0).allocate(state)
    gaps = dssra_search_gap.gaps(scheduler, state, 0, np.random.default_rng(0))
    value = dssra_search_gap.objective(scheduler, state, even)
    least = dssra_search_gap.objective(scheduler, state, best)
    assert (gaps > 0.1).all()
    assert (gaps >= value / least - 1.0 - 1e-9).all()


def test_objective_leaves_out_what_nothing_decides():
    scenario = load_scenario("small")
    (state,) = dssra_search_gap.states_of(scenario, 1, 3)
    state = replace(state, backlog=state.backlog + 40.0)
    for form in ("exact", "bound"):
        scheduler = DSSRA(scenario, drift=form)
        values = dssra_search_gap.objective(scheduler, state, scheduler.allocate(state))
        # Energies are near the budgets: each of the eight nodes costs about its queue.
        assert (values > 8 * 40 * 0.2).all()


@pytest.mark.parametrize(
    ("arguments", "named"), [(["--states", "5"], "--states: 5"), (["--starts", "-1"], "--starts: -1")]
)
def test_bad_options_are_refused(arguments, named, capsys):
    assert dssra_search_gap.main(arguments) == 2
    assert named in capsys.readouterr().err
