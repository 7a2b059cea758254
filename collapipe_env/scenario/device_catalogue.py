"""Real devices by name: the profiles of devices and the edge server that scenarios may name.

``devices.yaml`` beside this module holds the numbers, and a source or a reason for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import NamedTuple

from collapipe_env.ground.errors import ScenarioError, nearest_name, shown
from collapipe_env.scenario.plain_data import parse

BASE = "base"
"""Key of a device profile that names a device of the catalogue; it is expanded and not stored."""


class Machine(NamedTuple):
    """A device of the catalogue.

    Attributes:
        title: What it is, and the mode that it runs in.
        clock_hz: Clock while training [Hz].
        peak_flops: Greatest rate in 32 bits at this clock [FLOP/s].
        efficiency: Share of it that the training of a Transformer sustains, in (0, 1).
        active_power_w: Power while training [W].
        memory_bytes: Memory that a training may use [byte].
        sources: By field, where its number comes from; begins with ``judgement`` where it is ours, and ends
            with an address if there is one.
    """

    title: str
    clock_hz: float
    peak_flops: float
    efficiency: float
    active_power_w: float
    memory_bytes: float
    sources: Mapping[str, str]

    @property
    def flops(self) -> float:
        """Rate that the training of a Transformer sustains in 32 bits [FLOP/s]."""
        return self.peak_flops * self.efficiency


@cache
def catalogue() -> Mapping[str, Machine]:
    """Return the devices of the catalogue, by name."""
    file = resources.files("collapipe_env.scenario").joinpath("devices.yaml")
    data = parse(file.read_text(encoding="utf-8"), "catalogue of devices")
    return MappingProxyType({name: Machine(**fields) for name, fields in data.items()})


def machine(name: object) -> Machine:
    """Return a device of the catalogue.

    Raises:
        ScenarioError: If there is no such device; the message names the nearest.
    """
    if not isinstance(name, str) or name not in catalogue():  # a file may hold anything
        raise ScenarioError(
            f"there is no device {shown(name)} in the catalogue; {nearest_name(name, catalogue())}"
        )
    return catalogue()[name]


def known_machine(name: str) -> str:
    """Return the name of a device of the catalogue, for the validation of fields.

    Raises:
        ScenarioError: If there is no such device.
    """
    machine(name)
    return name


def profile_fields(entry: object) -> object:
    """Return the fields of a device profile that a scenario names, and anything else unchanged.

    Args:
        entry: A device's name; or a mapping that names one under ``base`` and replaces some of its fields.

    Raises:
        ScenarioError: If there is no such device.
    """
    own: Mapping[str, object] = entry if isinstance(entry, Mapping) else {}
    if not isinstance(entry, str) and BASE not in own:
        return entry
    name = entry if isinstance(entry, str) else own[BASE]
    found = machine(name)
    return {
        "name": name,
        "clock_min_hz": found.clock_hz,
        "clock_max_hz": found.clock_hz,
        "flops_per_cycle": found.flops / found.clock_hz,
        "active_power_w": found.active_power_w,
        "memory_bytes": (found.memory_bytes,),
        **{key: value for key, value in own.items() if key != BASE},
    }
