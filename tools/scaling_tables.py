"""Tables of the scaling study, from its stored measurements."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scaling_fits import PowerLaw, power_law
from scaling_points import BATCH, Axis
from scaling_profile import REST

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
"""What the quantities are called in tables and pictures."""


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


def profile_table(profiles: Mapping[str, Any]) -> str:
    """Shares of the parts of a step; the largest in bold.

    Args:
        profiles: Profiles by ``"<scenario> <size>"``, see ``scaling_profile.profile``.
    """
    parts = list(next(iter(profiles.values()))["shares"])
    heads = " | ".join(parts)
    lines = [
        f"| scenario | environments | step (µs) | wrapped (µs) | {heads} | reset (µs) | resets |",
        "|---|---:|---:|---:|" + "---:|" * len(parts) + "---:|---:|",
    ]
    for key, found in profiles.items():
        scenario, size = key.split()
        top = max(found["shares"], key=found["shares"].get)
        cells = [
            f"**{100 * share:.0f} %**" if part == top else f"{100 * share:.0f} %"
            for part, share in found["shares"].items()
        ]
        episode = found["rounds"] * found["plain_s"] + found["reset_s"]
        reset = f"{1e6 * found['reset_s'] / int(size):,.0f}"
        lines.append(
            f"| {scenario} | {size} | {1e6 * found['plain_s'] / int(size):,.1f} "
            f"| {1e6 * found['wrapped_s'] / int(size):,.1f} | {' | '.join(cells)} | {reset} "
            f"| {100 * found['reset_s'] / episode:.0f} % |"
        )
    gone = sorted({name for found in profiles.values() for name in found["absent"]})
    if gone:
        lines.append(f"\nNot there, so not timed: {', '.join(f'`{name}`' for name in gone)}.")
    return "\n".join(lines)


def dominating(profiles: Mapping[str, Any]) -> str:
    """One sentence a system: what takes most of its step."""
    sentences = []
    for key, found in profiles.items():
        named = {part: share for part, share in found["shares"].items() if part != REST}
        first, second = sorted(named, key=named.__getitem__, reverse=True)[:2]
        scenario, size = key.split()
        which = "alone" if size == "1" else f"in a batch of {size}"
        shares = f"{first} {100 * named[first]:.0f} %, then {second} {100 * named[second]:.0f} %"
        sentences.append(f"* `{scenario}` {which}: {shares}.")
    return "\n".join(sentences)


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
    """Exponents and largest shares as plain text, for the terminal."""
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
    return "\n".join([*lines, dominating(groups.get("profile", {}))])
