"""The tool that plays the tier Thermal with clocks free and open."""

import re
import sys
from pathlib import Path

import pytest

from collapipe_env.scenario import load_scenario

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import make_clock_table as tool  # noqa: E402


def test_the_scenarios_are_the_tier_and_the_decision_alone() -> None:
    tier = load_scenario("medium-thermal")
    assert tool.clock_scenario("pause", clocks=False) == tier
    own = tool.clock_scenario("pause", clocks=True)
    assert own.with_overrides({"name": tier.name, "decisions": tier.decisions}) == tier
    assert (tier.dssra_plus.heat_price, tier.dssra_plus.heat_start) == tool.PRICES[1]


def test_the_table_of_a_few_rounds(monkeypatch, capsys) -> None:
    for name, value in (("ROUNDS", 2), ("EPISODES", 2), ("PRICES", tool.PRICES[:2])):
        monkeypatch.setattr(tool, name, value)
    tool.main(["--governors", "step"])
    head, _, *rows = capsys.readouterr().out.strip().splitlines()
    assert head == "| governor | price of heat | clocks free | clocks open | change |"
    assert len(rows) == 2
    # Without a price nobody caps anything, and the rounds are the same.
    free, own = re.findall(r"([\d.]+) s;", rows[0])
    assert free == own
    assert rows[0].endswith("+0.0 % (+0.0 ... +0.0) |")
    assert "; 0% |" in rows[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--governors", "warm"], "invalid choice: 'warm'"),
        (["--write", "--seed", "1"], "leave out --seed and --governors"),
        (["--write", "--governors", "step"], "leave out --seed and --governors"),
    ],
)
def test_what_makes_no_sense_is_refused(capsys, arguments, message) -> None:
    with pytest.raises(SystemExit):
        tool.main(arguments)
    assert message in capsys.readouterr().err
