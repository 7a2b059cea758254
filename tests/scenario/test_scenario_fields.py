"""Every field of every section is documented: meaning, unit or range, and bounds that hold."""

import dataclasses
import re
from typing import Any

import pytest

from collapipe_env.cli.early_end import Terminated
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import (
    BudgetSpec,
    ClusterSpec,
    DeviceProfile,
    DeviceSpec,
    DynamicsSpec,
    LearningSpec,
    OverheadSpec,
    ProxySpec,
    RadioSpec,
    Scenario,
    ServerSpec,
    WorkloadSpec,
    load_scenario,
    process_fields,
)
from collapipe_env.scenario.fields import real

SECTIONS = (
    Scenario,
    WorkloadSpec,
    DeviceSpec,
    DeviceProfile,
    ClusterSpec,
    RadioSpec,
    BudgetSpec,
    OverheadSpec,
    ServerSpec,
    DynamicsSpec,
    LearningSpec,
    ProxySpec,
)
FIELDS = [(cls, field.name) for cls in SECTIONS for field in dataclasses.fields(cls)]
UNITS = {
    "_j": "J",
    "_w": "W",
    "_m": "m",
    "_hz": "Hz",
    "_db": "dB",
    "_dbm_per_hz": "dBm/Hz",
    "_bits": "bits",
    "_bytes": "byte",
}


def description(cls: Any, name: str) -> str:
    return cls.__pydantic_fields__[name].description or ""


@pytest.mark.parametrize(("cls", "name"), FIELDS, ids=[f"{c.__name__}.{n}" for c, n in FIELDS])
def test_field_has_a_description_with_unit_or_range(cls: Any, name: str) -> None:
    text = description(cls, name)
    assert len(text) > 20
    assert re.search(r"unit|range|one of|\d|\"|column|off|detect|path", text), text
    if cls not in (LearningSpec, ProxySpec):
        assert "; " in text  # "meaning; unit and range"
        suffix = max((s for s in UNITS if name.endswith(s)), key=len, default="")
        if suffix:
            assert re.search(rf"\b{re.escape(UNITS[suffix])}\b", text.rsplit("; ", 1)[1]), text


def test_a_range_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"range '0 to 1' is no interval, .* write '\(0, 1e6\] W'"):
        real(0.5, "share", "0 to 1")


def test_medium_yaml_lists_every_field_of_its_sections() -> None:
    """The file that users copy must not hide a field."""
    from importlib import resources

    text = resources.files("collapipe_env.scenario").joinpath("presets/medium.yaml").read_text("utf-8")
    for cls, name in FIELDS:
        if cls in (LearningSpec, ProxySpec) or name == "active_power_w":
            continue
        assert re.search(rf"^[\s-]*{name}:", text, flags=re.MULTILINE), name
    assert load_scenario("medium").devices.profiles[0].active_power_w is None


@pytest.mark.parametrize("kind", [KeyboardInterrupt, Terminated])
def test_ctrl_c_while_a_scenario_becomes_plain_data_stays_one(kind: type[BaseException], monkeypatch) -> None:
    def stop(_: object) -> None:
        raise kind

    scenario = load_scenario("small-thermal")
    monkeypatch.setattr(process_fields, "adapter", stop)
    with pytest.raises(kind):
        scenario.to_dict()
