"""The README's picture is drawn of a round that DSSRA decided."""

import sys
from pathlib import Path

from matplotlib.image import imread

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import make_readme_picture


def test_the_picture_is_drawn(tmp_path, monkeypatch, capsys):
    target = tmp_path / "images" / "round.png"
    monkeypatch.setattr(make_readme_picture, "TARGET", target)
    make_readme_picture.main()
    assert str(target) in capsys.readouterr().out
    picture = imread(target)
    assert min(picture.shape[:2]) > 300
    assert picture.std() > 0.05
