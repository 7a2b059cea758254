"""The table of the docs that says where each formula is."""

import re
from importlib import import_module
from pathlib import Path


def test_the_table_of_the_docs_names_documented_functions():
    notes = (Path(__file__).parents[2] / "docs/sources.md").read_text()
    section = re.search(r"^## Where each formula is\n(.*?)^## ", notes, re.DOTALL | re.MULTILINE)
    assert section is not None
    rows = [line.split("|")[2] for line in section[1].splitlines() if line.startswith("| ")][2:]
    named = [name for row in rows for name in re.findall(r"`([\w.]+)`", row)]
    assert len(named) > 25
    for name in named:
        module, _, function = name.rpartition(".")
        found = getattr(import_module(f"collapipe_env.physics.{module}"), function)
        assert callable(found), name
        assert getattr(found, "py_func", found).__doc__, name
