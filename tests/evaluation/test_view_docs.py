"""The example of docs/view.md runs as it stands there."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "view.md"


def test_the_loop_writes_a_gif(tmp_path: Path, monkeypatch) -> None:
    image = pytest.importorskip("PIL.Image")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(PAGE), "exec"), {})
    with image.open(tmp_path / "rounds.gif") as film:
        assert film.n_frames == 3


def test_the_picture_is_small() -> None:
    assert (PAGE.parent / "images" / "view.png").stat().st_size < 200_000
