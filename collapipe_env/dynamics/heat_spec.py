"""Fields of the process `heat`, and the numbers of its profiles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Literal, NamedTuple

ROOM_C = 25.0
"""Temperature at which the thermal headroom is 0 [C]."""


class HeatNumbers(NamedTuple):
    """Numbers that decide how a device warms up and slows down; the names give the units.

    Attributes:
        resistance_k_per_w: ``R`` from the device to its surroundings [K/W].
        capacity_j_per_k: ``C`` [J/K].
        die_resistance_k_per_w: ``R_die`` from the chip to the device [K/W]; 0 where the governor reads the
            device's own temperature.
        idle_w: ``P_id``, drawn all the time and in no energy budget [W].
        on_c: ``Theta_on``, where ``ipa`` begins [C].
        set_c: ``Theta_set`` [C].
        critical_c: ``Theta_crit``, above which the device has its slowest clock until it is cool [C].
        hysteresis_k: ``h``: cool means below ``Theta_set - h`` [K].
        levels: Shares of the full clock that ``step`` and ``pause`` choose from, 1 first, descending.
        period_s: Seconds between two moves of a level [s].
        sustainable_w: ``P_s`` of ``ipa`` [W].
        least_w: Least power that ``ipa`` grants [W].
    """

    resistance_k_per_w: float
    capacity_j_per_k: float
    die_resistance_k_per_w: float
    idle_w: float
    on_c: float
    set_c: float
    critical_c: float
    hysteresis_k: float
    levels: tuple[float, ...]
    period_s: float
    sustainable_w: float
    least_w: float


_PHONE: dict[str, float | tuple[float, ...]] = {
    "resistance_k_per_w": 6.0,
    "capacity_j_per_k": 60.0,
    "die_resistance_k_per_w": 0.0,
    "idle_w": 0.5,
    "on_c": 37.0,
    "set_c": 43.0,
    "critical_c": 52.0,
    "hysteresis_k": 2.0,
    "levels": (1.0, 0.85, 0.7, 0.55, 0.4),
    "period_s": 7.0,
    "least_w": 0.3,
}
_BOARD: dict[str, float | tuple[float, ...]] = {
    **_PHONE,
    "resistance_k_per_w": 4.7,
    "capacity_j_per_k": 19.0,
    "die_resistance_k_per_w": 2.7,
    "idle_w": 1.6,
    "on_c": 70.0,
    "set_c": 80.0,
    "critical_c": 85.0,
    "levels": (1.0, 0.9, 0.8, 0.67, 0.5),
    "period_s": 1.0,
}
PROFILES: Mapping[str, Mapping[str, float | tuple[float, ...]]] = {
    "phone": _PHONE,
    "board": _BOARD,
    "board_cased": {
        **_BOARD,
        "resistance_k_per_w": 2.3,
        "capacity_j_per_k": 94.0,
        "die_resistance_k_per_w": 1.9,
    },
}
"""Numbers of each profile; ``sustainable_w`` follows from them."""
PAUSE: Mapping[str, float | tuple[float, ...]] = {"levels": (1.0, 0.25), "hysteresis_k": 5.0}
"""Numbers of the governor ``pause``, which replace the profile's."""

_RANGES: Mapping[str, tuple[float, float, str]] = {
    "resistance_k_per_w": (0.0, 1e6, "K/W"),
    "capacity_j_per_k": (1e-6, 1e9, "J/K"),
    "die_resistance_k_per_w": (0.0, 1e6, "K/W"),
    "idle_w": (0.0, 1e6, "W"),
    "on_c": (-60.0, 1e6, "C"),
    "set_c": (ROOM_C + 1.0, 1e6, "C"),
    "critical_c": (ROOM_C + 1.0, 1e6, "C"),
    "hysteresis_k": (0.0, 1e6, "K"),
    "period_s": (1e-3, 1e9, "s"),
    "sustainable_w": (1e-6, 1e6, "W"),
    "least_w": (1e-6, 1e6, "W"),
    "ambient_min_c": (-60.0, 100.0, "C"),
    "ambient_max_c": (-60.0, 100.0, "C"),
    "ambient_sd_k": (0.0, 100.0, "K"),
    "ambient_tau_s": (1.0, 1e9, "s"),
}


