"""Ids: the default environment, its surrogate twin, and a ladder of scenarios."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import currentframe
from itertools import chain
from pkgutil import resolve_name
from typing import Any

from gymnasium.envs.registration import EnvSpec, make, make_vec, registry
from gymnasium.vector import VectorEnv

from collapipe_env.ground.errors import ScenarioError, nearest_name

ENTRY_POINT = "collapipe_env.envs.env:CollaPipeEnv"
VECTOR_ENTRY_POINT = "collapipe_env.envs.registration:make_vector"
OBJECTIVES = "collapipe_env.envs.views.objectives"
"""Module of the environments with vector rewards."""

BACKENDS = {
    "numpy": "collapipe_env.envs.vector:CollaPipeVectorEnv",
    "torch": "collapipe_env.envs.torch_vector:CollaPipeTorchVectorEnv",
}
"""Vector environments by backend; PyTorch is slow to import."""
TORCH_ONLY = ("device", "dtype", "check_actions", "compiled")
"""Arguments that only the torch backend has."""

# Listed here, not imported: reading scenarios needs pydantic, which `import collapipe_env` does not load.
LADDER = ("small", "medium", "large", "xlarge")
REALISTIC = ("boards", "phones")
TIERS = ("migration", "channel", "thermal", "mobile", "stale", "churn", "wild")
WHOLE_TIERS = ("stale", "wild")
"""Tiers that exist in all sizes of the ladder; the other tiers lack the largest size."""
TASKS = {
    "classification": "Classification",
    "language-modelling": "LM",
    "ner": "NER",
    "translation": "Translation",
}
"""Words for the tasks in the ids, by task."""
PRESET_TASK = "classification"
"""Task of the shipped scenarios."""
ROUNDS = 100
"""Rounds of an episode in the scenario of every id."""


def environment_ids() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every id that the package registers, with its keyword arguments; :func:`short_ids` yields aliases.

    ``CollaPipe-v0`` really trains, which costs about 0.2 s a round, and its reward does not contain the loss.
    It is the default scenario with the real learner, and ``CollaPipeSurrogate-v0`` the same with the
    surrogate; ``CollaPipe-<Scenario>-<Task>-v0`` and ``CollaPipeSurrogate-<Scenario>-<Task>-v0`` are the
    ladder, ``CollaPipe-Boards-v0`` and ``CollaPipe-Phones-v0`` scenarios with measured radios,
    ``CollaPipe-<Size>-TraceLike-v0`` the ladder on synthetic traces, and ``CollaPipe-<Size>-<Tier>-v0``
    the tiers, in which plans cost something to change, gains are hidden, or devices warm up, move or fail.
    """
    for prefix, learner in (("CollaPipe", "real"), ("CollaPipeSurrogate", "surrogate")):
        yield f"{prefix}-v0", {"scenario": "medium", "learner": learner}
        for scenario in LADDER:
            for task, word in TASKS.items():
                name = f"{prefix}-{scenario.capitalize()}-{word}-v0"
                yield name, {"scenario": scenario_of(scenario, task), "learner": learner}
        for scenario in REALISTIC:
            yield f"{prefix}-{scenario.capitalize()}-v0", {"scenario": scenario, "learner": learner}
        for size in LADDER[:3]:
            name = f"{prefix}-{size.capitalize()}-TraceLike-v0"
            yield name, {"scenario": f"{size}-trace-like", "learner": learner}
        for tier in TIERS:
            for size in LADDER if tier in WHOLE_TIERS else LADDER[:3]:
                name = f"{prefix}-{size.capitalize()}-{tier.capitalize()}-v0"
                yield name, {"scenario": f"{size}-{tier}", "learner": learner}


def short_ids() -> Iterator[tuple[str, dict[str, Any]]]:
    """``CollaPipe-<Scenario>-v0`` and ``CollaPipeSurrogate-<Scenario>-v0``: the ladder in the shipped task.

    They are aliases of the ids that end in ``-Classification-v0``.
    """
    long = f"-{TASKS[PRESET_TASK]}-v0"
    for name, kwargs in environment_ids():
        if name.endswith(long):
            yield name.removesuffix(long) + "-v0", kwargs


