"""Fit the profiles of ``trace-like`` to the data sets below ``COLLAPIPE_DATA``.

Run ``COLLAPIPE_DATA=... python tools/fit_traces.py``; it takes some seconds. The lines printed are the
profiles of ``collapipe_env/dynamics/trace_like.py``; their table goes into ``docs/traces.md``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fitting.trace_fits import Mixture, decibels, fitted_mixture, moments
from generated_parts import markdown_table, write_parts

from collapipe_env.dynamics.trace_like import Profile
from collapipe_env.trace_files import Columns, Trace, known_sets, source_traces, verify_set
from collapipe_env.trace_files.trace_formats import Quantity


class Fitted(NamedTuple):
    """Traces of a known set, whose file names match a regular expression from their start."""

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
    """Traces of a source below ``COLLAPIPE_DATA``, all parts of the split."""
    known = known_sets()[source.known]
    verify_set(source.known)
    every = source_traces(known.folder, Columns(known.format, source.quantity), "all")
    return [trace for trace in every if re.match(source.files, trace.name)]


def fit(source: Fitted) -> Profile:
    """Fit a profile."""
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


def profile_table(profiles: Mapping[str, Profile]) -> str:
    """The table of profiles beside the measured figures."""
    rows = []
    for name, profile in profiles.items():
        source = SOURCES[name]
        found = moments(fitted_traces(source))
        mixture = Mixture(profile.weights, profile.times_s)
        unit = "dBm" if source.quantity == "rsrp" else "dB(Mbit/s)"
        rows.append(
            [
                f"`{name}`",
                f"`{source.known}` {source.quantity}",
                f"{found.files}, {found.seconds:,}",
                f"{found.mean_db:.1f} {unit}",
                f"{found.within_db:.1f}, {found.between_db:.1f} dB",
                ", ".join(f"{value:.2f}" for value in found.correlation.values()),
                ", ".join(f"{mixture.correlation(lag):.2f}" for lag in found.correlation),
            ]
        )
    return markdown_table(HEADS, rows, left=2)


HEADS = (
    "profile", "data set", "traces, seconds", "mean", "sd within, between traces",
    "correlation at 1, 10, 60 s", "its fit",
)  # fmt: skip
PAGE = Path(__file__).parents[1] / "docs" / "traces.md"


def main() -> None:
    """Fit all profiles, print them, and write their table into the page."""
    profiles = {name: fit(source) for name, source in SOURCES.items()}
    for name, profile in profiles.items():
        print(f'    "{name}": {profile!r},')
    note = "`COLLAPIPE_DATA=... python tools/fit_traces.py`"
    write_parts(PAGE, {"profiles": f"{profile_table(profiles)}\n\n{note}"})


if __name__ == "__main__":
    main()
