"""Bad fields give one clear ScenarioError: dotted place, value, what is allowed and the nearest name."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from collapipe_env.ground.errors import ScenarioError, nearest_name, shown
from collapipe_env.scenario import BudgetSpec, RadioSpec, Scenario, WorkloadSpec, load_scenario
from collapipe_env.scenario.fields import real

HUGE = 16**5000
LONGEST_MESSAGE = 6_000


def refused(source: Any) -> str:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(source)
    assert len(str(caught.value)) < LONGEST_MESSAGE
    return str(caught.value)


def process(name: str, **fields: Any) -> dict[str, Any]:
    return {"dynamics": {"processes": {name: fields}}}


def profile(**fields: Any) -> dict[str, Any]:
    return {"devices": {"profiles": [fields]}}


FAULTS = [
    ({"radoi": {}}, "radoi: got", "did you mean 'radio'?"),
    (profile(swiched_capacitance=1e-27), "devices.profiles.0.swiched_capacitance: got",
     "did you mean 'switched_capacitance'?"),
    ({"learning": {"proxy": {"widht": 3}}}, "learning.proxy.widht: got", "did you mean 'width'?"),
    # What to write instead.
    (process("channel_knowledge", modes="delayed"), "dynamics.processes.channel_knowledge.modes: got",
     "a list: write modes: [delayed]"),
    (process("channel_knowledge", modes="delayd"), "channel_knowledge.modes: got 'delayd'", "[delayed]"),
    (process("heat", levels=0.5), "heat.levels: got 0.5", "a list: write levels: [0.5]"),
    (process("heat", governor="stepp"), "heat.governor: got 'stepp'", "did you mean 'step'?"),
    (process("heat", profile="tablet"), "heat.profile: got 'tablet'", "'phone', 'board' or 'board_cased'"),
    ({"dynamics": {"load_levels": 0.5}}, "load_levels", "should be a list: write load_levels: [0.5] ("),
    ({"cluster": {"layout": "per_epsiode"}}, "layout", "did you mean 'per_episode'? ("),
    ({"server": {"terms": "meterd"}}, "terms", "did you mean 'metered'? ("),
    # A list of one such value would be refused, too, or no choice is close: nothing is suggested.
    ({"dynamics": {"load_levels": "0.5"}}, "load_levels", "the input should be a list ("),
    ({"decisions": "segmentz"}, "decisions", "the input should be a list ("),
    ({"cluster": {"layout": "x"}}, "layout", "the input should be 'fixed' or 'per_episode' ("),
    # Other types.
    ({"cluster": {"devices": [3, 0, 3, 3]}}, "cluster.devices.1: got 0", "greater than or equal to 1"),
    ({"radio": [1]}, "radio: got [1]", "a mapping is expected with fields among noise_dbm_per_hz"),
    ({"devices": {"profiles": {"name": "a"}}}, "devices.profiles: got {'name': 'a'}", "a list"),
    ({"cluster": {"devices": "many"}}, "cluster.devices: got 'many'", "integer or the input should be a"),
    ({"name": 7}, "name: got 7", "valid string"),
    ({"name": "a\x1b[31mb"}, r"name: got 'a\x1b[31mb'", "a line break or a control character; leave"),
    (profile(name="\u202e"), r"profiles.0.name: got '\u202e'", "leave it out"),
    ({"radio": {4: 1}}, "radio", "field names are text, not 4"),
    ({"radio": {"diversity": 10**5000}}, "radio.diversity", "an integer of 16,610 bits"),
]  # fmt: skip


@pytest.mark.parametrize(("mapping", "place", "advice"), FAULTS, ids=[str(n) for n in range(len(FAULTS))])
def test_a_fault_names_place_value_and_remedy_in_one_line(
    mapping: dict[str, Any], place: str, advice: str
) -> None:
    message = refused(mapping)
    assert place in message
    assert advice in message
    assert "tuple" not in message
    assert "\n" not in message


def test_several_faults_take_one_line_each_and_many_are_counted() -> None:
    lines = refused({"radio": {"diversity": 0, "bs_powr_w": 1}, "workload": {"blocks": "x"}}).splitlines()
    assert lines[0] == "scenario mapping: 3 faults"
    places = ["radio.bs_powr_w", "radio.diversity", "workload.blocks"]
    assert sorted(line.split(":")[0].strip() for line in lines[1:]) == places
    message = refused({"base": "small", **{f"field{i}": 1 for i in range(2_000)}})
    for part in ("2,000 faults", "field9: got 1", "and 1,990 more"):
        assert part in message
    message = refused({"base": "small", "devices": {"profiles": [{"weight": -1.0}] * 900}})
    assert "900 faults" in message
    assert "devices.profiles.0" in message


@pytest.mark.parametrize(
    ("build", "pattern"),
    [
        (lambda: RadioSpec(diversity=0), r"RadioSpec: diversity: got 0.*greater than or equal to 1"),
        (lambda: RadioSpec(diversty=1), r"RadioSpec: diversty: got 1.*did you mean 'diversity'"),  # type: ignore[call-arg]
        (lambda: RadioSpec(4), r"RadioSpec: fields are given by name"),  # type: ignore[call-arg]
        (lambda: WorkloadSpec(heads=3), r"WorkloadSpec: heads = 3 does not divide"),
        (lambda: Scenario(budgets=BudgetSpec(bandwidth_floor=0.3)), r"Scenario: budgets\.bandwidth_floor"),
        (lambda: Scenario(radio=3), r"Scenario: radio: got 3, but a mapping"),  # type: ignore[arg-type]
        (lambda: real(0.5, "share", "0 to 1"), r"range '0 to 1' is no interval, .* write '\(0, 1e6\] W'"),
    ],
)
def test_objects_built_directly_are_checked_too(build: Callable[[], object], pattern: str) -> None:
    with pytest.raises(ScenarioError, match=pattern):
        build()


HUGE_PLACES = [
    HUGE,
    {HUGE: 1},
    {"radio": {HUGE: 1}},
    {"base": HUGE},
    {"workload": {"task": HUGE}},
    {"workload": {"model": HUGE}},
    {"budgets": {"cu_energy_j": 2**1010}},
    profile(memory_bytes=[HUGE]),
]


@pytest.mark.parametrize("source", HUGE_PLACES, ids=[str(n) for n in range(len(HUGE_PLACES))])
def test_huge_integers_anywhere(source: Any) -> None:
    refused(source)


def test_names_are_compared_only_with_few_of_their_length() -> None:
    many = [f"column{i}" for i in range(20_000)]
    assert nearest_name("colunm1", many) == "did you mean 'column1'?"
    assert len(nearest_name("x" * 10**6, ["radio", "y" * 10**6])) < 200
    assert len(shown(["x" * 10**6] * 100)) < 1000
    assert shown({"a": [HUGE]}) == "{'a': [an integer of 20,001 bits]}"


@pytest.mark.parametrize("odd", ["a\0b", "\ud800", "a\udfffb"])
def test_text_that_nothing_can_write_is_refused(odd: str) -> None:
    fields = ("dataset", "checkpoint", "text_column", "label_column")
    places = [{"learning": {field: odd}} for field in fields]
    places += [{"name": odd}, {"learning": {"languages": [odd, "en"]}}, profile(name=odd)]
    for place in places:
        assert "leave it out" in refused(place)
    for build in (
        lambda: Scenario(name=odd),
        lambda: load_scenario("small").with_overrides({"learning.dataset": odd}),
    ):
        with pytest.raises(ScenarioError, match="leave it out"):
            build()
    assert Scenario(name="Ünïcode 🙂 name").name == "Ünïcode 🙂 name"


def test_misspelt_scenarios_name_the_nearest() -> None:
    assert "did you mean 'medium'?" in refused("mediun")
    assert "base: there is no shipped scenario 'larg'; did you mean 'large'?" in refused({"base": "larg"})
    assert "there is no shipped scenario 3" in refused({"base": 3})
    message = refused({"base": "large", "workload": {"model": "bert-smal"}})
    assert re.search(r"workload\.model: .*'bert-smal'.*did you mean 'bert-small'", message)
    message = refused({"workload": {"task": "nerr"}})
    assert re.search(r"workload\.task: .*'nerr'.*did you mean 'ner'", message)
