"""Presets load, agree with the defaults, and survive the way to plain data and back."""

import copy
import json
import pickle
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import (
    ClusterSpec,
    DeviceProfile,
    DeviceSpec,
    RadioSpec,
    Scenario,
    WorkloadSpec,
    draw_layout,
    fixed_layout,
    load_scenario,
    scenario_names,
)
from collapipe_env.simulator.build import mean_state, system_parameters
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split

LADDER = {"small": (2, 3, 6), "medium": (4, 5, 12), "large": (16, 8, 12), "xlarge": (64, 16, 16)}
PUBLISHED = {"bert-small": (4, 5, 4), "bert-base": (4, 5, 12), "transformer-base": (4, 5, 6)}
REALISTIC = {"boards": (4, 4, 12), "phones": (4, 5, 12)}
LANGUAGE = {"llm-boards": (4, 6, 24), "llm-phones": (4, 5, 12)}
TIERED = {
    f"{size}-{tier}": LADDER[size] if (size, tier) != ("medium", "migration") else (4, 4, 12)
    for tier in ("migration", "channel", "thermal", "mobile", "stale", "churn", "wild")
    for size in ("small", "medium", "large", *(("xlarge",) if tier in ("stale", "wild") else ()))
}
TRACED = {f"{size}-trace-like": LADDER[size] for size in ("small", "medium", "large")}
SIZES = LADDER | PUBLISHED | REALISTIC | LANGUAGE | TRACED | TIERED


