"""Pictures of rounds: drawn without a display, of the right shape, and they show what the view says."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from variants_support import mostly_slow

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.physics.schedules.timeline import RoundTimeline
from collapipe_env.rendering import draw_round
from collapipe_env.rendering.page import filled
from collapipe_env.rendering.round_view import Chart, RoundView, slowest
from collapipe_env.rendering.sheet import Sheet
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.even_split import even_split

SLOW = pytest.mark.slow
SHIFTS = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]


def make_view(
    clusters: int = 2,
    devices: int = 3,
    *,
    steps: int = 1,
    micro_batches: int = 4,
    title: str = "test",
    per: str = "round",
    opened: Mapping[str, list[int]] | None = None,
    **sections: Any,
) -> RoundView:
    scenario = {
        "base": "small",
        "cluster": {"clusters": clusters, "devices": devices},
        "workload": {
            "blocks": 4, "local_steps": steps, "batch_size": 64, "micro_batches": [micro_batches],
        },
        "budgets": {"device_energy_j": 1e4, "cu_energy_j": 1e4, "bandwidth_floor": 0.001, "per": per},
        **sections,
    }  # fmt: skip
    env = CollaPipeEnv(scenario, "surrogate")
    env.reset(seed=7)
    env.action_space.seed(7)
    action = env.action_space.sample()
    if opened is None:
        env.step(action)
    else:
        plan = even_split(system_parameters(env.scenario), env.state)
        env.step_allocation(
            dataclasses.replace(plan, **{name: np.array([row]) for name, row in opened.items()})
        )
    record = env.last_round
    present = record.state.present.copy()
    present[0, -1, -1] = clusters == 1
    record = dataclasses.replace(record, state=dataclasses.replace(record.state, present=present))
    delays = np.random.default_rng(7).uniform(3.0, 4.0, 9)
    return RoundView(record, title, loss_history=np.linspace(0.7, 0.4, 9), delay_history=delays)


def with_charts(view: RoundView, charts) -> RoundView:
    """The same picture with other charts of the pipelines."""
    other = dataclasses.replace(view)
    other.__dict__["charts"] = tuple(charts)
    return other


def with_record(view: RoundView, **changes) -> RoundView:
    """The same charts beside another record."""
    return with_charts(
        dataclasses.replace(view, record=dataclasses.replace(view.record, **changes)), view.charts
    )


def without_events(chart: Chart) -> Chart:
    timeline = RoundTimeline(chart.timeline.elements, (), chart.timeline.phases)
    return dataclasses.replace(chart, timeline=timeline)


def changed(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    return np.any(before != after, axis=-1)


@pytest.mark.parametrize(
    ("clusters", "devices", "steps", "micro_batches"),
    mostly_slow(
        [(1, 1, 1, 1), (2, 3, 1, 4), (4, 5, 3, 64), (5, 2, 1, 8), (16, 8, 1, 32), (32, 16, 1, 4)], range(4)
    ),
)
def test_every_size_draws(clusters, devices, steps, micro_batches):
    image = draw_round(make_view(clusters, devices, steps=steps, micro_batches=micro_batches))
    assert image.shape == (800, 1200, 3)
    assert image.dtype == np.uint8
    # Both halves of the page carry ink, and not only black on white.
    for half in (image[:, :720], image[:, 720:]):
        assert np.mean(np.any(half < 200, axis=-1)) > 0.02
        assert np.ptp(half.astype(int), axis=-1).max() > 60


def texts_in_place_of_words(sheet):
    """Write the words of a page as Matplotlib's own texts."""
    sheet.figure.artists[0].set_visible(False)
    return [
        sheet.figure.text(
            word.x_px, word.y_px, word.text, transform=sheet.transform, fontproperties=word.font,
            color=word.colour, ha={0.0: "left", 0.5: "center", 1.0: "right"}[word.across],
            va="center_baseline",
        )
        for word in sheet.words
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("clusters", "devices"), [(2, 3), (5, 2), pytest.param(24, 16, marks=pytest.mark.slow)]
)
def test_words_lie_where_matplotlib_puts_its_texts(clusters, devices):
    """Words begin at whole pixels: none is more than a pixel from where Matplotlib puts it."""
    sheet = filled(make_view(clusters, devices))
    for artist in sheet.figure.artists[1:]:
        artist.set_visible(False)
    frame = sheet.pixels().min(axis=-1)
    texts_in_place_of_words(sheet)
    expected = sheet.pixels().min(axis=-1)
    for one, other in ((frame, expected), (expected, frame)):
        near = np.pad(other < 235, 1)
        shifted = [near[1 + i : near.shape[0] - 1 + i, 1 + j : near.shape[1] - 1 + j] for i, j in SHIFTS]
        inked = one < 160
        assert inked.sum() > 1000
        assert not (inked & ~np.any(shifted, axis=0)).any()
    assert frame.mean() == pytest.approx(expected.mean(), rel=1e-3)


