"""The section of a scenario for the terms on which schedulers use the edge server."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator

from collapipe_env.scenario.device_catalogue import known_machine, machine
from collapipe_env.scenario.fields import Text, field, real, spec

TENANTS = "tenants"
"""Name of the process that changes the share of other tenants."""


@spec
class ServerSpec:
    """Terms of the edge server ([X]); a null field takes the value of the named terms (`docs/server.md`)."""

    terms: Literal["free", "metered", "contended", "weak"] = field("free", "terms of the server's use")
    machine: Annotated[Text, AfterValidator(known_machine)] | None = field(
        None,
        "device of the catalogue (`docs/devices.md`) whose speed, memory and energy replace the terms'; no "
        "unit, a name such as rtx-3090-ti, or null",
    )
    flops: float | None = real(None, "speed of the server in place of the terms'", "(0, 1e18] FLOP/s")
    tenants: float | None = real(None, "share of the server that others always use", "[0, 0.95]")
    memory_bytes: float | None = real(None, "memory of the server for encoder blocks", "(0, 1e18] byte")
    joules_per_flop: float | None = real(None, "energy of an operation of the server e_flop", "(0, 1] J/FLOP")
    pue: float | None = real(None, "energy of the building over its machines'", "[1, 100]")
    idle_w: float | None = real(None, "power of the idle server, reported", "[0, 1e6] W")
    amplifier_efficiency: float | None = real(
        None, "emitted over drawn power of the base station, reported", "[1e-6, 1]"
    )
    energy_budget_j: float | None = real(
        None, "energy budget of the server's blocks in a round", "(0, 1e12] J"
    )


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
    """Return the terms' numbers, replaced by those of a named machine and by those that the section gives."""
    named = TERMS[server.terms]
    if server.machine is not None:
        found = machine(server.machine)
        named = named._replace(
            flops=found.flops,
            memory_bytes=found.memory_bytes,
            joules_per_flop=found.active_power_w / found.flops,
        )
    own = {name: value for name in TermValues._fields if (value := getattr(server, name, None)) is not None}
    return named._replace(**own, chain=named.chain and server.tenants is None)
