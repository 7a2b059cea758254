"""Contents of a comparison's pictures, read back from their axes."""

from pathlib import Path

import matplotlib
import numpy as np
import pytest
from comparison_support import comparison
from variants_support import mostly_slow

from collapipe_env.evaluation.delay_profile import delay_profile
from collapipe_env.evaluation.figures import (
    comparison_pictures,
    delay_bars,
    delay_distribution,
    energy_against_delay,
    loss_over,
    mean_loss_curve,
    memory_per_device,
    over_rounds,
)
from collapipe_env.evaluation.learning_curve import learning_curve
from collapipe_env.evaluation.looks import OWN, Look, looks_of
from collapipe_env.evaluation.plotting import RC
from collapipe_env.schedulers import LEARNED, scheduler_names

DELAYS = {
    "dssra": [[1.0, 2.0, 3.0], [2.0, 3.0, 4.0]],
    "pipeline": [[4.0, 4.0, 4.0], [5.0, 5.0, 5.0]],
    "random": [[90.0, 80.0, 100.0], [90.0, 90.0, 90.0]],
}
HISTORY = [{"steps": float(s), "priced_delay": 5.0 - s / 4.0, "energy_ratio": 1.0} for s in range(1, 5)]


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
    assert texts(one) == ["2.5 s, energy +4.0 %", "4.5 s, energy +50.0 %", "90 s, energy -10.0 %"]
    # Energies of these three rounds are in black; over the scenario's own rounds, a broken budget is in red.
    long = {name: [[delay] * 100] for name, delay in (("dssra", 2.0), ("pipeline", 4.0), ("random", 3.0))}
    (marked,) = delay_bars([comparison("one", long, energy={"dssra": 1.01, "pipeline": 1.5})]).axes
    assert [label.get_text() for label in marked.get_yticklabels()] == ["DSSRA", "RANDOM", "PIPELINE"]
    assert len({text.get_color() for text in one.texts}) == 1
    colours = [marked.texts[i].get_color() for i in (0, 2, 1)]
    assert colours[0] == colours[2] != colours[1]  # the broken budget is in red
    assert [label.get_text() for label in other.get_yticklabels()] == ["DSSRA", "PIPELINE"]


def test_the_front_joins_those_that_nobody_beats(two) -> None:
    figure = energy_against_delay(two)
    (rings,) = [line for line in figure.axes[0].lines if line.get_markersize() == 13]
    np.testing.assert_allclose(rings.get_xydata(), [[2.5, 1.04], [90.0, 0.9]])
    assert figure.axes[0].get_xscale() == "log"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "DSSRA", "PIPELINE", "RANDOM", "Pareto front", "budget", "95 % bootstrap interval",
    ]  # fmt: skip


def test_the_profile_is_the_share_of_all_scenarios_episodes_up_to_each_ratio() -> None:
    delays = {"dssra": [[2.0], [4.0]], "pipeline": [[3.0], [5.0]], "random": [[90.0], [4.0]]}
    other = {"dssra": [[8.0]], "random": [[7.0]]}
    done = [comparison("one", delays), comparison("two", other, impossible={"pipeline": "no plan"})]
    (axes,) = delay_profile(done).axes
    assert len(axes.lines) == 4  # three schedulers and the reference's line
    even, random = axes.lines[1], axes.lines[2]
    ratios = np.array([3.0 / 2.0, 5.0 / 4.0, np.inf])  # what it cannot play is within no factor
    for x, y in zip(even.get_xdata(), even.get_ydata(), strict=True):
        assert y == pytest.approx(np.mean(ratios <= x))
    assert {1.5, 1.25} <= set(even.get_xdata())  # its steps are the episodes'
    assert random.get_ydata()[-1] == pytest.approx(2.0 / 3.0)  # the 45-fold is cut off
    assert axes.get_xlim()[1] < 5.0


def test_the_profile_leaves_out_who_fails_the_energy_gate() -> None:
    long = {name: [[delay] * 500] * 2 for name, delay in (("dssra", 2.0), ("pipeline", 1.0))}
    (axes,) = delay_profile([comparison("one", long, energy={"pipeline": 1.1})]).axes
    assert len(axes.lines) == 2
    assert axes.get_xlim()[0] > 0.9
    (axes,) = delay_profile([comparison("one", long, energy={"pipeline": 1.01})]).axes
    assert len(axes.lines) == 3


def test_the_distribution_is_of_all_rounds_of_all_episodes(two) -> None:
    axes = delay_distribution(two).axes[0]
    x, y = axes.lines[0].get_xdata(), axes.lines[0].get_ydata()
    np.testing.assert_allclose(x, [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0])
    np.testing.assert_allclose(y, np.arange(7) / 6)


