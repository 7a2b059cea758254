"""``collapipe view``: a finished run as one page for a browser, or an episode as a video."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from collapipe_env.cli.common import command
from collapipe_env.cli.option_types import Within, about
from collapipe_env.evaluation.own_scenario import is_own_scenario, named_scenario
from collapipe_env.evaluation.run_directory import RunDirectory
from collapipe_env.ground.errors import DataError, ScenarioError
from collapipe_env.ground.files import write_text
from collapipe_env.ground.progress import progress_bar

if TYPE_CHECKING:
    from tqdm import tqdm

DESCRIPTION = """Turn a finished run into a page for the browser, or an episode into a video.

Shows runs of train, evaluate and compare. The page is one HTML file that
needs no network. It steps through the rounds with their Gantt charts, map,
plans and energy queues, and has charts over the rounds and sortable tables.
Rounds are replayed from the decisions that the run stored.

Examples:
  collapipe view runs/evaluate-medium
  collapipe view runs/compare-small-medium --scenario medium --episode 3
  collapipe view runs/evaluate-medium --scheduler dssra --video dssra.gif
"""


@dataclass(frozen=True)
class Options:
    """All options."""

    run: Annotated[tyro.conf.Positional[Path], about("RUN")]
    """Folder of the run."""
    out: Annotated[Path | None, about("FILE", "RUN/view.html")] = None
    """File for the page."""
    scenario: Annotated[str | None, about("NAME|FILE.py:NAME", "the first")] = None
    """Scenario to show. A file.py:Name is run first, for your own processes and tasks."""
    scheduler: Annotated[tuple[str, ...], about("NAME ...", "all; for a video, the reference")] = ()
    """Schedulers to show."""
    episode: Annotated[int, Within(0, 100_000)] = 0
    """Held-out episode to show, counted from 0."""
    video: Annotated[Path | None, about("FILE.gif|FILE.mp4", "write a page")] = None
    """Write a video of the episode instead of the page; MP4 needs the program ffmpeg."""
    frames: Annotated[int, Within(1, 10_000)] = 100
    """Largest number of frames; of longer episodes, evenly spaced rounds are shown."""
    fps: Annotated[float, Within(0.1, 60)] = 5.0
    """Frames per second of the video."""


def _run(options: Options, *_: object) -> None:
    from collapipe_env.evaluation.view.page_file import ENDINGS
    from collapipe_env.evaluation.view.run_page import Choice, chosen_results, page_of
    from collapipe_env.evaluation.view.stored_run import read_run

    for option, file, endings in (
        ("--out", options.out, ENDINGS),
        ("--video", options.video, (".gif", ".mp4")),
    ):
        if file is not None and file.suffix.lower() not in endings:
            raise DataError(f"{option} {file}: give a name that ends in {' or '.join(endings)}")
    scenario = options.scenario
    if scenario is not None and is_own_scenario(scenario):
        scenario = named_scenario(scenario).name
    try:
        run = read_run(options.run)
    except ScenarioError as error:
        if options.scenario is not None and is_own_scenario(options.scenario):
            raise
        raise ScenarioError(
            f"{error}. If the run used code of your own, add --scenario file.py:Name, the one you evaluated"
        ) from None
    choice = Choice(scenario, options.scheduler, options.episode)
    stored, results = chosen_results(run, choice)
    if options.video is not None:
        from collapipe_env.evaluation.view.video import write_video

        if len(options.scheduler) > 1:
            raise DataError("--video shows one scheduler: name one with --scheduler")
        shown = min(options.frames, stored.rounds)
        with progress_bar(shown, "drawing", "frames") as bar:
            write_video(stored, results[0], options.video, shown, options.fps, partial(_one_more, bar))
        size = options.video.stat().st_size
        print(f"{results[0].title}, episode {options.episode}, {shown} frames, {size / 1e6:.1f} MB")
        print(f"video: {options.video}")
        return
    names = ", ".join(result.title for result in results)
    print(f"replaying episode {options.episode} of {names} on {stored.scenario.name}")
    with progress_bar(len(results) * stored.rounds, "replaying", "rounds") as bar:
        text = page_of(run, choice, partial(_one_more, bar))
    out = options.out or RunDirectory(run.path) / "view.html"
    write_text(out, text)
    print(f"page, {out.stat().st_size / 1e6:.2f} MB, to open in any browser: {out}")


def _one_more(bar: tqdm[Any]) -> None:
    bar.update(1)


main = command(Options, _run, DESCRIPTION)
