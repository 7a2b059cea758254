"""What is built and installed: the wheel's content, links in the repository, and what an import costs."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[1]
LINKS = ("agents", "baselines")


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    (path,) = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    with zipfile.ZipFile(path) as wheel:
        return wheel.namelist()


def run_python(code):
    """Run code in a fresh interpreter that treats warnings as errors; returns what it printed."""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd="/", check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_wheel_holds_the_package_and_nothing_else(wheel_names):
    tops = {name.split("/", 1)[0] for name in wheel_names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"collapipe_env"}
    assert len(tops) == 2


def test_wheel_holds_policies_types_presets_and_notices(wheel_names):
    names = set(wheel_names)
    for link in LINKS:
        sources = {f"collapipe_env/{link}/{p.name}" for p in (ROOT / link).glob("*.py")}
        assert sources
        assert sources <= names
    presets = {f"collapipe_env/scenario/presets/{p}.yaml" for p in ("small", "medium", "large", "xlarge")}
    assert presets | {"collapipe_env/py.typed", "collapipe_env/data/surrogate_fits.json"} <= names
    data = {n.split("/")[2] for n in names if n.startswith("collapipe_env/data/") and n.count("/") > 2}
    assert data
    for folder in data:
        assert any(n.startswith(f"collapipe_env/data/{folder}/NOTICE") for n in names), folder
    assert not [n for n in names if "__pycache__" in n or n.endswith(".pyc")]


@pytest.mark.parametrize("name", LINKS)
def test_policies_are_linked_into_the_package(name):
    link = ROOT / "collapipe_env" / name
    assert link.is_symlink()
    assert os.readlink(link) == f"../{name}"


@pytest.mark.parametrize("name", LINKS)
def test_links_are_committed_as_links(name):
    entry = subprocess.run(
        ["git", "ls-files", "-s", f"collapipe_env/{name}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if entry.returncode != 0 or not entry.stdout:
        pytest.skip("not a checkout, or not committed yet")
    assert entry.stdout.split()[0] == "120000", entry.stdout


def test_import_stays_light():
    heavy = ("torch", "matplotlib", "stable_baselines3", "pandas", "scipy", "numba", "pydantic")
    code = f"import sys, collapipe_env; print([m for m in {heavy!r} if m in sys.modules])"
    assert run_python(code) == "[]"


@pytest.mark.parametrize(
    "make",
    [
        "make('collapipe_env:CollaPipeSurrogate-v0')",
        "make_vec('collapipe_env:CollaPipeSurrogate-v0', num_envs=2)",
        "make_vec('collapipe_env:CollaPipeSurrogate-v0', num_envs=2, vectorization_mode='sync')",
    ],
    ids=["single", "vector", "sync"],
)
def test_surrogate_environment_needs_no_heavy_library(make):
    """Nothing but NumPy, SciPy and compiled kernels takes part in a step."""
    heavy = ("torch", "matplotlib", "stable_baselines3", "pandas")
    code = (
        "import sys, gymnasium as gym\n"
        f"env = gym.{make}\n"
        "env.reset(seed=0)\n"
        "env.step(env.action_space.sample())\n"
        "env.close()\n"
        f"print(env.spec.id, [m for m in {heavy!r} if m in sys.modules])"
    )
    assert run_python(code) == "CollaPipeSurrogate-v0 []"


def test_public_names_resolve():
    import collapipe_env

    for name in collapipe_env.__all__:
        assert getattr(collapipe_env, name) is not None
    with pytest.raises(AttributeError, match="CollaPipeEnw"):
        _ = collapipe_env.CollaPipeEnw


def test_versions_agree():
    from importlib.metadata import version

    import collapipe_env

    assert version("collapipe-env") == collapipe_env.__version__
    assert f"version: {collapipe_env.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"## [{collapipe_env.__version__}]" in (ROOT / "CHANGELOG.md").read_text()
