"""What every command promises: its help, one line for a mistake, whole files, and going on after any end."""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import signal
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache
from hashlib import sha256
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Annotated, get_args, get_origin

import pytest
from commands_support import refused, written
from run_files_support import figures, partials, require_readable
from variants_support import mostly_slow

import collapipe_env
from collapipe_env.cli.main import COMMANDS, main
from collapipe_env.evaluation.run_directory import RunDirectory
from collapipe_env.execution import pictures
from collapipe_env.ground.files import write_bytes
from collapipe_env.learners.surrogate_fits import fits_file
from collapipe_env.scenario import load_scenario

QUICK = "--episodes 1 --rounds 2 --processes 1 --no-figures"
PPO = "--ppo.rollout-steps 4 --ppo.minibatch 8 --ppo.epochs 1 --ppo.hidden-units 8"
RUNS = {
    "train": f"--scenario tiny.yaml --steps 8 --envs 2 --learner surrogate --schedulers agent {PPO} {QUICK}",
    "evaluate": f"--scenario tiny.yaml --schedulers pipeline random {QUICK}",
    "compare": f"--scenarios tiny.yaml moving.yaml --schedulers pipeline random {QUICK}",
    "tune": "moving.yaml --candidates 2 --episodes 1 --check-episodes 1 --rounds 2",
    "execute": "--scenario quick.yaml --scheduler pipeline --rounds 2",
    "leaderboard run": "--scheduler random --cells small --episodes 2 --rounds 2 --processes 1",
}
"""Commands that work in a folder; ``calibrate``, which needs Ray, is tested beside its engine."""
OTHERWISE = {
    "train": "--seed 1",
    "evaluate": "--scenario moving.yaml",
    "compare": "--rounds 1",
    "tune": "--rounds 1",
    "execute": "--seed 1",
    "leaderboard run": "--scheduler pipeline",
}
"""Options with which the results would be of something else."""
ENDS = sorted(itertools.product(RUNS, (True, False)), key=lambda end: end != ("tune", True))
"""Commands, and whether a signal or a full disk ends them; Optuna is too slow for the first."""
FINISHED = ("evaluation", "figures")
"""Folders of work that is done once."""
PLAYED = {"train": {"tiny"}, "evaluate": {"tiny"}, "compare": {"tiny", "moving"}, "tune": {"moving"}}
PRESETS = {file.stem for file in (Path(collapipe_env.__file__).parent / "scenario/presets").iterdir()}


def forms(name: str) -> list[list[str]]:
    """A command by itself and with each of its subcommands."""
    options = import_module(f"collapipe_env.cli.{name.replace('-', '_')}").Options
    kinds = [get_args(kind)[0] if get_origin(kind) is Annotated else kind for kind in get_args(options)]
    return [[name], *([name, kind.__name__.lower()] for kind in kinds)]


