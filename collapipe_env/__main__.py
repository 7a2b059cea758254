"""``python -m collapipe_env`` is ``collapipe``."""

import sys

from collapipe_env.cli.early_end import run_process
from collapipe_env.cli.main import main


def run() -> int:
    """Run the command line as the whole work of this process; returns the exit status."""
    return run_process(main)


if __name__ == "__main__":
    sys.exit(run())
