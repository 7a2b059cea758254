"""Parts that commands share: parsing, checks of options, the folder of a run, tables on the terminal."""

from __future__ import annotations

import contextlib
import os
import shutil
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import tyro

from collapipe_env.cli.early_end import Call
from collapipe_env.cli.option_types import Within
from collapipe_env.evaluation.provenance import started
from collapipe_env.evaluation.run_directory import RunDirectory, folder_name
from collapipe_env.evaluation.scheduler_loading import full_names, require_scheduler
from collapipe_env.ground.errors import CheckpointError, ScenarioError
from collapipe_env.ground.files import write_text
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import LEARNED


def perform(name: str, call: Call) -> int | None:
    """Run the command of a module of this package; returns its exit status, if it has one.

    The module's docstring stands above the options in ``--help``, in lines of at most 78 characters.
    Its ``Options`` are those of the command, or of its subcommands, and ``run`` takes them and the call.
    """
    module = import_module(f"collapipe_env.cli.{name.replace('-', '_')}")
    status: int | None = module.run(parse(module.Options, call, module.__doc__), call)
    return status


def parse(kind: Any, call: Call, description: str | None = None, default: Any = None) -> Any:
    """Turn a command line into options; ``--help`` and typing errors end the process as usual.

    Args:
        default: Options in place of those that the command line does not give.

    Raises:
        ScenarioError: If a number is out of range, or a list is empty or given twice (tyro takes only the
            second).
    """
    columns = shutil.get_terminal_size().columns
    # With very few columns, tyro never returns; Rich takes even 0 as it is, and would print nothing.
    if columns < 40 or "COLUMNS" in os.environ:
        os.environ["COLUMNS"] = str(max(columns, 40))
    title, paragraph, examples = [*(description or "").split("\n\n", 2), "", ""][:3]
    options = tyro.cli(
        kind,
        prog=call.program.removeprefix("python "),
        # Indented, because tyro joins lines that begin with a letter.
        description=f"{title}\n{textwrap.indent(paragraph, '  ')}\n\n{examples}",
        args=call.arguments,
        config=(tyro.conf.FlagCreatePairsOff, tyro.conf.DisallowNone),
        **({} if default is None else {"default": default}),
    )
    words = (word.partition("=")[0].replace("_", "-") for word in call.arguments)
    _require_allowed(options, [word for word in words if word.startswith("--")])
    return options


def _require_allowed(options: Any, given: Sequence[str]) -> None:
    for field, hint in get_type_hints(type(options), include_extras=True).items():
        name, value = field.replace("_", "-"), getattr(options, field)
        if is_dataclass(value):
            _require_allowed(value, given)
        same = [option for option in given if option.removeprefix("--").rpartition(".")[2] == name]
        if isinstance(value, tuple) and len(same) > len(set(same)):
            raise ScenarioError(f"{same[0]} is given {len(same)} times: name all after one {same[0]}")
        if value == () and f"--{name}" in given:
            raise ScenarioError(f"--{name} is empty: name at least one, or leave it out")
        for mark in getattr(hint, "__metadata__", ()):
            if isinstance(mark, Within):
                mark.require(f"--{name}", value)


def run_folder(out: Path | None, *parts: str) -> RunDirectory:
    """Return the folder that ``--out`` names, or the usual one, ``runs/`` and the parts of its name."""
    return RunDirectory(out or Path("runs") / "-".join(map(folder_name, parts)))


@contextlib.contextmanager
def opened(
    run: RunDirectory, call: Call, asked: Mapping[str, Any], scenario: Scenario | None = None, **how: Any
) -> Iterator[None]:
    """Lock the folder that a command works in, inside this context, print it and write the scenario there.

    Args:
        asked: Options that decide the results.
        how: Further options of :func:`~collapipe_env.evaluation.provenance.started`.
    """
    with started(run, str(call), asked, **how) as continued:
        # A user who requests something else in the same folder must know that its tables are replaced.
        more = ": finished work is kept, tables are written again"
        print(f"continuing in {run.path}{more}" if continued else f"writing to {run.path}")
        if scenario is not None:
            write_text(run / "scenario.yaml", scenario.to_yaml())
        yield


def print_pages(*pages: Any) -> None:
    """Print tables on the terminal, with an empty line around each."""
    from rich.console import Console

    console = Console(highlight=False)
    console.print()
    for page in pages:
        page.print(console)
        console.print()


def say_files(run: RunDirectory, **files: str) -> None:
    """Print the place of each file or folder of a run that exists, by what it holds."""
    for what, name in files.items():
        if (run / name).exists():
            print(f"{what + ':':<10} {run / name}")


def required_schedulers(names: Sequence[str], *, agent: bool) -> tuple[str, ...]:
    """Return the full names of the schedulers that ``--schedulers`` names.

    Args:
        agent: Whether there is a trained agent.

    Raises:
        CollaPipeError: If a name is unknown (the nearest is told) or repeated, or there is no agent.
    """
    for name in names:
        require_scheduler(name, learned=True)
    if LEARNED in names and not agent:
        raise CheckpointError(f"--schedulers names {LEARNED!r}: give its file with --agent")
    full = full_names(names)
    twice = sorted(name for name, count in Counter(full).items() if count > 1)
    if twice:
        raise ScenarioError(f"--schedulers names {', '.join(twice)} more than once: name it once")
    return full
