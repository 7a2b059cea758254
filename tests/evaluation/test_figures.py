"""What the pictures of an evaluation show, read back from their axes."""

from pathlib import Path

import numpy as np
import pytest
from comparison_support import comparison

from collapipe_env.evaluation import figures
from collapipe_env.evaluation.figures import curves, delay_bars, learning_curve, loss_over_time
from collapipe_env.evaluation.plotting import looks_of

DELAYS = {
    "agent": [[3.0, 2.0, 3.0], [2.0, 3.0, 4.0]],
    "dssra": [[1.0, 2.0, 3.0], [2.0, 3.0, 3.0]],
    "random": [[90.0, 80.0, 100.0], [90.0, 90.0, 90.0]],
}
HISTORY = [{"steps": float(s), "mean_delay": 5.0 - s / 4.0, "energy_ratio": 1.0} for s in range(1, 5)]


@pytest.fixture
def done():
    return comparison("one", DELAYS, server_blocks={"dssra": 3}, agent=Path("runs/x/best.zip"))


def legend(figure) -> list[str]:
    (found,) = figure.legends
    return [text.get_text() for text in found.get_texts()]


@pytest.mark.parametrize("rounds", [1, 2, 3, 7])
def test_rounds_are_whole_and_bands_named(rounds) -> None:
    results = comparison("one", {"dssra": [[1.0 + i for i in range(rounds)]] * 2}).results
    figure = curves(results, "delay", "round delay (s)", "one")
    figure.canvas.draw()
    (axes,) = figure.axes
    low, high = axes.get_xlim()
    ticks = [tick for tick in axes.get_xticks() if low <= tick <= high]
    assert ticks
    assert all(float(tick).is_integer() for tick in ticks)
    assert legend(figure) == ["DSSRA", "mean over episodes", "lowest to highest of 2 episodes"]


def test_a_single_episode_has_no_band_to_name() -> None:
    results = comparison("one", {"dssra": [[1.0, 2.0]]}).results
    assert legend(curves(results, "delay", "round delay (s)", "one")) == ["DSSRA"]
    assert legend(loss_over_time(results, 0.5, "one")) == ["DSSRA", "target loss 0.500"]


def test_lines_of_one_colour_are_explained_and_carry_their_schedulers_marker(done) -> None:
    figure = loss_over_time(done.results, 0.5, "one")
    assert legend(figure) == [
        "AGENT", "DSSRA †", "RANDOM", "target loss 0.500", "a line for each of 2 episodes",
    ]  # fmt: skip
    looks = looks_of(DELAYS)
    drawn = [(line.get_color(), line.get_marker()) for line in figure.axes[0].lines[:6]]
    assert drawn == [(looks[n].colour, looks[n].marker) for n in DELAYS for _ in range(2)]


def test_the_learning_curve_names_every_line(done) -> None:
    figure = learning_curve(HISTORY, done.summaries, "one")
    assert legend(figure) == ["AGENT: validation", "DSSRA †", "budget (lower panel)"]
    agent, dssra = figure.axes[0].lines
    np.testing.assert_allclose(agent.get_xydata(), [[s, 5.0 - s / 4.0] for s in range(1, 5)])
    assert set(dssra.get_ydata()) == {np.mean([2.0, 8.0 / 3.0])}
    looks = looks_of(DELAYS)
    assert [(line.get_color(), line.get_marker()) for line in (agent, dssra)] == [
        (looks[name].colour, looks[name].marker) for name in ("agent", "dssra")
    ]
    assert "Beyond the axis: RANDOM (90 s)." in figure.get_supxlabel()
    figure.canvas.draw()
    assert all(float(tick).is_integer() for tick in figure.axes[1].get_xticks())


def test_bars_say_what_their_signs_mean(done) -> None:
    (axes,) = delay_bars(done.summaries, "one").axes
    assert "whisker: 95 % bootstrap interval" in axes.get_xlabel()
    assert "red: more than 5 % above" in axes.get_xlabel()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["DSSRA †", "AGENT", "RANDOM"]


def test_every_picture_says_what_the_mark_means_and_where_the_agent_is_from(
    done, monkeypatch, tmp_path
) -> None:
    found = {}
    monkeypatch.setattr(figures, "save", lambda figure, path: found.setdefault(path, figure) and path)
    monkeypatch.setattr(figures, "typical_round_figure", lambda *_: None)
    figures.draw_evaluation(done.plan, done.results, done.summaries, done.target, HISTORY, tmp_path)
    pictures = [figure for figure in found.values() if figure is not None]
    assert len(pictures) == 5
    for figure in pictures:
        text = " ".join(figure.get_supxlabel().split())
        assert "† trains encoder blocks on the edge server" in text
        assert text.endswith("AGENT: trained agent, from runs/x/best.zip")
