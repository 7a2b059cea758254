"""Features of the observation that a scenario adds to the core block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from collapipe_env.envs.observation import FeatureSource, ObservationBuilder
from collapipe_env.ground.arrays import Array, namespace
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.decision import Feature, opened_rows
from collapipe_env.simulator.process import Observed
from collapipe_env.simulator.process_registry import active_processes
from collapipe_env.simulator.state import SystemState


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


def opened_features(scenario: Scenario) -> list[Feature]:
    """Features that a scenario's open decisions need, those of devices first."""
    rows = opened_rows(system_parameters(scenario).opened)
    return sorted((seen for row in rows for seen in row.features), key=lambda seen: seen.axes == "N")


def _decision_features(scenario: Scenario) -> Iterator[FeatureSource]:
    """Features that a scenario's open decisions need."""
    parameters, shape = system_parameters(scenario), (scenario.clusters, scenario.max_devices)
    for feature in opened_features(scenario):
        of_devices, high = feature.axes == "N K", float(feature.high(scenario))
        low, half = (-1.0, high / 2.0) if feature.unit == "blocks" else (0.0, 0.0)
        scale = f"; -1 for 0, 1 for {high:g}" if half else f"; 1 for {high:g} {feature.unit}"
        yield FeatureSource(
            f"{'device' if of_devices else 'cluster'}_{feature.name}",
            shape if of_devices else shape[:1],
            low,
            1.0,
            feature.meaning + ("" if feature.unit == "1" else scale),
            partial(_scaled, partial(feature.value, parameters), of_devices, low, high),
            feature.unit,
            half or high,
            half,
        )


def _scaled(
    value: Callable[[SystemState], Array], of_devices: bool, low: float, high: float, state: SystemState
) -> Array:
    """A quantity from 0 to ``high`` as numbers from ``low`` to 1, 0 for absent devices."""
    found = (2.0 / high) * value(state) - 1.0 if low < 0.0 else value(state) / high
    return namespace(found).where(state.present, found, 0.0) if of_devices else found


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
