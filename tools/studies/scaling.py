"""Growth of cost with the system's sizes.

Steps of the environment, decisions of DSSRA and memory against clusters, devices, blocks, mini-batch and
environments, one changed at a time around ``medium``, under the surrogate learner.
"""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from generated_parts import markdown_table
from scipy import stats

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.agents.learned.graph.systems import scaled
from collapipe_env.evaluation.plotting import COLOURS, MARKERS, log_axis, new_figure, save
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.simulator.world import World

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from measuring import machine
from side_by_side import Contestant, stepper, take_turns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOCS = Path(__file__).parents[2] / "docs"
ID = "CollaPipeSurrogate-v0"
BATCH = 64
"""Environments of the native vector environment where its size does not vary."""
STATES = 16
"""States in which DSSRA decides."""
ENVIRONMENTS = "environments"
AXES: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "clusters": ("clusters N", (2, 4, 8, 16, 32, 64)),
    "devices": ("devices K of a cluster", (2, 4, 6, 8, 12, 16)),
    "blocks": ("encoder blocks L", (6, 12, 18, 24, 36, 48)),
    "samples": ("mini-batch B (samples)", (16, 32, 64, 128, 256)),
    ENVIRONMENTS: ("environments E", (1, 4, 16, 64, 256, 1024)),
}
"""Label of each size and its values."""
QUANTITIES: Mapping[str, tuple[str, str, float]] = {
    "single": ("step, single", "µs", 1e6),
    "vector": (f"step, one of {BATCH}", "µs", 1e6),
    "decision": ("decision of DSSRA", "ms", 1e3),
    "memory": ("memory", "kB", 1e-3),
}
"""Title, unit, and the value of a second or byte in it. All are for one environment."""

Series = Mapping[int, float]
"""Values by size."""


def scenario_at(axis: str, value: int) -> Scenario:
    """``medium`` with one size changed, and other fields changed to suit it.

    Band, server and base station's power grow with the clusters, so that each keeps its share; sites are
    closer together, so that many fit, and energy budgets are ample, because so many disturb each other;
    memory and budgets grow where a device has more to do. The number of environments changes nothing here.
    """
    sizes = {"clusters": 4, "devices": 5, "blocks": 12, "samples": 64, axis: value}
    medium = load_scenario("medium")
    load = max(5 / sizes["devices"], 1.0) * max(sizes["blocks"] / 12, 1.0) * max(sizes["samples"] / 64, 1.0)
    offered = medium.devices.profiles[0].memory_bytes
    return medium.with_overrides(
        scaled(sizes["clusters"])
        | {
            "name": f"{axis} {value}",
            "cluster.devices": sizes["devices"],
            "cluster.cluster_separation_min_m": 50.0,
            "workload.blocks": sizes["blocks"],
            "workload.batch_size": sizes["samples"],
            "devices.profiles.0.memory_bytes": [load * choice for choice in offered],
            "budgets.device_energy_j": 2.0 * medium.budgets.device_energy_j * load,
            "budgets.cu_energy_j": 3.0 * medium.budgets.cu_energy_j * load,
        }
    )


def decider(scenario: Scenario) -> Callable[[int], None]:
    """Return a function that decides with DSSRA, on one thread, in every state of an episode of its own."""
    scheduler = DSSRA(scenario, threads=1)
    world = World(scenario, IdleLearner(1), 1)
    world.reset([np.random.default_rng(0)])
    states = []
    for _ in range(STATES):
        states.append(world.state.map(np.copy))
        world.step(scheduler.allocate(world.state))

    def play(calls: int) -> None:
        for _ in range(calls):
            for state in states:
                scheduler.allocate(state)

    return play


