"""Links, anchors and pictures of the documentation, its menu and its reference, without building a site."""

import importlib
import re

import markdown
import pages_support as support
import pytest
from markdown_it import MarkdownIt
from ruamel.yaml import YAML
from trace_support import DATA, data  # noqa: F401 - a fixture

import collapipe_env
from collapipe_env.cli.main import COMMANDS
from collapipe_env.scenario import load_scenario

PAGES = sorted(support.DOCS.glob("*.md"))
OTHERS = [support.ROOT / "README.md", support.ROOT / "CONTRIBUTING.md"]


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=lambda page: page.stem)
def test_links_and_anchors_lead_somewhere(page):
    for target in support.links(page):
        if re.match("https?://", target):
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        assert there.exists(), f"{page.name}: {target}"
        assert there.is_relative_to(support.ROOT), f"{page.name}: {target} leaves the repository"
        if anchor:
            assert anchor in support.site_anchors(there), f"{page.name}: {target} has no such heading"
            assert anchor in support.repository_anchors(there), (
                f"{page.name}: {target} works on the site only"
            )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_site_and_a_forge_see_the_same_blocks(page):
    """Python-Markdown wants four spaces inside a list where CommonMark wants two."""
    text = page.read_text(encoding="utf-8")
    site = markdown.markdown(text, extensions=["tables", "fenced_code"])
    forge = MarkdownIt().enable("table").render(text)
    for tag in ("h2", "h3", "ol", "ul", "li", "pre", "table", "td", "img", "a"):
        made = [len(re.findall(rf"<{tag}[ >]", shown)) for shown in (site, forge)]
        assert made[0] == made[1], f"{page.name}: {made[0]} and {made[1]} of <{tag}>"


def scenarios(page):
    """The YAML examples of a page."""
    return [text for language, text in support.code(page) if language == "yaml"]


@pytest.mark.parametrize("page", [page for page in PAGES if scenarios(page)], ids=lambda page: page.stem)
def test_every_yaml_example_is_a_scenario(page, data):  # noqa: F811
    for text in scenarios(page):
        if "source: wireless" in text and not (DATA / "wireless").is_dir():
            continue
        content = YAML(typ="safe").load(text)
        scenario = load_scenario(content)
        assert scenario.name == content.get("name", scenario.name)


def test_generated_parts_begin_and_end_once():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        begun, ended = (re.findall(rf"<!-- {mark}generated: (.+?) -->", text) for mark in ("", "end of "))
        assert begun == ended, page.name
        assert len(set(begun)) == len(begun), page.name


def menu(entries):
    for entry in entries:
        for title, what in entry.items():
            yield from menu(what) if isinstance(what, list) else [(title, what)]


def test_the_menu_has_every_page_once():
    settings = YAML(typ="safe").load(support.ROOT / "mkdocs.yml")
    listed = list(menu(settings["nav"]))
    notebooks = [f"notebook_{path.stem}.md" for path in (support.ROOT / "notebooks").glob("*.ipynb")]
    assert sorted(page for _, page in listed) == sorted([*(page.name for page in PAGES), *notebooks])
    assert all(title for title, _ in listed)


def test_the_site_loads_nothing_from_elsewhere():
    settings = YAML(typ="safe").load(support.ROOT / "mkdocs.yml")
    assert settings["theme"]["font"] is False
    assert not [name for name in settings if name == "extra_javascript"]
    for script in settings["extra"]["polyfills"]:
        assert (support.DOCS / script).is_file()
    for sheet in settings["extra_css"]:
        assert "http" not in (support.DOCS / sheet).read_text(encoding="utf-8")


def test_every_page_has_one_title():
    for page in PAGES:
        levels = [token.tag for token in support.tokens(page) if token.type == "heading_open"]
        assert levels[0] == "h1", page.name
        assert levels.count("h1") == 1, page.name


def referenced():
    for page in sorted(support.DOCS.glob("reference_*.md")):
        text = page.read_text(encoding="utf-8")
        for name, options in re.findall(r"^::: (\S+)\n((?:    .*\n)*)", text, re.MULTILINE):
            members = re.search(r"members: \[(.*)\]", options)
            yield name, members[1].split(", ") if members else []


def found(name):
    """What a dotted name stands for."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[end:]:
            thing = getattr(thing, attribute)
        return thing
    raise AssertionError(name)


def test_the_reference_names_what_is_there():
    names = list(referenced())
    assert len(names) > 30
    for name, members in names:
        thing = found(name)
        assert thing.__doc__, name
        assert all(getattr(thing, member).__doc__ for member in members), name


def test_the_reference_has_every_public_name():
    told = {name.rpartition(".")[2] for name, _ in referenced()} | {
        member for _, members in referenced() for member in members
    }
    listed = set(re.findall(r"`(\w+)`", (support.DOCS / "reference.md").read_text(encoding="utf-8")))
    public = set(collapipe_env.__all__) - {"__version__"}
    assert public <= told
    assert public <= listed


def test_the_command_line_page_names_every_command():
    text = (support.DOCS / "command_line.md").read_text(encoding="utf-8")
    for name in COMMANDS:
        assert f"| `{name}` |" in text
    for _, block in support.code(support.DOCS / "command_line.md"):
        for line in block.splitlines():
            assert line.split()[0] in {"collapipe", "tensorboard"}
            assert line.split()[0] == "tensorboard" or line.split()[1] in COMMANDS


def test_installation_names_every_extra():
    import tomllib

    project = tomllib.loads((support.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (support.DOCS / "install.md").read_text(encoding="utf-8")
    for extra in project["optional-dependencies"]:
        assert re.search(rf"^\|[^|]*`{extra}`", text, re.MULTILINE), extra
    assert next(d for d in project["dependencies"] if d.startswith("torch")) in text
