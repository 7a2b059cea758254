"""Turn a finished run into a page, a video, or the trace of a round.

Shows runs of train, evaluate and compare. The page is one HTML file that
needs no network. It steps through the rounds with their Gantt charts, maps,
plans and energy queues, and has charts over the rounds and sortable tables.
A trace has all passes of a round, for ui.perfetto.dev. Rounds are replayed
from the decisions that the run stored.

Examples:
  collapipe view runs/evaluate-medium
  collapipe view runs/compare-small-medium --scenario medium --episode 3
  collapipe view runs/evaluate-medium --scheduler dssra --video dssra.gif
  collapipe view runs/evaluate-medium --round 12 --trace round.json
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import tyro

from collapipe_env.cli.option_types import Within, about
from collapipe_env.evaluation.own_scenario import is_own_scenario, named_scenario
from collapipe_env.evaluation.rounds import LARGEST_ROUNDS
from collapipe_env.ground.errors import DataError, ScenarioError
from collapipe_env.ground.files import write_json, write_text
from collapipe_env.ground.progress import progress_bar

if TYPE_CHECKING:
    from collapipe_env.evaluation.episode_result import EpisodeResult
    from collapipe_env.evaluation.view.stored_run import StoredScenario


@dataclass(frozen=True)
class Options:
    """All options."""

    run: Annotated[tyro.conf.Positional[Path], about("RUN")]
    """Folder of the run."""
    out: Annotated[Path | None, about("FILE", "RUN/view.html")] = None
    """File for the page."""
    scenario: Annotated[str | None, about("NAME|FILE.py:NAME", "the first")] = None
    """Scenario to show. A file.py:Name is run first, for your own processes and tasks."""
    scheduler: Annotated[tuple[str, ...], about("NAME ...", "all; for a video or trace, the reference")] = ()
    """Schedulers to show."""
    episode: Annotated[int, Within(0, 100_000)] = 0
    """Held-out episode to show, counted from 0."""
    video: Annotated[Path | None, about("FILE.gif|FILE.mp4", "write a page")] = None
    """Write a video of the episode instead of the page; MP4 needs the program ffmpeg."""
    frames: Annotated[int, Within(1, 10_000)] = 100
    """Largest number of frames; of longer episodes, evenly spaced rounds are shown."""
    fps: Annotated[float, Within(0.1, 60)] = 5.0
    """Frames per second of the video."""
    trace: Annotated[Path | None, about("FILE.json", "write a page")] = None
    """Write a round as a Chrome trace instead of the page."""
    round: Annotated[int, Within(1, LARGEST_ROUNDS)] = 1
    """Round to trace, counted from 1."""


def run(options: Options, *_: object) -> None:
    """Write a page, a video or a trace."""
    from collapipe_env.evaluation.view.run_page import ENDINGS, page_of
    from collapipe_env.evaluation.view.stored_run import read_run

    for option, file, endings in (
        ("--out", options.out, ENDINGS),
        ("--video", options.video, (".gif", ".mp4")),
        ("--trace", options.trace, (".json",)),
    ):
        if file is not None and file.suffix.lower() not in endings:
            raise DataError(f"{option} {file}: give a name that ends in {' or '.join(endings)}")
        if file is not None and option != "--out" and len(options.scheduler) > 1:
            raise DataError(f"{option} shows one scheduler: name one with --scheduler")
    scenario, own = options.scenario, options.scenario is not None and is_own_scenario(options.scenario)
    if scenario is not None and own:
        scenario = named_scenario(scenario).name
    try:
        run = read_run(options.run)
    except ScenarioError as error:
        if own:
            raise
        raise ScenarioError(
            f"{error}. If the run used code of your own, add --scenario file.py:Name, the one you evaluated"
        ) from None
    stored, results = run.chosen(scenario, options.scheduler, options.episode)
    if options.video is not None or options.trace is not None:
        _write_episode(options, stored, results[0])
        return
    names = ", ".join(result.title for result in results)
    print(f"replaying episode {options.episode} of {names} on {stored.scenario.name}")
    with progress_bar(len(results) * stored.rounds, "replaying", "rounds") as bar:
        text = page_of(run, stored, results, bar.update)
    out = options.out or run.path / "view.html"
    write_text(out, text)
    print(f"page, {out.stat().st_size / 1e6:.2f} MB, to open in any browser: {out}")


def _write_episode(options: Options, stored: StoredScenario, result: EpisodeResult) -> None:
    """Write an episode's video, a round's trace, or both."""
    from collapipe_env.evaluation.view.replayed import replayed, traced
    from collapipe_env.rendering import draw_round
    from collapipe_env.rendering.video import write_video

    print(f"{result.title}, episode {result.episode} on {stored.scenario.name}")
    if options.trace is not None:
        Within(1, stored.rounds).require("--round", options.round)
        write_json(options.trace, traced(stored, result, options.round), "--trace")
        print(f"trace of round {options.round}, to open in ui.perfetto.dev: {options.trace}")
    if options.video is not None:
        shown = min(options.frames, stored.rounds)
        wanted = np.linspace(1, stored.rounds, shown).round().astype(int)
        views = (view for number, view in enumerate(replayed(stored, result), 1) if number in wanted)
        with progress_bar(shown, "drawing", "frames", views) as bar:
            write_video(map(draw_round, bar), options.video, options.fps)
        print(f"video, {shown} frames, {options.video.stat().st_size / 1e6:.1f} MB: {options.video}")
