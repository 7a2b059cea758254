"""The page about mobility: its example, its defaults, and the tool that writes its table."""

import dataclasses
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from ruamel.yaml import YAML

from collapipe_env.dynamics.mobility import MobilitySpec
from collapipe_env.scenario import load_scenario

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from tables import mobility as tool  # noqa: E402

PAGE = (ROOT / "docs/mobility.md").read_text()


def test_the_example_is_a_scenario() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    scenario = load_scenario(YAML(typ="safe").load(block))
    assert dict(scenario.dynamics.processes) == {"mobility": MobilitySpec()}
    assert scenario.radio.d2d_shadowing_db == 4.0


def test_the_page_says_the_defaults() -> None:
    said = {}
    for names, values in re.findall(r"^\| (`.*`) \| ([^|]*) \| ", PAGE, re.MULTILINE):
        for name, value in zip(re.findall(r"`(\w+)`", names), values.split(", "), strict=False):
            said[name] = value.strip("`").split(" ")[0]
    spec = dataclasses.asdict(MobilitySpec())
    assert set(spec) <= set(said)
    for name, value in spec.items():
        assert said[name] == (value if isinstance(value, str) else f"{value:g}")


def test_gains_of_the_table_move_and_keep_their_law(monkeypatch) -> None:
    monkeypatch.setattr(tool, "LAYOUTS", 60)
    monkeypatch.setattr(tool, "LAGS", (1, 2))
    plain, shadowed = (tool.gains_db(db) for db in (0.0, 6.0))
    assert plain.shape == shadowed.shape == (3, 60 * 4 * 15)
    assert (plain[1] != plain[0]).all()  # the environment moves every link
    # Devices walk the same ways, so what is added is shadowing: 6 dB in every round.
    np.testing.assert_allclose((shadowed - plain).std(axis=1), 6.0, rtol=0.05)
    assert plain[2].std() == pytest.approx(plain[0].std(), rel=0.05)


def test_the_table_has_a_row_for_each_case(monkeypatch) -> None:
    monkeypatch.setattr(tool, "LAYOUTS", 4)
    monkeypatch.setattr(tool, "LAGS", (1, 6, 30))
    head, _, *rows = tool.table().splitlines()
    assert head in PAGE
    assert len(rows) == 2
    for row in rows:
        assert row.split(" dB |")[0] + " dB |" in PAGE
