"""``collapipe warm-up``: afterwards nothing is left to compile."""

import os
import re
import subprocess
import sys

import pytest

from collapipe_env.cli import warm_up as warm_up_module
from collapipe_env.cli.main import main

RUN = """
import sys
from collapipe_env.cli.main import main
sys.exit(main(["warm-up", "--schedulers", "greedy_dpp"]))
"""


def said(environment=None):
    """Output of a run in a process of its own."""
    result = subprocess.run(
        [sys.executable, "-c", RUN], env=environment, capture_output=True, text=True, check=True
    )
    assert result.stderr == ""
    return result.stdout


def test_afterwards_another_process_finds_all_warm(capsys):
    assert main(["warm-up", "--schedulers", "greedy_dpp"]) == 0
    assert "kept below" in capsys.readouterr().out
    assert said().startswith("all is warm already; compiled code is kept below ")


@pytest.mark.slow
def test_a_cold_run_says_how_long_it_took(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    first = re.fullmatch(
        r"compiled (\d+) functions in (\d+) s; they are kept below (.*)\n", said(environment)
    )
    assert first is not None
    assert int(first[1]) > 10
    assert first[3] == str(tmp_path)
    assert said(environment) == f"all is warm already; compiled code is kept below {tmp_path}\n"


def test_what_one_scenario_needs_is_less_than_everything(capsys, monkeypatch):
    played = []
    monkeypatch.setattr(warm_up_module, "_play", lambda name, place: played.append((name, place.name)))
    monkeypatch.setattr(warm_up_module, "_play_environments", lambda: played.append(("all", "small")))
    assert main(["warm-up", "--schedulers", "dssra", "random", "--scenarios", "small", "medium"]) == 0
    assert played == [(name, place) for place in ("small", "medium") for name in ("dssra", "random")]
    played.clear()
    assert main(["warm-up", "--schedulers", "dssra"]) == 0
    assert [name for name, _ in played] == ["all", "dssra", "dssra"]


def test_an_unknown_scenario_is_one_line(capsys):
    assert main(["warm-up", "--schedulers", "random", "--scenarios", "smal"]) == 2
    assert "smal" in capsys.readouterr().err


def test_an_unknown_scheduler_is_one_line(capsys):
    assert main(["warm-up", "--schedulers", "dsra"]) == 2
    assert "scheduler 'dsra' is not known" in capsys.readouterr().err


def test_help_names_only_what_can_be_warmed_up(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["warm-up", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "Schedulers whose searches to compile: dssra, dssra-bound, dssra-plus, dssra-truth," in text
    assert "trained one" not in text
