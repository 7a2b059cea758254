"""Times of recoveries of equal devices on equal links, light and heavy."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from generated_parts import markdown_table

from collapipe_env.physics.recovery import (
    BlockBits,
    RecoveryKind,
    RecoveryTerms,
    light_segments,
    moving_time,
    replay_messages,
    rescheduling_messages,
)

DEVICES = 4
PARAMETERS = {"`medium` (0.79 M)": 789_760, "BERT-base (7.1 M)": 7_087_872}
"""Parameters of a block."""
COPIES = {"none": 1, "next stage": 1, "2 per stage": 2}
"""Devices of a stage, which all hold its blocks, by the place of copies of the trained parts."""


def recovery_s(kind: RecoveryKind, blocks: int, parameters: int, rate_mbit: float, copies: str) -> float:
    """``T_rec``, mean over the device that fails [s].

    Args:
        kind: ``light`` or ``heavy``.
        blocks: ``L``.
        parameters: Parameters of a block.
        rate_mbit: Rate of every link [Mbit/s].
        copies: One of ``COPIES``.
    """
    terms = RecoveryTerms(kind, 0.5, 4)
    bits = BlockBits(0.0, 32.0 * parameters, 64.0 * parameters).of_parts
    stage = np.arange(DEVICES) // COPIES[copies]
    before = light_segments(blocks, np.bincount(stage).astype(float))
    found = []
    for failed in range(DEVICES):
        speeds = np.bincount(np.delete(stage, failed), minlength=stage.max() + 1).astype(float)
        alive, after = speeds > 0.0, np.zeros_like(before)
        after[alive] = light_segments(blocks, speeds[alive])
        old, new = (np.repeat(np.arange(len(s)), s)[:, None] == stage for s in (before, after))
        new[:, failed] = False
        host = -1 if copies != "next stage" else failed + 2 if failed + 1 < DEVICES else failed
        messages = np.zeros((2 * blocks * (DEVICES + 1), 4), dtype=np.int64)
        if kind == "light":
            count = replay_messages(old, new, failed, host, False, messages)
        else:
            count = rescheduling_messages(old, new, failed, host, messages)
        seconds = np.zeros((DEVICES + 1, DEVICES + 1))
        for source, target, _, part in messages[:count].tolist():
            seconds[source, target] += bits[part] * 1e-6 / rate_mbit if source != target else 0.0
        found.append(terms.detection_s + terms.planning_s + moving_time(kind == "heavy", seconds))
    return float(np.mean(found))


def recoveries(entry: Mapping[str, Any], quick: bool) -> str:
    """The table of recoveries."""
    rows = []
    for (name, parameters), blocks, rate, copies in itertools.product(
        PARAMETERS.items(), (12, 24), (20.0, 100.0, 500.0), COPIES
    ):
        light = recovery_s("light", blocks, parameters, rate, copies)
        heavy = recovery_s("heavy", blocks, parameters, rate, copies)
        rows.append(
            (name, blocks, f"{rate:g}", copies, f"{light:.1f}", f"{heavy:.1f}", f"{heavy / light:.1f}")
        )
    heads = ("block", "L", "link, Mbit/s", "copies", "light, s", "heavy, s", "heavy / light")
    return markdown_table(heads, rows)
