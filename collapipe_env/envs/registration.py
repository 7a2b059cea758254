"""Ids: the default environment, its surrogate twin, and a ladder of scenarios."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import currentframe
from pkgutil import resolve_name
from typing import Any

from gymnasium.envs.registration import EnvSpec, make, make_vec, registry
from gymnasium.vector import VectorEnv

from collapipe_env.envs.suite import SUITE
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
TIERS = ("migration", "channel", "thermal", "mobile", "stale", "churn", "wild")
TASKS = {"LM": "language-modelling", "NER": "ner", "Translation": "translation"}
"""Tasks besides that of the shipped scenarios, by their words in the ids."""
SURROGATE = (
    *(f"{size}-{tier}" for size in ("medium", "large") for tier in TIERS),
    "xlarge-stale",
    "xlarge-wild",
    "boards",
    "phones",
    "medium-trace-like",
    "large-trace-like",
)
"""Scenarios, besides the ladder, whose ids have the surrogate learner."""
LEARNERS = {"CollaPipe": "real", "CollaPipeSurrogate": "surrogate"}
"""Learners by the first words of ids."""
UNTIL_TARGET = {"medium-target": "CollaPipeSurrogate", "small-target": "CollaPipe"}
"""First words of the ids whose episodes end at a target loss, by their scenarios."""
ROUNDS, TARGET_ROUNDS = 100, 200
"""Rounds of an episode, and the most of one that ends at a target loss."""


def environment_ids() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every id with one reward that the package registers, with its keyword arguments.

    ``CollaPipe-v0`` really trains, which costs about 0.2 s a round, and its reward does not contain the loss.
    It is the default scenario ``medium`` with the real learner, and ``CollaPipeSurrogate-v0`` the same with
    the surrogate. ``CollaPipe-<Size>-v0`` and ``CollaPipeSurrogate-<Size>-v0`` are the ladder,
    ``CollaPipe-Small-<Task>-v0`` other tasks, and ``CollaPipeSurrogate-<Scenario>-v0`` scenarios with one
    complication. The reward of the ids that end at a target is the drift plus penalty until then: the time to
    the target, and the price of the energy over budgets.
    """
    for prefix, learner in LEARNERS.items():
        yield f"{prefix}-v0", {"scenario": "medium", "learner": learner}
        for size in LADDER:
            yield f"{prefix}-{_word(size)}-v0", {"scenario": size, "learner": learner}
    for word, task in TASKS.items():
        scenario = {"base": "small", "name": f"small-{task}", "workload": {"task": task}}
        yield f"CollaPipe-Small-{word}-v0", {"scenario": scenario, "learner": "real"}
    for name in SURROGATE:
        yield f"CollaPipeSurrogate-{_word(name)}-v0", {"scenario": name, "learner": "surrogate"}
    for name, prefix in UNTIL_TARGET.items():
        kwargs = {"scenario": name, "learner": LEARNERS[prefix], "reward": "lyapunov"}
        yield f"{prefix}-{_word(name)}-v0", kwargs


def _word(scenario: str) -> str:
    """A scenario's name in an id: ``Large-TraceLike`` for ``large-trace-like``."""
    first, _, more = scenario.partition("-")
    return "-".join(part for part in (first.title(), more.title().replace("-", "")) if part)


def multi_objective_ids() -> Iterator[tuple[str, dict[str, Any]]]:
    """``CollaPipeMO-v0`` and ``CollaPipeMOSurrogate-v0``: vector rewards, in any scenario."""
    for prefix, learner in (("CollaPipeMO", "real"), ("CollaPipeMOSurrogate", "surrogate")):
        yield f"{prefix}-v0", {"scenario": "medium", "learner": learner}


class IdSpec(EnvSpec):
    """Specification of an id, whose ``max_episode_steps`` is not a second limit.

    ``gymnasium.make`` would put the environment into ``TimeLimit`` with the rounds of the id. It would then
    end episodes of a longer scenario (``scenario=``) early, and count on where ``set_state`` goes back in
    time. The environment ends its episodes itself, and its own ``spec`` has its own number of rounds. So the
    functions that make environments find no limit here; one that the caller gives them, or writes into a copy
    of the specification, applies.
    """

    @property
    def max_episode_steps(self) -> int | None:
        """Rounds of an episode; ``None`` for ``make`` and ``make_vec`` if they are those of the id."""
        rounds: int | None = self.__dict__["max_episode_steps"]
        frame = currentframe()
        caller = None if frame is None else frame.f_back
        made = caller is not None and caller.f_code in (make.__code__, make_vec.__code__)
        return None if made and rounds == rounds_of(self.id) else rounds

    @max_episode_steps.setter
    def max_episode_steps(self, rounds: int | None) -> None:
        self.__dict__["max_episode_steps"] = rounds


def rounds_of(name: str) -> int:
    """Rounds of an episode in the scenario of an id, or the most of one that ends at a target loss."""
    return TARGET_ROUNDS if name.endswith("-Target-v0") else ROUNDS


def register_environments() -> None:
    """Register every id with Gymnasium; doing so twice is harmless."""
    plain = (ENTRY_POINT, VECTOR_ENTRY_POINT)
    vectors = (f"{OBJECTIVES}:MultiObjectiveEnv", f"{OBJECTIVES}:MultiObjectiveVectorEnv")
    thresholds = {entry.id: entry.reward_threshold for entry in SUITE}
    ids = [(*each, plain) for each in environment_ids()]
    ids += [(*each, vectors) for each in multi_objective_ids()]
    for name, kwargs, (entry_point, vector_entry_point) in ids:
        if name not in registry:
            registry[name] = IdSpec(
                id=name,
                entry_point=entry_point,
                reward_threshold=thresholds.get(name),
                max_episode_steps=rounds_of(name),
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
