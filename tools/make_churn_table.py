"""Let devices fail, and write the tables of ``docs/churn.md``.

Run ``python tools/make_churn_table.py``; it takes about ten minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import playing
from generated_parts import markdown_table, write_parts

from collapipe_env import CollaPipeVectorEnv
from collapipe_env.agents.dssra.plus import DSSRAPlus
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.physics.recovery import (
    BlockBits,
    RecoveryKind,
    RecoveryTerms,
    light_segments,
    moving_time,
    replay_messages,
    rescheduling_messages,
)
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.schedulers import SCHEDULERS
from collapipe_env.simulator.build import system_parameters, usual_round
from collapipe_env.simulator.costs import round_costs

PAGE = Path(__file__).parents[1] / "docs" / "churn.md"
DEVICES = 4
PARAMETERS = {"`medium` (0.79 M)": 789_760, "BERT-base (7.1 M)": 7_087_872}
"""Parameters of a block."""
NAMES = {"pipeline": "even split", "asteroid": "Asteroid", "dssra": "DSSRA"}
KINDS: tuple[RecoveryKind, ...] = ("light", "heavy", "drop-round")


COPIES = {"none": 1, "next stage": 1, "2 per stage": 2}
"""Devices of a stage, which all hold its blocks, by the place of copies of the trained parts."""


def recovery_s(kind: RecoveryKind, blocks: int, parameters: int, rate_mbit: float, copies: str) -> float:
    """``T_rec`` of stages of equal devices on equal links, mean over the device that fails [s].

    Args:
        kind: ``light`` or ``heavy``.
        blocks: ``L``.
        parameters: Parameters of a block.
        rate_mbit: Rate of every link [Mbit/s].
        copies: One of ``COPIES``.
    """
    group = COPIES[copies]
    terms = RecoveryTerms(kind, 0.5, 4)
    bits = BlockBits(0.0, 32.0 * parameters, 64.0 * parameters).of_parts
    stage = np.arange(DEVICES) // group
    before = light_segments(blocks, np.bincount(stage).astype(float))
    found = []
    for failed in range(DEVICES):
        left = np.delete(np.arange(DEVICES), failed)
        speeds = np.bincount(stage[left], minlength=stage.max() + 1).astype(float)
        alive = speeds > 0.0
        after = np.zeros_like(before)
        after[alive] = light_segments(blocks, speeds[alive])
        old, new = (np.repeat(np.arange(len(s)), s)[:, None] == stage for s in (before, after))
        new[:, failed] = False
        host = -1
        if copies == "next stage":
            host = failed + 2 if failed + 1 < DEVICES else failed
        messages = np.zeros((2 * blocks * (DEVICES + 1), 4), dtype=np.int64)
        if kind == "light":
            count = replay_messages(old, new, failed, host, False, messages)
        else:
            count = rescheduling_messages(old, new, failed, host, messages)
        seconds = np.zeros((DEVICES + 1, DEVICES + 1))
        for source, target, _, part in messages[:count].tolist():
            seconds[source, target] += bits[part] * 1e-6 / rate_mbit if source != target else 0.0
        moved = moving_time(kind == "heavy", seconds)
        found.append(terms.detection_s + terms.planning_s + moved)
    return float(np.mean(found))


def recovery_rows() -> Iterator[tuple[str, ...]]:
    """Rows of the table of recoveries."""
    for name, parameters in PARAMETERS.items():
        for blocks in (12, 24):
            for rate in (20.0, 100.0, 500.0):
                for copies in COPIES:
                    light, heavy = (
                        recovery_s(kind, blocks, parameters, rate, copies) for kind in ("light", "heavy")
                    )
                    seconds = (f"{light:.1f}", f"{heavy:.1f}", f"{heavy / light:.1f}")
                    yield name, str(blocks), f"{rate:g}", copies, *seconds


def failing(presence: dict[str, object], steps: int, **changes: object) -> Scenario:
    """``medium`` whose devices fail, with memory and energy for any plan.

    Args:
        presence: Fields of the process.
        steps: Local steps.
        **changes: Further changes of the scenario.
    """
    return load_scenario("medium").with_overrides(
        {
            "dynamics.processes.presence": presence,
            "devices.profiles.0.memory_bytes": [1.0e9],
            "budgets.device_energy_j": 1e4,
            "budgets.cu_energy_j": 1e4,
            "workload.local_steps": steps,
            **changes,
        }
    )


def rounds_of(scheduler: str, kind: RecoveryKind, mean_s: float, steps: int, rounds: int) -> dict[str, float]:
    """Figures of rounds on ``medium`` whose devices fail.

    Args:
        scheduler: Name of the scheduler.
        mean_s: Mean stay of a device [s].
        steps: Local steps.
        rounds: Rounds of each of the 32 environments.
    """
    scenario = failing({"on_mean_s": mean_s, "recovery": kind, "graceful": 0.0}, steps)
    env = CollaPipeVectorEnv(32, scenario, "surrogate", reward="delay")
    policy, parameters = SCHEDULERS.get(scheduler)(scenario), system_parameters(scenario)
    hazard, usual = 1.0 / mean_s, usual_round(scenario)
    hit, expected, extra, delay, before, after = 0, 0.0, 0.0, [], [], []
    for record in playing.rounds(env, policy, rounds):
        planned = round_costs(parameters, record.state, record.allocation)
        plays = np.ones(planned.cluster_delay.shape, bool) if planned.plays is None else planned.plays
        late = np.divide(
            planned.cluster_delay - planned.upload,
            planned.cluster_delay,
            out=np.zeros_like(planned.cluster_delay),
            where=plays,
        )
        working = (record.allocation.device_blocks > 0).sum(axis=-1)
        expected += float((1.0 - np.exp(-hazard * usual * late * working))[plays].sum())
        delay.append(record.costs.delay.mean())
        failed = None if record.interruption is None else record.interruption.failed
        if failed is None:
            continue
        struck = failed.device >= 0
        hit += int(struck.sum())
        extra += float(record.interruption.cluster_delay[struck].sum())
        replays = struck & ~failed.dropped
        left = steps - failed.credited[replays]
        whole = left > 0
        after += (failed.replay_s[replays][whole] / left[whole]).tolist()
        before += planned.local_step[replays][whole].tolist()
    return {
        "delay": float(np.mean(delay)),
        "hit": 100.0 * hit / (32 * rounds * scenario.clusters),
        "expected": 100.0 * expected / (32 * rounds * scenario.clusters),
        "extra": extra / max(hit, 1),
        "throughput": 100.0 * float(np.sum(before) / np.sum(after)) if after else float("nan"),
    }


def round_rows(rounds: int) -> Iterator[tuple[str, ...]]:
    """Rows of the table of rounds."""
    for mean_s in (2160.0, 360.0):
        for steps in (1, 4):
            for scheduler, name in NAMES.items():
                found = {kind: rounds_of(scheduler, kind, mean_s, steps, rounds) for kind in KINDS}
                light = found["light"]
                yield (
                    f"{mean_s / 60.0:g} min",
                    str(steps),
                    name,
                    f"{light['hit']:.1f} ({light['expected']:.1f})",
                    *(f"{found[kind]['extra']:.1f}" for kind in KINDS[:2]),
                    *(f"{found[kind]['delay']:.2f}" for kind in KINDS),
                    f"{light['throughput']:.0f} %",
                )


def priced_rounds(failure_price: float, mean_s: float, rounds: int) -> tuple[FloatArray, float]:
    """Mean delays of DSSRA+ in 32 environments of ``medium`` with mixed hazards (32,) [s], and failures [%].

    Args:
        failure_price: Seconds that the failure of a device with blocks is worth [s].
        mean_s: Mean stay of a device of hazard factor 1 [s].
        rounds: Rounds of each environment.
    """
    scenario = failing({"on_mean_s": mean_s, "hazard_factors": [0.2, 1.0, 5.0]}, 4)
    env = CollaPipeVectorEnv(32, scenario, "surrogate", reward="delay")
    policy = DSSRAPlus(scenario, failure_price=failure_price)
    delay, hit = np.zeros(32), 0
    for record in playing.rounds(env, policy, rounds):
        delay += record.costs.delay / rounds
        failed = None if record.interruption is None else record.interruption.failed
        hit += 0 if failed is None else int((failed.device >= 0).sum())
    return delay, 100.0 * hit / (32 * rounds * scenario.clusters)


def price_rows(rounds: int) -> Iterator[tuple[str, ...]]:
    """Rows of the table of prices of failures; differences with intervals of 95 % over environments."""
    for mean_s in (2160.0, 720.0, 360.0):
        free, _ = priced_rounds(0.0, mean_s, rounds)
        for price in (0.0, 3.0, 10.0, 30.0):
            delay, hit = priced_rounds(price, mean_s, rounds)
            shown = change(delay, free) if price else ""
            yield f"{mean_s / 60.0:g} min", f"{price:g}", f"{hit:.1f}", f"{delay.mean():.2f}", shown


REPLICAS = ("none", "next_stage", "cu")


def replicated_rounds(replicas: str, steps: int, adapters: bool, band: float, rounds: int) -> Replicated:
    """Rounds of DSSRA+ in 32 environments of ``medium`` with mixed hazards and a mean stay of 6 minutes.

    Args:
        replicas: One of ``REPLICAS``.
        steps: Local steps.
        adapters: Whether only adapters of rank 8 are trained.
        band: Bandwidth of links between devices over the scenario's.
        rounds: Rounds of each environment.
    """
    presence = {"on_mean_s": 360.0, "hazard_factors": [0.2, 1.0, 5.0], "graceful": 0.0}
    changes = {
        "workload.update_compression": "lora" if adapters else "none",
        "radio.d2d_bandwidth_hz": band * load_scenario("medium").radio.d2d_bandwidth_hz,
    }
    scenario = failing({**presence, "replication": replicas}, steps, **changes)
    env = CollaPipeVectorEnv(32, scenario, "surrogate", reward="delay")
    policy = DSSRAPlus(scenario)
    delay, ratio = np.zeros(32), []
    for record in playing.rounds(env, policy, rounds):
        costs = round_costs(policy.parameters, record.state, record.allocation)
        delay += record.costs.delay / rounds
        plays = np.ones(costs.local_step.shape, dtype=bool) if costs.plays is None else costs.plays
        if "replicas" in costs.terms.step:
            seconds = costs.terms.step["replicas"]
            sent = plays & (seconds > 0.0)
            ratio += (seconds[sent] / costs.local_step[sent]).tolist()
    return Replicated(delay, float(np.mean(ratio)) if ratio else float("nan"))


class Replicated(NamedTuple):
    """Figures of rounds with replicas: delays (32,) [s], and mean ``T_rep / T_step``."""

    delay: FloatArray
    ratio: float


def replica_rows(rounds: int) -> Iterator[tuple[str, ...]]:
    """Rows of the table of replicas."""
    for adapters in (False, True):
        for band in (1.0, 10.0):
            for steps in (1, 4, 16):
                found = {name: replicated_rounds(name, steps, adapters, band, rounds) for name in REPLICAS}
                yield (
                    "adapters" if adapters else "all",
                    f"{band:g}",
                    str(steps),
                    f"{100.0 * found['next_stage'].ratio:.1f} %",
                    *(f"{found[name].delay.mean():.2f}" for name in REPLICAS),
                )


def change(delay: FloatArray, free: FloatArray) -> str:
    """Mean difference of delays with its interval of 95 % over environments."""
    parts = 100.0 * (delay - free) / free.mean()
    half, middle = 1.96 * parts.std(ddof=1) / np.sqrt(len(parts)), parts.mean()
    return f"{middle:+.1f} % ({middle - half:+.1f} to {middle + half:+.1f})"


def main() -> None:
    """Write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60, help="rounds of each of 32 environments (60)")
    given = parser.parse_args()
    heads = {
        "recoveries": ("block", "L", "link, Mbit/s", "copies", "light, s", "heavy, s", "heavy / light"),
        "rounds": (
            *("mean stay", "H", "scheduler", "failed, % (theory)", "light: s per failure", "heavy"),
            *("delay: light, s", "heavy", "drop", "throughput after"),
        ),
        "prices": ("mean stay", "price, s", "failed, %", "delay, s", "against none"),
        "replicas": ("trained", "band", "H", "T_rep / T_step", "none, s", "next stage, s", "CU, s"),
    }
    rows = {
        "recoveries": recovery_rows(),
        "rounds": round_rows(given.rounds),
        "prices": price_rows(given.rounds),
        "replicas": replica_rows(given.rounds),
    }
    parts = {name: markdown_table(heads[name], list(found)) for name, found in rows.items()}
    write_parts(PAGE, parts)
    print(f"wrote the tables of {PAGE}")


if __name__ == "__main__":
    main()
