"""``collapipe``: passes its arguments to one of the commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from collapipe_env.cli.early_end import answered, note, run_process, stopped_early
from collapipe_env.ground.errors import nearest_name
from collapipe_env.ground.version import __version__

COMMANDS = {
    "train": "train PPO, SAC or the graph net, then compare it with others",
    "evaluate": "compare schedulers, or a saved agent with them, on one scenario",
    "compare": "compare any schedulers on any scenarios: tables, figures, numbers",
    "leaderboard": "score a scheduler on the leaderboard, or verify scores",
    "execute": "carry out plans: devices really train, also as processes",
    "calibrate": "measure this machine and write a scenario with its speed",
    "tune": "tune the scalars of dssra-plus for a scenario",
    "view": "turn a finished run into a page for the browser, or a video",
    "scenario": "show or check a scenario, or list the differences between two",
    "zoo": "list the trained agents of the package, or show or export one",
    "warm-up": "compile everything in advance, so that later runs start at once",
}
"""Name and purpose of each command; its module has the same name, with underscores."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: Command line without the program's name; that of this process by default.

    Returns:
        The exit status of :func:`~collapipe_env.cli.common.guarded`.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help", "help"):
        return answered(_usage()) or (0 if given else 2)
    if given[0] == "--version":
        return answered(f"collapipe-env {__version__}")
    name, rest = given[0], given[1:]
    if name not in COMMANDS:
        note(f"error: command {name!r} is not known: {nearest_name(name, COMMANDS)}")
        return 2
    try:
        # Imported only now, so that other commands and --help do not wait for it.
        command = import_module(f"collapipe_env.cli.{name.replace('-', '_')}")
        status: int = command.main(rest)
    except KeyboardInterrupt:
        return stopped_early()
    return status


def _usage() -> str:
    lines = ["usage: collapipe COMMAND [OPTIONS]", "", "commands:"]
    lines += [f"  {name:<11} {purpose}" for name, purpose in COMMANDS.items()]
    lines += [
        "",
        "collapipe COMMAND --help lists the options of a command. After Ctrl-C, finished",
        "work is kept and the same command resumes there.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(run_process(main))
