"""Ids: the default environment, its surrogate twin, and a ladder of scenarios."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gymnasium.envs.registration import register, registry

ENTRY_POINT = "collapipe_env.envs.env:CollaPipeEnv"
VECTOR_ENTRY_POINT = "collapipe_env.envs.vector:CollaPipeVectorEnv"

LADDER = ("small", "medium", "large", "xlarge")
TASKS = {"classification": "Classification", "ner": "NER", "translation": "Translation"}
"""The tasks, by the word that stands in the ids."""
PRESET_TASK = "classification"
"""Task of the scenarios as they are shipped."""


def environment_ids() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every id that the package registers, with its keyword arguments.

    ``CollaPipe-v0`` is the default scenario with the real learner and ``CollaPipeSurrogate-v0`` the same
    with the surrogate; ``CollaPipe-<Scenario>-<Task>-v0`` and ``CollaPipeSurrogate-<Scenario>-<Task>-v0``
    are the ladder.
    """
    for prefix, learner in (("CollaPipe", "torch"), ("CollaPipeSurrogate", "surrogate")):
        yield f"{prefix}-v0", {"scenario": "medium", "learner": learner}
        for scenario in LADDER:
            for task, word in TASKS.items():
                name = f"{prefix}-{scenario.capitalize()}-{word}-v0"
                yield name, {"scenario": scenario_of(scenario, task), "learner": learner}


def scenario_of(preset: str, task: str) -> str | dict[str, Any]:
    """Return a shipped scenario's name, or for a task that is not its own a mapping based on it."""
    if task == PRESET_TASK:
        return preset
    return {"base": preset, "name": f"{preset}-{task}", "workload": {"task": task}}


def register_environments() -> None:
    """Register every id with Gymnasium; doing so twice is harmless."""
    for name, kwargs in environment_ids():
        if name not in registry:
            register(id=name, entry_point=ENTRY_POINT, vector_entry_point=VECTOR_ENTRY_POINT, kwargs=kwargs)
