"""Features of the observation that a scenario adds to the core block."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from collapipe_env.envs.observation import FeatureSource, ObservationBuilder
from collapipe_env.ground.arrays import Array, at_most, namespace
from collapipe_env.physics.memory import memory_cap_blocks
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.decision_names import opens
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.process import Observed
from collapipe_env.simulator.process_registry import active_processes
from collapipe_env.simulator.state import SystemParameters, SystemState, other_memory_caps


def observation_builder(scenario: Scenario) -> ObservationBuilder:
    """Builder of the observations of a scenario's environments, with everything that the scenario adds."""
    shown = (_feature(process.name, seen) for process in active_processes(scenario) for seen in process.shown)
    return ObservationBuilder(scenario, (*_clock_features(scenario), *shown, *_decision_features(scenario)))


def _clock_features(scenario: Scenario) -> Iterator[FeatureSource]:
    """Clocks of devices, where launches depend on them and ``device_speed`` does not determine them."""
    profiles, extra = scenario.devices.profiles, scenario.overheads
    if len({profile.flops_per_cycle for profile in profiles}) > 1 and (extra.block_s or extra.update_s):
        devices, top = (scenario.clusters, scenario.max_devices), max(p.clock_max_hz for p in profiles)
        about = "present clock; 1 for the fastest profile"
        yield FeatureSource("device_clock", devices, 0.0, 1.0, about, partial(_clock, top), "Hz", top)


def _decision_features(scenario: Scenario) -> Iterator[FeatureSource]:
    """Features that a scenario's open decisions need."""
    parameters, L = system_parameters(scenario), scenario.blocks
    devices, half = (scenario.clusters, scenario.max_devices), scenario.blocks / 2.0
    if parameters.other_costs is not None:
        setting = "without" if parameters.costs.training_memory.recompute else "with"
        about = f"blocks that the memory holds {setting} recomputation; -1 for 0, 1 for {L}"
        value = partial(_other_capacity, parameters)
        yield FeatureSource("device_other_capacity", devices, -1.0, 1.0, about, value, "blocks", half, half)
    if opens(scenario, "schedule"):
        about = (
            "blocks that the memory holds with one micro-batch in flight, of the smallest size; "
            f"-1 for 0, 1 for {L}"
        )
        value = partial(_flight_capacity, parameters)
        yield FeatureSource("device_flight_capacity", devices, -1.0, 1.0, about, value, "blocks", half, half)
    if opens(scenario, "clock_cap"):
        about = "share of its full clock that load and governor leave the device"
        yield FeatureSource("device_clock_share", devices, 0.0, 1.0, about, _clock_share)
    if opens(scenario, "participation"):
        cap, about = scenario.budgets.backlog_cap, "participation queue y; 1 for {:g} rounds"
        value = partial(_absence, cap)
        yield FeatureSource("cluster_absence", devices[:1], 0.0, 1.0, about.format(cap), value, "rounds", cap)


def flight_capacity(parameters: SystemParameters, state: SystemState) -> Array:
    """Blocks that each device holds with a single micro-batch in flight (..., N, K), at most ``L``.

    This is the most that a schedule can save: 1F1B with the largest allowed number of micro-batches, under
    the workload's own setting of recomputation.

    Args:
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


def _absence(cap: float, state: SystemState) -> Array:
    assert state.absence is not None
    return state.absence / cap


def _other_capacity(parameters: SystemParameters, state: SystemState) -> Array:
    xp, blocks = namespace(state.clock), parameters.costs.blocks
    held = at_most(xp.astype(other_memory_caps(parameters, state), state.clock.dtype), blocks)
    return _scaled(held, blocks, state)


def _flight_capacity(parameters: SystemParameters, state: SystemState) -> Array:
    return _scaled(flight_capacity(parameters, state), parameters.costs.blocks, state)


def _scaled(held: Array, blocks: int, state: SystemState) -> Array:
    """Blocks as -1 for none to 1 for all, 0 for absent devices."""
    return namespace(held).where(state.present, (2.0 / blocks) * held - 1.0, 0.0)


def _clock_share(state: SystemState) -> Array:
    return namespace(state.speed).where(state.present, clock_share(state), 0.0)


def _clock(top: float, state: SystemState) -> Array:
    xp = namespace(state.clock)
    return xp.where(state.present, state.clock / top, 0.0)


def _scale(seen: Observed) -> str:
    """Note on the numbers that a feature shows as 0 and 1; empty if they are 0 and 1 themselves."""
    unit = "" if seen.unit == "1" else f" {seen.unit}"
    own = not unit and (seen.low, seen.high) == (0.0, 1.0)
    return "" if own else f"; 0 for {seen.low:g}{unit}, 1 for {seen.high:g}{unit}"


def _feature(process: str, seen: Observed) -> FeatureSource:
    """Feature of one carried array, 0 at its lower bound and 1 at its upper one."""
    span = seen.high - seen.low
    return FeatureSource(
        name=f"{process}_{seen.carried}",
        shape=seen.shape,
        low=0.0,
        high=1.0,
        description=f"{seen.description}{_scale(seen)}",
        value=partial(_shown, process, seen.carried, seen.low, span),
        unit=seen.unit,
        scale=span,
        offset=seen.low,
        carried=(process, seen.carried),
    )


def _shown(process: str, carried: str, low: float, span: float, state: SystemState) -> Array:
    """A carried array of a state, scaled; a nested function could not be pickled."""
    values = namespace(state.loss).astype(state.processes[process][carried], state.loss.dtype)
    return (values - low) / span
