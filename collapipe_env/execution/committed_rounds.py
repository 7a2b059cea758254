"""Committed rounds: the state kept after every round, from which an interrupted execution continues.

The server's report of each round is a file of its own. One file holds the state after the last committed
round; it is replaced last, in one step, so that a round is either committed as a whole or was never played.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from collapipe_env.evaluation.run_directory import RunDirectory
from collapipe_env.ground.errors import StateError
from collapipe_env.ground.files import json_digest, read_json, without_nan, write_json
from collapipe_env.ground.state_files import read_tree, write_tree
from collapipe_env.ground.state_trees import Tree, require_array, require_names

FORMAT, VERSION = "collapipe_env execution", 4
REMEDY = "start over with --fresh, or choose another place with --out"
MOST_ROUNDS = 100_000


@dataclass(frozen=True)
class Committed:
    """State of an execution between two rounds.

    Attributes:
        rounds: Rounds that were played.
        scale: Seconds of wall time for a priced second.
        simulator: State of the environment that plans the rounds.
        training: State of the training, as the server has packed it.
    """

    rounds: int
    scale: float
    simulator: Tree
    training: bytes


def report_path(run: RunDirectory, number: int) -> Path:
    """Return the file of the server's report of a round.

    Args:
        number: Number of the round, from 1.
    """
    return run / "played" / f"round-{number}.json"


def commit(run: RunDirectory, origin: str, report: Mapping[str, Any], state: Committed) -> None:
    """Keep a round that was played, and the state after it.

    Args:
        origin: Digest of all that decides the rounds.
        report: The server's report of the round.
        state: The state after it.

    Raises:
        DataError: If the folder cannot be written to.
    """
    plain = without_nan(report)
    kept = {"digest": _digest(plain, origin, state.rounds), "report": plain}
    write_json(report_path(run, state.rounds), kept)
    write_tree(
        run / "state.safetensors",
        {
            "format": FORMAT,
            "version": VERSION,
            "origin": origin,
            "rounds": state.rounds,
            "scale": np.array(state.scale),
            "simulator": state.simulator,
            "training": np.frombuffer(state.training, dtype=np.uint8),
        },
    )


def committed(run: RunDirectory, origin: str) -> Committed | None:
    """Return the state after the last round that was kept; ``None`` before the first.

    Raises:
        StateError: If the file is damaged, of another version, or another run's.
    """
    file = run / "state.safetensors"
    if not file.exists():
        return None
    tree, place = read_tree(file, REMEDY), str(file)
    for name, here in (("format", FORMAT), ("version", VERSION), ("origin", origin)):
        if tree.get(name) != here:
            raise StateError(f"{place} is the state of something else (its {name} differs): {REMEDY}")
    require_names(tree, ("format", "version", "origin", "rounds", "scale", "simulator", "training"), place)
    rounds, scale, training = tree["rounds"], tree["scale"], tree["training"]
    if type(rounds) is not int or not 1 <= rounds <= MOST_ROUNDS:
        raise StateError(f"{place}/rounds is damaged: {REMEDY}")
    require_array(scale, (), np.float64, f"{place}/scale")
    require_array(training, (np.size(training),), np.uint8, f"{place}/training")
    if not 1e-3 <= float(scale) <= 1e4:
        raise StateError(f"{place}/scale is {float(scale)}, expected 0.001 to 10,000: {REMEDY}")
    return Committed(rounds, float(scale), tree["simulator"], training.tobytes())


def reports(run: RunDirectory, origin: str, rounds: int) -> list[dict[str, Any]]:
    """Return the reports of the rounds that were kept.

    Args:
        rounds: Number of rounds.

    Raises:
        DataError: If a file is missing or not a JSON object.
        StateError: If it is damaged, or not of this run and round.
    """
    found = []
    for number in range(1, rounds + 1):
        path = report_path(run, number)
        content = read_json(path, REMEDY)
        report = content.get("report")
        if not isinstance(report, dict) or content.get("digest") != _digest(report, origin, number):
            raise StateError(f"{path} is damaged or not the report of this round: {REMEDY}")
        found.append(report)
    return found


def _digest(report: Mapping[str, Any], origin: str, number: int) -> str:
    """Return the digest of a report, its run and the number of its round."""
    return json_digest([origin, number, report])
