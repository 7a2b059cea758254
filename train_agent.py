"""Train a scheduler for CollaPipe and compare it with DSSRA and the baselines.

The same as ``collapipe train``, for a checkout; ``python train_agent.py --help`` lists the options.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from collapipe_env.cli.early_end import run_process, stopped_early


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status, as :func:`collapipe_env.cli.train.main`."""
    try:
        from collapipe_env.cli import train  # takes a moment, in which Ctrl-C may come

        return train.main(arguments, program="python train_agent.py")
    except KeyboardInterrupt:
        return stopped_early()


if __name__ == "__main__":
    sys.exit(run_process(main))
