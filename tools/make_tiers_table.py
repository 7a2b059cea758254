"""Play schedulers on the tiers, and write the tables of ``docs/tiers.md``.

Run ``python tools/make_tiers_table.py``; ``--tiers thermal`` plays one tier, ``--sizes small`` the smallest
of each. Rows of sizes that are not played stay as they are.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from generated_parts import markdown_table, write_parts
from playing import rounds
from tqdm import tqdm

from collapipe_env.dynamics.presence import PRESENCE
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.declared_sight import seen_by, sees_truth
from collapipe_env.evaluation.resampling import estimate
from collapipe_env.evaluation.rounds import lasting
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.physics.queues import budgets_used
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.names import LADDER, TIERS, sizes_of
from collapipe_env.schedulers import also_playing

PAGE = Path(__file__).parents[1] / "docs" / "tiers.md"
EPISODES, ROUNDS = 10, 500
XLARGE_EPISODES = 4
"""Episodes of the size xlarge, which take longest."""
SEED = 1_000_000
"""Seed of the episodes, which no tuning plays."""
SCHEDULERS = {
    "even split": "pipeline",
    "random": "random",
    "graph net": "zoo:graph",
    "DSSRA": "dssra",
    "DSSRA on the truth": "dssra-truth",
    "DSSRA+": "dssra-plus",
}
"""Names of schedulers by their heads in the table."""
TRAINED_FOR = {"wild": {"graph net for Wild": "zoo:graph-wild"}}
"""Agents that were trained for a tier, likewise."""
HEADS = ("scenario", "scheduler", "delay", "priced delay", "priced delay over DSSRA's", "energy")
"""Columns of every table."""


class Episodes(NamedTuple):
    """Means over the rounds of each episode.

    Attributes:
        delay_s: Delay of a round (EPISODES,) [s].
        priced_s: The same plus the worth of the energy queues at the end (EPISODES,) [s].
        energy: Energy of the worst node over its budget (EPISODES,).
        failed: Share of the clusters' rounds that a failure reached (EPISODES,), 0 to 1.
        sat_out: Share of them in which the present devices cannot hold the encoder (EPISODES,).
    """

    delay_s: FloatArray
    priced_s: FloatArray
    energy: FloatArray
    failed: FloatArray
    sat_out: FloatArray


def played(name: str, scheduler_name: str) -> Episodes:
    """Play a scheduler on a tier.

    Args:
        name: The tier's scenario.
    """
    scenario = lasting(load_scenario(name), ROUNDS)
    scheduler = make_scheduler(scheduler_name, scenario)
    form = getattr(scheduler, "observation", "flat")
    together = XLARGE_EPISODES if name.startswith("xlarge-") else EPISODES
    env = CollaPipeVectorEnv(together, scenario, "surrogate", observation=form)
    oracle = sees_truth(scheduler)
    delays, used, granted = [], 0.0, 0.0
    failed, sat_out = np.zeros((2, together))
    for record in rounds(env, scheduler, ROUNDS, SEED, lambda env: seen_by(env, oracle=oracle)):
        delays.append(record.costs.delay)
        used, granted = used + record.costs.energy_ratio, granted + record.granted
        struck, plays = record.interruption, record.allocation.participates
        if struck is not None and struck.failed is not None:
            failed += (struck.failed.device >= 0).mean(axis=-1)
        if plays is not None:
            sat_out += 1.0 - plays.mean(axis=-1)
    queues = 0.5 * (record.backlog**2).sum(axis=(-2, -1))
    delay = np.mean(delays, axis=0)
    worst = budgets_used(used, granted).max(axis=(-2, -1))
    priced = delay + queues / (scenario.budgets.tradeoff_v * ROUNDS)
    return Episodes(delay, priced, worst, failed / ROUNDS, sat_out / ROUNDS)


def _change(found: FloatArray, reference: FloatArray) -> str:
    """Mean relative difference, episode by episode, with its interval."""
    value = estimate(100.0 * (found / reference - 1.0))
    return f"{value.mean:+.1f} % ({value.low:+.1f} to {value.high:+.1f})"


def table(tier: str, sizes: Sequence[str]) -> str:
    """Return the table of a tier, with failed and skipped rounds where devices come and go by a process."""
    rows, heads = [], [*HEADS]
    for size in sizes:
        name = f"{size}-{tier}"
        scenario = load_scenario(name)
        unknown = "dssra-truth" in also_playing(scenario)
        fails = PRESENCE in dict(scenario.dynamics.processes)
        heads = [*HEADS, *(("failed", "sat out") if fails else ())]
        found = {
            title: played(name, scheduler)
            for title, scheduler in {**SCHEDULERS, **TRAINED_FOR.get(tier, {})}.items()
            if unknown or scheduler != "dssra-truth"
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
                    *(f"{100.0 * share.mean():.1f} %" for share in episodes[3:] if fails),
                ]
            )
    return markdown_table(heads, rows, left=2)


def with_other_sizes(fresh: str, page: str, tier: str) -> str:
    """Return a table with a page's rows added for sizes that it lacks, smallest size first.

    Args:
        fresh: The table of some sizes.
        page: Text of the page.
    """
    part = page.partition(f"<!-- generated: {tier} -->")[2].partition("<!-- end")[0]
    head, line, *rows = fresh.splitlines()
    found = []
    for size in sizes_of(tier):
        begin = f"| `{size}-{tier}` |"
        own = [row for row in rows if row.startswith(begin)]
        found += own or [row for row in part.splitlines() if row.startswith(begin)]
    return "\n".join((head, line, *found))


def stamp(tier: str, sizes: Sequence[str]) -> str:
    """Return the command of a table and the meaning of its columns."""
    fewer = f", `xlarge` {XLARGE_EPISODES} episodes" if "xlarge" in sizes else ""
    fails = PRESENCE in dict(load_scenario(f"{sizes[0]}-{tier}").dynamics.processes)
    shares = "; share of clusters' rounds with a failure; share that sat out" if fails else ""
    return (
        f"`python tools/make_tiers_table.py` ({EPISODES} episodes x {ROUNDS} rounds{fewer}, surrogate). "
        "Columns: mean delay of a round; the same plus the worth of the queues at the end; mean difference "
        "of that from DSSRA's in the same episodes, with its 95 % bootstrap interval; the worst node's "
        f"energy divided by its budget{shares}."
    )


def main() -> None:
    """Play everything and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", choices=LADDER, help="sizes (all that a tier has)")
    parser.add_argument("--tiers", nargs="+", choices=TIERS, default=list(TIERS))
    options = parser.parse_args()
    for tier in tqdm(options.tiers, unit="tier", disable=None):
        sizes = [size for size in sizes_of(tier) if size in (options.sizes or LADDER)]
        if sizes:
            rows = with_other_sizes(table(tier, sizes), PAGE.read_text(encoding="utf-8"), tier)
            shown = [size for size in sizes_of(tier) if f"| `{size}-{tier}` |" in rows]
            write_parts(PAGE, {tier: f"{rows}\n\n{stamp(tier, shown)}"})
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
