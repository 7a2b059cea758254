"""``python -m collapipe_env`` is ``collapipe``."""

import sys

from collapipe_env.cli.main import main

if __name__ == "__main__":
    status = main()
    # After a Ctrl-C inside exec(), with which dataclasses are made, Python would end by the signal, whatever
    # the status; another exec() makes it forget that.
    exec("")  # noqa: S102
    sys.exit(status)
