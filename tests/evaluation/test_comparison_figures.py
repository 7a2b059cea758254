"""What the pictures of a comparison show, read back from their axes."""

import numpy as np
import pytest
from comparison_support import comparison

from collapipe_env.evaluation.comparison_figures import (
    delay_bars,
    delay_distribution,
    energy_against_delay,
    loss_over_time,
    mean_loss_curve,
    memory_per_device,
)
from collapipe_env.evaluation.plotting import look_at, look_of
from collapipe_env.evaluation.registry import LEARNED, scheduler_names

DELAYS = {
    "dssra": [[1.0, 2.0, 3.0], [2.0, 3.0, 4.0]],
    "pipeline": [[4.0, 4.0, 4.0], [5.0, 5.0, 5.0]],
    "random": [[90.0, 80.0, 100.0], [90.0, 90.0, 90.0]],
}


@pytest.fixture
def two():
    energy = {"dssra": 1.04, "pipeline": 1.5, "random": 0.9}
    return [
        comparison("one", DELAYS, energy=energy),
        comparison("two", {"dssra": [[1.0]], "pipeline": [[2.0]]}, impossible={"random": "no plan"}),
    ]


def texts(axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_delay_bars_have_a_panel_a_scenario_and_a_bar_a_scheduler(two) -> None:
    one, other = delay_bars(two).axes
    assert [label.get_text() for label in one.get_yticklabels()] == ["DSSRA", "PIPELINE", "RANDOM"]
    widths = [bar.get_width() for bar in one.patches]
    assert widths[:2] == pytest.approx([2.5, 4.5])
    assert widths[2] == pytest.approx(2.5 * 4.5)  # cut: one poor scheduler would hide the others
    assert texts(one) == ["2.5 s, energy +4 %", "4.5 s, energy +50 %", "90 s, energy -10 %"]
    colours = [text.get_color() for text in one.texts]
    assert colours[0] == colours[2] != colours[1]  # the broken budget is in red
    assert [label.get_text() for label in other.get_yticklabels()] == ["DSSRA", "PIPELINE", "random"]
    assert "not possible" in texts(other)


def test_the_front_joins_those_that_nobody_beats(two) -> None:
    figure = energy_against_delay(two)
    (rings,) = [line for line in figure.axes[0].lines if line.get_markersize() == 13]
    np.testing.assert_allclose(rings.get_xydata(), [[2.5, 1.04], [90.0, 0.9]])
    assert figure.axes[0].get_xscale() == "log"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "DSSRA", "PIPELINE", "RANDOM", "Pareto front", "budget",
    ]  # fmt: skip


def test_the_distribution_is_of_all_rounds_of_all_episodes(two) -> None:
    axes = delay_distribution(two).axes[0]
    x, y = axes.lines[0].get_xdata(), axes.lines[0].get_ydata()
    np.testing.assert_allclose(x, [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0])
    np.testing.assert_allclose(y, np.arange(7) / 6)


def test_memory_is_shown_against_what_each_device_offers(two) -> None:
    axes = memory_per_device(two).axes[0]
    dots = [line for line in axes.lines if line.get_marker() == "."]
    assert len(dots) == 3
    # Three devices in two episodes; the slot that offers nothing is no device.
    assert sorted(dots[0].get_xdata()) == pytest.approx([0.0, 0.0, 25.0, 25.0, 50.0, 50.0])
    assert texts(axes)[0] == "most 100 MB, 33 % idle"


def test_loss_is_drawn_against_simulated_time(two) -> None:
    minutes, losses = mean_loss_curve(two[0], "dssra", points=7)
    np.testing.assert_allclose(60.0 * minutes, np.arange(7))  # until the shorter episode ends, after 6 s
    np.testing.assert_allclose(losses[0], [1.0, 0.9, 0.9, 0.8, 0.8, 0.8, 0.7])
    np.testing.assert_allclose(losses[1], [1.0, 1.0, 0.9, 0.9, 0.9, 0.8, 0.8])
    axes = loss_over_time(two).axes[0]
    np.testing.assert_allclose(axes.lines[0].get_xdata()[-1], 6.0 / 60.0)
    assert axes.get_xlabel() == "simulated time (min)"


def test_every_scheduler_has_a_look_of_its_own() -> None:
    names = (LEARNED, *scheduler_names())
    assert len({look_of(name) for name in names}) == len(names)
    assert len({look_at(index) for index in range(24)}) == 24
    assert len({(look_at(index).colour, look_at(index).marker) for index in range(24)}) == 24