def test_memory_is_shown_against_what_each_device_offers(two) -> None:
    axes = memory_per_device(two).axes[0]
    dots = [line for line in axes.lines if line.get_marker() == "."]
    assert len(dots) == 3
    # Three devices in two episodes; the slot that offers nothing is not a device.
    assert sorted(dots[0].get_xdata()) == pytest.approx([0.0, 0.0, 25.0, 25.0, 50.0, 50.0])
    assert texts(axes)[0] == "most 100 MB, 33 % idle"


def test_loss_is_drawn_against_simulated_time(two) -> None:
    seconds, losses = mean_loss_curve(two[0], "dssra", points=7)
    minutes = seconds / 60.0
    np.testing.assert_allclose(60.0 * minutes, np.arange(7))  # until the shorter episode ends, after 6 s
    np.testing.assert_allclose(losses[0], [1.0, 0.9, 0.9, 0.8, 0.8, 0.8, 0.7])
    np.testing.assert_allclose(losses[1], [1.0, 1.0, 0.9, 0.9, 0.9, 0.8, 0.8])
    axes = loss_over_time(two).axes[0]
    np.testing.assert_allclose(axes.lines[0].get_xdata()[-1], 6.0 / 60.0)
    assert axes.get_xlabel() == "simulated time (min)"


def loss_over_time(comparisons):
    return loss_over(comparisons, "delay", 60.0, "simulated time (min)")


def delays_over_rounds(comparisons):
    return over_rounds(comparisons, "delay", "round delay (s)")


@pytest.mark.parametrize("rounds", [1, 2, 3, 7])
def test_rounds_are_whole_and_bands_named(rounds) -> None:
    done = comparison("one", {"dssra": [[1.0 + i for i in range(rounds)]] * 2})
    figure = delays_over_rounds([done])
    figure.canvas.draw()
    (axes,) = figure.axes
    low, high = axes.get_xlim()
    ticks = [tick for tick in axes.get_xticks() if low <= tick <= high]
    assert ticks
    assert all(float(tick).is_integer() for tick in ticks)
    assert legend(figure) == ["DSSRA", "mean over episodes", "lowest to highest of 2 episodes"]


def test_each_scenario_has_its_own_course_of_rounds(two) -> None:
    one, other = delays_over_rounds(two).axes
    assert one.get_yscale() == "log"  # one poor scheduler would press the others onto the axis
    assert other.get_yscale() == "linear"
    np.testing.assert_allclose(one.lines[0].get_xydata(), [[1.0, 1.5], [2.0, 2.5], [3.0, 3.5]])
    (queues, _) = over_rounds(two, "backlog", "queues").axes
    assert queues.get_ylabel() == "queues"
    assert set(queues.lines[2].get_ydata()) == {0.5}


def test_the_learning_curve_names_every_line() -> None:
    done = comparison("one", {**DELAYS, "agent": [[3.0, 2.0, 3.0]] * 2}, server_blocks={"dssra": 3})
    figure = learning_curve(HISTORY, done.summaries, "one")
    assert legend(figure) == ["AGENT: validation", "DSSRA †", "PIPELINE", "budget (lower panel)"]
    agent, *others = figure.axes[0].lines
    np.testing.assert_allclose(agent.get_xydata(), [[s, 5.0 - s / 4.0] for s in range(1, 5)])
    assert [set(line.get_ydata()) for line in others] == [{2.5}, {4.5}]
    looks = looks_of([*DELAYS, "agent"])
    assert [(line.get_color(), line.get_marker()) for line in (agent, *others)] == [
        (looks[name].colour, looks[name].marker) for name in ("agent", "dssra", "pipeline")
    ]
    assert "Beyond the axis: RANDOM (90 s)." in figure.get_supxlabel()
    figure.canvas.draw()
    assert all(float(tick).is_integer() for tick in figure.axes[1].get_xticks())


def legend(figure) -> list[str]:
    (found,) = figure.legends
    return [text.get_text() for text in found.get_texts()]


def test_bands_and_lines_of_losses_are_explained(two) -> None:
    assert legend(loss_over_time(two))[-2:] == ["mean over episodes", "lowest to highest of 2 episodes"]
    assert legend(loss_over_time(two[1:])) == ["DSSRA", "PIPELINE"]  # one episode has no band


