"""Videos of pictures: an animated GIF or, with ffmpeg, MP4."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from collapipe_env.ground.errors import DataError, MissingPackageError, shortened
from collapipe_env.ground.files import write_bytes

COLOURS = 255
"""Colours of a frame of a GIF: pictures of rounds have few, and each costs bytes."""


def write_video(pictures: Iterable[npt.NDArray[np.uint8]], path: Path, fps: float) -> None:
    """Write a video.

    Args:
        pictures: Frames (H, W, 3), at least one; they are drawn one by one.
        path: File that ends in ``.gif`` or ``.mp4``.
        fps: Frames per second.

    Raises:
        CollaPipeError: If Pillow or ffmpeg is missing or fails, or the file cannot be written.
    """
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise MissingPackageError.of("videos", "Pillow, which comes with Matplotlib", "plots") from None
    is_mp4, program = path.suffix.lower() == ".mp4", shutil.which("ffmpeg")
    if is_mp4 and program is None:
        raise DataError(
            "MP4 needs the program ffmpeg, which is not on the path: install it (apt install ffmpeg, brew "
            "install ffmpeg), or give a name that ends in .gif"
        )
    with tempfile.TemporaryDirectory(prefix="collapipe-") as name:
        folder = Path(name)
        for number, picture in enumerate(pictures):
            Image.fromarray(picture).save(folder / f"{number:05d}.png", compress_level=1)
        if is_mp4:
            _mp4(str(program), folder, fps)
        else:
            method, plain = Image.Quantize.FASTOCTREE, Image.Dither.NONE  # small marks keep their colours
            frames = (Image.open(one) for one in sorted(folder.iterdir()))
            first, *others = (frame.quantize(COLOURS, method, dither=plain) for frame in frames)
            timing: dict[str, Any] = {"duration": round(1000.0 / fps), "loop": 0, "optimize": False}
            first.save(folder / "video.gif", save_all=True, append_images=others, **timing)
        write_bytes(path, (folder / f"video{path.suffix.lower()}").read_bytes(), "--video")


def _mp4(program: str, folder: Path, fps: float) -> None:
    """Write ``video.mp4`` from all pictures of a folder, with H.264, which every browser plays."""
    command = [program, "-loglevel", "error", "-framerate", f"{fps:g}", "-i", str(folder / "%05d.png")]
    # H.264's usual colours need even sides.
    command += ["-vf", "crop=trunc(iw/2)*2:trunc(ih/2)*2", "-pix_fmt", "yuv420p", str(folder / "video.mp4")]
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL)  # noqa: S603 - no shell
    if done.returncode:
        said = shortened(done.stderr.decode(errors="replace").strip(), 200)
        raise DataError(f"ffmpeg could not make the video ({said}): give a name that ends in .gif")
