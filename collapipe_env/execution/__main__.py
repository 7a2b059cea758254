"""A rank of an execution: ``torchrun ... -m collapipe_env.execution``, with the options of ``execute``."""

from __future__ import annotations

import sys


def main() -> int:
    """Play the rank that the environment names; return the exit status."""
    # The command line is above this layer, and knows the options.
    from collapipe_env.cli.early_end import run_process
    from collapipe_env.cli.execute import main_of_rank

    return run_process(main_of_rank)


if __name__ == "__main__":
    sys.exit(main())
