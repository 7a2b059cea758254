"""The picture of real and surrogate losses: a panel for each fit, drawn from the shipped runs."""

import json
from dataclasses import asdict, replace

import make_surrogate_figure as tool
import numpy as np
from fitting.conditions import HELD_OUT
from fitting.least_squares import predicted_losses
from fitting.real_runs import run_of
from fitting.shipped_runs import HeldOutRuns, held_out_file, write_held_out

from collapipe_env.learners.surrogate_fits import SurrogateConstants
from collapipe_env.scenario import load_scenario

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


def test_picture_is_written_and_absent_runs_are_named(tmp_path, capsys):
    fits = tmp_path / "fits.json"
    entry = {"task": "classification", "blocks": 6, "clusters": 2, "constants": asdict(CONSTANTS)}
    fits.write_text(json.dumps({"fits": {"small/classification": entry, "medium/ner": entry}}))
    arguments = ["--fits", str(fits), "--output", str(tmp_path / "new" / "picture.png")]
    write_held_out(held_out_file(fits), "small/classification", held_out("small"))
    assert tool.main(arguments) == 0
    assert (tmp_path / "new" / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert "medium/ner: left out" in capsys.readouterr().out