@pytest.mark.parametrize("place", [(-30.0, 20.0), (1190.0, 795.0), (600.0, -3.0), (600.0, 900.0)])
def test_words_that_leave_the_page_are_cut_off(place):
    sheet = Sheet(1200, 800)
    sheet.write(*place, "a word of some length", 12.0, bold=True)
    sheet.write(600.0, 400.0, "", 12.0)
    frame = sheet.pixels()
    texts_in_place_of_words(sheet)
    expected = sheet.pixels()
    assert (frame < 160).any() == (expected < 160).any()
    assert frame.mean() == pytest.approx(expected.mean(), abs=0.02)


def test_writing_to_a_frame_does_not_change_the_next():
    view = make_view()
    frame = draw_round(view)
    before = frame.copy()
    frame[:] = 0
    np.testing.assert_array_equal(draw_round(view), before)
    sheet = Sheet(200, 100)
    first = sheet.pixels()
    sheet.write(50.0, 50.0, "more", 30.0)
    assert sheet.pixels().min() < first.min()


def test_user_settings_do_not_leak_in_or_out():
    view = make_view(steps=2)
    expected = draw_round(view)
    settings = {
        "font.size": 20.0, "font.family": "serif", "text.usetex": True, "axes.facecolor": "black",
        "lines.linewidth": 9.0, "hatch.linewidth": 3.0, "path.sketch": (1.0, 100.0, 2.0),
    }  # fmt: skip
    with matplotlib.rc_context(settings):
        assert np.array_equal(draw_round(view), expected)
        assert matplotlib.rcParams["font.size"] == 20.0
        sheet = Sheet(200, 100)
        sheet.write(50.0, 50.0, "a size of its own", 13.37)  # fonts are kept by size
    assert sheet.words[0].font.get_family() == ["DejaVu Sans"]


def test_backlog_changes_only_the_energy_panel():
    view = make_view()
    other = with_record(view, backlog=view.record.backlog[:, :, ::-1] + 1.0)
    where = np.argwhere(changed(draw_round(view), draw_round(other)))
    assert len(where) > 500
    assert where[:, 1].min() > 720
    assert where[:, 0].max() < 200


def test_segments_change_only_the_allocation_panel():
    view = make_view()
    plan = view.record.allocation
    more = np.array([[[3, 0, 1], [0, 0, 0]]])
    other = with_record(view, allocation=dataclasses.replace(plan, blocks=plan.blocks + more))
    where = np.argwhere(changed(draw_round(view), draw_round(other)))
    assert len(where) > 500
    assert where[:, 1].min() > 720
    assert where[:, 0].min() > 330
    assert where[:, 0].max() < 640


