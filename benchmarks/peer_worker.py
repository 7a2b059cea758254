"""Steps environments for ``benchmarks/peers.py``, all in turns: JSON on standard input, JSON at the end.

Runs in any interpreter that has Gymnasium; needs nothing of this project, so it also runs where only the
peers are installed.
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


def stepper(imports: Sequence[str], name: str) -> Callable[[int], None]:
    """Return a function that steps an environment with random actions, over ends of episodes.

    Args:
        imports: Modules that register it.
        name: Its id.
    """
    import gymnasium as gym

    for module in imports:
        importlib.import_module(module)
    env: Any = gym.make(name, disable_env_checker=True)
    env.action_space.seed(0)
    env.reset(seed=0)
    actions = [env.action_space.sample() for _ in range(ACTIONS_IN_STORE)]

    def play(calls: int) -> None:
        for i in range(calls):
            _, _, terminated, truncated, _ = env.step(actions[i % ACTIONS_IN_STORE])
            if terminated or truncated:
                env.reset()

    return play


def timed(play: Callable[[int], None], calls: int) -> float:
    """Seconds of some calls."""
    start = time.perf_counter()
    play(calls)
    return time.perf_counter() - start


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
                    play = stepper(env["imports"], env["id"])
                    play(3)  # what is built in a first step says nothing about the next ones
                    calls = 1
                    while (spent := timed(play, calls)) < request["slice_seconds"] / 2.0:
                        calls *= 2
                    contestants[row] = play, max(round(calls * request["slice_seconds"] / spent), 1)
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
