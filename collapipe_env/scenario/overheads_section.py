"""The section of a scenario for the fixed costs of passes and messages."""

from __future__ import annotations

from collapipe_env.scenario.fields import real, spec

REFERENCE_CLOCK_HZ = 1e9
"""Clock at which device times are given; at other clocks they scale inversely."""


@spec
class OverheadSpec:
    """Overheads and latencies ([X]); with all of them zero the model is the paper's.

    The defaults are estimates for phones and small boards (`docs/prices.md`).
    """

    block_s: float = real(
        0.003, "time of launching a block's forward pass at 1 GHz, twice that backward", "s", ge=0, le=1e3
    )
    update_s: float = real(
        0.005, "time of the optimiser's update of a million parameters at 1 GHz", "s", ge=0, le=1e3
    )
    message_s: float = real(
        0.001, "fixed time of a device-to-device message, without its bits", "s", ge=0, le=1e3
    )
    header_bits: float = real(0.0, "header of a device-to-device message", "bits", ge=0, le=1e9)
    latency_s: float = real(0.003, "latency of a device-to-device message after sending", "s", ge=0, le=1e3)
    edge_message_s: float = real(
        0.001, "fixed time of a message on uplink or downlink, without its bits", "s", ge=0, le=1e3
    )
    edge_latency_s: float = real(
        0.015, "latency of a message on uplink or downlink after sending", "s", ge=0, le=1e3
    )
    server_s: float = real(
        0.0005, "time of launching the server's forward pass, twice that backward", "s", ge=0, le=1e3
    )
