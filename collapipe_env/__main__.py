"""``python -m collapipe_env`` is ``collapipe``."""

import sys

from collapipe_env.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
