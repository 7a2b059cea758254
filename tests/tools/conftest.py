"""The tools, and examples that they use, are scripts beside the package: here they can be imported."""

import sys
from pathlib import Path

for folder in ("examples", "tools"):
    sys.path.insert(0, str(Path(__file__).parents[2] / folder))
