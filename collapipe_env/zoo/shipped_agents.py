"""Index of the agents that come with the package: names, files, checksums.

``zoo:NAME`` stands for a file wherever an agent's is named. It is looked up here, and its SHA-256 compared
with the index before anything reads it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from collapipe_env.ground.errors import (
    CheckpointError,
    DataError,
    fault_line,
    fits_a_line,
    nearest_name,
    shown,
)
from collapipe_env.ground.files import ARCHIVE_BYTES, read_json, read_regular, write_json

FORMAT = "collapipe-env zoo"
FORMAT_VERSION = 1
FOLDER = Path(__file__).parent
"""Folder of the index, the files and the cards."""
INDEX = "index.json"
PREFIX = "zoo:"
NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
REMEDY = "install the package again"


@dataclass(frozen=True)
class ShippedAgent:
    """Entry of the index.

    Attributes:
        name: Name: lower-case letters, digits and hyphens, at most 40, beginning with a letter.
        size: Bytes of its file.
        trained_on: Name of the scenario, or range of systems, that it was trained on.
        description: In one line.
        figures: Its main figures, in one line, with the episodes that they were measured on.
        command: Command that trained it.
    """

    name: Annotated[str, Field(pattern=f"^{NAME.pattern}$")]
    sha256: str
    size: Annotated[int, Field(strict=True)]
    algorithm: str
    trained_on: str
    description: str
    figures: str
    command: str

    @property
    def file(self) -> str:
        """Name of its file."""
        return f"{self.name}.safetensors"

    @property
    def card(self) -> str:
        """Name of its card, a text in Markdown."""
        return f"{self.name}.md"


def shipped_agents() -> dict[str, ShippedAgent]:
    """Return the agents of the index by their names, in its order.

    Raises:
        DataError: If the index is missing or damaged.
    """
    place = FOLDER / INDEX
    content = read_json(place, REMEDY)
    if content.get("format") != FORMAT or content.get("format_version") != FORMAT_VERSION:
        raise DataError(
            f"{place} does not say format = {FORMAT!r}, format_version = {FORMAT_VERSION}: {REMEDY}"
        )
    try:
        agents = TypeAdapter(list[ShippedAgent]).validate_python(content.get("agents"))
    except ValidationError as error:
        raise DataError(f"{place}: {fault_line(error.errors()[0], 'agents')}: {REMEDY}") from None
    found = {agent.name: agent for agent in agents}
    if len(found) != len(agents):
        raise DataError(f"{place} lists an agent twice: {REMEDY}")
    return found


def is_shipped(source: object) -> bool:
    """Whether a text or path has the form ``zoo:NAME``."""
    return isinstance(source, str | Path) and str(source).startswith(PREFIX)


def shipped_agent(name: str) -> ShippedAgent:
    """Return the entry of a name, with or without ``zoo:`` before it.

    Raises:
        CheckpointError: If there is none; names the nearest.
        DataError: If the index is missing or damaged.
    """
    agents = shipped_agents()
    wanted = name.removeprefix(PREFIX)
    if wanted in agents:
        return agents[wanted]
    hint = nearest_name(wanted, agents) if agents else "no agents are shipped yet"
    raise CheckpointError(f"the zoo has no agent {shown(wanted)}: {hint} (collapipe zoo lists them)")


def agent_path(source: str | Path) -> Path:
    """Return the path of an agent's file; that of ``zoo:NAME`` once its content is that of the index.

    Args:
        source: A path, or ``zoo:NAME``.

    Raises:
        CheckpointError: If there is no such agent in the zoo, or its file is missing or damaged.
        DataError: If the index is missing or damaged.
    """
    if not is_shipped(source):
        if not fits_a_line(str(source)):  # tables name it
            raise CheckpointError(
                f"agent {shown(str(source))}: its path holds a control character; rename it"
            )
        return Path(source)
    agent = shipped_agent(str(source))
    path = FOLDER / agent.file
    try:
        content = read_regular(path, ARCHIVE_BYTES)
    except OSError as error:
        raise CheckpointError(
            f"cannot read {path} of {PREFIX}{agent.name} ({error.strerror}): {REMEDY}"
        ) from None
    found = hashlib.sha256(content).hexdigest()
    if found != agent.sha256:
        raise CheckpointError(
            f"{path} is not the file of {PREFIX}{agent.name}: it has {len(content):,} bytes with SHA-256 "
            f"{found[:12]}..., the index names {agent.size:,} bytes with {agent.sha256[:12]}...: {REMEDY}"
        )
    return path


def shown_agent(path: Path) -> str:
    """Return an agent's file as tables and records name it: ``zoo:NAME`` for a shipped one."""
    return f"{PREFIX}{path.stem}" if path.parent == FOLDER else str(path)


def write_index(agents: Iterable[ShippedAgent]) -> None:
    """Write the index; the one before stays until the new one is complete.

    Raises:
        DataError: If it cannot be written.
    """
    entries = [asdict(agent) for agent in agents]
    write_json(FOLDER / INDEX, {"format": FORMAT, "format_version": FORMAT_VERSION, "agents": entries})
