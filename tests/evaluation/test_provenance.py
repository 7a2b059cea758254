"""Versions with which a folder's results were made."""

import json
from pathlib import Path

from collapipe_env.cli.main import main
from collapipe_env.evaluation import provenance, runner

EVALUATE = (
    "evaluate --scenario small --schedulers pipeline --episodes 1 --rounds 1 --processes 1 --no-figures"
)


def test_episodes_with_other_fits_are_measured_again_and_a_warning_says_so(
    tmp_path: Path, capsys, monkeypatch, recwarn, played
) -> None:
    surrogate = [*EVALUATE.split(), "--out", str(tmp_path / "run")]
    torch = [*surrogate[:-1], str(tmp_path / "torch"), "--learner", "real"]
    assert main(surrogate) == main(torch) == 0
    played.clear()
    assert main(surrogate) == main(torch) == 0
    assert played == []
    assert "warning" not in capsys.readouterr().err

    monkeypatch.setattr(runner, "fits_digest", lambda: "f" * 64)
    monkeypatch.setattr(provenance, "fits_digest", lambda: "f" * 64)
    monkeypatch.setattr("warnings.filters", [])
    assert main(surrogate) == main(torch) == 0
    assert [unit.plan.learner for unit in played] == ["surrogate"]  # the real learner does not know the fits
    errors = capsys.readouterr().err
    assert errors.count("warning: ") == 2
    assert "was written with other versions (surrogate-fits-sha256 was " in errors
    assert "now ffffffffffff): episodes are measured again" in errors
    sessions = json.loads((tmp_path / "run" / "versions.json").read_text())["sessions"]
    assert [s["versions"]["surrogate-fits-sha256"] == "f" * 64 for s in sessions] == [False, True]
    assert main([*surrogate, "--fresh"]) == 0
    assert len(json.loads((tmp_path / "run" / "versions.json").read_text())["sessions"]) == 1
