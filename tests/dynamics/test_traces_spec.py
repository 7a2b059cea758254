"""Fields of traces in scenarios: faults, checksums, digests, and files that are missing or other ones."""

import numpy as np
import pytest
from trace_support import data, needs_data, write_trace  # noqa: F401 - a fixture

from collapipe_env.dynamics.trace_like import PROFILES
from collapipe_env.dynamics.traces_spec import TracesSpec, bank_of
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import DataError, ScenarioError
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.loading import scenario_digest, scenario_from_text
from collapipe_env.trace_files import checksum, source_files


def load(traces, base="small"):
    return load_scenario({"base": base, "name": "traced", "dynamics": {"processes": {"traces": traces}}})


def spec_of(scenario):
    return dict(scenario.dynamics.processes)["traces"]


@pytest.fixture
def folder(tmp_path):
    for number in range(6):
        write_trace(tmp_path / "set" / f"t{number}.csv", -90.0 - number + np.arange(10) % 3)
    return tmp_path / "set"


def test_defaults_need_no_files():
    assert spec_of(load({})) == TracesSpec()
    assert spec_of(load({})).quantity == "rsrp"


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_has_a_trace_for_each_cluster_in_every_part(name):
    parts = {"train": 36, "dev": 12, "test": 12, "all": 60}
    for part, count in parts.items():
        assert len(bank_of(TracesSpec(profile=name, split=part), 4)) == count
        assert len(bank_of(TracesSpec(profile=name, split=part), 14)) >= 14
    own = [set(bank_of(TracesSpec(profile=name, split=part), 2).names) for part in ("train", "dev", "test")]
    assert len(set.union(*own)) == sum(map(len, own)) == 60


FAULTS = [
    ({"profile": "drivin"}, r"profile is 'drivin': did you mean 'driving'"),
    ({"profile": "bus", "mode": "rsrp"}, r"mode is 'rsrp', but the profile bus holds rate: leave mode out"),
    ({"checksum": "00"}, r"the source trace-like has no files: leave checksum out"),
    ({"antenna_gain_db": 100}, r"antenna_gain_db: got 100, .*unit dBi, range at least -30 and at most 60"),
    ({"delimiter": ";;"}, r"delimiter is ';;': give one character"),
    ({"source": "no/such/folder", "mode": "rsrp"}, r"no/such/folder.*: no such file or folder; check"),
    ({"source": [], "mode": "rsrp"}, r"empty list: name a folder or files"),
    # Files need a mode, and a format that has it.
    ({"source": "set"}, "mode is not given: say what the files hold, mode: rsrp or mode: rate"),
    ({"source": "set", "format": "ucc5g"}, "format is 'ucc5g': did you mean 'ucc-5g'"),
    ({"source": "set", "format": "norway-3g", "mode": "rsrp"}, "norway-3g has no rsrp: choose the mode rate"),
    ({"source": "set", "format": "ucc-5g", "mode": "rate", "column": "UL_bitrate"}, "ucc-5g is not a rate"),
]


@pytest.mark.parametrize(("fields", "message"), FAULTS)
def test_every_fault_names_field_value_and_remedy(folder, fields, message):
    if fields.get("source") == "set":
        fields = {**fields, "source": str(folder)}
    with pytest.raises(ScenarioError, match=message):
        load(fields)


def test_a_fault_in_a_file_is_named_when_the_environment_is_made(folder):
    (folder / "t1.csv").write_text("time_s,value\n0,-80\n1,none\n")
    scenario = load({"source": str(folder), "mode": "rsrp"})
    with pytest.raises(DataError, match=r"t1.csv:3: 'none' is not a received power in dBm"):
        CollaPipeVectorEnv(1, scenario, "surrogate")


def test_fewer_files_than_clusters_are_refused(folder):
    scenario = load({"source": str(folder), "mode": "rsrp", "split": "dev"})
    with pytest.raises(ScenarioError, match=r"1 traces in the part 'dev' of .* for 2 clusters.* share_files"):
        CollaPipeVectorEnv(1, scenario, "surrogate")


