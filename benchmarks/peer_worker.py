"""Steps environments for ``benchmarks/peers.py``: one JSON request a line in, one JSON reply a line out.

Runs in any interpreter that has Gymnasium; needs nothing of this project, so that it also runs where only the
peers are installed. Requests::

    {"do": "versions", "packages": ["numpy"]}                   -> {"python": "3.13.1", "numpy": "2.4.0"}
    {"do": "make", "key": "a", "imports": ["x"], "id": "X-v0"}  -> {}
    {"do": "play", "key": "a", "calls": 100}                    -> {}

A request that fails is answered by ``{"error": "..."}``.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
import warnings
from collections.abc import Mapping
from importlib import metadata
from typing import Any

ACTIONS_IN_STORE = 16


class Player:
    """Environments that are stepped with random actions out of a store."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[Any, list[Any]]] = {}

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Do what a request asks for; whatever goes wrong is part of the answer."""
        try:
            if request["do"] == "versions":
                return versions(request["packages"])
            if request["do"] == "make":
                self.make(request["key"], request["imports"], request["id"])
            else:
                self.play(request["key"], request["calls"])
        except Exception as error:
            first = next(iter(str(error).splitlines()), "")
            return {"error": f"{type(error).__name__}: {first}".rstrip(": ")}
        return {}

    def make(self, key: str, imports: list[str], name: str) -> None:
        """Build an environment and reset it.

        Args:
            key: What it is played by.
            imports: Modules that register it.
            name: Its id.
        """
        import gymnasium as gym

        for module in imports:
            importlib.import_module(module)
        env: Any = gym.make(name, disable_env_checker=True)
        env.action_space.seed(0)
        env.reset(seed=0)
        self._made[key] = env, [env.action_space.sample() for _ in range(ACTIONS_IN_STORE)]

    def play(self, key: str, calls: int) -> None:
        """Step an environment with random actions, over the ends of episodes."""
        env, actions = self._made[key]
        for i in range(calls):
            _, _, terminated, truncated, _ = env.step(actions[i % ACTIONS_IN_STORE])
            if terminated or truncated:
                env.reset()


def versions(packages: list[str]) -> dict[str, Any]:
    """Version of the interpreter and of each package; ``None`` where it is not installed."""
    found: dict[str, Any] = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def main() -> None:
    """Answer until the requests end."""
    # Environments print and warn: the replies get a channel of their own, all else goes to standard error.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    player = Player()
    for line in sys.stdin:
        print(json.dumps(player.answer(json.loads(line))), file=replies, flush=True)


if __name__ == "__main__":
    main()
