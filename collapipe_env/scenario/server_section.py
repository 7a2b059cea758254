"""The section of a scenario for the terms on which schedulers use the edge server."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic.dataclasses import dataclass

from collapipe_env.scenario.fields import SPEC_CONFIG, described, real
from collapipe_env.scenario.validation_errors import refuse_clearly

TENANTS = "tenants"
"""Name of the process that changes the share of other tenants."""


@refuse_clearly
@dataclass(frozen=True, kw_only=True, config=SPEC_CONFIG)
class ServerSpec:
    """Terms of the edge server ([X]); a null field takes the value of the named terms (`docs/server.md`)."""

    terms: Annotated[
        Literal["free", "metered", "contended", "weak"],
        described("terms of the server's use; one of free, metered, contended, weak"),
    ] = "free"
    flops: Annotated[
        Annotated[float, real("speed of the server", "FLOP/s", gt=0.0, le=1e18)] | None,
        described("speed of the server in place of the terms'; FLOP/s, range above 0 to 1e18, or null"),
    ] = None
    tenants: Annotated[
        Annotated[float, real("share of the server that others use", "1", ge=0.0, le=0.95)] | None,
        described("share of the server that others always use; unit 1, range 0 to 0.95, or null"),
    ] = None
    memory_bytes: Annotated[
        Annotated[float, real("memory of the server", "byte", gt=0.0, le=1e18)] | None,
        described("memory of the server for encoder blocks; byte, range above 0 to 1e18, or null"),
    ] = None
    joules_per_flop: Annotated[
        Annotated[float, real("energy of an operation of the server", "J/FLOP", gt=0.0, le=1.0)] | None,
        described("energy of an operation of the server e_flop; J/FLOP, range above 0 to 1, or null"),
    ] = None
    pue: Annotated[
        Annotated[float, real("energy of the building over its machines'", "1", ge=1.0, le=100.0)] | None,
        described("energy of the building over its machines'; unit 1, range 1 to 100, or null"),
    ] = None
    idle_w: Annotated[
        Annotated[float, real("power of the idle server", "W", ge=0.0, le=1e6)] | None,
        described("power of the idle server, reported; W, range 0 to 1e6, or null"),
    ] = None
    amplifier_efficiency: Annotated[
        Annotated[float, real("efficiency of the base station's amplifier", "1", ge=1e-6, le=1.0)] | None,
        described(
            "emitted over drawn power of the base station, reported; unit 1, range above 0 to 1, or null"
        ),
    ] = None
    energy_budget_j: Annotated[
        Annotated[float, real("energy budget of the server a round", "J", gt=0.0, le=1e12)] | None,
        described("energy budget of encoder blocks on the server; J a round, range above 0 to 1e12, or null"),
    ] = None


class TermValues(NamedTuple):
    """Numbers behind named terms; ``None`` for no limit, or for the speed of ``cluster.server_flops``.

    Attributes: those of :class:`ServerSpec`; ``chain`` says whether other tenants come and go.
    """

    flops: float | None = None
    tenants: float = 0.0
    memory_bytes: float | None = None
    joules_per_flop: float = 35e-12
    pue: float = 1.4
    idle_w: float = 30.0
    amplifier_efficiency: float = 0.3
    energy_budget_j: float | None = None
    chain: bool = False


# An effective 2 TFLOP/s is a card of the T4's class (70 W, 16 GB) at a quarter of its 8.1 TFLOP/s.
_METERED = TermValues(memory_bytes=16e9, energy_budget_j=20.0)
TERMS = {
    "free": TermValues(),
    "metered": _METERED,
    "contended": _METERED._replace(chain=True),
    "weak": _METERED._replace(flops=0.2e12, memory_bytes=8e9),
}
"""Named terms."""


def term_values(server: ServerSpec) -> TermValues:
    """Return the terms' numbers, replaced by those that the section itself gives.

    Args:
        server: The section.
    """
    named = TERMS[server.terms]
    own = {name: value for name in TermValues._fields if (value := getattr(server, name, None)) is not None}
    return named._replace(**own, chain=named.chain and server.tenants is None)
