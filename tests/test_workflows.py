"""Workflows of the forge and the container file against pyproject.toml and the Makefile; none is run."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.version import Version
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NAMES = ("tests", "release")
PREFIX = "Programming Language :: Python :: 3."
PYTHONS = sorted(c.rpartition(" ")[2] for c in PROJECT["classifiers"] if c.startswith(PREFIX))


def read(name):
    """A workflow; YAML 1.2 keeps its key `on` a word."""
    return YAML(typ="safe").load(ROOT / ".github" / "workflows" / f"{name}.yml")


def steps(name):
    return [step for job in read(name)["jobs"].values() for step in job["steps"]]


def test_no_workflow_is_left_out():
    found = {path.stem for path in (ROOT / ".github" / "workflows").iterdir()}
    assert found == set(NAMES)


def test_tests_run_on_every_python_that_the_package_names():
    jobs = read("tests")["jobs"]
    assert PYTHONS[0] == PROJECT["requires-python"].removeprefix(">=")
    systems = []
    for job in (jobs["posix"], jobs["windows"]):
        matrix = job["strategy"]["matrix"]
        assert matrix["python"] == PYTHONS
        assert all(isinstance(version, str) for version in matrix["python"])  # 3.10 as a number is 3.1
        systems += matrix.get("os", [job["runs-on"]])
    assert systems == ["ubuntu-latest", "macos-latest", "windows-latest"]


@pytest.mark.parametrize("name", NAMES)
def test_commands_name_what_is_there(name):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    commands = [step["run"] for step in steps(name) if "run" in step]
    called = {word for command in commands for word in re.findall(r"\bmake ([a-z-]+)", command)}
    assert called <= targets
    assert called == ({"test", "test-slow", "docs"} if name == "tests" else set())
    for command in commands:
        for folder in re.findall(r"\btests/\S+", command):
            assert (ROOT / folder).is_dir(), folder
        for extra in re.findall(r"\[([a-z,]+)\]", command):
            assert set(extra.split(",")) <= set(PROJECT["optional-dependencies"])


def test_links_are_checked_out_as_links_on_windows():
    windows = read("tests")["jobs"]["windows"]["steps"]
    assert windows[0]["run"] == "git config --global core.symlinks true"
    assert windows[1]["uses"].startswith("actions/checkout@")


@pytest.mark.parametrize("name", NAMES)
def test_actions_are_pinned_and_rights_are_few(name):
    workflow = read(name)
    assert workflow["permissions"] == {"contents": "read"}
    for step in steps(name):
        assert ("uses" in step) != ("run" in step)
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|release/v\d+)", step["uses"])
        else:
            assert "${{" not in step["run"], "a value put into a command may hold one"


def test_a_release_is_checked_before_it_is_published():
    release = read("release")
    assert release["on"] == {"push": {"tags": ["v*"]}}
    build, publish = release["jobs"]["build"], release["jobs"]["publish"]
    commands = [step["run"] for step in build["steps"] if "run" in step]
    assert commands.index("python -m build") < commands.index("python -m twine check --strict dist/*")
    assert publish["needs"] == "build"
    assert publish["permissions"] == {"id-token": "write"}
    assert "permissions" not in build
    announce = release["jobs"]["announce"]
    assert announce["needs"] == "publish"
    assert announce["permissions"] == {"contents": "write"}
    assert not [step for step in publish["steps"] if "run" in step]


def run_step(command, folder, tag):
    """A step's command as the forge runs it, by `bash -e`, with programs of `folder` before all others."""
    path = os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        ["bash", "-e", "-c", command],
        cwd=ROOT,
        env={**os.environ, "PATH": path, "GITHUB_REF_NAME": tag},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("end", ["", "9"])
def test_a_tag_of_another_version_ends_the_release(tmp_path, end):
    (command,) = (step["run"] for step in steps("release") if step.get("name", "").startswith("The tag"))
    version = read_version()
    done = run_step(command, tmp_path, f"v{version}{end}")
    assert done.stdout == f"tag v{version}{end}, version {version}\n"
    assert (done.returncode == 0) == (not end)


def read_version():
    """The version of the package, as the source says it."""
    text = (ROOT / "collapipe_env" / "ground" / "version.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)[1]


@pytest.mark.parametrize(
    "version", ["0.1.0rc1", "0.2.0a3", "0.2.0b1", "0.3.0.dev4", "0.1.0", "1.12.3", "1.0.0.post1"]
)
def test_pre_releases_are_marked_as_such(tmp_path, version):
    (command,) = (step["run"] for step in release_steps("announce") if "run" in step)
    gh = tmp_path / "gh"
    gh.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    gh.chmod(0o755)
    done = run_step(command, tmp_path, f"v{version}")
    assert done.returncode == 0, done.stderr
    words = done.stdout.splitlines()
    assert words[:3] == ["release", "create", f"v{version}"]
    assert ("--prerelease" in words) == Version(version).is_prerelease


def release_steps(job):
    return read("release")["jobs"][job]["steps"]


def test_the_container_has_the_bound_of_pytorch_and_no_root():
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    (base,) = re.findall(r"^FROM python:(3\.\d+)-slim$", text, re.MULTILINE)
    assert base in PYTHONS
    torch = next(d for d in PROJECT["dependencies"] if d.startswith("torch"))
    assert f'"{torch}"' in text
    assert re.findall(r"^USER (\S+)$", text, re.MULTILINE) == ["1000"]
    assert text.rstrip().endswith('CMD ["collapipe", "--help"]')
    assert "collapipe" in PROJECT["scripts"]
