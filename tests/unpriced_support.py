"""Scenarios in the form of the paper, for tests of formulas: only what is computed and sent takes time."""

from collapipe_env.scenario import Scenario, load_scenario

NO_OVERHEADS = {
    "block_s": 0.0,
    "update_s": 0.0,
    "message_s": 0.0,
    "header_bits": 0.0,
    "latency_s": 0.0,
    "edge_message_s": 0.0,
    "edge_latency_s": 0.0,
    "server_s": 0.0,
}
"""Section ``overheads`` of a scenario in which passes, messages and updates cost nothing by themselves."""

PAPER_RADIO = {
    "carrier_ghz": 2.0,
    "d2e_path_loss": "itu-m1225-vehicular",
    "d2d_path_loss": "itu-m1225-pedestrian",
    "uplink_bandwidth_hz": 20e6,
    "downlink_bandwidth_hz": 20e6,
    "d2d_radios": 2,
    "bs_antenna_dbi": 0.0,
    "bs_noise_figure_db": 0.0,
    "device_noise_figure_db": 0.0,
    "link_errors": "drop",
    "rate_attenuation": 1.0,
    "rate_ceiling": None,
    "snr_floor_db": None,
    "packet_diversity": None,
    "d2d_circuit_w": 0.0,
    "edge_circuit_w": 0.0,
    "amplifier_efficiency": 1.0,
    "receive_w": 0.0,
    "edge_receive_w": 0.0,
    "idle_w": 0.0,
}
"""Section ``radio`` in which links carry ``log2(1 + SNR)``, lose packets, and draw what they emit."""


def unpriced(source) -> Scenario:
    """A scenario, or what ``load_scenario`` makes one of, without overheads; its name stays."""
    return load_scenario(source).with_overrides({"overheads": NO_OVERHEADS})
