"""The section of a scenario with the tuned scalars of the reference scheduler DSSRA+."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from collapipe_env.scenario.fields import real, spec


@spec
class DSSRAPlusSpec:
    """Scalars of the scheduler ``dssra-plus`` ([X]); with the defaults it is DSSRA (`docs/dssra_plus.md`)."""

    migration_weight: float = real(
        1.0, "weight of moving blocks in its plans, 1 for their price", "1", ge=0, le=1e3
    )
    heat_price: float = real(
        0.0, "delay that a joule in a device at its set point is worth", "s/J", ge=0, le=1e6
    )
    heat_start: float = real(0.5, "thermal headroom at which the price of heat begins", "1", ge=0, le=0.99)
    channel_weight: float = real(
        1.0, "weight of the gains that are seen against a link's mean", "1", ge=0, le=1
    )
    failure_price: float = real(
        0.0, "delay that the failure of a device with blocks is worth", "s", ge=0, le=1e6
    )
    gain_caution: float = real(
        0.0, "deviations of a device-to-device link that its gain is taken lower", "1", ge=0, le=10
    )

    @property
    def is_neutral(self) -> bool:
        """Whether DSSRA+ equals DSSRA with these values."""
        return dataclasses.asdict(self) == dict(NEUTRAL)


NEUTRAL: Mapping[str, float] = MappingProxyType(dataclasses.asdict(DSSRAPlusSpec()))
"""Values with which DSSRA+ equals DSSRA."""

_FIELDS: Any = DSSRAPlusSpec.__pydantic_fields__  # type: ignore[attr-defined]
DSSRA_PLUS_RANGES: Mapping[str, tuple[float, float]] = MappingProxyType(
    {name: (low.ge, high.le) for name, field in _FIELDS.items() for _, low, high in [field.metadata]}
)
"""Smallest and largest value of each scalar."""
