"""A process of one's own in one file: devices that discharge, charge, and stay out while they run low.

    collapipe evaluate --scenario examples/battery_process.py:low --schedulers dssra random
    python examples/battery_process.py                               # seconds on one core
    python examples/battery_process.py --usable-j 1000 --schedulers dssra pipeline
    python examples/battery_process.py --help

Importing the file registers the process. Python then names it in a scenario (``low`` below), and commands
name that scenario as file.py:Name. The run ends with a table on held-out episodes, with batteries and
without.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

import collapipe_env
from collapipe_env import Process, register_process
from collapipe_env.dynamics import CarriedArray, System
from collapipe_env.evaluation.evaluate import Evaluation
from collapipe_env.ground.arrays import Array, at_least, namespace
from collapipe_env.ground.errors import StateError
from collapipe_env.scenario.fields import OnlyIf, real, require_range, spec

# Setting a field that has no effect gives a warning.
CHARGES = OnlyIf("with charger_w above 0", lambda spec: spec.charger_w > 0.0)


@spec
class BatterySpec:
    """Fields of ``dynamics.processes.battery``, each with its default, meaning, range and unit."""

    usable_j: float = real(
        1871.1, "energy of a full battery that training may use: 3 % of 4500 mAh at 3.85 V", "[1e-3, 1e9] J"
    )
    start_min: float = real(
        0.3, "least level at the start of an episode; levels are uniform from there to 1", "[0, 1]"
    )
    idle_w: float = real(0.0, "power drawn all the time, beyond the energy of rounds", "[0, 1e3] W")
    charger_w: float = real(
        8.5, "power that reaches the battery of a device that is plugged in", "[0, 1e3] W"
    )
    charger_on_s: float = real(3600.0, "mean time for which a device is plugged in", "[1, 1e9] s", CHARGES)
    charger_off_s: float = real(10800.0, "mean time for which it is unplugged", "[1, 1e9] s", CHARGES)
    off_below: float = real(0.15, "level below which a device may not take part", "[0, 1]")
    on_above: float = real(0.3, "level above which it may again, at least `off_below`", "[0, 1]")

    def __post_init__(self) -> None:
        require_range(self, "off_below", "on_above")


@register_process
class Battery(Process):
    """Battery of each device: ``b' = clip(b - E - P_id Delta + A Delta, 0, B)``.

    ``E`` is the energy that the device spends in a round, ``Delta`` the round's seconds, and ``A`` the power
    of its charger, which counts for the whole round if the device is plugged in at its beginning. Chargers
    are plugged in and out after exponential times. A device below one level stays out until it is above
    another: it counts as away.
    """

    name = "battery"
    Spec = BatterySpec
    # Plans drive it: it advances by the seconds of the round.
    endogenous = True
    # Too few devices for the encoder may be left in a cluster, which then sits out.
    leaves_clusters_short = True

    def __init__(self, scenario: Any, spec: BatterySpec) -> None:
        super().__init__(scenario, spec)
        devices = (scenario.clusters, scenario.max_devices)
        # Two uniform numbers of each device: its first level, and its charger.
        self._shape = (*devices, 2)
        self.numbers = int(np.prod(self._shape))
        # What schedulers always see is a feature of the observation: 0 and 1 there stand for the two bounds.
        joules = partial(CarriedArray, "N K", "J", low=0.0, high=spec.usable_j)
        truth = partial(CarriedArray, "N K", kind="truth", seen="always", shown=(0.0, 1.0))
        self.carries = {
            "charge": joules(seen="always", shown=(0.0, spec.usable_j), about="charge that training may use"),
            "eligible": truth(about="1 for a device whose battery lets it take part"),
            "plugged": truth(about="1 for a device that is plugged in"),
            "full_j": joules(about="energy of a full battery, 0 for a device that the layout lacks"),
            "missing_j": CarriedArray(
                "N K", "J", low=0.0, about="what an empty battery could not give in the episode"
            ),
        }

    def begin(self, system: System, u: Array) -> dict[str, Array]:
        """Draw levels, and who is plugged in."""
        xp, spec = namespace(u), self.spec
        drawn = xp.reshape(u, (u.shape[0], *self._shape))
        there, level = system.present, spec.start_min + (1.0 - spec.start_min) * drawn[..., 0]
        full = xp.where(there, xp.full_like(level, spec.usable_j), 0.0)
        return {
            "full_j": full,
            "charge": level * full,
            "missing_j": xp.zeros_like(full),
            "plugged": there & (drawn[..., 1] < spec.charger_on_s / (spec.charger_on_s + spec.charger_off_s)),
            "eligible": there & (level >= spec.off_below),
        }

    def advance(self, carried: Any, state: Any, costs: Any, u: Array, delta_s: Array) -> dict[str, Array]:  # noqa: ARG002
        """Draw the energy of the round just played, charge, and decide who may take part in the next."""
        xp, spec, full = namespace(u), self.spec, carried["full_j"]
        there = full > 0.0
        seconds = xp.astype(delta_s, u.dtype)[:, None, None]
        # Node 0 of a cluster is its control unit, which has no battery.
        drawn = xp.astype(costs.energy[..., 1:], u.dtype) + spec.idle_w * seconds
        gained = xp.where(carried["plugged"], spec.charger_w * seconds, 0.0)
        balance = carried["charge"] + xp.where(there, gained - drawn, 0.0)
        charge = xp.minimum(at_least(balance, 0.0), full)
        level = charge / spec.usable_j
        stays = xp.where(carried["eligible"], level >= spec.off_below, level > spec.on_above)
        # The chance of being plugged in, seconds later: exact for exponential times.
        share = spec.charger_on_s / (spec.charger_on_s + spec.charger_off_s)
        kept = xp.exp(-seconds * (1.0 / spec.charger_on_s + 1.0 / spec.charger_off_s))
        chance = share + (xp.astype(carried["plugged"], u.dtype) - share) * kept
        return {
            "full_j": full,
            "charge": charge,
            "missing_j": carried["missing_j"] + at_least(-balance, 0.0),
            "plugged": there & (xp.reshape(u, (u.shape[0], *self._shape))[..., 1] < chance),
            "eligible": there & stays,
        }

    def apply(self, system: System, carried: Any) -> System:
        """Devices that may not take part count as away."""
        return system._replace(present=system.present & carried["eligible"])

    def check(self, carried: Any) -> None:
        """Refuse a saved state with charges that do not fit the batteries."""
        if (carried["charge"] > carried["full_j"]).any():
            raise StateError(f"{self.name}/charge is above a full battery: use another state")


def scenario_of(base: str, usable_j: float) -> dict[str, Any]:
    """A scenario with batteries, in which training may use little of them."""
    return {"base": base, "name": "low", "dynamics": {"processes": {"battery": {"usable_j": usable_j}}}}


low = scenario_of("small", 300.0)


@dataclass(frozen=True)
class Args:
    """Options of the command line."""

    scenario: str = "small"
    """Scenario that gets batteries."""
    usable_j: float = 300.0
    """Energy of a full battery that training may use [J]."""
    schedulers: tuple[str, ...] = ("dssra", "random")
    """Schedulers to play."""
    episodes: int = 2
    """Held-out episodes."""
    rounds: int = 50
    """Rounds of each."""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("runs/examples/battery_process")
    """Folder of the two runs."""


def main(args: Args) -> Evaluation:
    """Play schedulers without batteries and with them."""
    options: dict[str, Any] = {"seeds": args.episodes, "rounds": args.rounds, "fresh": True}
    print(collapipe_env.evaluate(args.schedulers, args.scenario, out=args.out / "mains", **options))
    with_batteries = scenario_of(args.scenario, args.usable_j)
    result = collapipe_env.evaluate(args.schedulers, with_batteries, out=args.out / "low", **options)
    print(result)
    print(f"page: {collapipe_env.write_page(args.out / 'low')}")
    return result


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
