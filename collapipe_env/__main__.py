"""``python -m collapipe_env`` is ``collapipe``."""

import sys

from collapipe_env.cli.main import main

if __name__ == "__main__":
    status = main()
    # Dataclasses are made with exec(). After a Ctrl-C inside it, Python would end by the signal, whatever the
    # status; another exec() makes Python forget the signal.
    exec("")  # noqa: S102
    sys.exit(status)
