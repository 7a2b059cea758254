"""A virtual environment for other environments, apart from this project's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from collapipe_env import files

STAMP = "installed.json"
"""In the folder of the virtual environment: what each requirement came to."""
COMMON = ("gymnasium", "numpy")
"""Packages of all peers: without them nothing can be measured, and no peer may change their version."""
PIP_SECONDS = 600.0
"""Most time for one package."""


def package_of(requirement: str) -> str:
    """Name of a pinned requirement's package."""
    return requirement.partition("==")[0].strip()


def read_requirements(path: Path) -> list[str]:
    """Pinned requirements of a file, without comments."""
    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line]


def interpreter(folder: Path) -> Path:
    """Python of a virtual environment."""
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def install(folder: Path, requirements: Sequence[str]) -> dict[str, str]:
    """Create the virtual environment and install what it lacks, one package after another.

    What failed is tried again in the next run; what is installed is not looked at again.

    Args:
        folder: Where the virtual environment is, or will be.
        requirements: Pinned packages, the common ones first.

    Returns:
        By package, why it is not there; empty if all are.
    """
    stamp = folder / STAMP
    known = files.read_json(stamp, f"delete {folder}")["installed"] if stamp.exists() else []
    missing = [r for r in requirements if r not in known]
    if not missing:
        return {}
    failed: dict[str, str] = {}
    common = [r for r in requirements if package_of(r) in COMMON]
    if not interpreter(folder).exists():
        reason = _run([sys.executable, "-m", "venv", str(folder)])
        if reason:
            return dict.fromkeys(map(package_of, requirements), reason)
    for requirement in tqdm(missing, desc="installing peers", unit="package", disable=None):
        reason = _run(
            [str(interpreter(folder)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
             "--retries", "1", requirement, *common],
        )  # fmt: skip
        if reason:
            failed[package_of(requirement)] = reason
        else:
            known.append(requirement)
            files.write_json(stamp, {"installed": known})
        if reason and requirement in common:
            return dict.fromkeys(map(package_of, requirements), reason)
    return failed


def _run(command: Sequence[str]) -> str:
    """Run a command; returns why it failed, nothing if it did not."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__}: {error}"
    if done.returncode == 0:
        return ""
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or [f"exit status {done.returncode}"])[-1]
