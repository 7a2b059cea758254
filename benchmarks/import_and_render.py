"""Time of the import, of the first step and of rendered frames, each in fresh processes.

What is measured differs between a process's first time and later ones, so every sample comes from a process
of its own, which measures by its own clock after Python has started; the kinds of process take turns. Run::

    python benchmarks/import_and_render.py
    python benchmarks/import_and_render.py --scenarios medium --processes 9 --frames 20
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from measuring import RESULTS, Figure, check_output, figure_table, write_figures
from tqdm import tqdm

from collapipe_env.envs.registration import LADDER

WHAT = "seconds in fresh processes, after Python has started"
HEAVY = ("matplotlib", "numba", "pandas", "scipy", "stable_baselines3", "torch")
"""Modules whose import takes longer than the package's own."""
IMPORT_GOAL_S = 1.0
HEAVY_GOAL = 0.0
FRAME_GOALS_S = {"medium": 0.1}
"""At most so long for a frame after the first, by scenario."""

IMPORT = f"""
import json, sys, time
start = time.perf_counter()
import collapipe_env
taken = time.perf_counter() - start
heavy = [name for name in {HEAVY!r} if name in sys.modules]
print(json.dumps({{"seconds": taken, "heavy": heavy}}))
"""
STEP = f"""
import json, sys, time
import gymnasium as gym, collapipe_env
start = time.perf_counter()
env = gym.make("CollaPipeSurrogate-" + sys.argv[1].capitalize() + "-Classification-v0")
env.reset(seed=0)
env.action_space.seed(0)
env.step(env.action_space.sample())
taken = time.perf_counter() - start
heavy = [name for name in {HEAVY!r} if name in sys.modules]
print(json.dumps({{"seconds": taken, "heavy": heavy}}))
"""
FRAMES = """
import json, sys, time
import gymnasium as gym, collapipe_env
name = "CollaPipeSurrogate-" + sys.argv[1].capitalize() + "-Classification-v0"
env = gym.make(name, render_mode="rgb_array")
env.reset(seed=0)
env.action_space.seed(0)
seconds = []
for _ in range(int(sys.argv[2])):
    env.step(env.action_space.sample())
    start = time.perf_counter()
    env.render()
    seconds.append(time.perf_counter() - start)
print(json.dumps({"seconds": seconds}))
"""
"""Every frame shows another round."""


def figures(
    scenarios: Sequence[str] = LADDER, processes: int = 5, frames: int = 10, first_step: str = "medium"
) -> list[Figure]:
    """Measure in turns.

    Args:
        scenarios: Whose frames are rendered.
        processes: Fresh processes for each kind of measurement, >= 1.
        frames: Frames in a process, >= 2; those after the first give its median.
        first_step: Scenario of the environment that takes a first step.

    Returns:
        Medians over the processes with their range.
    """
    kinds: dict[str, tuple[str, ...]] = {"import": (IMPORT,), "step": (STEP, first_step)}
    for name in scenarios:
        kinds[f"frames, {name}"] = (FRAMES, name, str(frames))
    answers: dict[str, list[dict[str, object]]] = {kind: [] for kind in kinds}
    progress = tqdm(total=processes * len(kinds), unit="process", disable=not sys.stderr.isatty())
    for _ in range(processes):
        for kind, command in kinds.items():
            progress.set_postfix_str(kind, refresh=False)
            answers[kind].append(_ask(*command))
            progress.update()
    progress.close()

    found = [
        _figure("import collapipe_env", _seconds(answers["import"]), IMPORT_GOAL_S),
        _heavy("heavy modules after the import", answers["import"], HEAVY_GOAL),
        _figure(f"make, reset and first step, {first_step}", _seconds(answers["step"])),
        _heavy("heavy modules after the first step", answers["step"]),
    ]
    for name in scenarios:
        runs = [_numbers(answer["seconds"]) for answer in answers[f"frames, {name}"]]
        found.append(_figure(f"first frame, {name}", [run[0] for run in runs]))
        later = [statistics.median(run[1:]) for run in runs]
        found.append(_figure(f"later frame, {name}", later, FRAME_GOALS_S.get(name)))
    return found


def _ask(code: str, *arguments: str) -> dict[str, object]:
    """Run code in a fresh interpreter and read the JSON object that it prints."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"a measuring process ended with code {done.returncode}:\n{done.stderr}")
    answer: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _numbers(values: object) -> list[float]:
    assert isinstance(values, list)
    return [float(value) for value in values]


def _seconds(answers: Sequence[dict[str, object]]) -> list[float]:
    return _numbers([answer["seconds"] for answer in answers])


def _figure(name: str, seconds: Sequence[float], goal: float | None = None) -> Figure:
    return Figure(name, statistics.median(seconds), "s", min(seconds), max(seconds), goal)


def _heavy(name: str, answers: Sequence[dict[str, object]], goal: float | None = None) -> Figure:
    lists = [heavy for answer in answers if isinstance(heavy := answer["heavy"], list)]
    worst = max(lists, key=len)
    return Figure(name, float(len(worst)), "modules", goal=goal, note=", ".join(worst))


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read and check the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--scenarios", nargs="*", choices=LADDER, default=list(LADDER), help="whose frames are rendered"
    )
    parser.add_argument("--processes", type=int, default=5, metavar="P", help="processes of each kind")
    parser.add_argument("--frames", type=int, default=10, metavar="F", help="frames in a process")
    default = RESULTS / "import_and_render.json"
    parser.add_argument("--output", type=Path, default=default, metavar="FILE", help="JSON file to write")
    options = parser.parse_args(arguments)
    if not 1 <= options.processes <= 1000:
        parser.error(f"--processes: {options.processes} is not within 1 to 1000")
    if not 2 <= options.frames <= 10_000:
        parser.error(f"--frames: {options.frames} is not within 2 to 10000")
    check_output(parser, options)
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table and store it."""
    options = parse_arguments(arguments)
    found = figures(options.scenarios, options.processes, options.frames)
    print(figure_table(found))
    used = {name: value for name, value in vars(options).items() if name != "output"}
    write_figures(options.output, WHAT, found, used)
    print(f"written to {options.output}")


if __name__ == "__main__":
    main()
