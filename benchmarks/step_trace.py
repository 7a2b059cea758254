"""Files and functions of the package that one ``env.step`` passes, in the order in which they are entered.

    python benchmarks/step_trace.py
    python benchmarks/step_trace.py --scenario xlarge --functions

An entry is a call from one file into another. A return is an entry into a file that was entered before: a
reader who follows the step has to come back to it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import gymnasium as gym

import collapipe_env

PACKAGE = Path(collapipe_env.__file__).parent


def traced_step(scenario: str) -> list[tuple[str, str]]:
    """File and function of every call inside the package during one step, in order.

    Args:
        scenario: Name of a scenario; played with the surrogate.
    """
    env = gym.make("CollaPipeSurrogate-v0", scenario=scenario).unwrapped
    env.reset(seed=0)
    env.action_space.seed(0)
    action = env.action_space.sample()
    env.step(action)  # works out what all steps share
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            calls.append((path.relative_to(PACKAGE).as_posix(), frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        env.step(action)
    finally:
        sys.setprofile(None)
    return calls


def files_entered(calls: list[tuple[str, str]]) -> list[str]:
    """File of every entry into another file, in order."""
    return [file for i, (file, _) in enumerate(calls) if i == 0 or calls[i - 1][0] != file]


def trace_size(calls: list[tuple[str, str]]) -> dict[str, int]:
    """Numbers of different functions and files of a trace, and of its returns."""
    entries = files_entered(calls)
    files = len(set(entries))
    return {"functions": len(set(calls)), "files": files, "returns": len(entries) - files}


def main(arguments: list[str] | None = None) -> None:
    """Print the trace and its sums."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenario", default="medium", help="scenario (default: medium)")
    parser.add_argument("--functions", action="store_true", help="list every function, not only the files")
    options = parser.parse_args(arguments)
    calls = traced_step(options.scenario)
    entries = files_entered(calls)
    for file in dict.fromkeys(entries):
        functions = list(dict.fromkeys(name for where, name in calls if where == file))
        print(f"{file:44s} {len(functions):2d} functions, entered {entries.count(file)} times")
        if options.functions:
            print(*(f"    {name}" for name in functions), sep="\n")
    print("{functions} functions in {files} files, {returns} returns".format(**trace_size(calls)))


if __name__ == "__main__":
    main()
