"""Progress bar of the commands, made for terminals of 80 columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

_FORMAT = "{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt}{unit}, {remaining} left{postfix}"


def progress_bar(
    total: int, title: str, unit: str, over: Iterable[Any] | None = None, initial: int = 0
) -> tqdm[Any]:
    """Return a bar of the steps done and the time left; it is not shown where standard error is no terminal.

    Args:
        title: A word or two, written before the bar.
        unit: Name of the steps.
        over: Items that make a step each, when the bar itself is iterated over.
    """
    return tqdm(
        over,
        total=total,
        initial=initial,
        desc=title,
        unit=f" {unit}",
        unit_scale=total >= 100_000,
        bar_format=_FORMAT,
        dynamic_ncols=True,
        disable=None,
    )
