"""Where a step's time goes: its parts are timed from outside, beside the untouched step.

The functions below are wrapped by name while some slices are played; a wrapper adds what its function took,
less what wrapped functions inside it took, to its part. Slices without wrappers take turns with them, so that
what the wrappers cost shows. A name that does not exist is reported and skipped.
"""

from __future__ import annotations

import functools
import importlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from scaling_times import Contestant, calls_in_a_slice, environment, player

from collapipe_env.scenario import load_scenario

SIMULATOR, CORE = "collapipe_env.simulator.simulator", "collapipe_env.envs.mdp"
PARTS: dict[str, tuple[str, ...]] = {
    "decode": ("collapipe_env.codec:ActionCodec.decode",),
    "round costs": (f"{SIMULATOR}:round_costs", f"{SIMULATOR}:queue_rows"),
    "draws, channels": (
        "collapipe_env.simulator.channels:Fading.advance",
        "collapipe_env.simulator.channels:LoadChain.advance",
        "collapipe_env.simulator.arrivals:MicroBatchLosses.draw",
        f"{SIMULATOR}:Simulator._following",
    ),
    "learner": ("collapipe_env.learners.surrogate:SurrogateLearner.train_round",),
    "observation": ("collapipe_env.envs.observation:ObservationBuilder.build",),
    "records": (f"{SIMULATOR}:Simulator.try_round", f"{SIMULATOR}:Simulator.take"),
    "reward, info": (f"{CORE}:BatchMDP.play", f"{CORE}:BatchMDP.summary"),
}
"""Functions of each part, as ``module:name`` where they are looked up when called.

Of a function that calls others of the list only what is left counts: of ``Simulator.try_round`` the checks
and the making of records, of ``BatchMDP.play`` the reward and the info.
"""
REST = "rest"
ENDLESS = 1_000_000
"""Rounds of an episode while steps are profiled: resets are timed apart."""
SYSTEMS = tuple((name, size) for name in ("small", "medium", "large", "xlarge") for size in (1, 256))
"""Scenarios and sizes of the batch: 1 is the single environment."""


class Stopwatch:
    """Seconds of each part, nested calls counted once."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inside: list[float] = []

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that does the same and adds its time to a part."""
        clock, inside, seconds = time.perf_counter, self._inside, self.seconds

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            inside.append(0.0)
            start = clock()
            try:
                return function(*args, **kwargs)
            finally:
                spent = clock() - start
                seconds[part] = seconds.get(part, 0.0) + spent - inside.pop()
                if inside:
                    inside[-1] += spent

        return wrapper


def found_at(place: str) -> tuple[Any, str] | None:
    """Where a name like ``module:Class.method`` lives and what it is called there; ``None`` if nowhere."""
    module, _, path = place.partition(":")
    *outer, last = path.split(".")
    try:
        owner: Any = importlib.import_module(module)
        for name in outer:
            owner = getattr(owner, name)
        getattr(owner, last)
    except (ImportError, AttributeError):
        return None
    return owner, last


def absent(parts: Mapping[str, Sequence[str]]) -> list[str]:
    """Names that do not exist."""
    return [place for places in parts.values() for place in places if found_at(place) is None]


@contextmanager
def wrapped(parts: Mapping[str, Sequence[str]], watch: Stopwatch) -> Iterator[None]:
    """Time the parts' functions as long as the context lasts; absent names are left out."""
    undo = []
    try:
        for part, places in parts.items():
            for place in places:
                spot = found_at(place)
                if spot is None:
                    continue
                owner, name = spot
                own = name in vars(owner)  # else it is inherited
                original = getattr(owner, name)
                setattr(owner, name, watch.timed(part, original))
                undo.append((owner, name, original, own))
        yield
    finally:
        for owner, name, original, own in reversed(undo):
            if own:
                setattr(owner, name, original)
            else:
                delattr(owner, name)


def profile(scenario: str, size: int, slice_seconds: float, repeats: int) -> dict[str, Any]:
    """Profile one system.

    Args:
        scenario: A shipped one.
        size: 1 for the single environment, else environments of the native batch.
        slice_seconds: Length of a slice [s].
        repeats: Slices with and without wrappers, >= 1.

    Returns:
        ``plain_s`` and ``wrapped_s``: medians of a step of all environments without and with wrappers;
        ``shares``: of the wrapped time, by part, the rest included; ``reset_s``: median of a reset of all;
        ``rounds``: between two resets; ``absent``: names that were skipped.
    """
    system = load_scenario(scenario)
    env = environment(system.with_overrides({"dynamics.rounds": ENDLESS}), None if size == 1 else size)
    play = player(env)
    calls = calls_in_a_slice(Contestant(scenario, size, play), slice_seconds)
    plain, beside, resets, watch = [], [], [], Stopwatch()
    for _ in range(repeats):
        plain.append(seconds_of(play, calls) / calls)
        with wrapped(PARTS, watch):
            beside.append(seconds_of(play, calls) / calls)
        resets.append(seconds_of(env.reset))
    total = sum(beside) * calls
    shares = {part: watch.seconds.get(part, 0.0) / total for part in PARTS}
    shares[REST] = 1.0 - sum(shares.values())
    return {
        "plain_s": statistics.median(plain),
        "wrapped_s": statistics.median(beside),
        "shares": shares,
        "reset_s": statistics.median(resets),
        "rounds": system.dynamics.rounds,
        "absent": absent(PARTS),
    }


def seconds_of(function: Callable[..., Any], *arguments: Any) -> float:
    """Time of one call [s]."""
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start
