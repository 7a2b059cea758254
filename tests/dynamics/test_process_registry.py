"""Processes by name: what scenarios may say of them, and what is refused."""

from dataclasses import dataclass

import pytest

from collapipe_env import Scenario, load_scenario, register_process
from collapipe_env.dynamics import PROCESSES, Process
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario.loading import scenario_digest
from collapipe_env.simulator.process_registry import active_processes


@dataclass(frozen=True)
class WindFields:
    speed: float = 1.0
    gusts: int = 2


class Wind(Process):
    name = "wind"
    after = ("fading",)
    Spec = WindFields


@pytest.fixture
def wind():
    yield register_process(Wind)
    del PROCESSES._added["wind"]


def test_a_scenario_names_it_and_sets_its_fields(wind, tmp_path):
    scenario = load_scenario({"base": "small", "dynamics": {"processes": {"wind": {"speed": 3.0}}}})
    assert dict(scenario.dynamics.processes) == {"wind": WindFields(3.0)}
    assert [p.name for p in active_processes(scenario)] == ["shadowing", "fading", "wind"]
    assert hash(scenario) != hash(load_scenario("small"))
    gusty = scenario.with_overrides({"dynamics.processes.wind.gusts": 3})
    assert scenario_digest(scenario) != scenario_digest(gusty)
    path = tmp_path / "windy.yaml"
    path.write_text(scenario.to_yaml())
    assert load_scenario(path) == scenario == load_scenario(scenario.to_dict())
    plain = load_scenario("small")
    assert plain.with_overrides({"dynamics.processes.wind": {"speed": 3.0}}).dynamics == scenario.dynamics


def test_fields_given_as_an_object_are_checked_like_others(wind):
    scenario = load_scenario({"base": "small", "dynamics": {"processes": {"wind": WindFields(3.0)}}})
    assert load_scenario(scenario.to_dict()) == scenario
    with pytest.raises(ScenarioError, match=r"wind\.sped: got 2\.0, but there is no field 'sped' here"):
        scenario.with_overrides({"dynamics.processes.wind": {"sped": 2.0}})


def test_without_processes_nothing_of_a_scenario_changes(wind):
    plain = load_scenario("small")
    assert plain.to_dict()["dynamics"]["processes"] == {}
    assert [p.name for p in active_processes(plain)] == ["shadowing", "fading"]


@pytest.mark.parametrize("off", ["off", False])
def test_a_process_of_the_base_is_switched_off(off):
    boards = load_scenario("boards")
    assert load_scenario({"base": "boards", "dynamics": {"processes": {}}}).dynamics == boards.dynamics
    free = load_scenario({"base": "boards", "name": "boards", "dynamics": {"processes": {"migration": off}}})
    assert free.dynamics.processes == ()
    assert free == boards.with_overrides({"dynamics.processes.migration": off})
    assert free == load_scenario(free.to_dict())
    assert free.with_overrides({"dynamics.processes.migration": {}}) == boards


@pytest.mark.parametrize(
    ("processes", "message"),
    [
        ({"wnd": {}}, "process 'wnd' is not known: did you mean 'wind'"),
        ({"wnd": "off"}, "process 'wnd' is not known: did you mean 'wind'"),
        # No slip for fading or migration, but somebody's own.
        (
            {"rain": {}},
            r"'rain' is not known: valid names: .* \(one of your own is known once",
        ),
        ({"fadin": {}}, "process 'fadin' is not known: did you mean 'fading'"),
        ({"fading": "off"}, "'fading' has no fields here"),
        (
            {"wind": None},
            r"processes\.wind: got None, but a mapping of its fields is expected; \{\} for their defaults",
        ),
        (
            {"wind": {"sped": 1.0}},
            r"wind\.sped: got 1\.0, but there is no field 'sped' here; did you mean 'speed'",
        ),
        ({"wind": {"speed": "fast"}}, r"wind\.speed: got 'fast', but the input should be a valid number"),
        ({"wind": 5}, r"wind: got 5, but a mapping"),
        ({"wind": {"speed": float("nan")}}, r"wind\.speed: got nan, but the input should be a finite number"),
        ({"wind": {"speed": "3"}}, r"wind\.speed: got '3', but expected float"),
        ({"wind": {"gusts": True}}, r"wind\.gusts: got True, but expected int"),
        ({"fading": {}}, r"'fading' has no fields here"),
        ([1], r"dynamics\.processes: got \[1\], but a mapping of processes"),
    ],
)
def test_faults_are_named(wind, processes, message):
    with pytest.raises(ScenarioError, match=message):
        load_scenario({"base": "small", "dynamics": {"processes": processes}})


@pytest.mark.parametrize("path", ["dynamics.processes.wind.sped", "dynamics.processes.wnd.speed"])
def test_overrides_name_faults(wind, path):
    scenario = load_scenario({"base": "small", "dynamics": {"processes": {"wind": {}}}})
    with pytest.raises(ScenarioError, match="did you mean"):
        scenario.with_overrides({path: 1.0})


def test_what_is_no_process_is_refused():
    @dataclass
    class Loose:
        x: float = 0.0

    nameless = type("Nameless", (Process,), {})
    loose = type("Careless", (Process,), {"name": "careless", "Spec": Loose})
    after = type("Later", (Process,), {"name": "later", "after": "fading"})
    instance = type("Instance", (Process,), {"name": "instance", "Spec": WindFields()})
    for kind, message in ((after, "tuple of names"), (instance, "frozen dataclass")):
        with pytest.raises(ScenarioError, match=message):
            register_process(kind)
    for kind, message in ((int, "is not a process"), (nameless, "name"), (loose, "frozen dataclass")):
        with pytest.raises(ScenarioError, match=message):
            register_process(kind)
    taken = type("Taken", (Process,), {"name": "fading"})
    with pytest.raises(ScenarioError, match="'fading' is taken"):
        register_process(taken)


def test_processes_that_wait_for_each_other_are_refused(wind):
    other = type("Waves", (Process,), {"name": "waves", "after": ("wind",), "Spec": WindFields})
    register_process(other)
    wind.after = ("waves",)
    try:
        scenario = load_scenario({"base": "small", "dynamics": {"processes": {"wind": {}, "waves": {}}}})
        with pytest.raises(ScenarioError, match="waves, wind wait for each other"):
            active_processes(scenario)
    finally:
        wind.after = ("fading",)
        del PROCESSES._added["waves"]
    assert isinstance(scenario, Scenario)


@pytest.mark.parametrize("name", ["arrivals", "layout", "learner"])
def test_names_of_other_components_are_taken(name):
    with pytest.raises(ScenarioError, match=f"{name!r} is taken"):
        register_process(type("Other", (Process,), {"name": name, "Spec": WindFields}))


def test_a_process_that_is_no_longer_registered_is_refused():
    register_process(Wind)
    scenario = load_scenario({"base": "small", "dynamics": {"processes": {"wind": {}}}})
    del PROCESSES._added["wind"]
    with pytest.raises(ScenarioError, match="'wind' is not known"):
        active_processes(scenario)


def test_the_order_of_registration_and_of_mappings_changes_nothing(wind):
    early = type("Autumn", (Process,), {"name": "autumn", "Spec": WindFields})
    register_process(early)
    try:
        one, other = (
            load_scenario({"base": "small", "dynamics": {"processes": {name: {} for name in names}}})
            for names in (("wind", "autumn"), ("autumn", "wind"))
        )
        assert one == other
        assert [p.name for p in active_processes(one)] == ["shadowing", "fading", "autumn", "wind"]
    finally:
        del PROCESSES._added["autumn"]
