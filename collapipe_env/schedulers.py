"""Interface of schedulers, and schedulers by name: the package's own and the user's."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar, overload, runtime_checkable

import numpy as np
import numpy.typing as npt

from collapipe_env.ground.errors import AllocationError, SchedulerError, shown
from collapipe_env.ground.registry import FORMS, Registry
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.parameters import Parameters
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.decision_names import judged_by_target
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.state import SystemState, able_clusters
from collapipe_env.simulator.unable_clusters import sitting_out, with_room_everywhere

Decision: TypeAlias = npt.NDArray[np.float32] | Allocation
"""Actions (E, N (2K + 3)) of the box for ``env.step``, or allocations for ``env.step_allocation``, even ones
that the box cannot express."""


@runtime_checkable
class Scheduler(Protocol):
    """Decides one round for a batch of ``E`` environments at once.

    Learned agents read the observation, model-based schedulers the state. Both decide from what is known
    before the round: channels, speeds, memories and queues. ``act`` returns actions or allocations, whichever
    suits the scheduler; an evaluation plays either unchanged. It passes graph observations to a scheduler
    with an attribute ``observation = "graph"``. Where channels are estimated, the state is an
    :class:`~collapipe_env.simulator.state.EstimatedState`. Only an oracle with an attribute
    ``sees = "truth"`` receives the true state, and tables mark it.

    Attributes:
        name: Short name for tables and plots.
    """

    name: str

    def reset(self, seed: int | None = None) -> None:
        """Forget earlier episodes.

        Args:
            seed: Seed of the scheduler's own randomness, if it has any; evaluations give
                :func:`scheduler_seed`.
        """
        ...

    def act(self, observation: Any, state: SystemState) -> Decision:
        """Decide one round.

        Args:
            observation: The observation of a learned agent (E, D), or a graph's dictionary of arrays (E,
                ...).
            state: The system before the round (E, ...).

        Returns:
            Actions (E, N (2K + 3)) for ``env.step``, or an
            :class:`~collapipe_env.physics.allocation.Allocation` (E, ...) for ``env.step_allocation``.
        """
        ...


def scheduler_seed(episode: int, run: int = 0) -> int:
    """Seed of a scheduler's own random numbers in a measured episode.

    It follows from the episode's number alone, not from the seed of its environment, with which a scheduler
    could play a copy of the episode beside it and see what comes. A hash of that seed would not be enough:
    whoever knows some seeds, or tries many, finds the one with the same hash.

    Args:
        episode: Number of the episode, from 0.
        run: Training run of a learned scheduler, from 0.

    Returns:
        A number in [0, 2^31), which every library takes as a seed.
    """
    digest = hashlib.sha256(f"collapipe scheduler|{run}|{episode}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


class StateScheduler(ABC):
    """Base class of schedulers that decide from the state alone and return allocations.

    A subclass sets ``name`` and implements :meth:`allocate`. If it has memory or random numbers of its own,
    it also overrides :meth:`reset`.

    Class attributes:
        seats_clusters: Whether :meth:`allocate` itself leaves out clusters that cannot hold the encoder.

    Attributes:
        name: Short name for tables and plots.
        scenario: The scenario.
        parameters: The scenario's scalars.

    Raises:
        AllocationError: If ``scenario`` is not a scenario.
    """

    name: str
    seats_clusters: ClassVar[bool] = False

    def __init__(self, scenario: Scenario) -> None:
        if not isinstance(scenario, Scenario):
            raise AllocationError(
                f"{type(self).__name__}({shown(scenario)}): expected a Scenario, for instance "
                "load_scenario('medium')"
            )
        self.scenario = scenario
        self.parameters: Parameters = system_parameters(scenario)

    def reset(self, seed: int | None = None) -> None:  # noqa: B027 - rightly empty, and not abstract
        """Do nothing: the scheduler has no memory and nothing random."""

    def act(
        self,
        observation: Any,  # noqa: ARG002 - part of the interface
        state: SystemState,
    ) -> Allocation:
        """Decide one round.

        Args:
            observation: Not used.
            state: The system before the round (E, ...).

        Raises:
            AllocationError: If there is no state, it belongs to another scenario, or no plan fits the memory
                of some cluster.
        """
        if not isinstance(state, SystemState):
            raise AllocationError(
                f"{self.name} decides from the state, which is {shown(state)}: give env.unwrapped.state"
            )
        if not isinstance(state.present, np.ndarray):
            raise AllocationError(
                f"{self.name} decides from NumPy arrays, the state is of {type(state.present).__module__}: "
                "give state.map(lambda array: array.cpu().numpy())"
            )
        expected = (self.scenario.clusters, self.scenario.max_devices)
        if state.present.ndim != 3 or state.present.shape[1:] != expected:
            raise AllocationError(
                f"{self.name} schedules {expected[0]} clusters of up to {expected[1]} devices, the state has "
                f"the shape {tuple(state.present.shape)}, expected (environments, {expected[0]}, "
                f"{expected[1]}): build it with the scenario of the environment"
            )
        if not self.parameters.may_sit_out or self.seats_clusters:
            return self.allocate(state)
        able = np.asarray(able_clusters(self.parameters, state))
        if able.all():
            return self.allocate(state)
        room = with_room_everywhere(state, able, self.parameters.costs.blocks)
        plan = self.allocate(room)
        plays = able if plan.participates is None else able & (plan.participates != 0)
        return sitting_out(plan, plays)

    @abstractmethod
    def allocate(self, state: SystemState) -> Allocation:
        """Decide one round; see :meth:`act`.

        Args:
            state: The system before the round (E, ...). Where clusters may sit out, :meth:`act` handles those
                that cannot hold the encoder; here all clusters can, unless ``seats_clusters`` is set.
        """

    def refusal(self, environment: int, cluster: int, reason: str) -> AllocationError:
        """Return the error for a cluster that has no plan.

        Args:
            environment: Row of the state.
            cluster: Index of the cluster.
            reason: The part that its memories cannot hold, and a remedy.
        """
        return AllocationError(f"{self.name}: environment {environment}, cluster {cluster}: {reason}")


Factory: TypeAlias = Callable[[Scenario], Scheduler]
"""A class or function that is called with the scenario alone and returns a scheduler."""
Kind = TypeVar("Kind", bound=Factory)

LEARNED = "agent"
"""Name of the trained agent in lists of schedulers."""
NAMED_ONLY = ("dssra-plus", "dssra-truth", "dssra-target")
"""Schedulers that equal another one in most scenarios; they play where they differ (:func:`also_playing`)."""
DEFAULT_SCHEDULERS = ("dssra", "pipeline", "random")
"""Default schedulers of an evaluation."""


SCHEDULERS: Registry[Any] = Registry(
    "scheduler",
    {
        "dssra": "collapipe_env.agents.dssra.policy:DSSRA",
        "dssra-bound": "collapipe_env.agents.dssra.policy:DSSRABound",
        "dssra-plus": "collapipe_env.agents.dssra.plus:DSSRAPlus",
        "dssra-truth": "collapipe_env.agents.dssra.policy:DSSRATruth",
        "dssra-target": "collapipe_env.agents.dssra.target:DSSRATarget",
        "pipeline": "collapipe_env.baselines.even_split:PipeLine",
        "random": "collapipe_env.baselines.random_feasible:RandomFeasible",
        "vanilla_fl": "collapipe_env.baselines.vanilla_fl:VanillaFL",
        "titanic": "collapipe_env.baselines.titanic:Titanic",
        "pipeedge": "collapipe_env.baselines.pipeedge:PipeEdge",
        "asteroid": "collapipe_env.baselines.asteroid:Asteroid",
        "splitfed_v1": "collapipe_env.baselines.splitfed:SplitFedV1",
        "splitfed_v2": "collapipe_env.baselines.splitfed:SplitFedV2",
        "pipar": "collapipe_env.baselines.pipar:PiPar",
        "adaptis": "collapipe_env.baselines.adaptis:AdaPtis",
        "optpipe": "collapipe_env.baselines.optpipe:OptPipe",
        "flexpipe": "collapipe_env.baselines.flexpipe:FlexPipe",
        "xpipe": "collapipe_env.baselines.xpipe:XPipe",
        "greedy_dpp": "collapipe_env.baselines.greedy_dpp:GreedyDPP",
        "flop_proportional": "collapipe_env.baselines.flop_proportional:FlopProportional",
        "memory_proportional": "collapipe_env.baselines.memory_proportional:MemoryProportional",
        "best_single_device": "collapipe_env.baselines.best_single_device:BestSingleDevice",
    },
    group="collapipe_env.schedulers",
    error=SchedulerError,
    reserved=(LEARNED, "all"),
    hint=f"one of your own: {FORMS}",
    use="is called with the scenario and returns a scheduler",
)
"""Factories of schedulers by name; each is imported on first use."""


@overload
def register_scheduler(name: str, factory: Kind, *, replace: bool = False) -> Kind: ...


@overload
def register_scheduler(name: str, *, replace: bool = False) -> Callable[[Kind], Kind]: ...


def register_scheduler(name: str, factory: Any = None, *, replace: bool = False) -> Any:
    """Register your own scheduler under a name, for this process and the workers of an evaluation.

    Also works as a decorator: ``@register_scheduler("half_power")`` above the class. The same definition may
    be registered again, as when a notebook's cell is run twice.

    Args:
        name: Lower-case letters, digits and underscores, at most 40, beginning with a letter.
        factory: Class or function that is called with the scenario alone and returns an object with ``name``,
            ``reset`` and ``act``; or its ``"package.module:Name"``.
        replace: Whether to replace another scheduler registered under this name.

    Returns:
        The factory, or a decorator if none was given.

    Raises:
        SchedulerError: If the name is taken or malformed, or the factory cannot be called.
    """
    return SCHEDULERS.register(name, factory, replace=replace)


def also_playing(scenario: Scenario) -> tuple[str, ...]:
    """Return the schedulers of :data:`NAMED_ONLY` that differ from others in this scenario.

    Args:
        scenario: The scenario. ``dssra-plus`` reads its tuned scalars, ``dssra-truth`` knows gains that
            others do not, and ``dssra-target`` needs open participation or local steps.
    """
    chosen = {
        "dssra-plus": not scenario.dssra_plus.is_neutral,
        "dssra-truth": bool({"channel_knowledge", "traces"} & set(dict(scenario.dynamics.processes))),
        "dssra-target": judged_by_target(scenario),
    }
    return tuple(name for name in NAMED_ONLY if chosen[name])


def scheduler_names() -> tuple[str, ...]:
    """Return the names of the package's own schedulers."""
    return SCHEDULERS.shipped()
