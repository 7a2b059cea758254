"""Plans of a calibration, and their rounds by processes without emulation, each kept in a file ([X])."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from collapipe_env.execution.driver import Execution
from collapipe_env.execution.price_comparison import measured_step
from collapipe_env.execution.ray_engine import Ray
from collapipe_env.execution.round_reports import Recorded, event_table
from collapipe_env.ground.errors import CollaPipeError, fault_line
from collapipe_env.ground.files import read_json, write_json
from collapipe_env.physics.allocation import Allocation, with_schedule
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import SCHEDULERS

REMEDY = "delete it and measure it again, or start over with --fresh"
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

    blocks: Annotated[tuple[Annotated[int, Field(strict=True, ge=1)], ...], Field(min_length=1)]
    schedule: Literal["gpipe", "1f1b"]
    micro_batches: Annotated[int, Field(strict=True, ge=1)]
    fitted: Annotated[bool, Field(strict=True)]

    @property
    def name(self) -> str:
        """The plan in a few words."""
        return f"{'+'.join(map(str, self.blocks))}, {self.schedule}, M = {self.micro_batches}"


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
    memory = {
        f"devices.profiles.{i}.memory_bytes": [MEMORY_BYTES] for i in range(len(scenario.devices.profiles))
    }
    return scenario.with_overrides({
        "cluster.clusters": 1,
        "cluster.devices": devices,
        "learning.proxy": None,
        "radio.link_errors": "none",
        "budgets.device_energy_j": 1e9,
        "budgets.cu_energy_j": 1e9,
        "dynamics.target_loss": None,
        "dynamics.rounds": 1_000,
        **memory,
    })  # fmt: skip


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
    even = tuple(blocks // devices + (k < blocks % devices) for k in range(devices))
    middle = [1] * devices
    middle[devices // 2] = blocks - devices + 1
    near = [even, *_moved(even, 1)]
    far = [cut for cut in [*_moved(even, 2), *([tuple(middle)] if devices > 2 else [])] if cut not in near]
    plans = [CalibrationPlan(cut, "gpipe", m, fitted=True) for cut in near for m in fitted]
    plans += [
        CalibrationPlan(cut, "1f1b" if (i + j) % 2 else "gpipe", m, fitted=False)
        for i, cut in enumerate([*far, even])
        for j, m in enumerate(checked)
    ]
    return list(dict.fromkeys(plans))


def _moved(even: Sequence[int], count: int) -> list[tuple[int, ...]]:
    """Return the cuts that move blocks from the last device to the first, and the other way round."""
    cuts = []
    for source, target in ((-1, 0), (0, -1)):
        cut = list(even)
        steps = min(count, cut[source] - 1)
        cut[source] -= steps
        cut[target] += steps
        cuts.append(tuple(cut))
    return cuts


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


@dataclass(frozen=True)
class Measured:
    """A round of a calibration.

    Attributes:
        plan: The plan that was played.
        step_s: ``T_step`` by the machine's clock [s].
        load: Load average of the machine before the round; 0 where there is none.
        events: All events of its local step.
    """

    plan: CalibrationPlan
    step_s: Annotated[float, Field(strict=True, gt=0.0, allow_inf_nan=False)]
    load: Annotated[float, Field(strict=True, ge=0.0, allow_inf_nan=False)]
    events: tuple[Recorded, ...]


_MEASURED = TypeAdapter(Measured)


def measured_rounds(
    setting: Scenario, missing: Sequence[tuple[Path, CalibrationPlan]], seed: int, slow_down: float
) -> Iterator[Measured]:
    """Play the missing rounds and keep each in its file; a first round, which warms up, is not kept.

    Args:
        setting: Scenario in which the machine is measured.
        missing: File and plan of each round.
        seed: Seed of the episode.
        slow_down: Factor by which devices compute more slowly than this machine.

    Yields:
        Each round.

    Raises:
        ExecutionError: If a process is lost.
    """
    if not missing:
        return
    scheduler = FixedPlans(setting, [missing[0][1], *(plan for _, plan in missing)])
    with Execution(setting, scheduler, seed=seed, clock="none", scale=slow_down, engine=Ray()) as execution:
        execution.play()
        for path, plan in missing:
            load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
            _, result = execution.play()
            step_s = measured_step(event_table(result["events"]))
            one = Measured(plan, step_s, load, tuple(Recorded(*row) for row in result["events"]))
            write_json(path, asdict(one))
            yield one


def read_round(path: Path) -> Measured:
    """Read a round that was kept.

    Raises:
        CalibrationError: If it is damaged.
    """
    try:
        return _MEASURED.validate_python(read_json(path, REMEDY))
    except ValidationError as error:
        raise CalibrationError(f"{path}: {fault_line(error.errors()[0])}; {REMEDY}") from None
