"""The picture of real and surrogate losses: a panel for each fit, drawn from the shipped runs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from fitting.conditions import HELD_OUT
from fitting.least_squares import predicted_losses
from fitting.real_runs import run_of
from fitting.shipped_runs import HeldOutRuns
from generated_parts import parts_of
from studies import fit_reports as tool

from collapipe_env.learners.surrogate_fits import SurrogateConstants
from collapipe_env.scenario import load_scenario

ROOT = Path(__file__).parents[2]
CONSTANTS = SurrogateConstants(
    0.7, 0.4, 2.0, 0.1, 8.0, 0.05, 90.0, 0.05, 1.0, 0.4, {"dirichlet": 0.3, "length": 0.1, "quantity": 0.2}
)


def held_out(preset, rounds=20):
    scenario = load_scenario(preset)
    runs = [
        run_of(scenario, condition, seed, rounds, [0.0] * (1 + rounds // 2))
        for condition in HELD_OUT
        for seed in range(2)
    ]
    real = [replace(run, losses=predicted_losses(CONSTANTS, run) + 0.01) for run in runs]
    return HeldOutRuns(preset, "classification", rounds, real)


def test_panels_show_real_and_surrogate_curves():
    figure = tool.draw({f"{p}/classification": (CONSTANTS, held_out(p)) for p in ("medium", "small")})
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title().splitlines()[0] for axes in panels] == [
        "small, classification",
        "medium, classification",
    ]
    for axes in panels:
        assert "error 0.010" in axes.get_title()
        thin = [line for line in axes.lines if line.get_linewidth() < 1.0]
        thick = [line for line in axes.lines if line.get_linewidth() > 1.0]
        assert (len(thin), len(thick)) == (2 * len(tool.DRAWN), len(tool.DRAWN))
        # The real curves were made 0.01 above the surrogate's.
        gap = np.mean([line.get_ydata() for line in thin[:2]], axis=0) - thick[0].get_ydata()
        np.testing.assert_allclose(gap, 0.01, atol=1e-9)


def test_tables_of_today_are_those_of_the_page():
    parts = parts_of(ROOT / "docs" / "evidence.md")
    assert tool.fits({}, False) in parts["fits"]
    assert tool.steps({}, False) in parts["steps"]
