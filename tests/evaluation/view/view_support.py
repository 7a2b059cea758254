"""A finished run with hostile names, and the data of its page."""

import base64
import json
import re
import zlib
from pathlib import Path

from collapipe_env.cli.main import main

HOSTILE = "</script><img src=x onerror=alert(1)>|[x](y)"
QUICK = ["--processes", "1", "--no-figures"]


def compared(folder: Path) -> Path:
    """Play a comparison on a still and a moving scenario, with GPipe and other schedules."""
    for name in ("small", "small-wild"):
        (folder / f"{name}.yaml").write_text(f"name: {json.dumps('@' + name + HOSTILE)}\nbase: {name}\n")
    files = [str(folder / f"{name}.yaml") for name in ("small", "small-wild")]
    options = ["--episodes", "2", "--rounds", "5", "--schedulers", "dssra", "asteroid", "random", *QUICK]
    assert main(["compare", "--scenarios", *files, *options, "--out", str(folder / "out")]) == 0
    return folder / "out"


def data_of(page: Path) -> dict:
    """The data of a page, with its rounds unpacked."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S)
    assert found is not None
    data = json.loads(found[1])
    for detail in data["details"]:
        detail["rounds"] = [json.loads(zlib.decompress(base64.b64decode(r))) for r in detail["rounds"]]
    return data
