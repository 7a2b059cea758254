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
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import tyro

from collapipe_env.cli.early_end import Terminated, note, status_after, stop_before, terminable, unwritten
from collapipe_env.cli.typing_slips import NUMBERS, refuse_slips
from collapipe_env.cli.warning_lines import warnings_as_lines
from collapipe_env.evaluation.own_names import registered_name
from collapipe_env.evaluation.own_scenario import named_scenario
from collapipe_env.evaluation.provenance import versions
from collapipe_env.evaluation.scheduler_loading import full_names, require_scheduler
from collapipe_env.ground.errors import CheckpointError, CollaPipeError, ScenarioError
from collapipe_env.ground.files import ARCHIVE_BYTES, read_regular
from collapipe_env.learners.factory import LEARNERS, own_learner
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.names import SHIPPED
from collapipe_env.scenario.task_registry import task_names
from collapipe_env.schedulers import LEARNED, scheduler_names

NARROWEST = 40
"""Columns of the narrowest terminal that help is laid out for; with very few, tyro never returns."""
OWN_HELP = "or your own: file.py:Name, package.module:Name."
UNTRAINED_HELP = f"{', '.join(scheduler_names())}, graph or another agent of collapipe zoo; {OWN_HELP}"
SCHEDULERS_HELP = f"{LEARNED} (the trained one), {UNTRAINED_HELP}"

Options = TypeVar("Options")


SCENARIO_OPTION = tyro.conf.arg(
    metavar="NAME|FILE",
    help=f"A shipped scenario ({SHIPPED}), a YAML file, {OWN_HELP}",
)
LEARNER_OPTION = tyro.conf.arg(
    metavar="NAME",
    help="Learner that supplies the loss: surrogate (a fitted bound), real (training in every round), "
    f"{OWN_HELP} Delays and energies do not depend on it.",
)
REWARD_OPTION = tyro.conf.arg(
    metavar="NAME",
    help="Reward that the agent maximises: lyapunov or drift_plus_penalty (delay against energy queues), "
    f"delay, time_to_target, {OWN_HELP}",
)
TASK_OPTION = tyro.conf.arg(
    metavar="NAME",
    help=f"Task that the Transformer learns: {', '.join(task_names())}. A task other than the scenario's "
    "comes with suitable data, head and learning rates.",
    help_behavior_hint="(default: the scenario's)",
)
DATASET_OPTION = tyro.conf.arg(
    metavar="PATH",
    help="Training data: a local file or folder, or hf:NAME from the Hugging Face hub.",
    help_behavior_hint="(default: the scenario's, shipped with the package)",
)


def hint(text: str) -> object:
    """Return a hint for ``--help`` in place of a default."""
    return tyro.conf.arg(help_behavior_hint=f"({text})")


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


