"""Every page: in the menu, links and commands lead somewhere, generated parts are fresh, its code runs."""

import re
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import markdown
import pages_support as support
import pytest
from markdown_it import MarkdownIt
from ruamel.yaml import YAML
from trace_support import DATA, data  # noqa: F401 - a fixture

from collapipe_env.cli import train
from collapipe_env.cli.main import COMMANDS
from collapipe_env.dynamics import PROCESSES
from collapipe_env.envs.rewards import REWARDS
from collapipe_env.learners.factory import LEARNERS
from collapipe_env.scenario import load_scenario, task_registry
from collapipe_env.scenario.names import SCENARIOS
from collapipe_env.simulator.costs import PRICES

sys.path.insert(0, str(support.ROOT / "tools"))
import docs as generated

PAGES = sorted(support.DOCS.glob("*.md"))
EVERY = [*PAGES, support.README, support.ROOT / "CONTRIBUTING.md"]
SETTINGS = YAML(typ="safe", pure=True).load(support.ROOT / "mkdocs.yml")


@pytest.mark.parametrize("page", EVERY, ids=lambda page: page.stem)
def test_links_and_anchors_lead_somewhere(page):
    for target in support.links(page):
        if re.match("https?://", target):
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        assert there.exists(), target
        assert there.is_relative_to(support.ROOT), f"{target} leaves the repository"
        if anchor:
            assert anchor in support.site_anchors(there), f"{target} has no such heading"
            assert anchor in support.repository_anchors(there), f"{target} works on the site only"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_one_title_and_the_same_blocks_on_the_site_and_on_a_forge(page):
    """Python-Markdown wants four spaces inside a list where CommonMark wants two."""
    assert [tag for tag, _ in support.headings(page)].count("h1") == 1
    assert support.headings(page)[0][0] == "h1"
    text = page.read_text(encoding="utf-8")
    site = markdown.markdown(text, extensions=["tables", "fenced_code"])
    forge = MarkdownIt().enable("table").render(text)
    for tag in ("h2", "h3", "ol", "ul", "li", "pre", "table", "td", "img", "a"):
        made = [len(re.findall(rf"<{tag}[ >]", shown)) for shown in (site, forge)]
        assert made[0] == made[1], f"{made[0]} and {made[1]} of <{tag}>"


def menu(entries):
    for entry in entries:
        for title, what in entry.items():
            yield from menu(what) if isinstance(what, list) else [(title, what)]


def test_the_menu_has_every_page_once():
    notebooks = [f"notebook_{path.stem}.md" for path in (support.ROOT / "notebooks").glob("*.ipynb")]
    listed = list(menu(SETTINGS["nav"]))
    assert sorted(page for _, page in listed) == sorted([*(page.name for page in PAGES), *notebooks])
    assert all(title for title, _ in listed)


def scenarios(page):
    """The YAML examples of a page."""
    return [text for language, text in support.code(page) if language == "yaml"]


@pytest.mark.parametrize("page", [page for page in PAGES if scenarios(page)], ids=lambda page: page.stem)
def test_every_yaml_example_is_a_scenario(page, data):  # noqa: F811
    for text in scenarios(page):
        if "source: wireless" in text and not (DATA / "wireless").is_dir():
            continue
        content = YAML(typ="safe", pure=True).load(text)
        scenario = load_scenario(content)
        assert scenario.name == content.get("name", scenario.name)


def test_generated_parts_are_whole_and_fresh(capsys):
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        begun, ended = (re.findall(rf"<!-- {mark}generated: (.+?) -->", text) for mark in ("", "end of "))
        assert begun == ended, page.name
        assert len(set(begun)) == len(begun), page.name
    status = generated.main(["--check"])
    assert (capsys.readouterr().out, status) == ("", 0)


@pytest.mark.parametrize("page", EVERY, ids=lambda page: page.stem)
def test_commands_that_a_page_names_exist(page):
    """Subcommands, targets of ``make``, scripts, and names of generated parts."""
    targets = re.findall(r"^([a-z-]+):", (support.ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"\b((?:tools|benchmarks|examples|tests)/[\w/]+\.py)", text):
        assert (support.ROOT / name).is_file(), name
    for name in re.findall(r"python -m tools\.docs ([a-z_]\w*(?:/[\w.-]+)?)", text):
        assert generated.chosen([name]) or name in generated.entries()
    for program, *arguments in support.lines(page):
        if program in ("collapipe", "make") and arguments:
            known = (*COMMANDS, "--help", "--version") if program == "collapipe" else targets
            assert arguments[0] in known, f"{program} {arguments[0]}"
    if page.stem == "command_line":
        assert all(f"| `{name}` |" in text for name in COMMANDS)


class Code(NamedTuple):
    """How a page's code is run: what stands for its texts, what it prints, and commands passed over."""

    shorter: Mapping[str, str] = MappingProxyType({})
    prints: tuple[str, ...] = ()
    without: frozenset[str] = frozenset({"execute"})


TRAINING = {"num_envs=64": "num_envs=2", "n_steps=16, batch_size=256": "n_steps=4, batch_size=8"}
FEWER = {f"seeds={n}": "seeds=1, rounds=2" for n in (2, 3, 5)}
SMALL_ONLY = {"--scenarios small medium": "--scenarios small"}
CODE = {
    "install": Code(
        {"seeds=5": FEWER["seeds=5"]}, ("mean_delay", "PipeLine"), frozenset({"execute", "warm-up"})
    ),
    "how_to_scenario": Code(
        {"suggest medium": "suggest small --rounds 4 --episodes 2"}, ("three_clusters 3", "\nbudgets:\n")
    ),
    "how_to_scheduler": Code(
        {**TRAINING, **SMALL_ONLY, "200_000": "1", 'medium", seeds=3': 'small", seeds=1, rounds=2'},
        ("DSSRA", "PipeLine", "half power", "my PPO"),
    ),
    "extend": Code(
        {"rounds=60": "rounds=2", "part(2000), part(200), part(500)": "part(200), part(20), part(50)"},
        ("(8,)", "small_majority: 1 held-out episode of 2 rounds, real learner", "50.0 %"),
    ),
    "devices": Code(prints=("87 [[1, 1, 0, 0], ",)),
    "prices": Code({"range(20)": "range(2)"}),
    "dynamics": Code(prints=("['heat', 'mobility']",)),
    "decisions": Code(),
    "channel_knowledge": Code(),
    "traces": Code(prints=("driving-0 dBm 1800.0 -",)),
    "reference": Code(prints=("PolicyScheduler",)),
    "README": Code(
        {**TRAINING, "200_000": "1"},
        ("'rounds': 100", "'mean_delay'"),
        frozenset({*COMMANDS, "--help"}),
    ),
}  # fmt: skip
"""Pages whose code runs."""


@pytest.fixture
def alone(monkeypatch, tmp_path, few_rounds):
    """Names that pages register, and files that they write, are theirs alone; nobody is trained."""
    for registry in (REWARDS, LEARNERS, PROCESSES, PRICES, SCENARIOS, task_registry.TASKS):
        monkeypatch.setattr(registry, "_added", {})
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")  # for tables whose times are long on a busy machine
    monkeypatch.setattr(train.Job, "run", lambda job: print("would train", job._scenario.name))
    return tmp_path


def place(name):
    return support.README if name == "README" else support.DOCS / f"{name}.md"


@pytest.mark.parametrize("name", CODE)
def test_the_code_of_a_page_runs(name, alone, capsys):
    shorter, prints, without = CODE[name]
    support.run_page(place(name), alone, shorter.items(), without)
    printed = capsys.readouterr().out
    for text in prints:
        assert text in printed
