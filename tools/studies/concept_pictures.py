"""Pictures of the pages about concepts, one function for each, drawn from the package's own plays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from player import Play, played, rounds

from collapipe_env.agents.learned.agent_file import read_agent_file
from collapipe_env.evaluation.episode import HELD_OUT_SEED
from collapipe_env.evaluation.plotting import COLOURS, INK, MARK, MARKERS, MUTED, log_axis, new_figure
from collapipe_env.evaluation.round_phases import phase_seconds
from collapipe_env.evaluation.scheduler_loading import package_title
from collapipe_env.rendering.style import ink_on, node_colours
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.device_catalogue import catalogue
from collapipe_env.zoo.shipped_agents import agent_path


def _phases(base: str, scheduler: str) -> dict[str, float]:
    """Mean seconds of a round by phase."""
    play = Play(base, scheduler=scheduler, episodes=2, rounds=20, seed=HELD_OUT_SEED)
    steps = load_scenario(base).workload.local_steps
    found = [phase_seconds(seen.record.costs, steps) for seen in rounds(play)]
    return {name: float(np.mean([one[name] for one in found if name in one])) for name in found[0]}


def phases() -> Figure:
    """Where the time of a round goes, under DSSRA and the even split."""
    figure = new_figure(7.2, 3.8)
    axes = figure.subplots()
    bars = [
        (f"{base}, {title}", _phases(base, scheduler))
        for base in ("small", "medium", "boards", "llm-boards")
        for title, scheduler in (("even split", "pipeline"), ("DSSRA", "dssra"))
    ]
    names = dict.fromkeys(name for _, found in bars for name, seconds in found.items() if seconds > 0.05)
    left, places = np.zeros(len(bars)), np.arange(len(bars))[::-1]
    for colour, name in zip(COLOURS, names, strict=False):
        seconds = np.array([found.get(name, 0.0) for _, found in bars])
        axes.barh(places, seconds, left=left, color=colour, label=name)
        left += seconds
    axes.set_yticks(places, [label for label, _ in bars])
    axes.set_xlabel("mean seconds of a round, along the cluster that ends last")
    figure.legend(loc="outside lower center", ncols=4)
    return figure


def devices() -> Figure:
    """The catalogue: sustained speed against power, with memory in the legend."""
    figure = new_figure(7.2, 4.2)
    axes = figure.subplots()
    fastest_first = sorted(catalogue().items(), key=lambda item: -item[1].flops)
    looks = zip(COLOURS * 2, MARKERS * 2, fastest_first, strict=False)
    for colour, marker, (name, one) in looks:
        label = f"{name}, {1e-9 * one.memory_bytes:.3g} GB"
        axes.plot(one.active_power_w, 1e-12 * one.flops, marker, color=colour, markersize=8.0, label=label)
    log_axis(axes, "x")
    log_axis(axes, "y")
    axes.margins(0.1)
    axes.set_xlabel("power while it computes (W)")
    axes.set_ylabel("sustained TFLOP/s in 32 bits")
    axes.legend(loc="upper left")
    return figure


def processes() -> Figure:
    """What changes between the rounds of one episode of ``medium-wild`` under DSSRA+."""
    play = Play("medium-wild", scheduler="dssra-plus", rounds=60, seed=HELD_OUT_SEED)
    states = [seen.record.state for seen in rounds(play)]
    figure = new_figure(7.2, 5.4)
    panels = figure.subplots(4, 1, sharex=True)
    gains = np.array([10.0 * np.log10(np.maximum(state.uplink_gain[0], 1e-30)) for state in states])
    shown = (
        ("uplink gains (dB)", gains),
        ("devices there", [state.present[0].sum(axis=-1) for state in states]),
        ("hottest device (°C)", [state.processes["heat"]["temperature"][0].max(axis=-1) for state in states]),
        ("share of server", [np.broadcast_to(state.server_share[0], ()) for state in states]),
    )
    for axes, (label, values) in zip(panels, shown, strict=True):
        lines = np.asarray(values, dtype=float).reshape(len(states), -1).T
        for colour, line in zip(COLOURS, lines, strict=False):
            axes.step(range(len(line)), line, where="post", color=colour, linewidth=1.4)
        axes.set_ylabel(label, fontsize=8.5)
    panels[0].set_title("medium-wild, one episode; a colour for each cluster")
    panels[-1].set_xlabel("round")
    figure.align_ylabels()
    return figure


def weights() -> Figure:
    """Delay and queues of DSSRA over an episode, for three weights of the delay."""
    figure = new_figure(7.2, 3.6)
    left, right = figure.subplots(1, 2)
    for colour, v in zip(COLOURS, (1.0 / 16.0, 1.0, 16.0), strict=False):
        play = Play("medium", v=v, episodes=4, rounds=100, seed=HELD_OUT_SEED)
        records = [seen.record for seen in rounds(play)]
        found = [(one.costs.delay.mean(), one.backlog.max(axis=(1, 2)).mean()) for one in records]
        delay, backlog = np.array(found).T
        smooth = np.convolve(delay, np.ones(10) / 10.0, "valid")
        left.plot(np.arange(len(smooth)) + 10, smooth, color=colour, linewidth=1.8)
        right.plot(np.arange(len(backlog)) + 1, backlog, color=colour, linewidth=1.8, label=f"{v:.4g} V")
    left.set_ylabel("delay of a round, mean of ten (s)")
    right.set_ylabel("longest energy queue (budgets)")
    log_axis(right, "y")
    for axes in (left, right):
        axes.set_xlabel("round")
    figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def plans() -> Figure:
    """Blocks of every device that the systems plan in one state of a cluster of ``medium``."""
    scenario = load_scenario("medium")
    figure = new_figure(7.2, 4.6)
    axes = figure.subplots()
    names = (
        "pipeline", "flop_proportional", "memory_proportional", "best_single_device", "titanic", "pipeedge",
        "asteroid", "adaptis", "flexpipe", "greedy_dpp", "dssra",
    )  # fmt: skip
    titles = []
    for place, name in enumerate(reversed(names)):
        seen = next(rounds(Play("medium", scheduler=name, rounds=1, seed=HELD_OUT_SEED)))
        plan, left = seen.record.allocation, 0
        for device, colour in enumerate(node_colours(scenario.max_devices)[1:]):
            count = int(plan.blocks[0, 0, device])
            if count:
                axes.barh(place, count, left=left, color=colour, edgecolor="white", height=0.75)
                middle = (left + 0.5 * count, place)
                axes.annotate(
                    f"d{device}", middle, ha="center", va="center", fontsize=8.0, color=ink_on(colour)
                )
            left += count
        titles.append(package_title(name))
        note = f"M = {int(plan.micro_batches[0, 0])}, {float(seen.record.costs.delay[0]):.1f} s"
        axes.annotate(note, (left + 0.15, place), va="center", fontsize=8.5, color=MUTED)
    axes.set_yticks(range(len(names)), titles)
    axes.set_xlim(0.0, 15.0)
    axes.grid(visible=False)
    axes.set_xlabel("encoder blocks of each device in cluster 0; micro-batches and delay of the round")
    return figure


def targets() -> Figure:
    """Smoothed loss over simulated time until the target, under three schedulers."""
    scenario = load_scenario("medium-target")
    target = scenario.dynamics.target_loss or 0.0
    figure = new_figure(7.2, 3.6)
    axes = figure.subplots()
    rows = (("dssra-target", "DSSRA-target"), ("dssra", "DSSRA"), ("pipeline", "even split"))
    for colour, (name, title) in zip(COLOURS, rows, strict=False):
        play = Play("medium-target", scheduler=name, rounds=scenario.dynamics.rounds, seed=HELD_OUT_SEED)
        minutes, losses, now = [], [], 0.0
        for seen in rounds(play):
            now += float(seen.record.costs.delay[0]) / 60.0
            minutes.append(now)
            losses.append(float(seen.record.smoothed_loss[0]))
            if losses[-1] <= target:
                break
        axes.plot(minutes, losses, color=colour, linewidth=1.6, label=f"{title}, {len(losses)} rounds")
    axes.axhline(target, **MARK)
    axes.text(0.0, target, "target", color=INK, fontsize=8.5, va="bottom")
    axes.set_xlabel("simulated time (min)")
    axes.set_ylabel("smoothed loss (nat)")
    axes.set_title("medium-target, one episode")
    axes.legend(loc="upper right")
    return figure


def _bars(axes: Axes, systems: Mapping[str, str], cases: Mapping[str, Play], figure: str) -> None:
    """A bar for each system beside the others, in every case.

    Args:
        axes: Where to draw.
        systems: Titles by schedulers.
        cases: What is played, by its label.
        figure: Name of the figure that is shown.
    """
    width = 0.8 / len(systems)
    for number, (colour, (name, title)) in enumerate(zip(COLOURS, systems.items(), strict=False)):
        plays = [replace(play, scheduler=name) for play in cases.values()]
        heights = [float(played(play, [figure])[figure]) for play in plays]
        places = np.arange(len(cases)) + width * (number - 0.5 * (len(systems) - 1))
        axes.bar(places, heights, 0.93 * width, color=colour, label=title)
    axes.set_xticks(range(len(cases)), list(cases))


def server_terms() -> Figure:
    """Delay of a round under the server's terms, for systems with and without its help."""
    figure = new_figure(7.2, 3.4)
    axes = figure.subplots()
    systems = {"dssra": "DSSRA, encoder on the devices", "splitfed_v1": "SplitFed V1", "pipar": "PiPar"}
    terms = ("free", "metered", "contended", "weak")
    cases = {one: Play(changes={"server.terms": one}, episodes=2, rounds=50) for one in terms}
    _bars(axes, systems, cases, "delay")
    axes.set_xlabel("server.terms")
    axes.set_ylabel("mean delay of a round (s)")
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def trainings(names: Sequence[str]) -> Figure:
    """Validations of shipped agents during their trainings, behind each one's best.

    Args:
        names: Agents of the zoo.
    """
    figure = new_figure(7.2, 3.6)
    axes = figure.subplots()
    for colour, name in zip(COLOURS, names, strict=False):
        history: Any = read_agent_file(agent_path(f"zoo:{name}")).record.history
        delays = np.array([one["priced_delay"] for one in history])
        steps = np.array([one["steps"] for one in history]) / history[-1]["steps"]
        behind = 100.0 * (delays / delays.min() - 1.0)
        axes.plot(steps, np.maximum(behind, 0.01), color=colour, linewidth=1.6, label=name)
    log_axis(axes, "y")
    axes.set_xlabel("share of the training")
    axes.set_ylabel("priced delay behind its best validation (%)")
    axes.legend(loc="upper right")
    return figure


def memory() -> Figure:
    """Most memory that a device of ``llm-boards`` needs, by what is trained and what is kept."""
    figure = new_figure(7.2, 3.4)
    axes = figure.subplots()
    room = {"devices.profiles.0.memory_bytes": [16e9]}
    cases = {}
    for trained, weights in (("all weights", {"workload.update_compression": "none"}), ("adapters", {})):
        for kept, recompute in (("all activations", False), ("inputs of blocks", True)):
            changes = {**weights, "workload.recompute": recompute}
            cases[f"{trained},\n{kept}"] = Play("llm-boards", room | changes, feasible=changes, rounds=10)
    _bars(axes, {"pipeline": "even split", "dssra": "DSSRA"}, cases, "memory_mb")
    axes.set_ylabel("most memory of a device (MB)")
    axes.legend(loc="upper right")
    return figure
