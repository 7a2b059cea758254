"""The tools that write the tables and the picture of the page about traces."""

import re
from pathlib import Path

import fit_traces
import make_traces_page as tool
from trace_support import data, needs_data  # noqa: F401 - a fixture

from collapipe_env.dynamics.trace_like import PROFILES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/traces.md").read_text()


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
