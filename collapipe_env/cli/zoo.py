"""List the trained agents of the package, or show or export one.

To play an agent of the zoo, give --agent zoo:NAME, or zoo:NAME among
--schedulers. Its file is checked against the checksum in the index whenever
it is loaded, and nothing in it is executed. export writes such a file from
your own checkpoint; give it as --agent FILE.

Examples:
  collapipe zoo
  collapipe zoo show NAME
  collapipe evaluate --agent zoo:NAME
  collapipe zoo export checkpoints/latest.safetensors agent.safetensors
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table as RichTable

from collapipe_env.cli.early_end import Call
from collapipe_env.cli.option_types import about
from collapipe_env.ground.errors import CheckpointError
from collapipe_env.ground.files import read_regular
from collapipe_env.zoo import shipped_agents
from collapipe_env.zoo.shipped_agents import PREFIX, agent_path, shipped_agent


@dataclass(frozen=True)
class List:
    """Print the agents in a table."""

    def _run(self) -> None:
        agents = shipped_agents.shipped_agents().values()
        if not agents:
            print("no agents are shipped yet: train your own with collapipe train")
            return
        table = RichTable("name", "algorithm", "trained on", "size", "figures", box=None, pad_edge=False)
        for agent in agents:
            # An agent that is trained on a scenario with several settings lists it several times.
            scenarios, *others = agent.trained_on.split("; ")
            trained_on = "; ".join([", ".join(dict.fromkeys(scenarios.split(", "))), *others])
            table.add_row(agent.name, agent.algorithm, trained_on, _size(agent.size), agent.figures)
        for column in (0, 1, 3):
            table.columns[column].no_wrap = True
        Console(highlight=False).print(table)


@dataclass(frozen=True)
class Show:
    """Print an agent's card and the path of its file, whose checksum is verified."""

    name: Annotated[tyro.conf.Positional[str], about("NAME")]
    """Name of an agent."""

    def _run(self) -> None:
        agent = shipped_agent(self.name)
        path = agent_path(f"{PREFIX}{agent.name}")
        card = path.with_name(agent.card)
        try:
            text = read_regular(card, 1024**2).decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"cannot read the card {card} ({error}): {shipped_agents.REMEDY}") from None
        print(f"{text.rstrip()}\n\n{path}")


@dataclass(frozen=True)
class Export:
    """Write the part of a checkpoint that plays, without what only training needs."""

    checkpoint: Annotated[tyro.conf.Positional[Path], about("CHECKPOINT")]
    """A checkpoint of collapipe train."""
    out: Annotated[tyro.conf.Positional[Path], about("OUT")]
    """The .safetensors file to write."""

    def _run(self) -> None:
        from collapipe_env.agents.learned.agent_file import read_agent_file, write_agent_file

        if self.out.suffix != ".safetensors":
            raise CheckpointError(f"{self.out} must end in .safetensors, which says how to read it")
        record, tensors = read_agent_file(self.checkpoint).playing
        write_agent_file(self.out, record, tensors)
        size = f"{sum(value.size for value in tensors.values()):,} weights, {_size(self.out.stat().st_size)}"
        print(f"{self.out}: {record.algorithm} trained on {record.trained_on}, {size}")


def _size(count: int) -> str:
    """A number of bytes, in words."""
    return f"{count / 1000:,.0f} kB" if count < 1_000_000 else f"{count / 1e6:,.1f} MB"


Options = Annotated[List, tyro.conf.subcommand(is_default=True)] | Show | Export


def run(options: List | Show | Export, _: Call) -> None:
    """Do what the subcommand says."""
    options._run()
