"""Path losses beyond the distances, carriers and heights for which their sources give them."""

from __future__ import annotations

from functools import lru_cache

from collapipe_env.scenario import Scenario
from collapipe_env.simulator.idle_fields import warn_of


class LawRangeWarning(UserWarning):
    """A path loss is used where its source does not give it."""


def outside_ranges(scenario: Scenario) -> dict[str, str]:
    """Return the path losses that a scenario uses beyond their sources' ranges.

    Returns:
        What is outside, by the dotted path of each field with its value:
        ``{"radio.d2e_path_loss = umi": "its source gives it for 10 to 5000 m, links have 5 to 400 m"}``.
    """
    radio, cluster, found = scenario.radio, scenario.cluster, {}
    for name, links, near_m, far_m in (
        ("d2e", radio.d2e_links, cluster.cu_distance_min_m, cluster.cu_distance_max_m),
        ("d2d", radio.d2d_links, cluster.hop_min_m, cluster.longest_hop_m),
    ):
        (least, most), (low, high) = links.law.range_m, links.law.carriers_ghz
        faults = []
        if near_m < least or far_m > most:
            faults.append(f"for {least:g} to {most:g} m, links have {near_m:g} to {far_m:g} m")
        if not low <= radio.carrier_ghz <= high:
            faults.append(f"for {_span(low, high)} GHz, carrier_ghz is {radio.carrier_ghz:g}")
        heights, spans = links.antennas[1:], links.law.spans_m
        if spans and any(not low <= m <= high for m, (low, high) in zip(heights, spans, strict=True)):
            usual = " and ".join(_span(*span) for span in spans)
            faults.append(f"for antennas at {usual} m, links have {heights[0]:g} and {heights[1]:g} m")
        if faults:
            field = f"{name}_path_loss"
            found[f"radio.{field} = {getattr(radio, field)}"] = f"its source gives it {' and '.join(faults)}"
    return found


def _span(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


@lru_cache(maxsize=64)
def warn_of_ranges(scenario: Scenario) -> None:
    """Warn once for each scenario that uses path losses beyond their sources' ranges.

    Warns:
        LawRangeWarning: Names every such field, its value, the range and what is used.
    """
    found = [f"{place}: {reason}" for place, reason in outside_ranges(scenario).items()]
    warn_of(scenario, found, LawRangeWarning)