@dataclass(frozen=True)
class HeatSpec:
    """Fields of ``dynamics.processes.heat``; ``None`` takes the profile's value.

    Attributes:
        profile: ``phone``, ``board`` (bare) or ``board_cased``: a preset of the following numbers.
        governor: ``step`` lowers the clock level by level, ``pause`` to one slow level until the device is
            cool, ``ipa`` caps the power, linearly in the temperature.
        ambient_min_c: Least temperature of the surroundings [C], -60 to 100; each cluster's is uniform
            between the two in every episode.
        ambient_max_c: Greatest temperature [C]; equal to the least for a constant.
        ambient_sd_k: Standard deviation of the surroundings about that temperature in an episode [K], 0 to
            100; 0 for constant ones.
        ambient_tau_s: Their correlation time [s], 1 to 1e9, where they vary.
        resistance_k_per_w: ``R`` [K/W], 0 to 1e6.
        capacity_j_per_k: ``C`` [J/K], 1e-6 to 1e9.
        die_resistance_k_per_w: ``R_die`` [K/W], 0 to 1e6.
        idle_w: ``P_id`` [W], 0 to 1e6.
        on_c: ``Theta_on`` of ``ipa`` [C], below ``set_c``.
        set_c: ``Theta_set`` [C], 26 to 1e6.
        critical_c: ``Theta_crit`` [C], at least ``set_c``.
        hysteresis_k: ``h`` [K], 0 to 1e6.
        levels: Shares of the full clock, 1 first, descending, above 0; at least two, two for ``pause``.
        period_s: Seconds between two moves of a level [s], 1e-3 to 1e9.
        sustainable_w: ``P_s`` of ``ipa`` [W], 1e-6 to 1e6; ``None`` for the power that, together with the
            idle power, holds the device at ``set_c`` in surroundings of 25 C.
        least_w: Least power that ``ipa`` grants [W], 1e-6 to 1e6.

    Raises:
        ValueError: If one is out of range.
    """

    profile: Literal["phone", "board", "board_cased"] = "phone"
    governor: Literal["step", "pause", "ipa"] = "step"
    ambient_min_c: float = 18.0
    ambient_max_c: float = 35.0
    ambient_sd_k: float = 0.0
    ambient_tau_s: float = 1800.0
    resistance_k_per_w: float | None = None
    capacity_j_per_k: float | None = None
    die_resistance_k_per_w: float | None = None
    idle_w: float | None = None
    on_c: float | None = None
    set_c: float | None = None
    critical_c: float | None = None
    hysteresis_k: float | None = None
    levels: tuple[float, ...] | None = None
    period_s: float | None = None
    sustainable_w: float | None = None
    least_w: float | None = None

    def __post_init__(self) -> None:
        for name, (low, high, unit) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ValueError(f"{name} is {value:g}: give {low:g} to {high:g} {unit}")
        if self.ambient_min_c > self.ambient_max_c:
            raise ValueError(
                f"ambient_min_c is {self.ambient_min_c:g}, above ambient_max_c = {self.ambient_max_c:g}: "
                "lower the one or raise the other"
            )
        found = heat_numbers(self)
        levels = list(found.levels)
        if len(levels) < 2 or levels[0] != 1.0 or not all(a > b > 0.0 for a, b in pairwise(levels)):
            raise ValueError(f"levels are {levels}: give two or more, 1 first, descending, above 0")
        if self.governor == "pause" and len(levels) != 2:
            raise ValueError(
                f"levels are {levels}: the governor pause has two, the full clock and a slow one"
            )
        if self.governor == "ipa" and not found.on_c < found.set_c:
            raise ValueError(f"on_c is {found.on_c:g}: the governor ipa begins below set_c = {found.set_c:g}")
        if found.critical_c < found.set_c:
            raise ValueError(f"critical_c is {found.critical_c:g}: give set_c = {found.set_c:g} or more")


def heat_numbers(spec: HeatSpec) -> HeatNumbers:
    """The numbers of a spec: its own values, otherwise its governor's, otherwise its profile's."""
    found = dict(PROFILES[spec.profile])
    if spec.governor == "pause":
        found |= PAUSE
    for given in fields(spec):
        if given.name in HeatNumbers._fields and getattr(spec, given.name) is not None:
            found[given.name] = getattr(spec, given.name)
    if "sustainable_w" not in found:
        found["sustainable_w"] = _sustainable(found)
    return HeatNumbers(**found)  # type: ignore[arg-type]


def _sustainable(found: Mapping[str, float | tuple[float, ...]]) -> float:
    """Power that, together with the idle power, holds a device at its set point in a room [W]."""
    set_c, resistance, die, idle = (
        float(found[name])  # type: ignore[arg-type]
        for name in ("set_c", "resistance_k_per_w", "die_resistance_k_per_w", "idle_w")
    )
    if resistance + die == 0.0:
        return math.inf
    return max((set_c - ROOM_C) / (resistance + die) - idle, _RANGES["sustainable_w"][0])
