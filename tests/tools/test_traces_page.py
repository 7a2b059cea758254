"""The page about traces: its examples, its fields, and the tools that write its tables and its picture."""

import re
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from trace_support import data, needs_data  # noqa: F401 - a fixture

from collapipe_env.dynamics.trace_like import PROFILES
from collapipe_env.dynamics.traces_spec import TracesSpec
from collapipe_env.scenario import load_scenario
from collapipe_env.trace_files.trace_formats import FORMATS
from collapipe_env.trace_files.trace_reading import known_formats

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import fit_traces  # noqa: E402
import make_traces_page as tool  # noqa: E402

PAGE = (ROOT / "docs/traces.md").read_text()
FIRST, SECOND = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def test_the_first_example_has_the_defaults() -> None:
    scenario = load_scenario(YAML(typ="safe").load(FIRST))
    assert dict(scenario.dynamics.processes)["traces"] == TracesSpec()


@needs_data
def test_the_second_example_plays_the_data_set(data) -> None:  # noqa: F811
    spec = dict(load_scenario(YAML(typ="safe").load(SECOND)).dynamics.processes)["traces"]
    assert (spec.format, spec.quantity, len(spec.checksum)) == ("ucc-5g", "rsrp", 64)


def test_the_table_of_fields_says_all_of_them_with_their_defaults() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (\S.*?) \|", PAGE, re.MULTILINE))
    spec = TracesSpec()
    for field in fields(spec):
        said = re.sub(r" (s|dBm|dB|Hz|Mbit/s)$", "", rows[field.name].strip("`"))
        value = getattr(spec, field.name)
        assert said == (str(value).removesuffix(".0") or "(empty)"), field.name


def test_all_formats_and_profiles_are_described() -> None:
    for name in known_formats():
        assert f"`{name}`" in PAGE
    for name, layout in FORMATS.items():
        (row,) = re.findall(rf"^\| `{name}` \| (.*)$", PAGE, re.MULTILINE)
        for column in layout.columns.values():
            assert column in row or layout.header
    table = PAGE.partition("<!-- generated: profiles -->")[2].partition("<!-- end")[0]
    for name, profile in PROFILES.items():
        (row,) = re.findall(rf"^\| `{name}` \| (.*) \|$", table, re.MULTILINE)
        assert f"{profile.mean_db:.1f} dB" in row
        assert row.endswith(", ".join(f"{profile.mixture.correlation(lag):.2f}" for lag in (1, 10, 60)))


def test_the_code_runs(capsys) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(block, "page", "exec"), {})
    assert capsys.readouterr().out.startswith("driving-0 dBm 1800.0 -")


def test_the_table_of_a_few_rounds(monkeypatch) -> None:
    monkeypatch.setattr(tool, "ROUNDS", 4)
    monkeypatch.setattr(tool, "EPISODES", 3)
    monkeypatch.setattr(tool, "PLAYED", {name: tool.PLAYED[name] for name in ("none", "`driving-rate`")})
    none, rates = tool.delays_table().splitlines()[2:]
    assert "| 0.0 dB |" in none
    assert "%" not in none
    truth, known = (float(value) for value in re.findall(r"([\d.]+) s", rates)[:2])
    assert truth < known
    assert float(re.findall(r"([\d.]+) dB", rates)[0]) > 5.0


def test_the_picture_is_drawn_with_and_without_data(monkeypatch) -> None:
    monkeypatch.delenv("COLLAPIPE_DATA", raising=False)
    monkeypatch.chdir(ROOT / "tests")
    axes = tool.picture().axes
    assert [one.get_title() for one in axes[:2]] == ["made, profile driving", "another one"]
    assert len(axes[2].lines) == 4


@needs_data
def test_tools_write_the_page(data, monkeypatch, tmp_path, capsys) -> None:  # noqa: F811
    """Fits of today are those of the page and of the package."""
    (tmp_path / "traces.md").write_text(PAGE)
    monkeypatch.setattr(fit_traces, "PAGE", tmp_path / "traces.md")
    fit_traces.main()
    assert (tmp_path / "traces.md").read_text() == PAGE
    assert capsys.readouterr().out.count("Profile(") == len(PROFILES)
    axes = tool.picture().axes
    assert axes[1].get_title() == "measured, UCC 5G driving"
    assert len(axes[2].lines) == 8
    measured = axes[2].lines[1].get_ydata()
    at = dict(zip(tool.LAGS_S, measured, strict=True))
    assert [round(at[lag], 2) for lag in (1, 10, 60)] == [0.98, 0.87, 0.53]


@pytest.mark.parametrize("name", ["profiles", "delays"])
def test_the_page_has_its_tables(name) -> None:
    table = PAGE.partition(f"<!-- generated: {name} -->")[2].partition("<!-- end")[0]
    assert table.count("|") > 40
