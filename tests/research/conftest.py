"""Research lies beside the package: here it can be imported."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
