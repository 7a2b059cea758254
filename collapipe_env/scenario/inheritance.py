"""Inheritance of scenario fields: preset, fields of a task, fields of a named model, own fields.

Each of these replaces fields of the earlier ones. A task or a model named in a file, a mapping or an override
sets the fields that suit it, so ``{"base": "small", "workload": {"task": "ner"}}`` is complete. The outputs
of a language model follow its vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario.plain_data import parse
from collapipe_env.scenario.published_models import model_fields
from collapipe_env.scenario.sections import JOULES
from collapipe_env.scenario.task_registry import SHIPPED_TRAITS
from collapipe_env.scenario.workload_section import WorkloadSpec

MODEL = "model"
"""Key of a workload that names a published model; it is expanded and not stored."""


def merge(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with the entries of ``change``: mappings merged recursively, other values replaced."""
    merged = copy.deepcopy(dict(base))
    for key, value in change.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = merge(merged[key], value)
        else:
            merged[key] = copy.deepcopy(value)
    return merged


@cache
def task_fields() -> dict[str, dict[str, Any]]:
    """Fields that each task needs, by its name."""
    folder = resources.files("collapipe_env.scenario").joinpath("tasks")
    return {
        file.name.removesuffix(".yaml"): parse(file.read_text(encoding="utf-8"), f"task file {file.name!r}")
        for file in sorted(folder.iterdir(), key=lambda file: file.name)
        if file.name.endswith(".yaml")
    }


def giving_way(base: Mapping[str, Any], own: object) -> dict[str, Any]:
    """Return a base whose budgets in joules give way to an own tightness, or whose tightness to own joules.

    Args:
        base: Sections of the preset or scenario to start from.
        own: Fields that replace some of its section ``budgets``; anything else changes nothing.
    """
    budgets = base.get("budgets")
    if not isinstance(own, Mapping) or not isinstance(budgets, Mapping):
        return dict(base)
    left: tuple[str, ...] = ()
    if own.get("tightness") is not None:
        left = JOULES
    elif any(own.get(name) is not None for name in JOULES):
        left = ("tightness",)
    return {**base, "budgets": {**budgets, **dict.fromkeys(left)}}


def layered(base: Mapping[str, Any], own: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Replace fields of a base by those of a new task, then of a named model, then by own fields.

    Budgets of the base give way to own ones of the other kind (:func:`giving_way`).

    Args:
        base: Sections of the preset or scenario to start from.
        own: Sections that replace its fields; ``workload.model`` may name a published model.
        source: Source of ``own``, for messages.

    Returns:
        All sections, without ``workload.model``.

    Raises:
        ScenarioError: If there is no such model.
    """
    workload, base = own.get("workload"), giving_way(base, own.get("budgets"))
    if not isinstance(workload, dict):
        return merge(base, own)
    own = {**own, "workload": {key: value for key, value in workload.items() if key != MODEL}}
    model: dict[str, object] = {}
    if workload.get(MODEL) is not None:
        try:
            model = model_fields(workload[MODEL])
        except ScenarioError as error:
            raise ScenarioError(f"{source}: workload.{MODEL}: {error}") from None
    before = base.get("workload", {}).get("task", WorkloadSpec.task)
    task = workload.get("task", model.get("task", before))
    needed = dict(task_fields().get(task, {})) if isinstance(task, str) and task != before else {}
    if "learning" in needed and base.get("learning", {}).get("proxy", {}) is None:
        # Without a proxy there are no proxy sizes to change.
        needed["learning"] = {key: value for key, value in needed["learning"].items() if key != "proxy"}
    inherited = merge(merge(base, needed), {"workload": model})
    traits = SHIPPED_TRAITS.get(task) if isinstance(task, str) else None
    if traits is not None and traits.causal:
        # A language model predicts its own tokens.
        vocabulary = {**inherited["workload"], **own["workload"]}.get("vocabulary")
        inherited["workload"] |= {"outputs": vocabulary} if isinstance(vocabulary, int) else {}
    return merge(inherited, own)