def test_events_appear_in_the_pipeline_chart_only():
    view = make_view()
    with_events = draw_round(view)
    mask = changed(with_events, draw_round(with_charts(view, map(without_events, view.charts))))
    where = np.argwhere(mask)
    assert len(where) > 2000
    assert where[:, 1].max() < 725
    # Forward bars are blue, backward bars orange.
    red, blue = (with_events[..., i][mask].astype(int) for i in (0, 2))
    assert (blue > red + 40).sum() > 500
    assert (red > blue + 40).sum() > 500


def test_an_event_lies_at_its_time():
    """The first bar of the first computing row begins where the time axis says it does."""
    view = make_view(1, 2)
    timeline = view.charts[0].timeline
    compute = next(i for i, e in enumerate(timeline.elements) if e.kind == "compute")
    only = tuple(
        e for e in timeline.events if e.element == compute and e.micro_batch == 2 and e.direction == "forward"
    )
    timeline = RoundTimeline(timeline.elements, only, timeline.phases)
    chart = dataclasses.replace(view.charts[0], timeline=timeline)
    image = draw_round(with_charts(view, [chart])).astype(int)
    chart = image[95:750, 104:720]
    columns = np.flatnonzero(np.any(chart[..., 2] > chart[..., 0] + 60, axis=0))
    px_per_s = (720 - 104) / timeline.end_s
    assert columns.min() == pytest.approx(only[0].start_s * px_per_s, abs=2.0)
    assert columns.max() == pytest.approx(only[0].end_s * px_per_s, abs=2.0)


def test_detail_is_given_to_the_slowest():
    charts = make_view(6, 2).charts
    ordered = sorted(range(6), key=lambda n: -charts[n].delay_s)
    assert slowest(charts, 3) == ordered[:3]
    assert slowest(charts, 6) == list(range(6))
    assert [bool(chart.timeline.events) for chart in charts] == [n in ordered[:4] for n in range(6)]


def test_empty_and_missing_histories_and_silent_transmitters_draw():
    view = make_view()
    plan = view.record.allocation
    silent = dataclasses.replace(plan, cu_power=0.0 * plan.cu_power, device_power=0.0 * plan.device_power)
    other = with_record(view, allocation=silent)
    assert draw_round(dataclasses.replace(other, loss_history=[float("nan")], delay_history=[])).std() > 0.0


def test_importing_draws_in_no_matplotlib_and_drawing_no_pyplot():
    code = (
        "import sys; import collapipe_env.rendering as r; assert 'matplotlib' not in sys.modules;"
        "sys.path[:0] = sys.argv[1:]; from test_page import make_view;"
        "r.draw_round(make_view()); assert 'matplotlib.pyplot' not in sys.modules"
    )
    # Not even a backend that needs a display gets in the way.
    environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    environment["MPLBACKEND"] = "tkagg"
    command = [sys.executable, "-W", "error", "-c", code, *map(str, Path(__file__).parents[:2])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_missing_matplotlib_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ModuleNotFoundError, match=r"collapipe-env\[plots\]"):
        draw_round(make_view())


def luminance(colour: str) -> float:
    """Relative luminance as the Web Content Accessibility Guidelines define it, written out anew."""
    shares = np.array([int(colour[i : i + 2], 16) / 255.0 for i in (1, 3, 5)])
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_numbers_on_bars_are_written_in_the_colour_that_contrasts_more():
    from collapipe_env.rendering.colours import INK, MUTED, PHASES
    from collapipe_env.rendering.style import ink_on

    for colour in (*MUTED, *(colour for _, colour in PHASES.values()), "#000000", "#ffffff", "#777777"):
        ground = luminance(colour)
        contrast = {}
        for name, code in ((INK, INK), ("white", "#ffffff")):
            low, high = sorted((ground, luminance(code)))
            contrast[name] = (high + 0.05) / (low + 0.05)
        assert ink_on(colour) == max(contrast, key=contrast.__getitem__)
        assert max(contrast.values()) > 4.0


