"""Devices by name: numbers that hold together, sources, and profiles and servers that name them."""

import re

import pytest

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import DeviceProfile, DeviceSpec, ServerSpec, fixed_layout, load_scenario
from collapipe_env.scenario.device_catalogue import catalogue, machine
from collapipe_env.scenario.server_section import term_values
from collapipe_env.simulator.build import system_parameters

PUBLISHED = {
    # Cores, FLOP a core and cycle, and hertz of the data sheets; for phones the sum over their cores.
    "orin-nano": (1024 * 2 * 0.625e9, 7, 15, 8e9),
    "jetson-nano": (128 * 2 * 0.9216e9, 5, 10, 4e9),
    "orin-agx": (2048 * 2 * 1.3e9, 15, 60, 64e9),
    "pi-5": (4 * 16 * 2.4e9, 3, 27, 8e9),
    "galaxy-s23": (32 * 3.36e9 + 4 * 16 * 2.8e9 + 3 * 16 * 2e9, 1, 6.4, 8e9),
    "pixel-8": (32 * 2.91e9 + 4 * 16 * 2.37e9 + 4 * 16 * 1.7e9, 1, 6.4, 8e9),
    "galaxy-a24": (2 * 16 * 2.2e9 + 6 * 8 * 2e9, 1, 6.4, 6e9),
    "rtx-3090-ti": (10_752 * 2 * 1.86e9, 100, 450, 24e9),
}
"""By name: greatest rate [FLOP/s], least and greatest power [W], memory [byte]."""


@pytest.mark.parametrize("name", catalogue())
def test_a_device_is_slower_than_it_could_be_and_within_its_power_and_memory(name):
    found = catalogue()[name]
    peak, least_w, most_w, memory = PUBLISHED[name]
    assert found.peak_flops == pytest.approx(peak, rel=0.08)
    assert 0.05 < found.efficiency < 0.5
    assert found.flops == found.peak_flops * found.efficiency
    assert least_w < found.active_power_w <= most_w
    assert 0.3 * memory < found.memory_bytes < memory


@pytest.mark.parametrize("name", catalogue())
def test_every_number_has_a_source_or_is_ours(name):
    found = catalogue()[name]
    numbers = [field for field, value in found._asdict().items() if isinstance(value, int | float)]
    assert list(found.sources) == numbers
    for text in found.sources.values():
        assert text.startswith("judgement: ") or re.search(r"\S https?://\S+$", text)


@pytest.mark.parametrize("name", catalogue())
def test_a_name_stands_for_a_profile(name):
    found = catalogue()[name]
    scenario = load_scenario({"base": "small", "devices": {"profiles": [name]}})
    (profile,) = scenario.devices.profiles
    assert profile == DeviceProfile(
        name=name, clock_min_hz=found.clock_hz, clock_max_hz=found.clock_hz,
        flops_per_cycle=found.flops / found.clock_hz, active_power_w=float(found.active_power_w),
        memory_bytes=(found.memory_bytes,),
    )  # fmt: skip
    layout = fixed_layout(scenario)
    assert layout.max_clock_hz * layout.flops_per_cycle == pytest.approx(found.flops)


def test_names_stand_beside_profiles_in_files_in_python_and_in_overrides(tmp_path):
    own = {"name": "ours", "weight": 2, "switched_capacitance": 1e-27}
    entries = ["orin-nano", own, {"base": "pi-5", "name": "cold pi", "weight": 3, "memory_bytes": [1e9]}]
    file = tmp_path / "mixed.yaml"
    file.write_text(
        "base: small\nname: mixed\ndevices:\n  profiles:\n    - orin-nano\n"
        "    - {name: ours, weight: 2, switched_capacitance: 1.0e-27}\n"
        "    - {base: pi-5, name: cold pi, weight: 3, memory_bytes: [1.0e9]}\n",
        encoding="utf-8",
    )
    scenario = load_scenario(file)
    named, ours, pi = scenario.devices.profiles
    assert (named.name, ours, pi.name, pi.weight) == ("orin-nano", DeviceProfile(**own), "cold pi", 3)
    assert (pi.memory_bytes, pi.active_power_w) == ((1e9,), 11)
    assert load_scenario(scenario.to_dict()) == scenario
    again = tmp_path / "again.yaml"
    again.write_text(scenario.to_yaml(), encoding="utf-8")
    assert load_scenario(again) == scenario
    assert DeviceSpec(profiles=entries) == scenario.devices
    small = load_scenario("small")
    assert small.with_overrides({"devices.profiles": entries}).devices == scenario.devices
    assert small.with_overrides({"devices": {"profiles": entries}}).devices == scenario.devices
    for entry in ("pi-5", {"base": "pi-5"}):
        (one,) = small.with_overrides({"devices.profiles.0": entry}).devices.profiles
        assert (one.name, one.clock_max_hz, one.switched_capacitance) == ("pi-5", 2.4e9, None)


def test_a_machine_is_the_server():
    scenario = load_scenario({"base": "small", "server": {"machine": "rtx-3090-ti"}})
    values = term_values(scenario.server)
    assert values.flops == system_parameters(scenario).server_flops == pytest.approx(17.4e12)
    assert values.memory_bytes == 22.2e9
    assert values.joules_per_flop == pytest.approx(25.86e-12, rel=1e-3)
    assert (values.pue, values.energy_budget_j) == (1.4, None)
    assert load_scenario(scenario.to_dict()) == scenario
    weak = term_values(ServerSpec(terms="weak", machine="orin-agx", memory_bytes=1e9))
    assert (weak.flops, weak.memory_bytes, weak.energy_budget_j) == (machine("orin-agx").flops, 1e9, 20.0)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"devices": {"profiles": ["orin-nanno"]}}, r"profiles\.0: .*'orin-nanno'.*did you mean 'orin-nano'"),
        ({"devices": {"profiles": [{"base": "pi"}]}}, r"profiles\.0: .*'pi'.* did you mean 'pi-5'"),
        ({"devices": {"profiles": [{"base": 3}]}}, r"profiles\.0: .*no device 3 in the catalogue"),
        ({"devices": {"profiles": [{"base": "pi-5", "wieght": 2}]}}, r"0\.wieght: .*did you mean 'weight'"),
        ({"devices": {"profiles": [{"base": "pi-5", "weight": -1}]}}, r"0\.weight: got -1"),
        ({"devices": {"profiles": ["pi-5", "pi-5"]}}, r"holds the name 'pi-5' twice"),
        ({"server": {"machine": "rtx-3090"}}, r"server\.machine: got 'rtx-3090'.*mean 'rtx-3090-ti'"),
        ({"server": {"machine": ["pi-5"]}}, r"server\.machine: got \['pi-5'\]"),
    ],
)
def test_wrong_names_are_refused_with_the_nearest(sections, message):
    with pytest.raises(ScenarioError, match=message):
        load_scenario(sections)
