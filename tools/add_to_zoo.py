"""Add a trained agent to the zoo: the agents that come with the package.

``python tools/add_to_zoo.py runs/m/checkpoints/best.safetensors medium-ppo --description "PPO on medium"``
writes the file of weights, a card made of the training's record, and the entry of the index. The entry comes
last, so an interrupted run leaves no agent half-written. With ``latest.safetensors`` beside
``best.safetensors``, the card has the whole curve of the training.
"""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from pathlib import Path
from typing import Annotated

import tyro
from pydantic import BaseModel
from zoo_card import best_of, card, validation_figures

from collapipe_env.agents.learned.agent_file import AgentFile, packed_agent, read_agent_file
from collapipe_env.agents.learned.agent_loading import ALGORITHMS
from collapipe_env.ground.errors import CheckpointError, DataError
from collapipe_env.ground.files import read_regular, write_bytes, write_text
from collapipe_env.zoo import shipped_agents as zoo

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from measuring import command

LARGEST_NOTES = 1024**2


class Options(BaseModel):
    """Add a trained agent to the zoo."""

    checkpoint: tyro.conf.Positional[Path]
    """A checkpoint of collapipe train, or a file that collapipe zoo export wrote."""
    name: tyro.conf.Positional[str]
    """Lower-case letters, digits and hyphens."""
    description: str
    """What it is, in one line."""
    figures: Annotated[str | None, tyro.conf.arg(help_behavior_hint="(default: the best validation)")] = None
    """Its main figures in one line, with episodes and rounds."""
    command: Annotated[str | None, tyro.conf.arg(help_behavior_hint="(default: as recorded)")] = None
    """Command that trained it."""
    notes: Path | None = None
    """Text in Markdown that is added to the card: how it was compared, further limits of use."""
    replace: bool = False
    """Write over the agent that has this name."""


def add(options: Options) -> None:
    """Write file, card and entry of an agent.

    Raises:
        CollaPipeError: If the checkpoint cannot be read, the name is taken or of another form, or something
            that the card needs is not known.
    """
    if not zoo.NAME.fullmatch(options.name):
        raise CheckpointError(
            f"name {options.name!r}: use lower-case letters, digits and hyphens, at most 40, beginning with "
            "a letter"
        )
    listed = zoo.shipped_agents()
    if options.name in listed and not options.replace:
        raise CheckpointError(
            f"the zoo has an agent {options.name!r} already: choose a name, or give --replace"
        )
    record, tensors = with_whole_curve(options.checkpoint)
    ALGORITHMS.require(record.algorithm)
    trained_by = options.command or str(record.training.get("command") or "")
    figures = options.figures or validation_figures(record)
    for option, value in (("--command", trained_by), ("--figures", figures)):
        if not value:
            raise CheckpointError(f"{options.checkpoint} does not record what {option} is to say: give it")
    record = dataclasses.replace(record, training={**record.training, "command": trained_by})
    content = packed_agent(record, tensors, str(options.checkpoint))
    agent = zoo.ShippedAgent(
        name=options.name,
        sha256=hashlib.sha256(content).hexdigest(),
        size=len(content),
        algorithm=record.algorithm,
        trained_on=record.trained_on,
        description=" ".join(options.description.split()),
        figures=" ".join(figures.split()),
        command=trained_by,
    )
    notes = "" if options.notes is None else _notes(options.notes)
    text = card(agent, record, sum(value.size for value in tensors.values()), notes)
    others = [entry for entry in listed.values() if entry.name != agent.name]
    if len(others) < len(listed):
        zoo.write_index(others)  # no entry may stand beside the file of another
    write_bytes(zoo.FOLDER / agent.file, content)
    write_text(zoo.FOLDER / agent.card, text)
    zoo.write_index(sorted([*others, agent], key=lambda entry: entry.name))
    print(
        f"{zoo.PREFIX}{agent.name}: {agent.size:,} bytes, SHA-256 {agent.sha256}\n{zoo.FOLDER / agent.file}"
    )


def with_whole_curve(checkpoint: Path) -> AgentFile:
    """Playing part of a file, with the whole training's record if ``latest.safetensors`` is beside it.

    ``best.safetensors`` was written while training went on, so it lacks the validations after it.
    """
    found = read_agent_file(checkpoint).playing
    latest = checkpoint.with_name("latest.safetensors")
    if checkpoint.name != "best.safetensors" or not latest.exists():
        return found
    last, before = read_agent_file(latest).record, found.record.history
    if last.history[: len(before)] != before or before[-1:] != [best_of(last.history)]:
        raise CheckpointError(f"{latest} is not of the training that {checkpoint} is the best version of")
    record = dataclasses.replace(found.record, history=last.history, training=last.training)
    return AgentFile(record, found.tensors)


def _notes(path: Path) -> str:
    try:
        return read_regular(path, LARGEST_NOTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path} ({error}): give a text in UTF-8") from None


main = command(Options, add, __doc__)

if __name__ == "__main__":
    sys.exit(main())