def memory(scenario: Scenario) -> float:
    """Bytes that Python and NumPy keep for one environment of a batch between two steps.

    What a batch needs in addition to its environments is the same at both sizes and cancels in the
    difference.
    """

    def played(num_envs: int) -> object:
        env = gym.make_vec(ID, num_envs=num_envs, scenario=scenario)
        env.reset(seed=0)
        for _ in range(2):
            env.step(env.action_space.sample())
        gc.collect()
        return env

    sizes, held = (BATCH // 8, BATCH), []
    played(1)  # fills what all environments share
    tracemalloc.start()
    for size in sizes:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        env = played(size)
        held.append(tracemalloc.get_traced_memory()[0] - before)
        del env
    tracemalloc.stop()
    return (held[1] - held[0]) / (sizes[1] - sizes[0])


def measure(
    axis: str, sizes: Sequence[int], slice_seconds: float, repeats: int
) -> dict[str, dict[int, float]]:
    """Measure one axis; times are the fastest of the slices, in which all sizes take turns.

    Returns:
        Seconds, or bytes, for one environment by quantity and size.
    """
    contestants, found = [], {}
    for size in sizes:
        scenario, num_envs = scenario_at(axis, size), size if axis == ENVIRONMENTS else BATCH
        env = gym.make_vec(ID, num_envs=num_envs, scenario=scenario)
        contestants.append(Contestant(f"vector {size}", num_envs, stepper(env)))
        if axis != ENVIRONMENTS:
            single = gym.make(ID, scenario=scenario, disable_env_checker=True)
            contestants.append(Contestant(f"single {size}", 1, stepper(single)))
            contestants.append(Contestant(f"decision {size}", STATES, decider(scenario)))
    for name, timing in take_turns(contestants, slice_seconds, repeats).items():
        what, size_text = name.split()
        found.setdefault(what, {})[int(size_text)] = min(timing.seconds)
    if axis != ENVIRONMENTS:
        found["memory"] = {size: memory(scenario_at(axis, size)) for size in sizes}
    return {what: found[what] for what in QUANTITIES if what in found}


def power_law(values: Series) -> tuple[float, float]:
    """Exponent over the upper half of a range, where fixed costs weigh least, and its standard error.

    Least squares of the logarithms over the sizes from the geometric mean of the range upwards, at least two;
    for two sizes the error is unknown (NaN).
    """
    sizes = sorted(values)
    upper = [size for size in sizes if size >= np.sqrt(sizes[0] * sizes[-1])]
    upper = upper if len(upper) > 1 else sizes[-2:]
    fit = stats.linregress(np.log(upper), np.log([values[size] for size in upper]))
    return float(fit.slope), float(fit.stderr) if len(upper) > 2 else np.nan


def table(found: Mapping[str, Mapping[str, Series]]) -> str:
    """Every axis: a line for each size, and the exponents below."""
    heads = ("", "size", *(f"{title} ({unit})" for title, unit, _ in QUANTITIES.values()))
    rows = []
    for axis, quantities in found.items():
        label, series = AXES[axis][0], [quantities.get(what, {}) for what in QUANTITIES]
        for size in quantities["vector"]:
            cells = (
                f"{scale * one[size]:.4g}" if one else "–"
                for one, (*_, scale) in zip(series, QUANTITIES.values(), strict=True)
            )
            rows.append((label, str(size), *cells))
        fits = ("{:.2f} ± {:.2f}".format(*power_law(one)) if one else "–" for one in series)
        rows.append((label, "*exponent*", *fits))
    return markdown_table(heads, rows)


def draw(found: Mapping[str, Mapping[str, Series]]) -> Figure:
    """Times of each axis, in a panel each, both scales logarithmic."""
    figure = new_figure(8.6, 5.7)
    panels = figure.subplots(2, 3, sharey=True).ravel()
    for panel, (axis, quantities) in zip(panels, found.items(), strict=False):
        for look, what in enumerate(("single", "vector", "decision")):
            values, title = quantities.get(what, {}), QUANTITIES[what][0]
            panel.plot(
                list(values), [1e6 * value for value in values.values()],
                color=COLOURS[look], marker=MARKERS[look], markersize=4.0, linewidth=1.5,
                label=f"step, one of a batch ({BATCH}, or E)" if what == "vector" else title,
            )  # fmt: skip
        panel.set_xscale("log")
        sizes = list(quantities["vector"])
        panel.set_xticks([], minor=True)
        panel.set_xticks(sizes, [str(size) for size in sizes])
        panel.set_xlabel(AXES[axis][0])
        panel.set_yscale("log")
    for panel in panels[: len(found)]:
        log_axis(panel, "y")
        panel.tick_params(labelleft=True)
    for panel in panels[len(found) :]:
        panel.set_axis_off()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    figure.supylabel("time for one environment (µs)", fontsize=9.5)
    return figure


def growth(entry: Mapping[str, Any], quick: bool) -> str:
    """The table, with the versions and the machine; the picture goes to ``docs/images``."""
    seconds, repeats, count = (0.002, 1, 3) if quick else (entry["slice_seconds"], entry["repeats"], None)
    found = {axis: measure(axis, sizes[:count], seconds, repeats) for axis, (_, sizes) in AXES.items()}
    if not quick:
        save(draw(found), DOCS / "images" / "scaling_times.png")
    used = machine()
    versions = ", ".join(f"{name} {version}" for name, version in used["versions"].items())
    at = f"{used['machine']['architecture']}, {used['machine']['cpus']} processors"
    return f"{table(found)}\n\n{versions}; {at}. Finished {time.strftime('%Y-%m-%d')}."
