"""Features of the observation that a scenario adds to the core block."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from collapipe_env.envs.observation import FeatureSource, ObservationBuilder
from collapipe_env.envs.opened_features import opened_features
from collapipe_env.ground.arrays import Array, at_most, namespace
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.decision_names import opens
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.process import Observed, Process
from collapipe_env.simulator.process_registry import active_processes
from collapipe_env.simulator.state import SystemParameters, SystemState, other_memory_caps


def observation_builder(scenario: Scenario) -> ObservationBuilder:
    """Builder of the observations of a scenario's environments, with everything that the scenario adds."""
    return ObservationBuilder(
        scenario,
        clock_features(scenario)
        + observed_features(active_processes(scenario))
        + recomputation_features(scenario)
        + opened_features(scenario)
        + participation_features(scenario),
    )


def observed_features(processes: Iterable[Process]) -> tuple[FeatureSource, ...]:
    """Features that processes show, in their order; empty where none shows any.

    Args:
        processes: The active processes.
    """
    return tuple(_feature(process.name, seen) for process in processes for seen in process.shown)


def clock_features(scenario: Scenario) -> tuple[FeatureSource, ...]:
    """Clocks of devices, where launches depend on them and ``device_speed`` does not determine them."""
    profiles, extra = scenario.devices.profiles, scenario.overheads
    if len({profile.flops_per_cycle for profile in profiles}) == 1 or not (extra.block_s or extra.update_s):
        return ()
    top = max(profile.clock_max_hz for profile in profiles)
    return (
        FeatureSource(
            name="device_clock",
            shape=(scenario.clusters, scenario.max_devices),
            low=0.0,
            high=1.0,
            description="present clock; 1 for the fastest profile",
            value=partial(_clock, top),
            unit="Hz",
            scale=top,
        ),
    )


def recomputation_features(scenario: Scenario) -> tuple[FeatureSource, ...]:
    """Capacity of devices under the other setting of recomputation, where a scenario opens that decision."""
    parameters = system_parameters(scenario)
    if parameters.other_costs is None:
        return ()
    half = scenario.blocks / 2.0
    return (
        FeatureSource(
            name="device_other_capacity",
            shape=(scenario.clusters, scenario.max_devices),
            low=-1.0,
            high=1.0,
            description=(
                f"blocks that the memory holds {_other_setting(parameters)}; "
                f"-1 for 0, 1 for {scenario.blocks}"
            ),
            value=partial(_other_capacity, parameters),
            unit="blocks",
            scale=half,
            offset=half,
        ),
    )


def participation_features(scenario: Scenario) -> tuple[FeatureSource, ...]:
    """Participation queues, where a scenario lets clusters sit out."""
    if not opens(scenario, "participation"):
        return ()
    cap = scenario.budgets.backlog_cap
    return (
        FeatureSource(
            name="cluster_absence",
            shape=(scenario.clusters,),
            low=0.0,
            high=1.0,
            description=f"participation queue y; 1 for {cap:g} rounds",
            value=partial(_absence, cap),
            unit="rounds",
            scale=cap,
        ),
    )


def _absence(cap: float, state: SystemState) -> Array:
    assert state.absence is not None
    return state.absence / cap


def _other_setting(parameters: SystemParameters) -> str:
    """Other setting of recomputation in words."""
    return "without recomputation" if parameters.costs.training_memory.recompute else "with recomputation"


def _other_capacity(parameters: SystemParameters, state: SystemState) -> Array:
    xp, blocks, real = namespace(state.clock), parameters.costs.blocks, state.clock.dtype
    held = at_most(xp.astype(other_memory_caps(parameters, state), real), blocks)
    return xp.where(state.present, (2.0 / blocks) * held - 1.0, 0.0)


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
