"""Plans of a calibration: some to fit the constants to, others to check them ([X])."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from collapipe_env.ground.errors import CollaPipeError, shown
from collapipe_env.physics.allocation import Allocation, ScheduleName, with_schedule
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import SCHEDULERS

MEMORY_BYTES = 64e9
"""Memory of a device while plans are measured [byte]: enough for every cut."""
FITTED_MICRO_BATCHES = 1, 4, 16
CHECKED_MICRO_BATCHES = 2, 8


class CalibrationError(CollaPipeError):
    """A machine cannot be calibrated with the given options or measurements."""


@dataclass(frozen=True)
class CalibrationPlan:
    """A plan of one cluster.

    Attributes:
        blocks: Blocks of each device, in pipeline order, 1 or more.
        schedule: Schedule of its micro-batches.
        micro_batches: ``M``.
        fitted: Whether constants are fitted to it; otherwise it checks them.
    """

    blocks: tuple[int, ...]
    schedule: ScheduleName
    micro_batches: int
    fitted: bool

    @property
    def name(self) -> str:
        """The plan in a few words."""
        return f"{'+'.join(map(str, self.blocks))}, {self.schedule}, M = {self.micro_batches}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Any, where: str) -> CalibrationPlan:
        """Return the plan from plain data.

        Raises:
            CalibrationError: If the data are not a plan.
        """
        match data:
            case {
                "blocks": [*blocks],
                "schedule": "gpipe" | "1f1b" as schedule,
                "micro_batches": int(micro_batches),
                "fitted": bool(fitted),
            } if blocks and all(type(b) is int and b > 0 for b in blocks) and micro_batches > 0:
                return cls(tuple(blocks), schedule, micro_batches, fitted)
        raise CalibrationError(f"{where} holds {shown(data)} instead of a plan: measure again with --fresh")


def setting_of(scenario: Scenario, devices: int) -> Scenario:
    """Return the scenario in which a machine is measured: one cluster, the priced model itself, no losses.

    Args:
        scenario: Scenario that gives the workload and tasks.
        devices: Devices of the cluster, 1 or more.

    Raises:
        CalibrationError: If there are fewer blocks than devices.
    """
    if devices > scenario.workload.blocks:
        raise CalibrationError(
            f"--devices {devices}: {scenario.name} has {scenario.workload.blocks} blocks, and every device "
            "needs one: ask for fewer"
        )
    changes: dict[str, Any] = {
        "cluster.clusters": 1,
        "cluster.devices": devices,
        "learning.proxy": None,
        "radio.link_errors": "none",
        "budgets.device_energy_j": 1e9,
        "budgets.cu_energy_j": 1e9,
        "dynamics.target_loss": None,
        "dynamics.rounds": 1_000,
    }
    changes |= {
        f"devices.profiles.{i}.memory_bytes": [MEMORY_BYTES] for i in range(len(scenario.devices.profiles))
    }
    return scenario.with_overrides(changes)


def calibration_plans(setting: Scenario) -> list[CalibrationPlan]:
    """Return plans to fit to, then plans that check the fit: other cuts, schedules and micro-batches.

    Args:
        setting: Scenario in which the machine is measured.

    Raises:
        CalibrationError: If the scenario allows too few numbers of micro-batches.
    """
    blocks, devices = setting.workload.blocks, setting.cluster.max_devices
    allowed = setting.workload.micro_batch_choices
    fitted = [m for m in FITTED_MICRO_BATCHES if m in allowed]
    checked = [m for m in CHECKED_MICRO_BATCHES if m in allowed]
    if len(fitted) < 2 or not checked:
        raise CalibrationError(
            f"scenario {setting.name!r} allows {', '.join(map(str, allowed))} micro-batches: a fit needs two "
            f"of {', '.join(map(str, FITTED_MICRO_BATCHES))}, its check one of "
            f"{' and '.join(map(str, CHECKED_MICRO_BATCHES))}"
        )
    even = [blocks // devices + (k < blocks % devices) for k in range(devices)]
    near = _tilted(even, 1)
    far = [cut for cut in [*_tilted(even, 2), *_bulging(even)] if cut not in near]
    schedules: tuple[ScheduleName, ...] = ("gpipe", "1f1b")
    plans = [CalibrationPlan(cut, "gpipe", m, fitted=True) for cut in (tuple(even), *near) for m in fitted]
    others = [*far, tuple(even)]
    plans += [
        CalibrationPlan(cut, schedule, m, fitted=False)
        for i, cut in enumerate(others)
        for j, m in enumerate(checked)
        for schedule in (schedules[(i + j) % 2],)
    ]
    return list(dict.fromkeys(plans))


def _tilted(even: Sequence[int], moved: int) -> list[tuple[int, ...]]:
    """Return the cuts that move blocks from the last device to the first, and the other way round."""
    found = []
    for source, target in ((len(even) - 1, 0), (0, len(even) - 1)):
        cut = list(even)
        steps = min(moved, cut[source] - 1)
        cut[source] -= steps
        cut[target] += steps
        if tuple(cut) != tuple(even):
            found.append(tuple(cut))
    return found


def _bulging(even: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the cut that gives each of three or more devices one block and the rest to the middle one."""
    if len(even) < 3:
        return []
    cut = [1] * len(even)
    cut[len(even) // 2] = sum(even) - len(even) + 1
    return [tuple(cut)] if cut != list(even) else []


class FixedPlans:
    """Scheduler that plays given plans, one a round, then the last one for ever.

    Args:
        setting: Scenario of one cluster.
        plans: The plans, at least one.
    """

    name = "fixed-plans"

    def __init__(self, setting: Scenario, plans: Sequence[CalibrationPlan]) -> None:
        self._inner, self._plans, self._next = SCHEDULERS.get("pipeline")(setting), list(plans), 0

    def reset(self, seed: int | None = None) -> None:
        """Begin with the first plan."""
        self._inner.reset(seed)
        self._next = 0

    def act(self, observation: Mapping[str, Any], state: Any = None) -> Allocation:
        """Return the next plan."""
        usual, plan = self._inner.act(observation, state), self._plans[self._next]
        assert isinstance(usual, Allocation)
        self._next = min(self._next + 1, len(self._plans) - 1)
        blocks = np.zeros_like(usual.blocks)
        blocks[..., : len(plan.blocks)] = plan.blocks
        M = np.full_like(usual.micro_batches, plan.micro_batches)
        changed = replace(usual, blocks=blocks, micro_batches=M)
        return with_schedule(changed, plan.schedule, np.full(blocks.shape, plan.micro_batches))
