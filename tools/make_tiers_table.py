"""Play schedulers on the tiers, and write the tables of ``docs/tiers.md``.

Run ``python tools/make_tiers_table.py``; ``--sizes small`` plays the smallest, ``--tiers thermal`` one tier.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
from generated_parts import markdown_table, write_parts
from tqdm import tqdm

from collapipe_env.allocation import Allocation
from collapipe_env.arrays import FloatArray
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.declared_sight import seen_by, sees_truth
from collapipe_env.evaluation.resampling import estimate
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.physics.queues import budgets_used
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.names import TIER_SIZES, TIERS

PAGE = Path(__file__).parents[1] / "docs" / "tiers.md"
EPISODES, ROUNDS = 16, 100
SEED = 1_000_000
"""Seed of the episodes, none of which a tuning plays."""
SCHEDULERS = {
    "even split": "pipeline",
    "random": "random",
    "graph net": "zoo:graph",
    "DSSRA": "dssra",
    "DSSRA on the truth": "dssra-truth",
    "DSSRA+": "dssra-plus",
}
"""Names of schedulers by their heads in the table."""


class Episodes(NamedTuple):
    """Means over the rounds of each episode.

    Attributes:
        delay_s: Delay of a round (EPISODES,) [s].
        priced_s: The same with what the energy queues at the end are worth (EPISODES,) [s].
        energy: Energy of the worst node over its budget (EPISODES,).
    """

    delay_s: FloatArray
    priced_s: FloatArray
    energy: FloatArray


def played(name: str, scheduler_name: str) -> Episodes:
    """Play a scheduler on a tier.

    Args:
        name: The tier's scenario.
        scheduler_name: Name of the scheduler.
    """
    scenario = load_scenario(name)
    scheduler = make_scheduler(scheduler_name, scenario)
    form = getattr(scheduler, "observation", "flat")
    env = CollaPipeVectorEnv(EPISODES, scenario, "surrogate", observation=form)
    observation, _ = env.reset(seed=SEED)
    scheduler.reset(SEED)
    oracle = sees_truth(scheduler)
    delays, used, granted = [], 0.0, 0.0
    for _ in range(ROUNDS):
        decision = scheduler.act(observation, seen_by(env, oracle=oracle))
        step = env.step_allocation if isinstance(decision, Allocation) else env.step
        observation = step(decision)[0]  # type: ignore[operator]
        record = env.last_round
        assert record is not None
        delays.append(record.costs.delay)
        used, granted = used + record.costs.energy_ratio, granted + record.granted
    queues = 0.5 * (record.backlog**2).sum(axis=(-2, -1))
    delay = np.mean(delays, axis=0)
    worst = budgets_used(used, granted).max(axis=(-2, -1))
    return Episodes(delay, delay + queues / (scenario.budgets.tradeoff_v * ROUNDS), worst)


def _change(found: FloatArray, reference: FloatArray) -> str:
    """Mean relative difference, episode by episode, with its interval."""
    value = estimate(100.0 * (found / reference - 1.0))
    return f"{value.mean:+.1f} % ({value.low:+.1f} to {value.high:+.1f})"


def table(tier: str, sizes: list[str]) -> str:
    """Return the table of a tier.

    Args:
        tier: The tier.
        sizes: Its sizes.
    """
    rows = []
    for size in sizes:
        name = f"{size}-{tier}"
        found = {
            title: played(name, scheduler)
            for title, scheduler in SCHEDULERS.items()
            if tier == "channel" or scheduler != "dssra-truth"
        }
        reference = found["DSSRA"].priced_s
        for title, episodes in found.items():
            rows.append(
                [
                    f"`{name}`",
                    title,
                    f"{episodes.delay_s.mean():.2f} s",
                    f"{episodes.priced_s.mean():.2f} s",
                    "" if title == "DSSRA" else _change(episodes.priced_s, reference),
                    f"{episodes.energy.mean():.2f}",
                ]
            )
    heads = ("scenario", "scheduler", "delay", "priced delay", "priced delay over DSSRA's", "energy")
    return markdown_table(heads, rows, left=2)


def main() -> None:
    """Play everything and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", choices=TIER_SIZES, default=list(TIER_SIZES))
    parser.add_argument("--tiers", nargs="+", choices=TIERS, default=list(TIERS))
    options = parser.parse_args()
    sizes = options.sizes
    stamp = (
        f"`python tools/make_tiers_table.py` ({EPISODES} episodes x {ROUNDS} rounds, surrogate: mean delay "
        "of a round; with what the queues at the end are worth; mean relative difference of the latter to "
        "DSSRA's in the same episodes with 95 % bootstrap interval; energy of the worst node over its budget)"
    )
    for tier in tqdm(options.tiers, unit="tier", disable=None):
        write_parts(PAGE, {tier: f"{table(tier, sizes)}\n\n{stamp}"})
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
