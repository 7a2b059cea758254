"""Videos of episodes: one picture per round, as an animated GIF or, with ffmpeg, as MP4."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from collapipe_env.evaluation.episode_result import EpisodeResult
from collapipe_env.evaluation.view.episode_detail import chosen_records
from collapipe_env.evaluation.view.stored_run import StoredScenario
from collapipe_env.ground.errors import CollaPipeError, DataError, shortened
from collapipe_env.ground.files import write_bytes
from collapipe_env.rendering import draw_round
from collapipe_env.simulator.system import reach_of, walking_side

COLOURS = 255
"""Colours of a frame of a GIF: pictures of rounds have few, and each costs bytes."""


def write_video(
    stored: StoredScenario,
    result: EpisodeResult,
    path: Path,
    frames: int,
    fps: float,
    on_frame: Callable[[], None] = lambda: None,
) -> None:
    """Write a video of an episode.

    Args:
        stored: The stored run.
        path: File that ends in ``.gif`` or ``.mp4``.
        frames: Rounds that are shown, evenly spaced, at most all.
        fps: Frames per second.
        on_frame: Called after each frame.

    Raises:
        CollaPipeError: If Matplotlib or ffmpeg is missing or fails, the episode cannot be played again, or
            the file cannot be written.
    """
    wanted = np.unique(np.linspace(0, stored.rounds - 1, frames).round().astype(int))
    pictures = _pictures(stored, result, wanted, on_frame)
    if path.suffix.lower() == ".gif":
        write_bytes(path, _gif(pictures, fps), "--video")
    else:
        write_bytes(path, _mp4(pictures, fps), "--video")


def _pictures(
    stored: StoredScenario, result: EpisodeResult, wanted: npt.NDArray[np.int_], on_frame: Callable[[], None]
) -> Iterator[npt.NDArray[np.uint8]]:
    """Pictures (H, W, 3) of some rounds."""
    from collapipe_env.rendering.round_view import RoundView

    scenario = stored.scenario
    title = f"{scenario.name}, {result.title}"
    for index, record in chosen_records(stored, result, wanted.tolist()):
        view = RoundView(
            record,
            title,
            side_m=walking_side(scenario),
            reach_m=reach_of(scenario),
            loss_history=result.loss[: index + 1],
            delay_history=result.delay[: index + 1],
        )
        try:
            picture = draw_round(view)
        except ModuleNotFoundError as error:
            raise CollaPipeError(str(error)) from None
        yield picture
        on_frame()


def _gif(pictures: Iterator[npt.NDArray[np.uint8]], fps: float) -> bytes:
    """All pictures as an animated GIF that repeats."""
    import io

    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise CollaPipeError(
            "a GIF needs Pillow, which comes with Matplotlib; run: pip install 'collapipe-env[plots]'"
        ) from None
    first, *others = (
        Image.fromarray(picture).quantize(
            COLOURS,
            Image.Quantize.FASTOCTREE,
            dither=Image.Dither.NONE,  # small marks keep their colours
        )
        for picture in pictures
    )
    content = io.BytesIO()
    first.save(
        content,
        "GIF",
        save_all=True,
        append_images=others,
        duration=round(1000.0 / fps),
        loop=0,
        optimize=False,
    )
    return content.getvalue()


def _mp4(pictures: Iterator[npt.NDArray[np.uint8]], fps: float) -> bytes:
    """All pictures as MP4 with H.264, which every browser plays."""
    program = shutil.which("ffmpeg")
    if program is None:
        raise DataError(
            "MP4 needs the program ffmpeg, which is not on the path: install it (apt install ffmpeg, brew "
            "install ffmpeg), or give a name that ends in .gif"
        )
    with tempfile.TemporaryDirectory(prefix="collapipe-") as folder:
        out, process = os.path.join(folder, "video.mp4"), None
        try:
            for picture in pictures:
                if process is None:
                    height, width = picture.shape[:2]
                    command = [program, "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24"]
                    command += ["-s", f"{width}x{height}", "-r", f"{fps:g}", "-i", "-", "-an"]
                    # H.264's usual colours need even sides.
                    command += ["-vf", "crop=trunc(iw/2)*2:trunc(ih/2)*2", "-pix_fmt", "yuv420p", out]
                    process = subprocess.Popen(  # noqa: S603 - a list for ffmpeg, no shell
                        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE
                    )
                assert process.stdin is not None
                process.stdin.write(picture.tobytes())
            assert process is not None
            _, said = process.communicate()
        except BrokenPipeError:
            assert process is not None
            said = process.communicate()[1]
        finally:
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode or not os.path.exists(out):
            raise DataError(
                f"ffmpeg could not make the video ({shortened(said.decode(errors='replace').strip(), 200)}): "
                "give a name that ends in .gif"
            )
        return Path(out).read_bytes()
