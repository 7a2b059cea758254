"""Processes by name: what scenarios may say of them, and what is refused."""

from dataclasses import dataclass

import pytest
from process_support import registered

from collapipe_env import load_scenario, register_process
from collapipe_env.dynamics import Process
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
    with registered(Wind):
        yield Wind


def on(**processes):
    return load_scenario({"base": "small", "dynamics": {"processes": processes}})


def names(scenario):
    return [process.name for process in active_processes(scenario)]


def test_a_scenario_names_it_and_sets_its_fields(wind, tmp_path):
    scenario, plain = on(wind={"speed": 3.0}), load_scenario("small")
    assert dict(scenario.dynamics.processes) == {"wind": WindFields(3.0)}
    assert names(scenario) == ["shadowing", "fading", "wind"]
    assert hash(scenario) != hash(plain)
    gusty = scenario.with_overrides({"dynamics.processes.wind.gusts": 3})
    assert scenario_digest(scenario) != scenario_digest(gusty)
    path = tmp_path / "custom.yaml"
    path.write_text(scenario.to_yaml())
    assert load_scenario(path) == scenario == load_scenario(scenario.to_dict()) == on(wind=WindFields(3.0))
    assert plain.with_overrides({"dynamics.processes.wind": {"speed": 3.0}}).dynamics == scenario.dynamics
    # It is registered, and off.
    assert plain.to_dict()["dynamics"]["processes"] == {}
    assert names(plain) == ["shadowing", "fading"]


@pytest.mark.parametrize("off", ["off", False])
def test_a_process_of_the_base_is_switched_off(off):
    boards = load_scenario("boards")
    assert load_scenario({"base": "boards", "dynamics": {"processes": {}}}).dynamics == boards.dynamics
    free = load_scenario({"base": "boards", "name": "boards", "dynamics": {"processes": {"migration": off}}})
    assert free.dynamics.processes == ()
    assert free == boards.with_overrides({"dynamics.processes.migration": off})
    assert free == load_scenario(free.to_dict())
    assert free.with_overrides({"dynamics.processes.migration": {}}) == boards


FAULTS = [
    ({"wnd": {}}, "process 'wnd' is not known: did you mean 'wind'"),
    ({"wnd": "off"}, "process 'wnd' is not known: did you mean 'wind'"),
    # No slip for fading or migration, but somebody's own.
    ({"rain": {}}, r"'rain' is not known: valid names: .* \(one of your own is known once"),
    ({"fadin": {}}, "process 'fadin' is not known: did you mean 'fading'"),
    ({"fading": "off"}, "'fading' has no fields here"),
    ({"fading": {}}, "'fading' has no fields here"),
    ({"server": {}}, "no fields here"),
    ({"wind": None}, r"processes\.wind: got None, but a mapping of its fields is expected; \{\} for their"),
    ({"wind": 5}, r"wind: got 5, but a mapping"),
    ({"wind": {"sped": 1.0}}, r"wind\.sped: got 1\.0, but there is no field 'sped' here; .* 'speed'"),
    ({"wind": {"speed": "fast"}}, r"wind\.speed: got 'fast', but the input should be a valid number"),
    ({"wind": {"speed": float("nan")}}, r"wind\.speed: got nan, but the input should be a finite number"),
    ({"wind": {"speed": "3"}}, r"wind\.speed: got '3', but expected float"),
    ({"wind": {"gusts": True}}, r"wind\.gusts: got True, but expected int"),
    ([1], r"dynamics\.processes: got \[1\], but a mapping of processes"),
]


@pytest.mark.parametrize(("processes", "message"), FAULTS)
def test_faults_are_named(wind, processes, message):
    with pytest.raises(ScenarioError, match=message):
        load_scenario({"base": "small", "dynamics": {"processes": processes}})


@pytest.mark.parametrize(("path", "value"), [("wind.sped", 1.0), ("wnd.speed", 1.0), ("wind", {"sped": 2.0})])
def test_overrides_name_faults(wind, path, value):
    with pytest.raises(ScenarioError, match="did you mean"):
        on(wind=WindFields(3.0)).with_overrides({f"dynamics.processes.{path}": value})


def derived(kind, **attributes):
    return type(kind, (Process,), attributes)


@dataclass
class Loose:
    x: float = 0.0


UNFIT = [
    (int, "is not a process"),
    (derived("Nameless"), "name"),
    (derived("Careless", name="careless", Spec=Loose), "frozen dataclass"),
    (derived("Instance", name="instance", Spec=WindFields()), "frozen dataclass"),
    (derived("Later", name="later", after="fading"), "tuple of names"),
    *((derived("Taken", name=name, Spec=WindFields), f"{name!r} is taken")
      for name in ("fading", "arrivals", "layout", "learner")),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "message"), UNFIT)
def test_what_is_no_process_is_refused(kind, message):
    with pytest.raises(ScenarioError, match=message):
        register_process(kind)


def test_another_process_takes_a_name_only_when_told(wind):
    breeze = derived("Breeze", name="wind", Spec=WindFields)
    with pytest.raises(ScenarioError, match="replace=True"):
        register_process(breeze)
    register_process(replace=True)(breeze)
    (_, _, active) = active_processes(on(wind={}))
    assert type(active) is breeze


def test_processes_that_wait_for_each_other_are_refused():
    waves = derived("Waves", name="waves", after=("tides",), Spec=WindFields)
    tides = derived("Tides", name="tides", after=("waves",), Spec=WindFields)
    with registered(waves, tides), pytest.raises(ScenarioError, match="tides, waves wait for each other"):
        active_processes(on(waves={}, tides={}))


def test_a_process_that_is_no_longer_registered_is_refused():
    with registered(Wind):
        scenario = on(wind={})
    with pytest.raises(ScenarioError, match="'wind' is not known"):
        active_processes(scenario)


def test_the_order_of_registration_and_of_mappings_changes_nothing(wind):
    with registered(derived("Autumn", name="autumn", Spec=WindFields)):
        one, other = on(wind={}, autumn={}), on(autumn={}, wind={})
        assert one == other
        assert names(one) == ["shadowing", "fading", "autumn", "wind"]
