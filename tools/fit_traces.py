"""Fit the profiles of ``trace-like`` to the data sets below ``COLLAPIPE_DATA``, and print them.

Run ``COLLAPIPE_DATA=... python tools/fit_traces.py``; it takes some seconds. The printed lines are the table
``PROFILES`` of ``collapipe_env/dynamics/trace_like.py``, and the table of ``docs/traces.md``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from collapipe_env.dynamics.trace_like import Profile
from collapipe_env.trace_files import Columns, Trace, known_sets, source_traces, verify_set
from collapipe_env.trace_files.trace_fits import decibels, fitted_mixture, moments
from collapipe_env.trace_files.trace_formats import Quantity


class Fitted(NamedTuple):
    """Traces that a profile is fitted to.

    Attributes:
        known: Name of the known set.
        quantity: Quantity of its traces.
        files: Regular expression that names of files match from their begin on.
    """

    known: str
    quantity: Quantity
    files: str = ""


SOURCES: Mapping[str, Fitted] = {
    "driving": Fitted("ucc-5g-driving", "rsrp"),
    "static": Fitted("ucc-5g-static", "rsrp"),
    "driving-rate": Fitted("ucc-5g-driving", "rate"),
    "static-rate": Fitted("ucc-5g-static", "rate"),
    "bus": Fitted("nyu-lte", "rate", "bus"),
    "subway": Fitted("nyu-lte", "rate", "(7|Q)Train"),
    "commute-3g": Fitted("norway-3g", "rate"),
}
"""Traces behind each profile."""


def fitted_traces(source: Fitted) -> list[Trace]:
    """Traces of a source, all parts of the split.

    Args:
        source: The source, whose files lie below ``COLLAPIPE_DATA``.
    """
    known = known_sets()[source.known]
    verify_set(source.known)
    every = source_traces(known.folder, Columns(known.format, source.quantity), "all")
    return [trace for trace in every if re.match(source.files, trace.name)]


def fit(source: Fitted) -> Profile:
    """Fit a profile.

    Args:
        source: What it is fitted to.
    """
    traces = fitted_traces(source)
    found = moments(traces)
    mixture = fitted_mixture(found.correlation)
    series = [decibels(trace) for trace in traces]
    return Profile(
        quantity=source.quantity,
        mean_db=round(found.mean_db, 1),
        between_db=round(found.between_db, 2),
        within_db=round(found.within_db, 2),
        weights=mixture.weights,
        times_s=mixture.times_s,
        lowest_db=round(float(min(one.min() for one in series)), 1),
        highest_db=round(float(max(one.max() for one in series)), 1),
    )


def main() -> None:
    """Fit all profiles and print them."""
    print("| profile | set | traces, seconds | mean | sd within, between | correlation (1, 10, 60 s) | fit |")
    print("|---|---|---:|---:|---:|---:|---:|")
    profiles = {}
    for name, source in SOURCES.items():
        found, profile = moments(fitted_traces(source)), fit(source)
        profiles[name] = profile
        unit = "dBm" if source.quantity == "rsrp" else "dB(Mbit/s)"
        measured = ", ".join(f"{value:.2f}" for value in found.correlation.values())
        model = ", ".join(f"{profile.mixture.correlation(lag):.2f}" for lag in found.correlation)
        print(
            f"| `{name}` | `{source.known}` {source.quantity} | {found.files}, {found.seconds:,} | "
            f"{found.mean_db:.1f} {unit} | {found.within_db:.1f}, {found.between_db:.1f} dB | {measured} | "
            f"{model} |"
        )
    print()
    for name, profile in profiles.items():
        print(f'    "{name}": {profile!r},')


if __name__ == "__main__":
    main()
