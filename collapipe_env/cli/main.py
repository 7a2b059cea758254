"""``collapipe``: passes its arguments to one of the commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from collapipe_env.cli.early_end import Call, guarded, run_process
from collapipe_env.ground.errors import CollaPipeError, nearest_name
from collapipe_env.ground.version import __version__

COMMANDS = {
    "train": "train PPO, SAC or the graph net, then compare it with others",
    "evaluate": "compare schedulers, or a saved agent with them, on one scenario",
    "compare": "compare any schedulers on any scenarios: tables, figures, numbers",
    "leaderboard": "score a scheduler on the leaderboard, or verify scores",
    "execute": "carry out plans: devices really train, also as processes",
    "calibrate": "measure this machine and write a scenario with its speed",
    "tune": "tune the scalars of dssra-plus for a scenario",
    "plot": "draw a finished run for a paper: PDF or SVG, a style for two columns, LaTeX tables",
    "view": "turn a finished run into a page for the browser, or a video",
    "scenario": "show or check a scenario, or list the differences between two",
    "zoo": "list the trained agents of the package, or show or export one",
    "warm-up": "compile everything in advance, so that later runs start at once",
}
"""Name and purpose of each command; its module has the same name, with underscores."""
USAGE = "\n".join(
    [
        "usage: collapipe COMMAND [OPTIONS]\n\ncommands:",
        *(f"  {name:<11} {purpose}" for name, purpose in COMMANDS.items()),
        "\ncollapipe COMMAND --help lists the options of a command. After Ctrl-C, finished",
        "work is kept and the same command resumes there.",
    ]
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: Command line without the program's name; that of this process by default.

    Returns:
        The exit status of :func:`~collapipe_env.cli.early_end.guarded`.
    """
    given = tuple(sys.argv[1:] if arguments is None else arguments)
    name = given[0] if given else ""

    def job() -> int | None:
        if name in ("", "-h", "--help", "help"):
            print(USAGE)
            return 0 if name else 2
        if name == "--version":
            print(f"collapipe-env {__version__}")
            return 0
        if name not in COMMANDS:
            raise CollaPipeError(f"command {name!r} is not known: {nearest_name(name, COMMANDS)}")
        from collapipe_env.cli.common import perform  # only now: --help of all commands does not wait for it

        return perform(name, call)

    call = Call(f"collapipe {name}", given[1:])
    return guarded(job, call)


if __name__ == "__main__":
    sys.exit(run_process(main))