def test_the_digest_says_which_files_are_meant_and_not_where_they_lie(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("COLLAPIPE_DATA", str(tmp_path))
    fields = {"source": "set", "mode": "rsrp"}
    first = load(fields)
    assert spec_of(first).checksum == checksum(source_files(str(folder)))
    (tmp_path / "other").mkdir()
    folder.rename(tmp_path / "other" / "set")
    monkeypatch.setenv("COLLAPIPE_DATA", str(tmp_path / "other"))
    assert scenario_digest(load(fields)) == scenario_digest(first)
    write_trace(tmp_path / "other" / "set" / "t5.csv", np.full(10, -99.0))
    changed = load(fields)
    assert scenario_digest(changed) != scenario_digest(first)
    with pytest.raises(ScenarioError, match=r"have the checksum .*: they are not this scenario's files"):
        CollaPipeVectorEnv(1, first, "surrogate")
    CollaPipeVectorEnv(1, changed, "surrogate")


def test_a_written_scenario_means_the_same_files_wherever_it_is_read(folder, monkeypatch, tmp_path):
    scenario = load({"source": str(folder), "mode": "rsrp"})
    text = scenario.to_yaml()
    assert spec_of(scenario).checksum in text
    assert scenario_from_text(text, "there", "there") == scenario
    # Without the files it can be read and told apart, but not played.
    folder.rename(tmp_path / "gone")
    again = scenario_from_text(text, "there", "there")
    assert scenario_digest(again) == scenario_digest(scenario)
    with pytest.raises(DataError, match=r"set: no such file or folder"):
        CollaPipeVectorEnv(1, again, "surrogate")
    # With other files under the same path it cannot.
    for number in range(6):
        write_trace(folder / f"t{number}.csv", np.full(10, -80.0))
    with pytest.raises(ScenarioError, match=r"not this scenario's files: give those, or remove checksum"):
        scenario_from_text(text, "there", "there")


def test_another_part_of_the_same_files_is_an_override_away(folder):
    scenario = load({"source": str(folder), "mode": "rsrp"})
    tested = scenario.with_overrides({"dynamics.processes.traces.split": "test"})
    assert spec_of(tested).checksum == spec_of(scenario).checksum
    assert scenario_digest(tested) != scenario_digest(scenario)
    assert bank_of(spec_of(tested), 1).names == ("t4.csv",)


def test_lists_of_files_are_hashable_fields(folder):
    names = [str(folder / f"t{number}.csv") for number in (2, 0)]
    scenario = load({"source": names, "mode": "rsrp", "split": "all"})
    assert hash(scenario) == hash(load_scenario(scenario.to_dict()))
    assert bank_of(spec_of(scenario), 2).names == ("t0.csv", "t2.csv")


@needs_data
@pytest.mark.parametrize(
    ("source", "form", "mode", "count"),
    [
        ("wireless/ucc_5g/driving", "ucc-5g", "rsrp", 8),
        ("wireless/ucc_5g/driving", "ucc-5g", "rate", 10),
        ("wireless/ucc_5g/static", "ucc-5g", "rsrp", 3),
        ("wireless/nyu_mets/lte_throughput", "nyu-lte", "rate", 5),
        ("wireless/nyu_mets/multivariate", "nyu-multivariate", "rate", 3),
        ("wireless/norway_3g", "norway-3g", "rate", 48),
        ("device/radio_power_5g", "radio-power-5g", "rsrp", 14),
        ("device/radio_power_5g", "radio-power-5g", "rate", 6),
    ],
)
def test_every_data_set_is_played(data, source, form, mode, count):  # noqa: F811
    scenario = load({"source": source, "format": form, "mode": mode, "level": "layout"})
    assert len(bank_of(spec_of(scenario), 2)) == count
    env = CollaPipeVectorEnv(2, scenario, "surrogate")
    env.reset(seed=1)
    for _ in range(3):
        assert (env.truth.uplink_gain > 0.0).all()
        _, reward, *_ = env.step(np.zeros((2, *env.single_action_space.shape), np.float32))
        assert np.isfinite(reward).all()
