"""The tool that plays the tier Thermal with clocks free and open."""

import re
import sys
from pathlib import Path

from collapipe_env.scenario import load_scenario

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from tables import clocks as tool  # noqa: E402


def test_the_scenarios_are_the_tier_and_the_decision_alone() -> None:
    tier = load_scenario("medium-thermal")
    assert tool.clock_scenario("pause", clocks=False) == tier
    own = tool.clock_scenario("pause", clocks=True)
    assert own.with_overrides({"name": tier.name, "decisions": tier.decisions}) == tier
    assert (tier.dssra_plus.heat_price, tier.dssra_plus.heat_start) == tool.PRICES[1]


def test_the_table_of_a_few_rounds(monkeypatch) -> None:
    for name, value in (
        ("ROUNDS", 2),
        ("EPISODES", 2),
        ("PRICES", tool.PRICES[:2]),
        ("GOVERNORS", ("step",)),
    ):
        monkeypatch.setattr(tool, name, value)
    head, _, *rows = tool.table().splitlines()
    assert head == "| governor | price of heat | clocks free | clocks open | change |"
    assert len(rows) == 2
    # Without a price nobody caps anything, and the rounds are the same.
    free, own = re.findall(r"([\d.]+) s;", rows[0])
    assert free == own
    assert rows[0].endswith("+0.0 % (+0.0 ... +0.0) |")
    assert "; 0% |" in rows[0]
