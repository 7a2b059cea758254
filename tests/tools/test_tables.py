"""The tables of ``make_tables``: pages have all of them, a few rounds fill each, and what they compute."""

from functools import partial
from importlib import import_module
from re import findall

import make_tables as tool
import numpy as np
import pytest
from tables import channel, clocks, decisions, mobility, traces

from collapipe_env.scenario import load_scenario


def part_of(name: str, part: str) -> str:
    """A generated part as its page shows it."""
    page = (tool.DOCS / import_module(f"tables.{name}").PAGE).read_text(encoding="utf-8")
    return page.partition(f"<!-- generated: {part} -->")[2].partition("<!-- end")[0]


def cells_of(table: str) -> list[list[str]]:
    """Cells of a table, without the line below its head."""
    lines = [line for line in table.splitlines() if line.startswith("|") and not line.startswith("|--")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def test_every_part_is_in_its_page_with_its_command() -> None:
    for name, part in tool.chosen([]):
        assert part_of(name, part).count("|") > 10
        about = import_module(f"tables.{name}").PARTS[part][1]
        assert f"`python tools/make_tables.py {name}` {about}" in part_of(name, part)


def test_parts_are_chosen_by_name(capsys) -> None:
    assert tool.chosen(["mobility", "decisions/openings"]) == [
        ("mobility", "memory"), ("mobility", "departures"), ("decisions", "openings"),
    ]  # fmt: skip
    for name in ("head", "decisions/opening", ""):
        with pytest.raises(SystemExit):
            tool.main([name])
        assert f"there is no table {name!r}" in capsys.readouterr().err


def knowledge_costs(truth, noisy, even) -> None:
    delays = [float(row[1].split()[0]) for row in (truth, noisy, even)]
    assert delays[0] < delays[1] < delays[2]
    assert "(+0.0 %)" in truth[1]


def a_filter_helps_where_there_is_noise(without, noisy) -> None:
    assert without == ["0 dB", *["0.00 dB"] * 4]
    known, filtered = (float(cell.split()[0]) for cell in noisy[1:3])
    assert known == pytest.approx(6.0, abs=0.5)
    assert filtered < known


def nobody_caps_without_a_price(free, priced) -> None:
    assert findall(r"([\d.]+) s;", free[2]) == findall(r"([\d.]+) s;", free[3])
    assert free[3].endswith("; 0%")
    assert free[4] == "+0.0 % (+0.0 ... +0.0)"


FEW = {"ROUNDS": 2, "EPISODES": 2}
SHORT = {
    "knowledge": FEW | {"ROUNDS": 3, "KNOWN": {k: channel.KNOWN[k] for k in ("the truth", "noisy, 6 dB")}},
    "filter": FEW | {"ROUNDS": 3, "FILTERED_DB": (0.0, 6.0)},
    "clocks": FEW | {"PRICES": clocks.PRICES[:2], "GOVERNORS": ("step",)},
    "openings": FEW | {"BASES": ("small",)},
    "devices": FEW,
    "metered": FEW | {"SPLIT": ("pipar",)},
    "governors": FEW,
    "memory": {"LAYOUTS": 4},
    "departures": {"LAYOUTS": 40},
    "terms": FEW | {"NAMES": ("pipar",)},
    "capacities": {},
}
"""What is played for each part in place of its own sizes."""
MAKERS = {
    "devices": partial(decisions.devices_table, ("best_single_device",), "small"),
    "metered": partial(decisions.server_table, "metered", "small"),
}
CHECKS = {
    "knowledge": knowledge_costs,
    "filter": a_filter_helps_where_there_is_noise,
    "clocks": nobody_caps_without_a_price,
}


@pytest.mark.parametrize(("name", "part"), [one for one in tool.chosen([]) if one[1] in SHORT])
def test_a_few_rounds_fill_the_table_of_the_page(name: str, part: str, monkeypatch) -> None:
    module = import_module(f"tables.{name}")
    for constant, value in SHORT[part].items():
        monkeypatch.setattr(module, constant, value)
    head, *rows = cells_of(MAKERS.get(part, module.PARTS[part][0])())
    assert set(head) <= set(cells_of(part_of(name, part))[0])
    assert rows
    assert {len(row) for row in rows} == {len(head)}
    CHECKS.get(part, lambda *_: None)(*rows)


def test_a_line_divides_those_that_keep_to_budgets_from_those_that_do_not() -> None:
    nan = float("nan")
    table = decisions.ranked(
        {
            "fast": decisions.Figures(1.0, 2.0, 1.0, nan, 1.0),
            "slow": decisions.Figures(3.0, 1.0, 1.04, nan, 1.0),
            "middle": decisions.Figures(2.0, 0.5, 0.5, nan, 1.0),
        }
    )
    assert [row[0] for row in cells_of(table)[1:]] == ["middle", "slow", "*over a budget*", "fast"]
    assert not decisions.Figures(1.0, 0.5, 0.5, 1.2, 1.0).within


def test_clocks_are_compared_on_the_tier_and_with_the_decision_alone() -> None:
    tier = load_scenario("medium-thermal")
    assert clocks.clock_scenario("pause", clocks=False) == tier
    own = clocks.clock_scenario("pause", clocks=True)
    assert own.with_overrides({"name": tier.name, "decisions": tier.decisions}) == tier
    assert (tier.dssra_plus.heat_price, tier.dssra_plus.heat_start) == clocks.PRICES[1]


def test_gains_of_walking_devices_move_and_keep_their_law(monkeypatch) -> None:
    monkeypatch.setattr(mobility, "LAYOUTS", 60)
    monkeypatch.setattr(mobility, "LAGS", (1, 2))
    plain, shadowed = (mobility.gains_db(db) for db in (0.0, 6.0))
    assert plain.shape == shadowed.shape == (3, 60 * 4 * 15)
    assert (plain[1] != plain[0]).all()  # the environment moves every link
    # Devices walk the same ways, so what is added is shadowing: 6 dB in every round.
    np.testing.assert_allclose((shadowed - plain).std(axis=1), 6.0, rtol=0.05)
    assert plain[2].std() == pytest.approx(plain[0].std(), rel=0.05)


@pytest.mark.parametrize("share", [1.0, 0.25, 0.01])
@pytest.mark.parametrize("power", [1.0, 0.1])
def test_rates_of_gains_over_rates_as_capacities_are_ratios_of_logarithms(share, power) -> None:
    """``log2(1 + p snr / beta) / log2(1 + snr)``, as the declared link has the scenario's band and noise."""
    rates = np.array([0.5e6, 5e6, 40e6])
    snr = 2.0 ** (rates / (0.6 * 20e6)) - 1.0
    expected = np.log2(1.0 + power * snr / share) / np.log2(1.0 + snr)
    np.testing.assert_allclose(traces.over_capacity(rates, share, power), expected, rtol=1e-9)


def test_rates_above_the_limit_lose_what_is_above_it() -> None:
    most = 0.95 * np.log2(1.0 + 1e3)
    assert traces.over_capacity(np.array([2.0 * most * 0.6 * 20e6]), 1.0, 1.0) == pytest.approx(0.5, rel=1e-9)


def test_the_page_shows_the_table_of_capacities() -> None:
    assert traces.table() in part_of("traces", "capacities")
