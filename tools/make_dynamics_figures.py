"""Draw the effects of heat, walks, wrong gains and failures on rounds of ``medium``, and one plain round.

Run ``python tools/make_dynamics_figures.py``; it takes about half a minute, and writes ``docs/images``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import matplotlib.image
import numpy as np
import playing
from tqdm import tqdm

from collapipe_env.dynamics.heat_spec import heat_numbers
from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.plotting import COLOURS, INK, RC, new_figure, save
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.schedulers import SCHEDULERS
from collapipe_env.simulator.record import RoundRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.figure import Figure

IMAGES = Path(__file__).parents[1] / "docs" / "images"
ROUNDS = 60
SEED = 7


def rounds_of(scenario: Scenario, name: str, episodes: int = 1) -> Iterator[RoundRecord]:
    """Play a scheduler's episodes.

    Args:
        scenario: The scenario to play.
        name: The scheduler.
        episodes: Episodes at once.
    """
    env = CollaPipeVectorEnv(episodes, scenario, "surrogate")
    return playing.rounds(env, SCHEDULERS.get(name)(scenario), ROUNDS, SEED)


def heat() -> Figure:
    """Hottest devices and delays under ``dssra`` and ``dssra-plus`` in the Thermal tier."""
    scenario = load_scenario("medium-thermal")
    set_point = heat_numbers(dict(scenario.dynamics.processes)["heat"]).set_c
    figure = new_figure(7.2, 5.0)
    above, below = figure.subplots(2, 1, sharex=True)
    for index, (name, title) in enumerate((("dssra", "DSSRA"), ("dssra-plus", "DSSRA+"))):
        hottest, delays = [], []
        for record in rounds_of(scenario, name):
            hottest.append(record.state.processes["heat"]["temperature"][0].max())
            delays.append(record.costs.delay[0])
        minutes = np.cumsum([0.0, *delays[:-1]]) / 60.0
        label = f"{title}, mean round {np.mean(delays):.1f} s"
        above.plot(minutes, hottest, color=COLOURS[index], linewidth=1.8, label=title)
        below.step(minutes, delays, where="post", color=COLOURS[index], linewidth=1.8, label=label)
    above.axhline(set_point, color=INK, linewidth=1.0, linestyle=(0, (3.0, 1.5)))
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
    gains, present = [], []
    for record in rounds_of(load_scenario("medium-mobile"), "pipeline"):
        gains.append(10.0 * np.log10(record.state.d2d_gain[0, 0, 1, 2]))
        present.append(record.state.present[0].sum())
    above.plot(gains, color=COLOURS[0], linewidth=1.6)
    below.step(range(len(present)), present, where="post", color=COLOURS[0], linewidth=1.6)
    above.set_ylabel("gain of one hop (dB)")
    above.set_title("medium-mobile, one episode")
    below.set_ylabel("devices there, of 20")
    below.set_xlabel("round")
    return figure


def knowledge() -> Figure:
    """Delay of DSSRA and of the even split against the error of known gains."""
    noises: FloatArray = np.array([0.0, 1.0, 2.0, 3.0, 4.5, 6.0])
    base = "medium"

    def mean(name: str, noise_db: float, weight: float) -> float:
        known: dict[str, Any] = {"modes": ["noisy"], "noise_db": noise_db}
        scenario = load_scenario(
            {
                "base": base,
                "name": "known",
                "dynamics": {"processes": {"channel_knowledge": known}},
                "dssra_plus": {"channel_weight": weight},
            }
        )
        return float(np.mean([record.costs.delay.mean() for record in rounds_of(scenario, name, 8)]))

    figure = new_figure(7.2, 3.6)
    axes = figure.subplots()
    seen = [mean("dssra", noise, 1.0) for noise in tqdm(noises, desc="noise", leave=False, disable=None)]
    # The best linear weight if the mean is known: with four branches, fading deviates by 2.31 dB.
    weights = 2.31**2 / (2.31**2 + noises**2)
    shrunk = [mean("dssra-plus", *pair) for pair in zip(noises.tolist(), weights.tolist(), strict=True)]
    axes.plot(noises, seen, "o-", color=COLOURS[0], label="DSSRA, gains as they are known")
    axes.plot(noises, shrunk, "s-", color=COLOURS[1], label="DSSRA+, drawn towards each link's mean")
    axes.axhline(seen[0], color=INK, linewidth=1.0, linestyle=(0, (3.0, 1.5)))
    axes.set_xlabel("error of known gains (dB)")
    axes.set_ylabel("mean delay of a round (s)")
    axes.set_title(f"{base}, 8 episodes x {ROUNDS} rounds")
    axes.legend(loc="upper left")
    return figure


def failed_round(path: Path) -> None:
    """Write the picture of the first round of ``medium`` in which a device fails and its cluster continues.

    Args:
        path: Where to write it.
    """
    scenario = load_scenario("medium").with_overrides(
        {
            "name": "medium, devices fail",
            "dynamics.processes.presence": {"on_mean_s": 360.0, "graceful": 0.0},
            "devices.profiles.0.memory_bytes": [1.0e9],
        }
    )
    env = CollaPipeEnv(scenario, "surrogate", render_mode="rgb_array")
    env.reset(seed=SEED)
    scheduler = SCHEDULERS.get("dssra")(scenario)
    for _ in range(ROUNDS):
        env.step_allocation(scheduler.act(None, env.state)[0])
        record = env.last_round
        assert record is not None
        failed = None if record.interruption is None else record.interruption.failed
        if failed is not None and ((failed.device >= 0) & ~failed.dropped).any():
            mpl.image.imsave(path, env.render())
            return


def plain_round(path: Path) -> None:
    """Write the picture of the README: DSSRA on ``medium``, after ten rounds.

    Args:
        path: Where to write it.
    """
    env = CollaPipeEnv("medium", "surrogate", render_mode="rgb_array")
    scheduler = SCHEDULERS.get("dssra")(env.scenario)
    env.reset(seed=0)
    for _ in range(10):
        env.step_allocation(scheduler.act(None, env.state)[0])
    mpl.image.imsave(path, env.render())


def main() -> None:
    """Draw all figures."""
    for name, draw in (("heat", heat), ("mobility", walks), ("channel_knowledge", knowledge)):
        with mpl.rc_context(RC):
            figure = draw()
            path = IMAGES / f"{name}.png"
            save(figure, path)
        print(f"wrote {path}")
    for name, write in (("failed_round", failed_round), ("round", plain_round)):
        path = IMAGES / f"{name}.png"
        write(path)
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
