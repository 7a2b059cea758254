"""The section of a scenario with the tuned scalars of the reference scheduler DSSRA+."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any

from pydantic.dataclasses import dataclass

from collapipe_env.scenario.fields import SPEC_CONFIG, real
from collapipe_env.scenario.validation_errors import refuse_clearly

DSSRA_PLUS_RANGES: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "migration_weight": (0.0, 1e3),
        "heat_price": (0.0, 1e6),
        "heat_start": (0.0, 0.99),
        "channel_weight": (0.0, 1.0),
        "failure_price": (0.0, 1e6),
        "gain_caution": (0.0, 10.0),
    }
)
"""Smallest and largest value of each scalar."""


def _scalar(name: str, meaning: str, unit: str) -> Any:
    low, high = DSSRA_PLUS_RANGES[name]
    return real(meaning, unit, ge=low, le=high)


@refuse_clearly
@dataclass(frozen=True, kw_only=True, config=SPEC_CONFIG)
class DSSRAPlusSpec:
    """Scalars of the scheduler ``dssra-plus`` ([X]); with the defaults it is DSSRA (`docs/dssra_plus.md`)."""

    migration_weight: Annotated[
        float, _scalar("migration_weight", "weight of moving blocks in its plans, 1 for their price", "1")
    ] = 1.0
    heat_price: Annotated[
        float, _scalar("heat_price", "delay that a joule in a device at its set point is worth", "s/J")
    ] = 0.0
    heat_start: Annotated[
        float, _scalar("heat_start", "thermal headroom at which the price of heat begins", "1")
    ] = 0.5
    channel_weight: Annotated[
        float, _scalar("channel_weight", "weight of the gains that are seen against a link's mean", "1")
    ] = 1.0
    failure_price: Annotated[
        float, _scalar("failure_price", "delay that the failure of a device with blocks is worth", "s")
    ] = 0.0
    gain_caution: Annotated[
        float,
        _scalar("gain_caution", "deviations of a device-to-device link that its gain is taken lower", "1"),
    ] = 0.0

    @property
    def is_neutral(self) -> bool:
        """Whether DSSRA+ equals DSSRA with these values."""
        return dataclasses.asdict(self) == dict(NEUTRAL)


NEUTRAL: Mapping[str, float] = MappingProxyType(dataclasses.asdict(DSSRAPlusSpec()))
"""Values with which DSSRA+ equals DSSRA."""
