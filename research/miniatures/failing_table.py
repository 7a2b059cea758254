"""Table of the miniatures whose devices fail: the best schedules beside DSSRA, DSSRA+ and others."""

from __future__ import annotations

import numpy as np

from collapipe_env.agents.dssra.plus import DSSRAPlus
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.schedulers import SCHEDULERS, Scheduler
from research.miniatures.cases import Miniature
from research.miniatures.failing import FailingSystem, LeastExpected
from research.miniatures.playing import mean_delays

LENGTHS = (24, 400)
"""Episodes, and rounds of each."""
PRICES = (0.0, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0, 100.0)
"""Prices of a failure that are tried [s]."""
TUNING_SEED, TUNING_EPISODES = 1000, 8
"""First seed and number of the episodes that choose a price, of half the length."""
HEADS = (
    "miniature",
    "model",
    "optimum",
    "classes learnt",
    "DSSRA",
    "DSSRA+",
    "even split",
    "random",
    "room over DSSRA",
    "over DSSRA+",
    "cost of unknown classes",
)


def factors_of(mini: Miniature, episodes: int) -> FloatArray:
    """Hazard factors of the devices in the first episodes (E, K), which no scheduler sees.

    Args:
        episodes: ``E``; their seeds are 0, 1, ...
    """
    env = CollaPipeVectorEnv(episodes, mini.scenario, IdleLearner(episodes), autoreset_mode="Disabled")
    env.reset(seed=list(range(episodes)))
    state = env.get_state()["mdp"]["simulator"]["processes"]["presence"]
    return np.asarray(state["factor"][:, 0])


def row(mini: Miniature, episodes: int, rounds: int) -> list[str]:
    """Row of a miniature in the table.

    Args:
        episodes: Episodes that all play.
    """
    scenario, system = mini.scenario, FailingSystem(mini.scenario)

    def played(scheduler: Scheduler) -> FloatArray:
        return np.asarray(mean_delays(scenario, scheduler, 1, episodes, rounds, 0)[0])

    def tried(price: float) -> float:
        scheduler = DSSRAPlus(scenario, failure_price=price)
        few = min(TUNING_EPISODES, episodes)
        return float(mean_delays(scenario, scheduler, 1, few, rounds // 2, 0, TUNING_SEED).mean())

    price = min(PRICES, key=tried)
    best = played(LeastExpected(system, factors_of(mini, episodes)))
    learnt, plus = played(LeastExpected(system)), played(DSSRAPlus(scenario, failure_price=price))
    dssra, even, random = (played(SCHEDULERS.get(name)(scenario)) for name in ("dssra", "pipeline", "random"))
    error = best.std(ddof=1) / np.sqrt(episodes)
    return [
        mini.title,
        f"{system.least_mean():.2f} s",
        f"{best.mean():.2f} ± {error:.2f} s",
        f"{learnt.mean():.2f} s",
        f"{dssra.mean():.2f} s",
        f"{plus.mean():.2f} s ({price:g} s)",
        f"{even.mean():.2f} s",
        f"{random.mean():.2f} s",
        *(_room(delays, best) for delays in (dssra, plus, learnt)),
    ]


def _room(delays: FloatArray, best: FloatArray) -> str:
    """Share of the delay that the optimum saves, with its standard error."""
    share = 100.0 * (delays - best) / delays
    mean, error = float(share.mean()), float(share.std(ddof=1) / np.sqrt(len(share)))
    return f"{abs(mean) if abs(mean) < 0.05 else mean:.1f} ± {error:.1f} %"
