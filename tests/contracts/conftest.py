"""Where commands run in the contracts."""

from pathlib import Path

import pytest
from commands_support import written


@pytest.fixture
def here(tmp_path: Path, monkeypatch) -> Path:
    """A folder with scenarios, in which commands run."""
    written(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path
