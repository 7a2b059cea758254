"""Power laws and tables of the scaling study, from its stored measurements."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scaling_points import BATCH, Axis
from scipy import stats

from collapipe_env.files import read_json

Series = dict[int, float]
"""Values by size."""
TITLES = {
    "single": "step, single",
    "vector": f"step, one of {BATCH}",
    "decision": "decision of DSSRA",
    "resident": "memory, resident",
    "kept": "memory, kept",
}
"""Titles of the quantities in tables and pictures."""
CONFIDENCE = 0.95


@dataclass(frozen=True)
class PowerLaw:
    """``seconds ~ size^exponent`` over the upper half of a range.

    Attributes:
        exponent: By least squares of the logarithms.
        low: Lower end of the 95 % interval (Student's t over the points); NaN with fewer than 3 points.
        high: Its upper end.
        smallest: Smallest size that was used.
        largest: Largest size.
        whole: Exponent over the whole range.
    """

    exponent: float
    low: float
    high: float
    smallest: int
    largest: int
    whole: float


def power_law(values: Mapping[int, float]) -> PowerLaw:
    """Fit the sizes from the geometric mean of the range on, where fixed costs weigh least.

    Args:
        values: Positive values by size, at least two sizes.
    """
    sizes = sorted(values)
    upper = [size for size in sizes if size >= math.sqrt(sizes[0] * sizes[-1])]
    upper = upper if len(upper) > 1 else sizes[-2:]
    fit = stats.linregress(np.log(upper), np.log([values[size] for size in upper]))
    freedom = len(upper) - 2
    margin = stats.t.ppf(0.5 + CONFIDENCE / 2.0, freedom) * fit.stderr if freedom > 0 else math.nan
    whole = stats.linregress(np.log(sizes), np.log([values[size] for size in sizes]))
    return PowerLaw(
        exponent=float(fit.slope),
        low=float(fit.slope - margin),
        high=float(fit.slope + margin),
        smallest=upper[0],
        largest=upper[-1],
        whole=float(whole.slope),
    )


def seconds_of(group: Mapping[str, Any], what: str) -> Series:
    """Median seconds per environment by size; empty where the group has no such quantity."""
    return {int(size): statistics.median(slices) for size, slices in group.get(what, {}).items()}


def memory_of(group: Mapping[str, Any], what: str) -> Series:
    """Bytes per environment by size."""
    return {int(size): found[what] for size, found in group.items()}


def quantities(groups: Mapping[str, Any], axis: Axis) -> dict[str, Series]:
    """Everything that was measured along an axis, by name.

    Args:
        groups: Results of the study by ``"<axis>: times"`` and ``"<axis>: memory"``.
        axis: Which.
    """
    times, memory = groups.get(f"{axis.name}: times", {}), groups.get(f"{axis.name}: memory", {})
    found = {what: seconds_of(times, what) for what in ("single", "vector", "decision")}
    found |= {what: memory_of(memory, what) for what in ("resident", "kept")}
    return {what: series for what, series in found.items() if series}


def fits_of(groups: Mapping[str, Any], axis: Axis) -> dict[str, PowerLaw]:
    """Power laws of what was measured at two sizes or more."""
    found = quantities(groups, axis)
    return {what: power_law(series) for what, series in found.items() if len(series) > 1}


def size_table(groups: Mapping[str, Any], axis: Axis) -> str:
    """One axis: a row for each size."""
    series = quantities(groups, axis)
    if axis.name == "environments":
        steps = series["vector"]
        lines = [
            "| environments E | a call (µs) | step, one of E (µs) | against E = 1 |",
            "|---:|---:|---:|---:|",
        ]
        first = steps[min(steps)]
        for size, seconds in steps.items():
            lines.append(
                f"| {size} | {1e6 * seconds * size:,.0f} | {1e6 * seconds:,.1f} | {seconds / first:.3f} |"
            )
        return "\n".join(lines)
    units = {"single": "µs", "vector": "µs", "decision": "ms", "resident": "kB", "kept": "kB"}
    scale = {"µs": 1e6, "ms": 1e3, "kB": 1e-3}
    heads = [f"{TITLES[what]} ({units[what]})" for what in series]
    lines = [f"| {axis.label} | {' | '.join(heads)} |", "|---:|" + "---:|" * len(heads)]
    for size in axis.values:
        cells = [
            f"{scale[units[what]] * values[size]:,.4g}" if size in values else "–"
            for what, values in series.items()
        ]
        lines.append(f"| {size} | {' | '.join(cells)} |")
    return "\n".join(lines)


def exponent_table(groups: Mapping[str, Any], axes: Sequence[Axis]) -> str:
    """Fitted exponents of every quantity along every axis but the number of environments."""
    lines = [
        "| | range | " + " | ".join(TITLES.values()) + " |",
        "|---|---|" + "---:|" * len(TITLES),
    ]
    for axis in axes:
        if axis.name == "environments":
            continue
        fits = fits_of(groups, axis)
        if not fits:
            continue
        one = next(iter(fits.values()))
        cells = " | ".join(fit_text(fits[what]) if what in fits else "–" for what in TITLES)
        lines.append(f"| {axis.label} | {one.smallest} to {one.largest} | {cells} |")
    return "\n".join(lines)


def fit_text(fit: PowerLaw) -> str:
    """An exponent with its interval."""
    if math.isnan(fit.low):
        return f"{fit.exponent:.2f}"
    return f"{fit.exponent:.2f} ({fit.low:.2f}…{fit.high:.2f})"


def ratio_text(ratio: float) -> str:
    """A ratio with three digits, and all of them from a thousand on."""
    return f"{ratio:,.0f}" if ratio >= 1000 else f"{ratio:.3g}"


def peer_table(path: Path) -> str:
    """The stored peer comparison.

    Args:
        path: What ``benchmarks/peers.py`` wrote.

    Raises:
        DataError: If it cannot be read.
    """
    content = read_json(path, "run `python benchmarks/peers.py`")
    versions = content["interpreters"]
    lines = [
        "| environment | package | what a step simulates | steps/s | time of a step, CartPole-v1 = 1 |",
        "|---|---|---|---:|---:|",
    ]
    skipped = []
    for figure in content["figures"]:
        about = content["environments"][figure["name"]]
        if figure["value"] is None:
            skipped.append(f"{figure['name']}: {figure['note']}")
            continue
        package = about["package"]
        version = versions["ours" if about["mine"] else "peers"][package]
        low, value, high = (ratio_text(figure[name]) for name in ("low", "value", "high"))
        spread = f" ({low}…{high})" if low != high else ""
        lines.append(
            f"| {figure['name']} | {package} {version} | {about['about']} "
            f"| {figure['note'].removesuffix(' steps/s')} | {value}{spread} |"
        )
    if skipped:
        lines.append("\nSkipped: " + "; ".join(skipped) + ".")
    options = content["options"]
    lines.append(
        f"\n`python benchmarks/peers.py`, {options['repeats']} slices of {options['slice_seconds']:g} s each."
    )
    return "\n".join(lines)


def summary(groups: Mapping[str, Any], axes: Sequence[Axis]) -> str:
    """Exponents as plain text, for the terminal."""
    lines = [f"{'exponent of':24s}  {'range':>12s}  " + "  ".join(f"{what:>19s}" for what in TITLES)]
    for axis in axes:
        fits = {
            what: power_law(series) for what, series in quantities(groups, axis).items() if len(series) > 1
        }
        if not fits:
            continue
        one = next(iter(fits.values()))
        cells = "  ".join(f"{fit_text(fits[what]) if what in fits else '':>19s}" for what in TITLES)
        lines.append(f"{axis.label:24s}  {f'{one.smallest} to {one.largest}':>12s}  {cells}")
    return "\n".join(lines)
