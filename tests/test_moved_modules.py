"""Old names of modules lead to the new ones, with a warning, and to the very same objects."""

import importlib
import re
import sys

import pytest

from collapipe_env.moved_modules import MOVED


@pytest.mark.parametrize("old", sorted(MOVED))
def test_old_names_lead_to_the_modules(old: str) -> None:
    name, new = f"collapipe_env.{old}", f"collapipe_env.{MOVED[old]}"
    there = importlib.import_module(new)
    sys.modules.pop(name, None)
    with pytest.warns(DeprecationWarning, match=re.escape(f"{name} has moved: import {new}")):
        assert importlib.import_module(name) is there
    assert there.__spec__ is not None
    assert there.__spec__.name == there.__name__ == new
    del sys.modules[name]


def test_other_names_are_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"collapipe_env\.physics\.nothing"):
        importlib.import_module("collapipe_env.physics.nothing")
