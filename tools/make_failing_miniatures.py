"""Solve small systems whose devices fail, play them, and write their table in ``docs/miniatures.md``.

Run ``python tools/make_failing_miniatures.py``; it takes about six minutes. ``--only WORD`` prints the rows
of miniatures with this in their name, and ``--quick`` plays briefly; neither writes anything.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from generated_parts import markdown_table, write_parts
from miniatures.cases import Miniature, failing_miniatures
from miniatures.failing import FailingSystem, LeastExpected
from miniatures.playing import mean_delays
from tqdm import tqdm

from collapipe_env.agents.dssra.plus import DSSRAPlus
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.schedulers import SCHEDULERS, Scheduler

PAGE = Path(__file__).parents[1] / "docs" / "miniatures.md"
EPISODES, ROUNDS = 24, 400
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


def main(arguments: list[str] | None = None) -> None:
    """Solve, play, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="play shortly, and write nothing")
    parser.add_argument("--only", default="", metavar="WORD", help="miniatures with this in their name")
    given = parser.parse_args(arguments)
    chosen = [mini for mini in failing_miniatures() if given.only in mini.name]
    if not chosen:
        raise SystemExit(f"--only {given.only}: no name has this; give a part of failing-5-unlike")
    episodes, rounds = (2, 6) if given.quick else (EPISODES, ROUNDS)
    table = markdown_table(HEADS, [row(mini, episodes, rounds) for mini in tqdm(chosen, disable=None)])
    if given.quick or given.only:
        print(table)
        return
    stamp = f"`python tools/make_failing_miniatures.py` ({EPISODES} episodes x {ROUNDS} rounds)"
    write_parts(PAGE, {"churn": f"{table}\n\n{stamp}"})
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
