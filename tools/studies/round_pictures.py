"""Pictures of played rounds: heat, walks, wrong gains, failures, schedules, traces, and the front of V."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from fit_traces import SOURCES, fitted_traces
from fitting.trace_fits import Mixture, decibels
from generated_parts import markdown_table
from matplotlib.figure import Figure
from player import Play, played, rounds

from collapipe_env.dynamics.heat_spec import heat_numbers
from collapipe_env.dynamics.trace_bank import TraceBank
from collapipe_env.dynamics.trace_like import PROFILES, made_traces
from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.plotting import COLOURS, INK, MUTED, new_figure
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.errors import DataError
from collapipe_env.physics.allocation import SCHEDULES, Allocation, ScheduleName, with_schedule
from collapipe_env.rendering import draw_round
from collapipe_env.rendering.page import BOTTOM_PX, HEIGHT_PX, LEFT_PX, PIPELINE_SHARE, TOP_PX, WIDTH_PX
from collapipe_env.rendering.round_view import RoundView
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.schedulers import SCHEDULERS
from collapipe_env.simulator.build import system_parameters, usual_round
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split
from collapipe_env.trace_files import Trace

SEED, ROUNDS = 7, 60
DASHED = {"color": INK, "linewidth": 1.0, "linestyle": (0, (3.0, 1.5))}
SHOWN_S, LAGS_S = 600, (1, 2, 3, 5, 7, 10, 15, 20, 30, 45, 60, 90, 120)
FRAMES = 24
"""Pictures of the animated round, before it stands still."""
STAGES = 4
"""Stages of the schedules' plans."""


def heat() -> Figure:
    """Hottest devices and delays under ``dssra`` and ``dssra-plus`` in the Thermal tier."""
    figure = new_figure(7.2, 5.0)
    above, below = figure.subplots(2, 1, sharex=True)
    for colour, name, title in zip(COLOURS, ("dssra", "dssra-plus"), ("DSSRA", "DSSRA+"), strict=False):
        records = [s.record for s in rounds(Play("medium-thermal", scheduler=name, rounds=ROUNDS, seed=SEED))]
        hottest = [record.state.processes["heat"]["temperature"][0].max() for record in records]
        delays = [record.costs.delay[0] for record in records]
        minutes = np.cumsum([0.0, *delays[:-1]]) / 60.0
        label = f"{title}, mean round {np.mean(delays):.1f} s"
        above.plot(minutes, hottest, color=colour, linewidth=1.8, label=title)
        below.step(minutes, delays, where="post", color=colour, linewidth=1.8, label=label)
    set_point = heat_numbers(dict(load_scenario("medium-thermal").dynamics.processes)["heat"]).set_c
    above.axhline(set_point, **DASHED)
    above.text(0.0, set_point + 0.15, "paused above", color=INK, fontsize=8.5, va="bottom")
    above.set_ylabel("hottest device (°C)")
    below.set_ylabel("delay of the round (s)")
    below.set_xlabel("simulated time (min)")
    below.set_ylim(bottom=0.0)
    below.legend(loc="lower left")
    above.set_title("medium-thermal, one episode")
    return figure


def walks() -> Figure:
    """Gain of one hop, and devices that are present in an open area."""
    figure = new_figure(7.2, 5.0)
    above, below = figure.subplots(2, 1, sharex=True)
    played_rounds = rounds(Play("medium-mobile", scheduler="pipeline", rounds=ROUNDS, seed=SEED))
    states = [seen.record.state for seen in played_rounds]
    above.plot([10.0 * np.log10(x.d2d_gain[0, 0, 1, 2]) for x in states], color=COLOURS[0], linewidth=1.6)
    present = [state.present[0].sum() for state in states]
    below.step(range(len(present)), present, where="post", color=COLOURS[0], linewidth=1.6)
    above.set_ylabel("gain of one hop (dB)")
    above.set_title("medium-mobile, one episode")
    below.set_ylabel("devices there, of 20")
    below.set_xlabel("round")
    return figure


def knowledge() -> Figure:
    """Delay of DSSRA, and of DSSRA+ with the best weight, against the error of known gains."""
    noises = np.array([0.0, 1.0, 2.0, 3.0, 4.5, 6.0])

    def mean(name: str, noise_db: float, weight: float) -> float:
        known = {"modes": ["noisy"], "noise_db": noise_db}
        changes = {"dynamics.processes.channel_knowledge": known, "dssra_plus.channel_weight": weight}
        play = Play(changes=changes, scheduler=name, episodes=8, rounds=ROUNDS, seed=SEED)
        return float(played(play, ["delay"])["delay"])

    figure = new_figure(7.2, 3.6)
    axes = figure.subplots()
    # The best linear weight if the mean is known: with four branches, fading deviates by 2.31 dB.
    weights = 2.31**2 / (2.31**2 + noises**2)
    seen = [mean("dssra", noise, 1.0) for noise in noises.tolist()]
    shrunk = [mean("dssra-plus", *pair) for pair in zip(noises.tolist(), weights.tolist(), strict=True)]
    axes.plot(noises, seen, "o-", color=COLOURS[0], label="DSSRA, gains as they are known")
    axes.plot(noises, shrunk, "s-", color=COLOURS[1], label="DSSRA+, drawn towards each link's mean")
    axes.axhline(seen[0], **DASHED)
    axes.set_xlabel("error of known gains (dB)")
    axes.set_ylabel("mean delay of a round (s)")
    axes.set_title(f"medium, 8 episodes x {ROUNDS} rounds")
    axes.legend(loc="upper left")
    return figure


