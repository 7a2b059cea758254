"""Where the data sets lie, and small trace files."""

import os
from pathlib import Path

import numpy as np
import pytest

DATA = Path(os.environ.get("COLLAPIPE_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
needs_data = pytest.mark.skipif(not (DATA / "wireless").is_dir(), reason="no test data (set COLLAPIPE_DATA)")


@pytest.fixture
def data(monkeypatch):
    """Relative sources are found below the folder of data sets."""
    monkeypatch.setenv("COLLAPIPE_DATA", str(DATA))
    return DATA


def write_trace(path, values, seconds=None):
    """A CSV file of times and values, one a second unless times are given."""
    seconds = np.arange(len(values)) if seconds is None else seconds
    rows = "".join(f"{t!r},{v!r}\n" for t, v in zip(map(float, seconds), map(float, values), strict=True))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("time_s,value\n" + rows)
    return path
