"""Workflows of the forge: what they call is there, and their shell lines do what they say.

`make lint` checks their form, rights and pins.
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.version import Version
from ruamel.yaml import YAML

from collapipe_env import __version__

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PREFIX = "Programming Language :: Python :: 3."
PYTHONS = sorted(c.rpartition(" ")[2] for c in PROJECT["classifiers"] if c.startswith(PREFIX))


def jobs(name):
    """Jobs of a workflow; YAML 1.2 keeps its key `on` a word."""
    return YAML(typ="safe", pure=True).load(ROOT / ".github" / "workflows" / f"{name}.yml")["jobs"]


def commands(name):
    """Shell lines of a workflow, by job, with the values of a matrix in their place."""
    for job, content in jobs(name).items():
        targets = content.get("strategy", {}).get("matrix", {}).get("target", [""])
        for step in content["steps"]:
            for target in targets if "run" in step else ():
                yield job, step["run"].replace("${{ matrix.target }}", target)


def test_tests_run_on_every_python_that_the_package_names():
    assert PYTHONS[0] == PROJECT["requires-python"].removeprefix(">=")
    for job in ("posix", "windows"):
        assert jobs("tests")[job]["strategy"]["matrix"]["python"] == PYTHONS


def test_commands_name_what_is_there():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    lines = [line for name in ("tests", "release") for _, line in commands(name)]
    called = {word for line in lines for word in re.findall(r"\bmake ([a-z-]+)", line)}
    assert {"test", "lint", "docs", "test-slow", "mutants"} <= called <= targets
    folders = {folder for line in lines for folder in re.findall(r"\btests/\S+", line)}
    assert folders
    assert not [folder for folder in folders if not (ROOT / folder).is_dir()]
    extras = {
        extra for line in lines for found in re.findall(r"\[([a-z,]+)\]", line) for extra in found.split(",")
    }
    assert extras <= set(PROJECT["optional-dependencies"])


def test_only_the_job_that_publishes_may_ask_for_a_token():
    release = jobs("release")
    assert release["publish"]["permissions"] == {"id-token": "write"}
    assert not [step for step in release["publish"]["steps"] if "run" in step]
    assert "permissions" not in release["build"]
    built = [line for job, line in commands("release") if job == "build"]
    assert built.index("python -m build") < built.index("python -m twine check --strict dist/*")


def run_line(job, words, folder, tag):
    """Run a job's shell lines that hold some words as the forge does; programs of `folder` come first."""
    (line,) = (line for name, line in commands("release") if name == job and words in line)
    path = os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        ["bash", "-e", "-c", line],
        cwd=ROOT,
        env={**os.environ, "PATH": path, "GITHUB_REF_NAME": tag},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("end", ["", "9"])
def test_a_tag_of_another_version_ends_the_release(tmp_path, end):
    done = run_line("build", "hatchling version", tmp_path, f"v{__version__}{end}")
    assert done.stdout == f"tag v{__version__}{end}, version {__version__}\n"
    assert (done.returncode == 0) == (not end)


@pytest.mark.parametrize("version", ["0.1.0rc1", "0.2.0a3", "0.2.0b1", "0.3.0.dev4", "0.1.0", "1.0.0.post1"])
def test_pre_releases_are_marked_as_such(tmp_path, version):
    gh = tmp_path / "gh"
    gh.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    gh.chmod(0o755)
    done = run_line("announce", "gh release", tmp_path, f"v{version}")
    assert done.returncode == 0, done.stderr
    words = done.stdout.splitlines()
    assert words[:3] == ["release", "create", f"v{version}"]
    assert ("--prerelease" in words) == Version(version).is_prerelease


def test_the_container_has_the_bound_of_pytorch_and_no_root():
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    torch = next(d for d in PROJECT["dependencies"] if d.startswith("torch"))
    assert f'"{torch}"' in text
    assert re.findall(r"^USER (\S+)$", text, re.MULTILINE) == ["1000"]
