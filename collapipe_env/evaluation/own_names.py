"""Names on a command line: registered names, and a user's own code, which is registered under a name."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Any

from collapipe_env.evaluation.own_code import import_factory, is_reference, python_code
from collapipe_env.ground.registry import Registry
from collapipe_env.learners.factory import LEARNERS


def registered_name(registry: Registry[Any], text: str) -> str:
    """Return the registered name of a thing that was named on a command line.

    A user's own code is imported and registered. Its name ends in a digest of the text, so a namesake in
    another file is another thing.

    Args:
        registry: A registry, for instance of rewards or learners.
        text: A registered name, ``package.module:Name`` or ``path/to/file.py:Name``.

    Raises:
        CollaPipeError: Of the registry's class, if there is no such name, or the code cannot be imported.
    """
    if not is_reference(text):
        registry.require(text)
        return text
    code = import_factory(text, registry)
    digest = hashlib.sha256(text.encode()).hexdigest()
    plain = re.sub("[^a-z0-9]+", "_", text.rpartition(":")[2].lower()).strip("_")[:24]
    name = f"{plain if plain[:1].isalpha() else f'own_{plain}'}_{digest[:8]}"
    registry.register(name, code.factory, replace=True)
    return name


def register_learner_again(name: str, own: object) -> None:
    """Register a user's own learner in another process.

    Args:
        name: Name of the learner.
        own: Factory of the learner, or its place in a file or module.

    Raises:
        CollaPipeError: If it cannot be imported.
    """
    if not isinstance(own, str):
        LEARNERS.register(name, own)
    else:
        registered_name(LEARNERS, own)


def learner_identity(own: Any) -> str:
    """Return a text that identifies a user's own learner, to keep results of different learners apart.

    Args:
        own: As for :func:`register_learner_again`; the name of a learner given by its place identifies it.
    """
    return "" if isinstance(own, str) else python_code(own, own).place or secrets.token_hex(16)
