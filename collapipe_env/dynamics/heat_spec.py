"""Fields of the process `heat`, and the numbers of its profiles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from itertools import pairwise
from typing import Literal

from collapipe_env.physics.thermal import ROOM_C, HeatNumbers
from collapipe_env.scenario.fields import OnlyIf, field, real, require_range, spec

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

_STEPS = OnlyIf("with governor: step or pause", lambda spec: spec.governor != "ipa")
_IPA = OnlyIf("with governor: ipa", lambda spec: spec.governor == "ipa")
_DRIFTS = OnlyIf("with ambient_sd_k above 0", lambda spec: spec.ambient_sd_k > 0.0)
_LEAST_W = 1e-6
"""Least power that may be sustainable [W]."""


@spec
class HeatSpec:
    """Fields of ``dynamics.processes.heat``; ``None`` takes the profile's value."""

    profile: Literal["phone", "board", "board_cased"] = field(
        "phone", "preset of the following numbers: of a phone, a bare board or one in a case"
    )
    governor: Literal["step", "pause", "ipa"] = field(
        "step",
        "step lowers the clock level by level, pause to one slow level until the device is cool, ipa caps "
        "the power, linearly in the temperature",
    )
    ambient_min_c: float = real(
        18.0, "least temperature of a cluster's surroundings, uniform between the two", "[-60, 100] C"
    )
    ambient_max_c: float = real(35.0, "greatest one; the least one for a constant", "[-60, 100] C")
    ambient_sd_k: float = real(
        0.0, "standard deviation about that temperature in an episode; 0 for a constant", "[0, 100] K"
    )
    ambient_tau_s: float = real(1800.0, "correlation time of the surroundings", "[1, 1e9] s", _DRIFTS)
    resistance_k_per_w: float | None = real(None, "`R`", "[0, 1e6] K/W")
    capacity_j_per_k: float | None = real(None, "`C`", "[1e-6, 1e9] J/K")
    die_resistance_k_per_w: float | None = real(None, "`R_die`", "[0, 1e6] K/W")
    idle_w: float | None = real(None, "`P_id`", "[0, 1e6] W")
    on_c: float | None = real(None, "`Theta_on` of `ipa`, below `set_c`", "[-60, 1e6] C", _IPA)
    set_c: float | None = real(None, "`Theta_set`", f"[{ROOM_C + 1.0:g}, 1e6] C")
    critical_c: float | None = real(None, "`Theta_crit`, at least `set_c`", f"[{ROOM_C + 1.0:g}, 1e6] C")
    hysteresis_k: float | None = real(None, "`h`", "[0, 1e6] K")
    levels: tuple[float, ...] | None = field(
        None, "shares of the full clock, 1 first, descending, above 0; at least two, two for pause; or null"
    )
    period_s: float | None = real(None, "time between two moves of a level", "[1e-3, 1e9] s", _STEPS)
    sustainable_w: float | None = real(
        None,
        "`P_s` of `ipa`; by default what, with the idle power, holds the device at `set_c` in a room",
        f"[{_LEAST_W:g}, 1e6] W",
        _IPA,
    )
    least_w: float | None = real(None, "least power that `ipa` grants", f"[{_LEAST_W:g}, 1e6] W", _IPA)

    def __post_init__(self) -> None:
        require_range(self, "ambient_min_c", "ambient_max_c")
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
    return max((set_c - ROOM_C) / (resistance + die) - idle, _LEAST_W)
