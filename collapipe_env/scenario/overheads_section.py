"""The section of a scenario for the fixed costs of passes and messages."""

from __future__ import annotations

from typing import Annotated

from pydantic.dataclasses import dataclass

from collapipe_env.scenario.fields import SPEC_CONFIG, real
from collapipe_env.scenario.validation_errors import refuse_clearly

REFERENCE_CLOCK_HZ = 1e9
"""Clock at which device times are given; at other clocks they scale inversely."""


@refuse_clearly
@dataclass(frozen=True, kw_only=True, config=SPEC_CONFIG)
class OverheadSpec:
    """Overheads and latencies ([X]); with all of them zero the model is the paper's.

    The defaults are estimates for phones and small boards (`docs/prices.md`).
    """

    block_s: Annotated[
        float,
        real("time of launching a block's forward pass at 1 GHz, twice that backward", "s", ge=0.0, le=1e3),
    ] = 0.003
    update_s: Annotated[
        float,
        real("time of the optimiser's update of a million parameters at 1 GHz", "s", ge=0.0, le=1e3),
    ] = 0.005
    message_s: Annotated[
        float, real("fixed time of a device-to-device message, without its bits", "s", ge=0.0, le=1e3)
    ] = 0.001
    header_bits: Annotated[float, real("header of a device-to-device message", "bits", ge=0.0, le=1e9)] = 0.0
    latency_s: Annotated[
        float, real("latency of a device-to-device message after sending", "s", ge=0.0, le=1e3)
    ] = 0.003
    edge_message_s: Annotated[
        float, real("fixed time of a message on uplink or downlink, without its bits", "s", ge=0.0, le=1e3)
    ] = 0.001
    edge_latency_s: Annotated[
        float, real("latency of a message on uplink or downlink after sending", "s", ge=0.0, le=1e3)
    ] = 0.015
    server_s: Annotated[
        float, real("time of launching the server's forward pass, twice that backward", "s", ge=0.0, le=1e3)
    ] = 0.0005
