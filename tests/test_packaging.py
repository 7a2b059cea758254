"""Packaging: content of the archives, links in the repository, and the cost of an import."""

import json
import os
import re
import stat
import subprocess
import sys
import tarfile
import zipfile
from email.parser import BytesParser
from pathlib import Path

import pytest
import yaml
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
LINKS = ("agents", "baselines")


def build_wheel(root, folder):
    (path,) = WheelBuilder(str(root)).build(directory=str(folder), versions=["standard"])
    return Path(path)


def contents(wheel):
    """Names of the files in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        assert len(set(archive.namelist())) == len(archive.namelist())
        return {name: archive.read(name) for name in archive.namelist()}


def metadata(wheel):
    (text,) = (text for name, text in contents(wheel).items() if name.endswith(".dist-info/METADATA"))
    return BytesParser().parsebytes(text)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The source distribution, unpacked as pip does it."""
    folder = tmp_path_factory.mktemp("sdist")
    (path,) = SdistBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    with tarfile.open(path) as archive:
        names = archive.getnames()
        assert len(set(names)) == len(names)
        archive.extractall(folder, filter="data")
    return folder / Path(path).name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def wheel_of_sdist(unpacked, tmp_path_factory):
    return build_wheel(unpacked, tmp_path_factory.mktemp("from_sdist"))


def run_python(code):
    """Run code in a fresh interpreter that treats warnings as errors; returns what it printed."""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd="/", check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_wheel_holds_the_package_and_nothing_else(wheel):
    tops = {name.split("/", 1)[0] for name in contents(wheel)}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"collapipe_env"}
    assert len(tops) == 2


def test_wheel_holds_types_presets_and_notices(wheel):
    names = set(contents(wheel))
    presets = {f"collapipe_env/scenario/presets/{p}.yaml" for p in ("small", "medium", "large", "xlarge")}
    assert presets | {"collapipe_env/py.typed", "collapipe_env/data/surrogate_fits.json"} <= names
    data = {n.split("/")[2] for n in names if n.startswith("collapipe_env/data/") and n.count("/") > 2}
    assert data
    notices = [f"collapipe_env/data/{folder}/NOTICE" for folder in sorted(data)]
    held = [n for n in names if n.endswith("NOTICE")]  # beside the data, and where scanners look for licences
    assert sorted(n for n in held if "/licenses/" not in n) == notices
    assert sorted(n.partition("/licenses/")[2] for n in held if "/licenses/" in n) == notices
    assert not [n for n in names if "__pycache__" in n or n.endswith(".pyc")]


def test_archives_hold_every_agent_of_the_zoo(wheel, unpacked):
    """Also what is added later: weights, cards and index, byte for byte."""
    folder = ROOT / "collapipe_env" / "zoo"
    held = contents(wheel)
    index = json.loads((folder / "index.json").read_text())
    names = [
        name for agent in index["agents"] for name in (f"{agent['name']}.safetensors", f"{agent['name']}.md")
    ]
    for name in ("index.json", *names):
        content = (folder / name).read_bytes()
        assert held[f"collapipe_env/zoo/{name}"] == content
        assert (unpacked / "collapipe_env" / "zoo" / name).read_bytes() == content


def modules_below(folder):
    """Python files below a folder, links followed, named from where the folder stands."""
    found = set()
    for where, _, files in os.walk(folder, followlinks=True):
        found |= {(Path(where) / name).relative_to(folder.parent).as_posix() for name in files}
    return {name for name in found if name.endswith(".py")}


def test_wheel_of_the_source_distribution_is_that_of_the_checkout(wheel, wheel_of_sdist):
    direct, indirect = contents(wheel), contents(wheel_of_sdist)
    modules = modules_below(ROOT / "collapipe_env")
    assert {"collapipe_env/agents/dssra/policy.py", "collapipe_env/baselines/titanic.py"} <= modules
    assert {name for name in indirect if name.endswith(".py")} == modules
    assert indirect == direct


def test_source_distribution_holds_the_checkout(unpacked):
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0 or not listed.stdout:
        pytest.skip("not a checkout: there is nothing to compare with")
    tracked = {name for name in listed.stdout.splitlines() if (ROOT / name).is_file()}
    # What the package links to lies in the package itself, and only there.
    tracked = {re.sub(rf"^({'|'.join(LINKS)})/", r"collapipe_env/\1/", name) for name in tracked}
    held = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    assert tracked <= held
    assert {"Makefile", "mkdocs.yml", "CONTRIBUTING.md", "CITATION.cff", ".ci/run", "PKG-INFO"} <= held
    assert not [path for path in unpacked.rglob("*") if path.is_symlink()]
    assert (unpacked / ".ci/run").stat().st_mode & stat.S_IXUSR


def test_metadata_suits_a_package_index(wheel):
    parsed = metadata(wheel)
    urls = dict(entry.split(", ", 1) for entry in parsed.get_all("Project-URL"))
    assert "https://arxiv.org/abs/2509.19855" in urls.values()
    assert all(url.startswith("https://") for url in urls.values())
    assert parsed["Description-Content-Type"] == "text/markdown"
    shown = links(parsed.get_payload(decode=True).decode())
    assert "https://arxiv.org/abs/2509.19855" in shown
    assert [target for target in shown if not target.startswith("https://")] == []
    assert not re.search(r"<(a|img)\b", parsed.get_payload()), "write links and pictures in Markdown"


