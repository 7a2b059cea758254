"""Steps environments for ``benchmarks/peers.py``, all in turns: JSON on standard input, JSON at the end.

Runs in any interpreter that has Gymnasium; needs nothing of this project, so it also runs where only the
peers are installed. The other benchmarks time their contestants with its functions.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import Any

ACTIONS_IN_STORE = 16
"""Random actions that an environment is given again and again."""


def stepper(env: Any) -> Callable[[int], None]:
    """Return a function that steps an environment with random actions, over ends of episodes.

    Args:
        env: A single environment, or a vector environment that resets itself; reset here.
    """
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(ACTIONS_IN_STORE)]
    env.reset(seed=0)
    single = not hasattr(env, "num_envs")

    def play(calls: int) -> None:
        for i in range(calls):
            _, _, terminated, truncated, _ = env.step(actions[i % ACTIONS_IN_STORE])
            if single and (terminated or truncated):
                env.reset()

    return play


def timed(play: Callable[[int], None], calls: int) -> float:
    """Seconds of some calls."""
    start = time.perf_counter()
    play(calls)
    return time.perf_counter() - start


def calls_in_a_slice(play: Callable[[int], None], seconds: float) -> int:
    """Calls that fill about the wanted time, found by doubling; also warms the environment up."""
    play(1)  # what is compiled or imported in a first call says nothing about the next ones
    calls = 1
    while (spent := timed(play, calls)) < seconds / 2.0:
        calls *= 2
    return max(round(calls * seconds / spent), 1)


def measure(request: Mapping[str, Any]) -> dict[str, Any]:
    """Time everything in turns; whatever fails is left out, with its reason.

    Args:
        request: ``environments`` (each with ``row``, ``imports`` and ``id``), ``packages`` whose versions are
            wanted, ``slice_seconds`` and ``repeats``.

    Returns:
        ``versions`` by package, ``seconds`` of a step in each slice and ``reasons`` of failures by row.
    """
    seconds: dict[str, list[float]] = {}
    reasons: dict[str, str] = {}
    contestants: dict[str, tuple[Callable[[int], None], int]] = {}
    for turn in range(request["repeats"] + 1):
        for env in request["environments"]:
            row = env["row"]
            if row in reasons:
                continue
            try:
                if turn == 0:
                    for module in env["imports"]:
                        importlib.import_module(module)
                    gymnasium = importlib.import_module("gymnasium")
                    play = stepper(gymnasium.make(env["id"], disable_env_checker=True))
                    contestants[row] = play, calls_in_a_slice(play, request["slice_seconds"])
                else:
                    play, calls = contestants[row]
                    seconds.setdefault(row, []).append(timed(play, calls) / calls)
            except Exception as error:
                first = next(iter(str(error).splitlines()), "")
                reasons[row] = f"{type(error).__name__}: {first}".rstrip(": ")
                seconds.pop(row, None)
    return {"versions": versions(request["packages"]), "seconds": seconds, "reasons": reasons}


def versions(packages: Sequence[str]) -> dict[str, str | None]:
    """Version of the interpreter and of each package; ``None`` where it is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def main() -> None:
    """Answer one request."""
    # Environments print and warn: the reply gets a channel of its own; other output goes to standard error.
    reply = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    json.dump(measure(json.load(sys.stdin)), reply)
    reply.close()


if __name__ == "__main__":
    main()
