"""The command ``collapipe execute``, in its own process and with processes of Ray."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "execution"))
from executed_support import quick

from collapipe_env.cli.main import main

ROOT = Path(__file__).parents[2]
PLAIN = ["execute", "--scenario", "small", "--scheduler", "pipeline"]


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}


def written(scenario, folder):
    """Options of an execution of a scenario, which is written to a folder."""
    (folder / "quick.yaml").write_text(scenario.to_yaml())
    return ["--scenario", str(folder / "quick.yaml"), "--scheduler", "pipeline"]


def test_rounds_take_the_priced_times(tmp_path, capsys):
    out = tmp_path / "run"
    given = [*written(quick(), tmp_path), "--rounds", "2", "--fault", "c0d1@1.0"]
    assert main(["execute", *given, "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "2 control units and 6 devices in this process; 2 rounds of pipeline" in shown
    assert "lost c0d1" in shown
    numbers = json.loads((out / "execution.json").read_text())
    first, second = numbers["rounds"]
    assert first["clusters"][0]["lost"] == ["c0d1"]
    assert first["clusters"][0]["recovery_s"] > 2.0  # detection
    for one in (first, second):
        for cluster in one["clusters"]:
            assert cluster["delay_measured_s"] == pytest.approx(cluster["delay_priced_s"], abs=1e-9)
            assert cluster["late_most_s"] == 0.0
    assert second["clusters"][0]["lost"] == []
    trace = json.loads((out / "trace.json").read_text())["traceEvents"]
    drawn = [event for event in trace if event["ph"] == "X"]
    assert len({event["pid"] for event in drawn}) == 4  # two clusters, priced and measured
    begins = [event["ts"] for event in drawn]
    assert begins == sorted(begins)
    assert all(event["dur"] >= 0.0 for event in drawn)
    assert len(list((out / "figures").glob("round-*.png"))) == 2
    with np.load(out / "weights.npz") as weights:
        assert any(name.startswith("model/blocks.0") for name in weights)
        assert all(np.isfinite(weights[name]).all() for name in weights)


def test_a_schedule_that_no_plan_fits_is_refused(tmp_path, capsys):
    assert main([*PLAIN, "--schedule", "interleaved", "--out", str(tmp_path / "run")]) == 2
    assert "in groups of 3: none that the scenario allows fits: use a scenario" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("how", ["--kill", "--hang"])
def test_devices_that_are_killed_or_stopped_are_replaced(how, tmp_path):
    pytest.importorskip("ray")
    out = tmp_path / "run"
    given = ["--engine", "ray", "--rounds", "2", how, "c0d1@1", "--out", str(out)]
    result = subprocess.run(
        [sys.executable, "-m", "collapipe_env", *PLAIN, *given],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=tmp_path,
        env=environment(),
    )
    assert result.returncode == 0, result.stderr
    first, second = json.loads((out / "execution.json").read_text())["rounds"]
    assert first["clusters"][0]["lost"] == ["c0d1"]
    assert second["clusters"][0]["lost"] == []
    cluster = first["clusters"][0]
    # Detection and planning are measured, so the price is of this very failure.
    assert cluster["delay_measured_s"] == pytest.approx(cluster["delay_priced_s"], rel=0.1)
