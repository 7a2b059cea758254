"""A sample of the episodes that a scenario can bring: layouts, shadowing, fading and loads."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from collapipe_env.dynamics.fading import Fading
from collapipe_env.dynamics.load import Load
from collapipe_env.ground.arrays import FloatArray, WordArray
from collapipe_env.ground.backends import NUMPY
from collapipe_env.ground.records import declarations
from collapipe_env.kernels.channels import split_links
from collapipe_env.physics.clock_caps import running_clocks
from collapipe_env.scenario import Scenario, draw_layout, fixed_layout
from collapipe_env.simulator.build import mean_state
from collapipe_env.simulator.process import Process
from collapipe_env.simulator.state import SystemState
from collapipe_env.simulator.system import System, link_deviations, link_path_gains

SEED = 20250919
"""Seed of the sample; the environments' own streams are never touched."""

EPISODES = 64
"""Sampled episodes, a power of two."""

FEWEST_ROUNDS, MOST_ROUNDS = 64, 256
"""Rounds of the uplinks: as many as an episode has, within these bounds."""

ROUNDS, ROUNDS_OF_ONE = 16, 64
"""Rounds of each whole system, with many systems and with one; powers of two."""

LARGEST_UPLINKS, LARGEST_STATES = 200_000, 2_000_000
"""Most numbers to draw; huge systems are sampled less, so that they take no longer."""


@dataclass(frozen=True, eq=False)
class SampledRounds:
    """Rounds of ``S`` systems (a layout and its shadowing) and of ``E`` episodes' uplinks in them.

    An uplink has no alternative, so its deep fades decide the cost of an episode: uplinks are drawn for whole
    episodes. For links between devices, a few rounds of each system suffice.

    Attributes:
        systems: ``S``, 1 where neither layout nor shadowing differs between episodes.
        rounds: ``F``, rounds of each system, a power of two.
        state: The systems in these rounds, with empty queues (S F, ...); a system's rounds are neighbours.
        uplink_gain: Gains of the uplinks in all rounds of the episodes (E, R, N); ``E`` is a multiple of
            ``S``, and a system's episodes are neighbours.
    """

    systems: int
    rounds: int
    state: SystemState
    uplink_gain: FloatArray


def sample_rounds(scenario: Scenario) -> SampledRounds:
    """Draw a sample by the laws of the environment, fading and loads in their stationary state."""
    N, K = scenario.clusters, scenario.max_devices
    radio = scenario.radio
    rng = np.random.default_rng(SEED)
    redrawn = scenario.cluster.layout != "fixed"
    alike = not redrawn and radio.shadowing_db == (0.0, 0.0)
    room = LARGEST_STATES // (N * ((K + 1) ** 2 + N))
    F = _power_of_two(ROUNDS_OF_ONE if alike else ROUNDS, room)
    S = 1 if alike else _power_of_two(EPISODES, room // F)
    layouts = [draw_layout(scenario, child) if redrawn else fixed_layout(scenario) for child in rng.spawn(S)]
    mean_gain = np.stack([link_path_gains(layout) for layout in layouts])
    links = mean_gain.shape[1]
    shadow_db = np.stack([link_deviations(layout) for layout in layouts])
    mean_gain = mean_gain * 10.0 ** (shadow_db * rng.standard_normal((S, links)) / 10.0)

    # These rounds are independent, so correlated fading keeps only its stationary law.
    fading = Fading(scenario, correlation=0.0)
    gain = fading.gain(fading.begin(_NO_SYSTEM, _first_numbers(fading, _seeds(rng, S * F))))
    uplink_gain, d2d_gain = split_links(np.repeat(mean_gain, F, axis=0), gain, (N, K))
    loads = Load(scenario)
    speeds = np.ones((S * F, N, K))
    begun = loads.begin(_NO_SYSTEM._replace(speed=speeds), _first_numbers(loads, _seeds(rng, S * F)))
    load = loads.factor(begun, speeds)

    each = [mean_state(scenario, layout) for layout in layouts]
    arrays = {name: [getattr(one, name) for one in each] for name in declarations(SystemState)}
    state = SystemState(
        **{name: np.repeat(a, F, axis=0) for name, a in arrays.items() if a[0] is not None}  # type: ignore[arg-type]
    )
    speed, clock, power = state.speed, state.clock, state.compute_power
    running = running_clocks(speed, clock, power, state.full_speed, state.cubic_power, load)
    state = replace(state, uplink_gain=uplink_gain, d2d_gain=d2d_gain, **running._asdict())
    return SampledRounds(
        S, F, state, _uplinks(scenario, np.repeat(mean_gain[:, :N], EPISODES // S, axis=0), rng)
    )


def _uplinks(scenario: Scenario, mean_gain: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Gains of the uplinks over whole episodes (E, R, N), given their means (E, N)."""
    E, N = mean_gain.shape
    longest = max(min(MOST_ROUNDS, LARGEST_UPLINKS // (E * N)), 1)
    rounds = min(max(scenario.dynamics.rounds, FEWEST_ROUNDS), longest)
    fading, seeds = Fading(scenario, links=N), _seeds(rng, E)
    carried = fading.begin(_NO_SYSTEM, _first_numbers(fading, seeds))
    gains = np.empty((E, rounds, N))
    gains[:, 0] = fading.gain(carried)
    for t in range(1, rounds):
        u = NUMPY.uniform(seeds, np.full(E, t), fading.numbers, fading.factors)
        carried = fading.advance(carried, None, None, u, None)
        gains[:, t] = fading.gain(carried)
    gains *= mean_gain[:, None]
    return gains


_NO_SYSTEM = System(*[np.ones(0)] * len(System._fields))
"""Placeholder: when they begin, fading and load read only the type of a system's speeds."""


def _first_numbers(process: Process, seeds: WordArray) -> FloatArray:
    first = np.zeros(len(seeds), dtype=np.int64)
    return NUMPY.uniform(seeds, first, process.numbers, process.factors)


def _seeds(rng: np.random.Generator, count: int) -> WordArray:
    return rng.integers(2**64, size=count, dtype=np.uint64)


def _power_of_two(most: int, room: int) -> int:
    """The largest power of two within both bounds, at least 1; ``most`` is a power of two itself."""
    return min(most, 1 << max(room, 1).bit_length() - 1)
