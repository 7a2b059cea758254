"""Fields of the process `battery`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

_RANGES: Mapping[str, tuple[float, float, str]] = {
    "capacity_j": (1e-3, 1e15, " J"),
    "usable_share": (1e-6, 1.0, ""),
    "start_min": (0.0, 1.0, ""),
    "start_max": (0.0, 1.0, ""),
    "idle_w": (0.0, 1e6, " W"),
    "efficiency": (1e-3, 1.0, ""),
    "charger_min_w": (0.0, 1e6, " W"),
    "charger_max_w": (0.0, 1e6, " W"),
    "charger_on_s": (1.0, 1e9, " s"),
    "charger_off_s": (1.0, 1e9, " s"),
    "charger_deviation": (0.0, 3.0, ""),
    "panel_w": (0.0, 1e6, " W"),
    "cloud_mean": (0.0, 1.0, ""),
    "cloud_sd": (0.0, 10.0, ""),
    "cloud_tau_s": (1.0, 1e9, " s"),
    "off_below": (0.0, 1.0, ""),
    "on_above": (0.0, 1.0, ""),
}


@dataclass(frozen=True)
class BatterySpec:
    """Fields of ``dynamics.processes.battery``.

    Attributes:
        capacity_j: Energy of a full battery [J], 1e-3 to 1e15; the default is 4500 mAh at 3.85 V.
        usable_share: Share of it that the training may use, above 0 to 1: ``B`` is their product.
        start_min: Least initial level of a device, over ``B``, 0 to 1; levels are uniform between the two.
        start_max: Greatest initial level.
        idle_w: ``P_id``, drawn all the time and in no energy budget [W], 0 to 1e6; 0 where the usable share
            is the training's alone.
        harvest: Source that charges batteries: ``none``; ``charger``, which is plugged in and out; ``solar``,
            a panel under clouds.
        efficiency: ``eta_c``, fraction of the source's energy that reaches the battery, 1e-3 to 1.
        charger_min_w: Least power of a device's charger [W], 0 to 1e6; each device's is uniform between the
            two in every episode.
        charger_max_w: Greatest power of a charger [W].
        charger_on_s: Mean time for which a device is plugged in [s], 1 to 1e9.
        charger_off_s: Mean time for which it is unplugged [s], 1 to 1e9.
        charger_deviation: Standard deviation of the logarithm of both times, which are lognormal, 0 to 3.
        panel_w: ``A_0``, power of a panel at noon under a clear sky [W], 0 to 1e6.
        cloud_mean: Mean of the fraction that clouds let through, before it is clipped to [0, 1]; 0 to 1.
        cloud_sd: Its standard deviation, 0 to 10.
        cloud_tau_s: Its correlation time [s], 1 to 1e9.
        off_below: Level strictly below which a device may not take part, 0 to 1.
        on_above: Level strictly above which it may again, ``off_below`` to 1.

    Raises:
        ValueError: If one is out of range.
    """

    capacity_j: float = 62370.0
    usable_share: float = 0.03
    start_min: float = 0.3
    start_max: float = 1.0
    idle_w: float = 0.0
    harvest: Literal["none", "charger", "solar"] = "charger"
    efficiency: float = 0.85
    charger_min_w: float = 5.0
    charger_max_w: float = 15.0
    charger_on_s: float = 3600.0
    charger_off_s: float = 10800.0
    charger_deviation: float = 0.5
    panel_w: float = 3.0
    cloud_mean: float = 0.7
    cloud_sd: float = 0.3
    cloud_tau_s: float = 600.0
    off_below: float = 0.15
    on_above: float = 0.3

    def __post_init__(self) -> None:
        for name, (low, high, unit) in _RANGES.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name} is {value:g}{unit}: give a number from {low:g} to {high:g}{unit}")
        for below, above in (
            ("start_min", "start_max"),
            ("charger_min_w", "charger_max_w"),
            ("off_below", "on_above"),
        ):
            low, high = getattr(self, below), getattr(self, above)
            if low > high:
                raise ValueError(
                    f"{below} is {low:g}, above {above} = {high:g}: lower the one or raise the other"
                )

    @property
    def battery_j(self) -> float:
        """``B``, energy of a battery that the training may use [J]."""
        return self.capacity_j * self.usable_share