def run_command(
    kind: type[Options],
    run: Callable[[Options, str, Sequence[str]], None],
    description: str,
    arguments: Sequence[str] | None,
    program: str,
    *,
    resumable: bool = True,
) -> int:
    """Run a command from its command line.

    Args:
        kind: Class of its options.
        run: Receives the options, the program and the arguments.
        description: Text above the options in ``--help``.
        arguments: Without the program's name; those of this process by default.
        program: Name of the command, for help and notes.
        resumable: As for :func:`guarded`.

    Returns:
        The exit status of :func:`guarded`.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)

    def job() -> None:
        # Parsed inside guarded(), too, because the output of --help may be cut off.
        refuse_slips(kind, given)
        run(parse(kind, program, description, given), program, given)

    return guarded(job, program, given, resumable=resumable)


def given_options(arguments: Sequence[str]) -> set[str]:
    """Return the names of the options that a command line gives, with their hyphens."""
    return {argument.partition("=")[0] for argument in arguments}


def guarded(
    job: Callable[[], None], program: str, arguments: Sequence[str], *, resumable: bool = True
) -> int:
    """Run a command: bad input becomes one line, and Ctrl-C, SIGTERM and SIGHUP print how to continue.

    Args:
        job: What the command does.
        program: Name of the command.
        arguments: Its command line, without the name.
        resumable: Whether it keeps finished work, from which it could continue.

    Returns:
        The exit status: 0, 2 for bad input, 129 after SIGHUP, 130 after Ctrl-C, 141 if nobody reads the
        output any more (as after ``| head``), 143 after SIGTERM.
    """

    def stopped(stop: KeyboardInterrupt) -> int:
        how = "terminated" if isinstance(stop, Terminated) else "interrupted"
        if not resumable:
            note(f"\n{how}; there is nothing to resume")
        else:
            again = command_line(program, [option for option in arguments if option != "--fresh"])
            note(f"\n{how}; all finished work is kept. To resume, run again:\n  {again}")
        return status_after(stop)

    with terminable():  # also while errors are told
        try:
            with warnings_as_lines(), _always_printable():
                job()
                sys.stdout.flush()  # at its exit, Python could only report the error
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
    return 0


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


def command_line(program: str, arguments: Sequence[str]) -> str:
    """Return the command as it can be typed again."""
    return f"{program} {shlex.join(arguments)}".rstrip()


def say_folder(folder: Path, continued: bool) -> None:
    """Print the folder that a command writes to.

    Args:
        continued: Whether an earlier run in it is continued.
    """
    # A user who requests something else in the same folder must know that its tables are replaced.
    print(
        f"continuing in {folder}: finished work is kept, tables are written again"
        if continued
        else f"writing to {folder}"
    )


def require_within(*limits: tuple[str, int, int, int] | tuple[str, int, int, int, str]) -> None:
    """Refuse numbers out of range.

    Args:
        limits: Option, value, least and largest allowed value, and a note on the largest, of each number.

    Raises:
        ScenarioError: Names the option, its value and the range.
    """
    for name, value, low, high, *why in limits:
        if not low <= value <= high:
            raise ScenarioError(f"{name} = {value}: use a number from {low:,} to {high:,}{''.join(why)}")


def require_schedulers(names: Sequence[str]) -> None:
    """Refuse an empty list of schedulers, unknown ones and repetitions.

    Raises:
        ScenarioError: Names what is wrong and, for a misspelt name, the nearest.
    """
    if not names:
        raise ScenarioError("--schedulers is empty: name at least one, for instance dssra")
    for name in names:
        require_scheduler(name, learned=True)
    names = full_names(names)
    twice = sorted({name for name in names if list(names).count(name) > 1})
    if twice:
        raise ScenarioError(f"--schedulers names {', '.join(twice)} more than once: name it once")


def chosen_scenario(source: str, task: str | None, dataset: str | None) -> Scenario:
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
    from collapipe_env.tasks import get_task
    from collapipe_env.tasks.base import task_spec

    # An absolute path has a name even if it was typed as "." or "..".
    name = Path(os.path.abspath(dataset.rpartition(":")[2])).name.lstrip(".").partition(".")[0]
    changes: dict[str, object] = {"name": f"{scenario.name}-{name or 'data'}"}
    classes = get_task(scenario.workload.task).classes(task_spec(scenario))
    if classes:
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
                from collapipe_env.tasks import get_task
                from collapipe_env.tasks.base import task_spec

                get_task(scenario.workload.task).load(task_spec(scenario))
            elif name in LEARNERS.added():
                found = LEARNERS.get(name)
                own_learner(getattr(found, "from_scenario", found), f"learner {one!r}", scenario, 1)
    return [names[one] for one in asked]


def say_data(scenarios: Iterable[Scenario]) -> None:
    """Print a line about the user's own data of each scenario, for tasks that have one.

    Raises:
        DataError: If the data cannot be read.
    """
    lines = []
    for scenario in scenarios:
        if scenario.learning.dataset != "embedded":
            from collapipe_env.tasks import get_task
            from collapipe_env.tasks.base import task_spec

            data_line = getattr(get_task(scenario.workload.task), "data_line", None)
            if data_line is not None:
                lines.append(f"{scenario.learning.dataset}: {data_line(task_spec(scenario))}")
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
            "saved, such as runs/medium-ppo-seed0/checkpoints/best.zip"
        ) from None


def record(program: str, arguments: Sequence[str], **more: Any) -> dict[str, Any]:
    """Return the origin of a result for its file: command, time, versions, and ``more``."""
    return {
        "command": command_line(program, arguments),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "versions": versions(),
        **{name: _plain(value) for name, value in more.items()},
    }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
