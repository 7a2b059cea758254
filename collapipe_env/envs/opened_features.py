"""Features of the observation for opened decisions about schedules and clocks of devices."""

from __future__ import annotations

from functools import partial

from collapipe_env.envs.observation import FeatureSource
from collapipe_env.ground.arrays import Array, at_most, namespace
from collapipe_env.physics.memory import memory_cap_blocks
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.decision_names import opens
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.state import SystemParameters, SystemState


def flight_capacity(parameters: SystemParameters, state: SystemState) -> Array:
    """Blocks that each device holds with a single micro-batch in flight (..., N, K), at most ``L``.

    This is the most that a schedule can save: 1F1B with the largest allowed number of micro-batches, under
    the workload's own setting of recomputation.

    Args:
        parameters: Scalars of the scenario.
        state: The system (...).

    Returns:
        Whole numbers of the state's real type.
    """
    costs = parameters.costs
    samples = costs.batch_size / parameters.micro_batch_choices[-1]
    caps = memory_cap_blocks(
        state.memory_bytes,
        samples,
        costs.block_state_bytes,
        costs.stored_activation_bytes,
        samples * costs.working_bytes,
    )
    return at_most(namespace(caps).astype(caps, state.clock.dtype), costs.blocks)


def clock_share(state: SystemState) -> Array:
    """Share of its full clock that background load and governor leave each device (..., N, K), in (0, 1].

    A cap above it changes nothing.

    Args:
        state: The system (...), of a scenario that opens caps on clocks.
    """
    assert state.full_speed is not None
    return state.speed / state.full_speed


def opened_features(scenario: Scenario) -> tuple[FeatureSource, ...]:
    """Features that a scenario's opened schedules and caps on clocks add."""
    found: list[FeatureSource] = []
    devices = (scenario.clusters, scenario.max_devices)
    if opens(scenario, "schedule"):
        half = scenario.blocks / 2.0
        found.append(
            FeatureSource(
                name="device_flight_capacity",
                shape=devices,
                low=-1.0,
                high=1.0,
                description=(
                    "blocks that the memory holds with one micro-batch in flight, of the smallest size; "
                    f"-1 for 0, 1 for {scenario.blocks}"
                ),
                value=partial(_flight_capacity, system_parameters(scenario)),
                unit="blocks",
                scale=half,
                offset=half,
            )
        )
    if opens(scenario, "clock_cap"):
        found.append(
            FeatureSource(
                name="device_clock_share",
                shape=devices,
                low=0.0,
                high=1.0,
                description="share of its full clock that load and governor leave the device",
                value=_clock_share,
                unit="1",
            )
        )
    return tuple(found)


def _clock_share(state: SystemState) -> Array:
    return namespace(state.speed).where(state.present, clock_share(state), 0.0)


def _flight_capacity(parameters: SystemParameters, state: SystemState) -> Array:
    held = flight_capacity(parameters, state)
    return namespace(held).where(state.present, (2.0 / parameters.costs.blocks) * held - 1.0, 0.0)
