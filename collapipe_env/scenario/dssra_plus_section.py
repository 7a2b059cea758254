"""The section of a scenario with the tuned scalars of the reference scheduler DSSRA+."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from collapipe_env.scenario.fields import real, spec


@spec
class DSSRAPlusSpec:
    """Scalars of the scheduler ``dssra-plus`` ([X]); with the defaults it is DSSRA (`docs/dssra.md`)."""

    migration_weight: float = real(1.0, "weight of moving blocks in its plans, 1 for their price", "[0, 1e3]")
    heat_price: float = real(0.0, "delay that a joule in a device at its set point is worth", "[0, 1e6] s/J")
    heat_start: float = real(0.5, "thermal headroom at which the price of heat begins", "[0, 0.99]")
    channel_weight: float = real(1.0, "weight of the gains that are seen against a link's mean", "[0, 1]")
    failure_price: float = real(0.0, "delay that the failure of a device with blocks is worth", "[0, 1e6] s")
    gain_caution: float = real(0.0, "deviations by which a hop's gain is taken lower", "[0, 10]")

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