def line(name: str, *more: object) -> list[str]:
    return [*name.split(), *RUNS[name].split(), *map(str, more)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Callable[[str], tuple[Path, str]]:
    """Folders of runs that nothing has disturbed, and what they printed."""

    @cache
    def play(name: str) -> tuple[Path, str]:
        folder = tmp_path_factory.mktemp("whole")
        written(folder)
        with pytest.MonkeyPatch.context() as patched, redirect_stdout(StringIO()) as printed:
            patched.chdir(folder)
            assert main(line(name, "--out", folder / "out")) == 0
        return folder / "out", printed.getvalue()

    return play


@pytest.fixture
def whole(name: str, runs) -> tuple[Path, str]:
    """The run of a command."""
    return runs(name)


class Early:
    """Ends a command at its sixth file: by a signal after it, or because the disk is full."""

    def __init__(self, monkeypatch, signalled: bool) -> None:
        self.last, files, replace = 6, 0, Path.replace

        def counted(path: Path, target: Path) -> Path:
            nonlocal files
            files += 1
            if files == self.last and not signalled:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            done = replace(path, target)
            if files == self.last:
                signal.raise_signal(signal.SIGTERM)
            return done

        monkeypatch.setattr(Path, "replace", counted)


@pytest.mark.parametrize("form", [form for name in COMMANDS for form in forms(name)], ids=" ".join)
def test_help_fits_80_columns_and_names_everything(form: list[str], capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as end:
        main([*form, "--help"])
    assert end.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    text = " ".join(" ".join(lines).replace("│", " ").split())
    assert f"usage: collapipe {' '.join(form)}" in text
    words = set(re.sub("[(),;]", " ", text).split())
    if form[0] not in ("leaderboard", "plot", "view", "zoo") and form != ["scenario", "diff"]:
        assert words >= PRESETS
    # Where work can be started over, there is a row.
    assert ("--fresh" in words) == (" ".join(form) in {*RUNS, "calibrate"})


@pytest.mark.parametrize("name", RUNS)
def test_a_run_says_where_its_files_are_and_goes_on(name: str, whole, here: Path, capsys) -> None:
    out, printed = whole
    assert f"writing to {out}\n" in printed
    assert str(out) in printed.splitlines()[-1]
    assert "\x1b" not in printed
    assert require_readable(out) > 3
    assert not partials(out)
    if name in PLAYED:
        assert {load_scenario(file).name for file in out.rglob("*.yaml")} == PLAYED[name]
    before, times = figures(out), finished(out, "checkpoints")
    assert main(line(name, "--out", out)) == 0
    assert f"continuing in {out}" in capsys.readouterr().out
    assert finished(out, "checkpoints") == times
    assert figures(out) == before
    told = refused(capsys, line(name, "--out", out, *OTHERWISE[name].split()))
    assert "was made with other options" in told
    assert "choose another place with --out, or start over there with --fresh" in told
    assert figures(out) == before


def finished(folder: Path, *more: str) -> dict[str, int]:
    """When work was finished, by its files."""
    files = (file for name in (*FINISHED, *more) for file in (folder / name).rglob("*"))
    return {str(file): file.stat().st_mtime_ns for file in files if file.is_file()}


@pytest.mark.parametrize("name", RUNS)
def test_folders_of_something_else_are_left_alone(name: str, here: Path, capsys) -> None:
    (here / "file").write_text("mine")
    (here / "thesis").mkdir()
    (here / "thesis" / "thesis.tex").write_text("years of work")
    before = sorted(here.rglob("*"))
    for out, words, *more in (
        ("file/below", "Not a directory"),
        ("thesis", "holds something other than a run", "--fresh"),
        ("a\nb", r"a\nb': use a name without line breaks"),
    ):
        told = refused(capsys, line(name, "--out", out, *more))
        assert words in told
        assert "--out" in told
    with RunDirectory(here / "busy").locked("collapipe train"):
        assert "in use by process" in refused(capsys, line(name, "--out", "busy"))
    assert [path for path in sorted(here.rglob("*")) if "busy" not in path.parts] == before


@pytest.mark.skipif(os.name != "posix", reason="Windows has no SIGTERM")
@pytest.mark.parametrize(("name", "signalled"), mostly_slow(ENDS, range(1, len(ENDS))))
def test_after_an_early_end_it_goes_on_and_ends_alike(
    name: str, signalled: bool, whole, here: Path, capsys, monkeypatch
) -> None:
    out, early = here / "out", Early(monkeypatch, signalled)
    picture = b"\x89PNG IEND\xaeB`\x82"  # instead of one that is drawn
    monkeypatch.setattr(pictures, "write_picture", lambda path, *_: write_bytes(path, picture))
    command = line(name, "--out", out)
    status, told = main([*command, "--fresh"]), capsys.readouterr().err.splitlines()
    if signalled:
        assert status == 143
        assert told[-2:] == [
            "terminated; all finished work is kept. To resume, run again:",
            f"  collapipe {' '.join(command)}",
        ]
    else:
        assert status == 2
        assert re.search(f"^error: cannot .*{out}.*No space left on device", told[-1])
    require_readable(out)
    assert not partials(out)
    (session,) = json.loads((out / "versions.json").read_text())["sessions"]
    assert session["versions"]["collapipe-env"] == collapipe_env.__version__
    assert session["versions"]["surrogate-fits-sha256"] == sha256(fits_file().read_bytes()).hexdigest()
    kept, early.last = finished(out), 0
    assert main(command) == 0
    assert kept.items() <= finished(out).items()
    assert figures(out) == figures(whole[0])