def _drawn_rounds(scenario: Scenario, seed: int) -> Iterator[CollaPipeEnv]:
    """The environment after every round of DSSRA, ready to draw it."""
    env = CollaPipeEnv(scenario, "surrogate", render_mode="rgb_array")
    scheduler = SCHEDULERS.get("dssra")(scenario)
    env.reset(seed=seed)
    while True:
        env.step_allocation(scheduler.act(None, env.state)[0])
        yield env


def failed_round() -> Any:
    """The first round of ``medium`` in which a device fails and its cluster continues, as an image."""
    changes = {
        "name": "medium, devices fail",
        "dynamics.processes.presence": {"on_mean_s": 360.0, "graceful": 0.0},
        "devices.profiles.0.memory_bytes": [1.0e9],
    }
    for env in _drawn_rounds(load_scenario("medium").with_overrides(changes), SEED):
        failed = env.last_round.failed
        if failed is not None and ((failed.device >= 0) & ~failed.dropped).any():
            return env.render()
    return None


def plain_round() -> Any:
    """The picture of the README: DSSRA on ``medium``, after ten rounds."""
    for number, env in enumerate(_drawn_rounds(load_scenario("medium"), 0), 1):
        if number == 10:
            return env.render()
    return None


def moving_round() -> list[Any]:
    """The pipelines of that round as they go: what is yet to come is pale."""
    picture = plain_round()[:, : int(PIPELINE_SHARE * WIDTH_PX) + 8]
    left, right = int(LEFT_PX), int(PIPELINE_SHARE * WIDTH_PX)
    rows = slice(int(TOP_PX), int(HEIGHT_PX - BOTTOM_PX))
    frames = []
    for now in np.linspace(left, right, FRAMES).astype(int):
        frame = picture.copy()
        frame[rows, now:right] = 255 - (255 - frame[rows, now:right]) // 8
        frame[rows, now : now + 2] = 0
        frames.append(frame)
    return [*frames, *[picture] * (FRAMES // 4)]


def scheduled(base: Allocation, name: ScheduleName, room: int = 0) -> Allocation:
    """Four stages of three blocks under one schedule, with room for more micro-batches in flight."""
    blocks = np.zeros_like(base.blocks)
    blocks[..., :STAGES] = 3
    depth = np.maximum(STAGES - np.arange(blocks.shape[-1]), 0)
    chunks = 3 if name == "interleaved" else 1
    caps = {"interleaved": 2 * (depth - 1) + (chunks - 1) * STAGES + 1, "zb-h1": STAGES + 1}.get(
        name, depth + 1
    )
    return with_schedule(replace(base, blocks=blocks), name, np.where(depth > 0, caps + room, 0), chunks)


def _medium() -> tuple[CollaPipeVectorEnv, Any]:
    env = CollaPipeVectorEnv(num_envs=1, scenario="medium", learner="surrogate")
    env.reset(seed=0)
    return env, system_parameters(env.scenario)


def schedules() -> Any:
    """A round in which every cluster runs another schedule, as an image."""
    env, parameters = _medium()
    base = even_split(parameters, env.state, 8)
    each = [scheduled(base, name) for name in ("gpipe", "1f1b", "interleaved", "zb-h1")]
    mixed = {name: [getattr(one, name) for one in each] for name in base.__dataclass_fields__}
    # Decisions that nobody opened are None, or an empty record.
    joined = {
        name: np.stack([v[0, n] for n, v in enumerate(values)])[None]
        for name, values in mixed.items()
        if isinstance(values[0], np.ndarray)
    }
    env.step_allocation(Allocation(**joined))
    return draw_round(RoundView(env.last_round, "c0 GPipe · c1 1F1B · c2 interleaved · c3 ZB-H1"))


def schedule_table(entry: Mapping[str, Any], quick: bool) -> str:
    """The table of delays and memory under every schedule."""
    (env, parameters), rows = _medium(), []
    for M in (8, 64):
        kinds: list[tuple[ScheduleName, int]] = [(name, 0) for name in SCHEDULES]
        kinds.insert(2, ("1f1b", STAGES))
        for name, room in kinds:
            plan = scheduled(even_split(parameters, env.state, M), name, room)
            costs = round_costs(parameters, env.state, plan)
            label = f"{name}, {room} more in flight" if room else name
            times = (f"{costs.local_step[0, 0]:.2f}", f"{costs.delay[0]:.2f}")
            rows.append((label, M, *times, f"{costs.memory.max() / 1e6:.0f}"))
    heads = ("local step of cluster 0 (s)", "round delay (s)", "most memory of a device (MB)")
    return markdown_table(("schedule", "M", *heads), rows)


def front() -> Figure:
    """Energy above the budgets against the delay: a panel for each table of ``views/front``."""
    from grid_tables import grids

    from docs import entries

    found = list(grids(entries()["views/front"]))
    figure = new_figure(5.0 * len(found), 4.2)
    for axes, (name, rows) in zip(figure.subplots(1, len(found), squeeze=False)[0], found, strict=True):
        names = ("delay_refs", "energy_budgets")
        values = {label: row[-1].values() for (label,), row in rows}
        places = {label: [float(found[name]) for name in names] for label, found in values.items()}
        walked = {label: place for label, place in places.items() if label.endswith(" V")}
        points = zip(*walked.values(), strict=True)
        axes.plot(*points, color=COLOURS[0], marker="o", markersize=4.5, label="DSSRA over V")
        right, height = np.max(list(walked.values()), axis=0)
        labelled = -np.inf
        for label, place in walked.items():
            if abs(place[1] - labelled) > 0.045 * height:
                labelled, text = place[1], label.removeprefix("DSSRA, ")
                axes.annotate(text, place, (6, 3), textcoords="offset points", fontsize=8, color=MUTED)
        others = [(label, place) for label, place in places.items() if label not in walked]
        for colour, (label, place) in zip(COLOURS[1:], others, strict=False):
            # Random plans are so far off that the line would look upright: they are in the table only.
            if place[0] <= 1.7 * right:
                axes.plot(*place, "s", color=colour, label=label)
        axes.set_ylim(bottom=-0.03 * height)
        axes.margins(x=0.14)
        axes.set_title(name.strip("`:"))
        axes.set_xlabel("delay of a round (T_ref)")
        axes.set_ylabel("energy above the budgets a round, all nodes (budgets)")
        axes.legend(loc="upper right")
    return figure


def correlations(traces: list[Trace]) -> FloatArray:
    """Autocorrelation around each trace's own mean at :data:`LAGS_S`, weighted by length.

    Traces no longer than a lag do not count for it.
    """
    around = [values - values.mean() for values in map(decibels, traces)]
    found = []
    for lag in LAGS_S:
        long = [one for one in around if len(one) > lag]
        each = [np.mean(one[lag:] * one[:-lag]) / np.mean(one * one) for one in long]
        found.append(np.average(each, weights=[len(one) for one in long]))
    return np.array(found)


def _measured(name: str) -> list[Trace]:
    """Traces that a profile was fitted to; none where they are not on this machine."""
    try:
        return fitted_traces(SOURCES[name])
    except DataError:
        return []


def traces() -> Figure:
    """A made and a real trace with the means of their rounds, and autocorrelations of profiles.

    Without the data sets below ``COLLAPIPE_DATA`` it shows synthetic traces only.
    """
    figure = new_figure(7.2, 6.4)
    above, middle, below = figure.subplots(3, 1, height_ratios=(1.0, 1.0, 1.15))
    round_s = usual_round(load_scenario("medium"))
    long = [trace for trace in _measured("driving") if trace.duration_s > SHOWN_S]
    made = made_traces("driving")
    middle_title = "measured, UCC 5G driving" if long else "another one"
    shown = ((above, made[2], "made, profile driving"), (middle, long[0] if long else made[5], middle_title))
    for axes, trace, title in shown:
        begins = np.arange(1.0, SHOWN_S - round_s, round_s)
        none = np.zeros(len(begins), dtype=np.int64)
        seconds = decibels(trace)[:SHOWN_S]
        axes.plot(np.arange(len(seconds)), seconds, color=COLOURS[5], linewidth=1.0, label="every second")
        known, means = TraceBank([trace]).means_between(none, begins[:, None] + [-1.0, 0.0, round_s]).T
        axes.hlines(means, begins, begins + round_s, color=COLOURS[0], linewidth=2.0, label="round")
        axes.plot(begins, known, ".", color=COLOURS[1], markersize=5.0, label="known before it")
        axes.set_ylabel("RSRP (dBm)")
        axes.set_title(title, fontsize=9.5)
        axes.set_xlim(0.0, SHOWN_S)
    above.legend(loc="upper right", ncols=3, fontsize=8.5)
    middle.set_xlabel("time (s)")
    fine = np.arange(0.0, 121.0)
    for colour, name in zip(COLOURS, ("driving", "static", "bus", "driving-rate"), strict=False):
        mixture = Mixture(PROFILES[name].weights, PROFILES[name].times_s)
        below.plot(fine, [mixture.correlation(lag) for lag in fine], color=colour, linewidth=1.6, label=name)
        if found := _measured(name):
            below.plot(LAGS_S, correlations(found), "o", color=colour, markersize=4.0)
    below.set_xlabel("lag (s); lines: profiles, dots: data sets")
    below.set_ylabel("autocorrelation")
    below.legend(loc="upper right", ncols=2)
    return figure
