"""Colours of nodes and phases, and their names; free of Matplotlib."""

from __future__ import annotations

INK = "#222222"
FAINT = "#8a8a8a"
GRID = "#dddddd"
CU_COLOUR = "#555555"
SERVER_COLOUR = "#b9b9b9"
MUTED = (
    "#88CCEE", "#CC6677", "#117733", "#DDCC77", "#332288", "#44AA99", "#AA4499", "#999933", "#882255",
)  # fmt: skip
PHASE_COLOURS = {
    "migration": "#e07b91",
    "relay": "#7fa3d1",
    "step": "#e3e3e3",
    "all-reduce": "#b9a6d3",
    "update": "#c98f6b",
    "replicas": "#5c8a8a",
    "detection": "#d1495b",
    "planning": "#edae49",
    "moves": "#e07b91",
    "replay": "#b8c4d6",
    "collect": "#5aae9b",
    "upload": "#9b6fb5",
    "wait": "#ffffff",
    "broadcast": "#d9c441",
    "other": "#c7b299",
}
PHASE_NAMES = {
    "migration": "migration",
    "relay": "relay of new weights",
    "step": "local step",
    "all-reduce": "all-reduce",
    "update": "update",
    "replicas": "replicas",
    "detection": "failure detected",
    "planning": "planning",
    "moves": "blocks move",
    "replay": "local steps replayed",
    "collect": "collect",
    "upload": "upload",
    "wait": "wait",
    "broadcast": "broadcast",
    "other": "another phase",
}


def known_phase(label: str) -> str:
    """Return the label under which a phase has a colour; ``other`` for phases of prices of one's own."""
    return label if label in PHASE_NAMES else "other"