def multi_objective_ids() -> Iterator[tuple[str, dict[str, Any]]]:
    """``CollaPipeMO-v0`` and ``CollaPipeMOSurrogate-v0``: vector rewards, in any scenario."""
    for prefix, learner in (("CollaPipeMO", "real"), ("CollaPipeMOSurrogate", "surrogate")):
        yield f"{prefix}-v0", {"scenario": "medium", "learner": learner}


def scenario_of(preset: str, task: str) -> str | dict[str, Any]:
    """Return a shipped scenario's name, or, for a task other than its own, a mapping based on it."""
    if task == PRESET_TASK:
        return preset
    return {"base": preset, "name": f"{preset}-{task}", "workload": {"task": task}}


class IdSpec(EnvSpec):
    """Specification of an id, whose ``max_episode_steps`` is not a second limit.

    ``gymnasium.make`` would put the environment into ``TimeLimit`` with the rounds of the id. It would then
    end episodes of a longer scenario (``scenario=``) early, and count on where ``set_state`` goes back in
    time. The environment ends its episodes itself, and its own ``spec`` has its own number of rounds. So the
    functions that make environments find no limit here; one that the caller gives them applies.
    """

    @property
    def max_episode_steps(self) -> int | None:
        """Rounds of an episode in the scenario of the id; ``None`` for ``make`` and ``make_vec``."""
        frame = currentframe()
        caller = None if frame is None else frame.f_back
        if caller is not None and caller.f_code in (make.__code__, make_vec.__code__):
            return None
        rounds: int | None = self.__dict__["max_episode_steps"]
        return rounds

    @max_episode_steps.setter
    def max_episode_steps(self, rounds: int | None) -> None:
        self.__dict__["max_episode_steps"] = rounds


def register_environments() -> None:
    """Register every id with Gymnasium; doing so twice is harmless."""
    plain = (ENTRY_POINT, VECTOR_ENTRY_POINT)
    vectors = (f"{OBJECTIVES}:MultiObjectiveEnv", f"{OBJECTIVES}:MultiObjectiveVectorEnv")
    ids = [(*each, plain) for each in chain(environment_ids(), short_ids())]
    ids += [(*each, vectors) for each in multi_objective_ids()]
    for name, kwargs, (entry_point, vector_entry_point) in ids:
        if name not in registry:
            registry[name] = IdSpec(
                id=name,
                entry_point=entry_point,
                max_episode_steps=ROUNDS,
                disable_env_checker=entry_point != ENTRY_POINT,  # the checker refuses array rewards
                kwargs=kwargs,
                vector_entry_point=vector_entry_point,
            )


def make_vector(num_envs: int = 1, backend: str = "numpy", **arguments: Any) -> VectorEnv[Any, Any, Any]:
    """Make the vector environment of a backend; ``gymnasium.make_vec`` calls this.

    Args:
        backend: ``"numpy"`` for :class:`~collapipe_env.envs.vector.CollaPipeVectorEnv`, ``"torch"`` for
            :class:`~collapipe_env.envs.torch_vector.CollaPipeTorchVectorEnv`.

    Raises:
        ScenarioError: For an unknown backend, or an argument that it does not know.
    """
    if backend not in BACKENDS:
        raise ScenarioError(f"backend = {backend!r} is not known: {nearest_name(str(backend), BACKENDS)}")
    for name in TORCH_ONLY:
        if backend != "torch" and name in arguments:
            raise ScenarioError(
                f"{name} = {arguments[name]!r} is an argument of the torch backend: add backend='torch', or "
                "leave it out"
            )
    # Imported late, so that `import collapipe_env` stays quick.
    from collapipe_env.envs.env import arguments_of, refuse_unknown

    kind = resolve_name(BACKENDS[backend])
    # The class refuses unknown names, too, but does not know of the backend.
    refuse_unknown(arguments, (*arguments_of(kind), "backend"))
    env: VectorEnv[Any, Any, Any] = kind(num_envs, **arguments)
    return env
