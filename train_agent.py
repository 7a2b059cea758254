"""Train a scheduler for CollaPipe and compare it with DSSRA and the baselines.

The same as ``collapipe train``, for a checkout; ``python train_agent.py --help`` lists the options.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from collapipe_env.cli.early_end import Call, guarded, run_process


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status, as :func:`collapipe_env.cli.main.main`."""
    call = Call("python train_agent.py", tuple(sys.argv[1:] if arguments is None else arguments))
    # Imported late, because it takes a moment, in which Ctrl-C may come.
    return guarded(lambda: import_module("collapipe_env.cli.common").perform("train", call), call)


if __name__ == "__main__":
    sys.exit(run_process(main))