def test_the_listed_presets_are_the_shipped_files() -> None:
    folder = resources.files("collapipe_env.scenario").joinpath("presets")
    files = {entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml")}
    assert set(scenario_names()) == files == set(SIZES)


@pytest.mark.parametrize("name", SIZES)
def test_preset_has_its_name_and_size(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario.name == name
    assert (scenario.clusters, scenario.max_devices, scenario.blocks) == SIZES[name]


@pytest.mark.parametrize("name", LADDER)
def test_per_cluster_shares_are_those_of_medium(name: str) -> None:
    scenario, medium = load_scenario(name), load_scenario("medium")
    for field in ("uplink_bandwidth_hz", "downlink_bandwidth_hz", "bs_power_w"):
        per_cluster = getattr(scenario.radio, field) / scenario.clusters
        assert per_cluster == getattr(medium.radio, field) / medium.clusters, field
    assert scenario.cluster.server_flops / scenario.clusters == medium.cluster.server_flops / medium.clusters
    assert scenario.budgets.bandwidth_floor * scenario.clusters == pytest.approx(0.08)


def test_medium_spells_out_the_defaults() -> None:
    assert load_scenario("medium") == Scenario(name="medium") == load_scenario({"name": "medium"})


@pytest.mark.parametrize("name", SIZES)
def test_round_trips(name: str, tmp_path: Path) -> None:
    scenario = load_scenario(name)
    assert load_scenario(scenario) is scenario
    assert load_scenario(scenario.to_dict()) == scenario
    assert load_scenario(json.loads(json.dumps(scenario.to_dict()))) == scenario
    path = tmp_path / "anything.yaml"
    path.write_text(scenario.to_yaml(), encoding="utf-8")
    again = load_scenario(path)
    assert again == load_scenario(str(path)) == scenario
    assert hash(again) == hash(scenario)
    assert pickle.loads(pickle.dumps(scenario)) == copy.deepcopy(scenario) == scenario


def test_yaml_keeps_the_order_of_the_fields() -> None:
    lines = load_scenario("small").to_yaml().splitlines()
    assert [line.split(":")[0] for line in lines if line[0] not in " -"] == [
        *("name", "decisions", "workload", "devices", "cluster", "radio", "budgets", "overheads"),
        *("server", "dynamics", "learning", "dssra_plus"),
    ]


def test_a_file_inherits_from_its_base_and_is_named_after_itself(tmp_path: Path) -> None:
    path = tmp_path / "rayleigh.yml"
    path.write_text("base: small\nradio:\n  diversity: 1\n", encoding="utf-8")
    small, scenario = load_scenario("small"), load_scenario(path)
    assert scenario.name == "rayleigh"
    assert scenario == small.with_overrides({"radio.diversity": 1, "name": "rayleigh"})
    assert scenario.radio.uplink_bandwidth_hz == small.radio.uplink_bandwidth_hz == 10e6


def test_a_mapping_may_hold_section_objects_and_is_left_alone() -> None:
    data = {"base": "medium", "radio": RadioSpec(diversity=2), "cluster": {"clusters": 2}}
    scenario = load_scenario(data)
    assert (scenario.name, scenario.radio.diversity, scenario.clusters) == ("custom", 2, 2)
    assert data["cluster"] == {"clusters": 2}
    assert load_scenario("medium").clusters == 4


def test_overrides_change_only_what_they_name() -> None:
    medium = load_scenario("medium")
    changed = medium.with_overrides({"devices.profiles.0.weight": 2, "radio": {"diversity": 1}})
    assert changed.devices.profiles[0].weight == 2.0
    assert changed.radio.diversity == 1
    assert changed.with_overrides({"devices.profiles.0.weight": 1.0, "radio.diversity": 4}) == medium
    assert medium.radio.diversity == 4


def test_overrides_take_numpy_scalars() -> None:
    assert load_scenario("small").with_overrides({"radio.diversity": np.int64(2)}).radio.diversity == 2


def test_override_of_an_absent_section_is_refused_with_the_remedy() -> None:
    without = load_scenario("small").with_overrides({"learning.proxy": None})
    with pytest.raises(ScenarioError, match=r"learning\.proxy is None; override it as a whole"):
        without.with_overrides({"learning.proxy.width": 32})
    assert without.with_overrides({"learning.proxy": {"width": 64}}).learning.proxy is not None


def test_computed_properties() -> None:
    scenario = Scenario(
        workload=WorkloadSpec(batch_size=12, width=8, heads=2, vocabulary=10, blocks=1),
        cluster=ClusterSpec(clusters=3, devices=(2, 4, 1)),
        radio=RadioSpec(noise_dbm_per_hz=-174),
    )
    assert scenario.workload.micro_batch_choices == (1, 2, 3, 4, 6, 12)
    assert WorkloadSpec(batch_size=12, micro_batches=(2, 6)).micro_batch_choices == (2, 6)
    assert scenario.cluster.devices_per_cluster == (2, 4, 1)
    assert scenario.max_devices == 4
    assert scenario.radio.noise_w_per_hz == pytest.approx(3.981071705534985e-21, rel=1e-12)


def test_profiles_of_both_kinds_of_power_mix() -> None:
    kinds = (
        DeviceProfile(name="clocked", switched_capacitance=1e-27, weight=1),
        DeviceProfile(name="measured", active_power_w=5.0, weight=3, memory_bytes=(2e9,)),
    )
    scenario = Scenario(
        devices=DeviceSpec(profiles=kinds),
        cluster=ClusterSpec(clusters=8, devices=500, cluster_separation_min_m=10),
        name="mix",
    )
    layout = draw_layout(scenario, np.random.default_rng(0))
    measured = layout.profile == 1
    assert 0.72 < measured.mean() < 0.78  # 3/4, standard deviation 0.007
    np.testing.assert_array_equal(layout.active_power_w, np.where(measured, 5.0, 0.0))
    np.testing.assert_array_equal(layout.switched_capacitance, np.where(measured, 0.0, 1e-27))
    np.testing.assert_array_equal(layout.memory_bytes[measured], 2e9)
    sizes, counts = np.unique(layout.memory_bytes[~measured], return_counts=True)
    np.testing.assert_array_equal(sizes, [384e6, 512e6, 1e9])
    assert counts.min() > 250  # about 333 each
    assert layout.max_clock_hz.min() >= 0.5e9
    assert layout.max_clock_hz.max() <= 2e9
    assert layout.max_clock_hz.mean() == pytest.approx(1.25e9, rel=0.03)


@pytest.mark.parametrize("name", ["bert-small", "bert-base", "transformer-base"])
def test_published_models_stand_on_the_clusters_of_medium(name: str) -> None:
    scenario, medium = load_scenario(name), load_scenario("medium")
    assert (scenario.cluster, scenario.radio) == (medium.cluster, medium.radio)
    state, parameters = mean_state(scenario, fixed_layout(scenario)), system_parameters(scenario)
    used = round_costs(parameters, state, even_split(parameters, state)).energy_ratio.max()
    assert 1.1 < used < 1.6, "the even split breaks a budget, so that there is something to schedule"


def test_a_hop_of_boards_carries_at_most_fifty_megabits_and_moving_a_block_outlasts_training_it() -> None:
    scenario = load_scenario("boards")
    parameters = system_parameters(scenario)
    fastest = parameters.d2d_bandwidth_hz * np.log2(1.0 + parameters.d2d_snr_cap)
    assert fastest == pytest.approx(50e6, rel=5e-3)
    profile = scenario.devices.profiles[0]
    speeds = [clock * profile.flops_per_cycle for clock in (profile.clock_min_hz, profile.clock_max_hz)]
    assert speeds == [50e9, 200e9]
    costs = parameters.costs
    for speed in speeds:
        train = costs.batch_size * 3.0 * costs.block_forward_flops / speed
        assert parameters.migration is not None
        # Two moments of 32 bits over 6 q FLOPs of a sample for each parameter, attention's products aside.
        closed_form = 64.0 * speed / (6.0 * fastest * costs.batch_size * scenario.workload.sequence_length)
        ratio = parameters.migration.block_bits / fastest / train
        assert ratio == pytest.approx(closed_form, rel=0.05)
        assert ratio > 5.0 * speed / speeds[0] * 0.95