def test_description_is_the_readme_but_for_its_links(wheel):
    description = metadata(wheel).get_payload(decode=True).decode()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    relative = [target for target in links(readme) if not target.startswith("https://")]
    assert relative
    for target in relative:
        assert (ROOT / target.partition("#")[0]).is_file(), target
        assert target.endswith((".png", ".svg")) or f"`{target}`" in description
    code = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
    assert code.findall(description) == code.findall(readme)
    untouched = [line for line in readme.splitlines() if not re.search(r"\[|\]\(", line)]
    assert len(untouched) > 60
    assert set(untouched) <= set(description.splitlines())


def links(markdown):
    """Targets of the links and pictures of a text, as a Markdown parser sees them."""
    inline = [token for token in MarkdownIt().enable("table").parse(markdown) if token.type == "inline"]
    parts = [part for token in inline for part in token.children]
    return [str(part.attrs.get("href", part.attrs.get("src"))) for part in parts if part.attrs]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_installed_from_the_source_distribution_it_trains(wheel_of_sdist, tmp_path):
    """A folder without the checkout: the installed package has to be complete."""
    site, work = tmp_path / "site", tmp_path / "work"
    work.mkdir()
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*pip, "--target", str(site), str(wheel_of_sdist)], check=True)
    (work / "tiny.yaml").write_text("name: tiny\nbase: small\ndynamics: {rounds: 4}\n")
    small = (
        "--steps 32 --envs 2 --ppo.rollout-steps 4 --ppo.minibatch 8 --ppo.epochs 1 --ppo.hidden-units 8 "
        "--episodes 1 --rounds 3 --learner surrogate --processes 1 --no-figures"
    )
    result = subprocess.run(
        [sys.executable, "-m", "collapipe_env", "train", "--scenario", "tiny.yaml", *small.split()],
        cwd=work,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    (path,) = work.rglob("results.json")
    results = json.loads(path.read_text())
    played = [s["scheduler"] for s in results["summary"]]
    assert played == ["agent", "dssra", "zoo:graph", "pipeline", "random"]
    assert [len(e["delay"]) for e in results["episodes"]["dssra"]] == [3]


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


def test_surrogate_environments_need_no_heavy_library():
    """Nothing but NumPy, SciPy and compiled kernels takes part in a step."""
    heavy = ("torch", "matplotlib", "stable_baselines3", "pandas")
    code = (
        "import sys, gymnasium as gym\n"
        "name = 'collapipe_env:CollaPipeSurrogate-v0'\n"
        "sync = gym.make_vec(name, num_envs=2, vectorization_mode='sync')\n"
        "for env in (gym.make(name), gym.make_vec(name, num_envs=2), sync):\n"
        "    env.reset(seed=0)\n"
        "    env.step(env.action_space.sample())\n"
        "    env.close()\n"
        f"    print(env.spec.id, [m for m in {heavy!r} if m in sys.modules])"
    )
    assert run_python(code).splitlines() == ["CollaPipeSurrogate-v0 []"] * 3


def test_public_names_resolve():
    import collapipe_env

    for name in collapipe_env.__all__:
        assert getattr(collapipe_env, name) is not None
    with pytest.raises(AttributeError, match="CollaPipeEnw"):
        _ = collapipe_env.CollaPipeEnw


def test_versions_and_licences_agree(wheel):
    import collapipe_env

    parsed = metadata(wheel)
    assert parsed["Version"] == collapipe_env.__version__
    assert parsed["License-Expression"] == "MIT AND Apache-2.0"
    (cited,) = re.findall(r"^license: (\S+)", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited == "MIT"  # the code's; the format cannot say that two apply
    held = contents(wheel)
    (licence,) = (text for name, text in held.items() if name.endswith("/licenses/LICENSE"))
    assert licence.startswith(b"MIT License")
    assert b"Apache License" in held["collapipe_env/data/messages/NOTICE"]
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == collapipe_env.__version__
    assert f"## [{collapipe_env.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_the_citation_is_of_the_software_and_refers_to_the_paper():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(cited)  # what the format requires
    assert cited["type"] == "software"
    assert "preferred-citation" not in cited  # it would stand in the software's place
    (paper,) = cited["references"]
    assert {"type", "title", "authors"} <= set(paper)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (entries,) = re.findall(r"^```bibtex\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)
    software, article = (
        {name: re.sub(r"[{}]", "", value) for name, value in re.findall(r"(\w+) += \{(.*)\},?$", entry, re.M)}
        for entry in re.findall(r"^@.*?^\}$", entries, re.DOTALL | re.MULTILINE)
    )
    assert software == {
        "author": cited["authors"][0]["name"],
        "title": cited["title"],
        "version": str(cited["version"]),
        "year": str(cited["date-released"].year),
    }
    names = [f"{one['family-names']}, {one['given-names']}" for one in paper["authors"]]
    assert article["author"] == " and ".join(names)
    for name in ("title", "year", "url"):
        assert article[name] == str(paper[name])
