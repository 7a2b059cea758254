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


def unpriced(source) -> Scenario:
    """A scenario, or what ``load_scenario`` makes one of, without overheads; its name stays."""
    return load_scenario(source).with_overrides({"overheads": NO_OVERHEADS})
