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
PHASES = {
    "migration": ("migration", "#e07b91"),
    "relay": ("relay of new weights", "#7fa3d1"),
    "step": ("local step", "#e3e3e3"),
    "all-reduce": ("all-reduce", "#b9a6d3"),
    "update": ("update", "#c98f6b"),
    "replicas": ("replicas", "#5c8a8a"),
    "detection": ("failure detected", "#d1495b"),
    "planning": ("planning", "#edae49"),
    "moves": ("blocks move", "#e07b91"),
    "replay": ("local steps replayed", "#b8c4d6"),
    "collect": ("collect", "#5aae9b"),
    "upload": ("upload", "#9b6fb5"),
    "wait": ("wait", "#ffffff"),
    "broadcast": ("broadcast", "#d9c441"),
    "other": ("another phase", "#c7b299"),
}
"""Name and colour of each phase, by its label."""


def known_phase(label: str) -> str:
    """Return the label under which a phase has a colour; ``other`` for phases of prices of one's own."""
    return label if label in PHASES else "other"


def phase_colour(label: str) -> str:
    """Return the colour of a phase."""
    return PHASES[known_phase(label)][1]