def test_schedulers_that_use_the_server_are_marked_by_what_they_did(two) -> None:
    done = comparison("one", DELAYS, server_blocks={"random": 2})
    assert [label.get_text() for label in delay_bars([done]).axes[0].get_yticklabels()][-1] == "RANDOM †"
    assert [label.get_text() for label in memory_per_device([done]).axes[0].get_yticklabels()][
        -1
    ] == "RANDOM †"
    for draw in (energy_against_delay, delay_distribution, loss_over_time, delays_over_rounds):
        assert {"RANDOM †", "DSSRA"} <= set(legend(draw([done])))
        # One entry for a scheduler that uses it in one scenario only.
        assert [name for name in legend(draw([two[0], done])) if "RANDOM" in name] == ["RANDOM †"]


@pytest.fixture
def saved(monkeypatch):
    figures = {}
    monkeypatch.setattr(
        "collapipe_env.evaluation.plotting.save",
        lambda figure, path: figures.__setitem__(path.stem, figure),
    )
    return figures


def test_pictures_say_what_the_mark_means_and_where_the_agent_is_from(saved) -> None:
    agent = Path("runs/x/checkpoints/best.safetensors")
    done = comparison("one", {**DELAYS, "agent": [[2.0]] * 2}, server_blocks={"pipeline": 1}, agents=(agent,))
    pictures = comparison_pictures([done], history=HISTORY)
    assert list(pictures) == [
        "delay", "energy_delay", "delay_cdf", "delay_per_round", "backlog", "memory", "loss_time",
        "loss_energy", "delay_profile",
        "learning_curve", "gantt-one",
    ]  # fmt: skip
    for name in ("delay", "memory", "loss_energy", "learning_curve"):
        pictures[name](Path(f"{name}.png"))
        text = " ".join(saved[name].get_supxlabel().split())
        assert "† also trains encoder blocks on the edge server" in text
        assert text.endswith(f"AGENT: trained agent, from {agent}")
    comparison_pictures([comparison("one", DELAYS)])["delay"](Path("plain.png"))
    assert saved["plain"].get_supxlabel() == ""


LONG = "somebodys_package.schedulers.with.a.long.path:AScheduler{0}"


@pytest.mark.parametrize("name", mostly_slow(["delay", "energy_delay", "memory", "loss_time"], [1]))
def test_nothing_overlaps_with_many_schedulers_and_long_names(name: str, saved) -> None:
    names = [LEARNED, *scheduler_names(), *(LONG.format(i) for i in range(3))]
    delays = {name: [[1.0 + i, 2.0 + i]] for i, name in enumerate(names)}
    done = comparison("one", delays, server_blocks={"pipar": 1}, agents=(Path("a.safetensors"),))
    with matplotlib.rc_context(RC):
        comparison_pictures([done])[name](Path(f"{name}.png"))
    figure = saved[name]
    figure.canvas.draw()
    width, height = figure.canvas.get_width_height()
    renderer = figure.canvas.get_renderer()
    frames = [axes.get_window_extent(renderer) for axes in figure.axes]
    assert min(frame.width for frame in frames) > 250.0
    words = [t for axes in figure.axes for t in (*axes.texts, axes.xaxis.label)]
    if name in ("delay", "memory"):
        words += [label for axes in figure.axes for label in axes.get_yticklabels()]
    words += [t for found in figure.legends for t in found.get_texts()]
    for box in (t.get_window_extent(renderer) for t in (*words, figure._supxlabel) if t.get_text()):
        assert -1.0 <= box.x0 <= box.x1 <= width + 1.0
        assert -1.0 <= box.y0 <= box.y1 <= height + 1.0
    below = figure._supxlabel.get_window_extent(renderer)
    assert all(below.y1 <= axes.xaxis.label.get_window_extent(renderer).y0 + 1.0 for axes in figure.axes)
    for found in figure.legends:
        beside = found.get_window_extent(renderer)
        assert all(beside.x0 >= frame.x1 - 1.0 for frame in frames)
        assert beside.y0 >= below.y1 - 1.0


def test_every_scheduler_has_a_look_of_its_own_by_its_name() -> None:
    own = [LONG.format(i) for i in range(30)] + ["mine.py:Fast", "mine.py:Slow"]
    names = [*own, LEARNED, *scheduler_names()]
    looks = looks_of(names)
    assert len({(look.colour, look.marker) for look in looks.values()}) == len(looks) == len(names)
    assert looks_of(reversed(names)) == looks
    assert set(OWN) == {LEARNED, *scheduler_names()}
    # The same in every picture of every run and process: the package's own by a fixed list, others by name.
    assert looks["dssra"] == Look("#D55E00", "s", "-")
    assert looks["dssra-target"] == Look("#E69F00", "X", ":", "....")
    assert looks_of(["mine.py:Fast"])["mine.py:Fast"] == Look("#CC79A7", "<", "-.", "xxxx")
    assert looks_of(["mine.py:Slow"])["mine.py:Slow"] == Look("#009E73", ">", "-.", "xxxx")