def test_hatching_is_in_the_legend_where_there_is_some():
    def words(view):
        return [word.text for word in filled(view).words]

    name = "local step, not drawn in detail"
    assert name not in words(make_view(2, 3, steps=1))
    assert name in words(make_view(2, 3, steps=2))  # one of the two is drawn
    view = make_view(2, 3, steps=1)
    assert name in words(with_charts(view, map(without_events, view.charts)))
    from matplotlib.collections import Collection

    hatched = [c for c in filled(view).figure.findobj(Collection) if c.get_hatch()]
    assert hatched == []
    several = filled(make_view(2, 3, steps=2)).figure
    assert len([c for c in several.findobj(Collection) if c.get_hatch()]) == 3  # two clusters and the legend


@pytest.mark.parametrize("last", [1, 2, 3, 4, 9, 40])
def test_rounds_and_blocks_are_counted_in_whole_numbers(last):
    from collapipe_env.rendering.panel import ticks_between

    for low in (0.5, last - 0.5):
        ticks = ticks_between(low, last + 0.5, 4, integer=True)
        assert len(ticks) >= min(2, last + 0.5 - low)
        assert all(tick.is_integer() for tick in ticks)


@pytest.mark.parametrize(
    ("clusters", "devices", "steps"), [(2, 3, 1), (4, 5, 3), (5, 6, 1), (16, 8, 1), (24, 16, 1)]
)
def test_words_do_not_overlap(clusters, devices, steps):
    """No two texts of the page share pixels, and none leaves it, at any size of the problem."""
    title = "a scenario with a remarkably long name " * 4 if steps > 1 else "test"
    sheet = filled(make_view(clusters, devices, steps=steps, micro_batches=8, title=title))
    renderer, texts = sheet.figure.canvas.get_renderer(), texts_in_place_of_words(sheet)
    boxes = [(t.get_text(), t.get_window_extent(renderer)) for t in texts if t.get_text()]
    assert len(boxes) > 30
    for i, (text, box) in enumerate(boxes):
        assert min(box.x0, box.y0) >= 0.0, text
        assert max(box.x1 / 1200, box.y1 / 800) <= 1.0, text
        for other_text, other in boxes[:i]:
            # Line boxes include space for accents and tails: one or two pixels are no overlap.
            across = min(box.x1, other.x1) - max(box.x0, other.x0)
            along = min(box.y1, other.y1) - max(box.y0, other.y0)
            assert across < 1.0 or along < 3.0, (text, other_text)


def test_budgets_per_second_are_shown_as_power():
    """The same bars as energies of a round that grants one budget, under another title."""
    view = make_view(per="second")
    seen = view.record.costs.energy_ratio
    costs = dataclasses.replace(view.record.costs, energy_ratio=3.0 * seen / seen.max())  # well above budgets
    view = with_record(view, costs=costs)
    ratio = costs.energy_ratio / costs.allowance[:, None, None]
    other = with_record(view, costs=dataclasses.replace(costs, energy_ratio=ratio, budget_period_s=None))
    power, energy = ([word.text for word in filled(one).words] for one in (view, other))
    assert "energy e / budget" in energy
    assert power == ["power / budget" if word == "energy e / budget" else word for word in energy]
    where = np.argwhere(changed(draw_round(view), draw_round(other)))
    assert np.ptp(where[:, 0]) < 20


def test_clusters_that_sit_out_are_said_to():
    decisions = ["segments", "micro_batches", "bandwidth", "powers", "participation", "local_steps"]
    view = make_view(3, opened={"participates": [1, 0, 1], "local_steps": [4, 1, 1]}, decisions=decisions)
    words = [word.text for word in filled(view).words]
    assert words.count("sits out") == 1
    assert [word.split(" x ")[0] for word in words if " x " in word and word[0].isdigit()] == ["4", "1"]
    for n in (0, 2):
        ends = [phase.end_s for phase in view.charts[n].timeline.phases]
        assert np.abs(np.array(ends) - view.record.costs.cluster_delay[0, n]).min() < 1e-6
