"""Common parts of the commands: parsing, checks of options, errors in one line, record of a run."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import tyro

from collapipe_env.cli.early_end import Terminated, note, status_after, stop_before, terminable, unwritten
from collapipe_env.cli.option_types import require_allowed
from collapipe_env.cli.typing_slips import NUMBERS, refuse_slips
from collapipe_env.cli.warning_lines import warnings_as_lines
from collapipe_env.evaluation.own_code import registered_name
from collapipe_env.evaluation.own_scenario import named_scenario
from collapipe_env.evaluation.provenance import started, versions
from collapipe_env.evaluation.run_directory import RunDirectory
from collapipe_env.evaluation.scheduler_loading import full_names, require_scheduler
from collapipe_env.ground.errors import CheckpointError, CollaPipeError, ScenarioError
from collapipe_env.ground.files import ARCHIVE_BYTES, read_regular, write_text
from collapipe_env.learners.factory import LEARNERS, own_learner
from collapipe_env.scenario import Scenario

NARROWEST = 40
"""Columns of the narrowest terminal that help is laid out for; with very few, tyro never returns."""
Options = TypeVar("Options")


def parse(kind: type[Options], program: str, description: str | None, arguments: Sequence[str]) -> Options:
    """Turn a command line into options; ``--help`` and typing errors end the process as usual."""
    columns = shutil.get_terminal_size().columns
    # Rich takes even 0 as it is, and would print nothing.
    if columns < NARROWEST or os.environ.get("COLUMNS", str(columns)) != str(columns):
        os.environ["COLUMNS"] = str(max(columns, NARROWEST))
    return tyro.cli(
        kind,
        prog=program.removeprefix("python "),
        description=None if description is None else _to_width(description),
        args=list(arguments),
        config=(tyro.conf.FlagCreatePairsOff,),
        registry=NUMBERS,
    )


def _to_width(description: str) -> str:
    """Wrap the paragraph below the first line for the terminal, which tyro does not do.

    It is indented, because tyro joins lines that begin with a letter.
    """
    width = min(shutil.get_terminal_size().columns, 100) - 1
    first, paragraph, *rest = [*description.strip().split("\n\n"), ""]
    below = textwrap.fill(
        paragraph, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )
    return "\n\n".join([f"{first}\n{below}", *rest])


@dataclass(frozen=True)
class Call:
    """A command line: the program and its arguments; ``str`` gives it as it can be typed again."""

    program: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.program} {shlex.join(self.arguments)}".rstrip()

    @property
    def given(self) -> set[str]:
        """Names of the options that it gives, with their hyphens."""
        return {argument.partition("=")[0] for argument in self.arguments}

    def record(self, **more: Any) -> dict[str, Any]:
        """Return the origin of a result for its file: command, time, versions, and ``more``."""
        return {
            "command": str(self),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "versions": versions(),
            **{name: _plain(value) for name, value in more.items()},
        }


def command(
    kind: Any,
    run: Callable[[Any, Call], int | None],
    description: str,
    program: str,
    *,
    usual: Sequence[str] = (),
    brief: Collection[str] = (),
) -> Callable[..., int]:
    """Make the ``main`` of a command.

    Args:
        kind: Class of its options.
        run: Receives the options, each with an allowed value, and the call; may return an exit status.
        description: Text above the options in ``--help``; ``{program}`` stands for the program.
        program: Name of the command, for help and notes.
        usual: Arguments in place of none.
        brief: Subcommands that keep no finished work.

    Returns:
        A function of the arguments (those of this process by default) that returns the exit status of
        :func:`guarded`; ``program`` may be replaced.
    """

    def main(arguments: Sequence[str] | None = None, *, program: str = program) -> int:
        given = list(sys.argv[1:] if arguments is None else arguments) or list(usual)
        call = Call(program, tuple(given))

        def job() -> int | None:
            # Parsed inside guarded(), too, because the output of --help may be cut off.
            refuse_slips(kind, given)
            options = parse(kind, program, description.format(program=program), given)
            require_allowed(options)
            return run(options, call)

        return guarded(job, call, resumable=not set(given[:1]) & set(brief))

    return main


def guarded(job: Callable[[], int | None], call: Call, *, resumable: bool = True) -> int:
    """Run a command: bad input becomes one line, and Ctrl-C, SIGTERM and SIGHUP print how to continue.

    Args:
        job: Does what the command does; may return an exit status.
        resumable: Whether it keeps finished work, from which it could continue.

    Returns:
        The exit status: the job's, 0 without one; 2 for bad input, 129 after SIGHUP, 130 after Ctrl-C, 141
        if nobody reads the output any more (as after ``| head``), 143 after SIGTERM.
    """

    def stopped(stop: KeyboardInterrupt) -> int:
        how = "terminated" if isinstance(stop, Terminated) else "interrupted"
        if not resumable:
            note(f"\n{how}; there is nothing to resume")
        else:
            again = Call(call.program, tuple(option for option in call.arguments if option != "--fresh"))
            note(f"\n{how}; all finished work is kept. To resume, run again:\n  {again}")
        return status_after(stop)

    with terminable():  # also while errors are told
        try:
            with warnings_as_lines(), _always_printable():
                status = job()
                sys.stdout.flush()  # at its exit, Python could only report the error
                return status or 0
        except CollaPipeError as error:
            note(f"error: {error}")
            return 2
        except ValueError:
            if not sys.stdout.closed:
                raise
            # Only the user's own code can have closed it.
            note("error: standard output was closed: your own code must not close sys.stdout")
            return 2
        except KeyboardInterrupt as stop:
            return stopped(stop)
        except (OSError, SystemExit) as end:
            earlier = stop_before(end)
            return unwritten(end) if earlier is None else stopped(earlier)


@contextlib.contextmanager
def _always_printable() -> Iterator[None]:
    """Print question marks for characters that standard output lacks, which would be an error."""
    output = sys.stdout
    if not isinstance(output, io.TextIOWrapper):
        yield
        return
    before = output.errors
    output.reconfigure(errors="replace")
    try:
        yield
    finally:
        output.reconfigure(errors=before)


@contextlib.contextmanager
def opened(
    run: RunDirectory, call: Call, asked: Mapping[str, Any], scenario: Scenario | None = None, **how: Any
) -> Iterator[None]:
    """Lock the folder that a command works in, inside this context, and print it.

    Args:
        asked: Options that decide the results.
        scenario: The effective scenario, which is written there.
        how: Further options of :func:`~collapipe_env.evaluation.provenance.started`.

    Raises:
        DataError: If the folder cannot be used, is in use, or belongs to something else.
    """
    with started(run, str(call), asked, **how) as continued:
        # A user who requests something else in the same folder must know that its tables are replaced.
        print(
            f"continuing in {run.path}: finished work is kept, tables are written again"
            if continued
            else f"writing to {run.path}"
        )
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


def say_files(**files: Path) -> None:
    """Print the place of each file or folder that exists, by what it holds."""
    for what, path in files.items():
        if path.exists():
            print(f"{what + ':':<10} {path}")


def require_schedulers(names: Sequence[str]) -> None:
    """Refuse unknown schedulers and repetitions.

    Raises:
        ScenarioError: Names what is wrong and, for a misspelt name, the nearest.
    """
    for name in names:
        require_scheduler(name, learned=True)
    names = full_names(names)
    twice = sorted({name for name in names if list(names).count(name) > 1})
    if twice:
        raise ScenarioError(f"--schedulers names {', '.join(twice)} more than once: name it once")


def chosen_scenario(source: str, task: str | None = None, dataset: str | None = None) -> Scenario:
    """Return the scenario that the options select, named after task and data where these are new.

    Args:
        source: A shipped scenario, a YAML file or a reference, see :func:`named_scenario`.
        task: Name of the task; None keeps the scenario's.
        dataset: Data to train on; None keeps the scenario's. The head gets an output for each of its classes.

    Raises:
        CollaPipeError: If there is no such scenario or task, or the task cannot read the data, whichever
            learner plays.
    """
    scenario = named_scenario(source)
    scenario = scenario.with_task(scenario.workload.task if task is None else task, dataset)
    if dataset is None:
        return scenario
    # An absolute path has a name even if it was typed as "." or "..".
    name = Path(os.path.abspath(dataset.rpartition(":")[2])).name.lstrip(".").partition(".")[0]
    changes: dict[str, object] = {"name": f"{scenario.name}-{name or 'data'}"}
    task_read, spec = _task_of(scenario)
    if classes := task_read.classes(spec):
        changes["workload.outputs"] = len(classes)
    return scenario.with_overrides(changes)


def chosen_learners(scenarios: Iterable[Scenario], *asked: str) -> list[str]:
    """Return the registered names of the learners that an option selects.

    Errors appear here, before anything is written: data that the real learner cannot read, and a user's code
    that returns no learner.

    Args:
        scenarios: The scenarios that they learn on.
        asked: Registered names, ``package.module:Name`` or ``path/to/file.py:Name``.

    Raises:
        CollaPipeError: If there is no such learner, or it cannot be used.
    """
    names = {one: registered_name(LEARNERS, one) for one in asked}
    for scenario in scenarios:
        for one, name in names.items():
            if name == "real":
                task, spec = _task_of(scenario)
                task.load(spec)
            elif name in LEARNERS.added():
                found = LEARNERS.get(name)
                own_learner(getattr(found, "from_scenario", found), f"learner {one!r}", scenario, 1)
    return [names[one] for one in asked]


def _task_of(scenario: Scenario) -> tuple[Any, Any]:
    """The task of a scenario, and what it reads of the scenario; its module imports PyTorch."""
    from collapipe_env.tasks import get_task
    from collapipe_env.tasks.base import task_spec

    return get_task(scenario.workload.task), task_spec(scenario)


def say_data(scenarios: Iterable[Scenario]) -> None:
    """Print a line about the user's own data of each scenario, for tasks that have one.

    Raises:
        DataError: If the data cannot be read.
    """
    lines = []
    for scenario in scenarios:
        if scenario.learning.dataset != "embedded":
            task, spec = _task_of(scenario)
            if (data_line := getattr(task, "data_line", None)) is not None:
                lines.append(f"{scenario.learning.dataset}: {data_line(spec)}")
    for line in dict.fromkeys(lines):
        print(line)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of an agent's file.

    Raises:
        CheckpointError: If it cannot be read.
    """
    try:
        return hashlib.sha256(read_regular(path, ARCHIVE_BYTES)).hexdigest()
    except OSError as error:
        raise CheckpointError(
            f"cannot read the agent {path} ({error.strerror}): give the path of one that training "
            "saved, such as runs/medium-ppo-seed0/checkpoints/best.safetensors"
        ) from None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
