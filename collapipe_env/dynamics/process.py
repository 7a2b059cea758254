"""Interface of a process: something that moves from round to round.

A process is one class in one file. Its random numbers are hashes of seed, round and place, so each of its
parts is a pure function of arrays with leading axis ``R`` (some environments) on any array library; it holds
no arrays that change. What it carries from round to round is a dictionary of arrays. A process that is off
adds nothing to the state, the observation or the time of a step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias, TypeVar

from collapipe_env.arrays import Array
from collapipe_env.dynamics.system import System
from collapipe_env.errors import ScenarioError
from collapipe_env.registry import Registry
from collapipe_env.scenario import Scenario

if TYPE_CHECKING:
    from collapipe_env.allocation import Allocation
    from collapipe_env.physics.recovery import RecoveryTerms
    from collapipe_env.simulator.costs import RoundCosts
    from collapipe_env.simulator.failed_records import FailedRounds
    from collapipe_env.simulator.state import SystemState

Carried: TypeAlias = Mapping[str, Array]
"""Carried state of a process from round to round: arrays (R, ...) by name."""
NEUTRAL: Mapping[str, bool] = {"neutral": True}
"""Metadata of a field of a ``Spec`` that is left out of a scenario's digest where it has its default."""


class Limits(NamedTuple):
    """Caps that hold before a plan is decoded, whatever other processes say; ``None`` for no cap.

    Attributes:
        memory_bytes: Most memory that a device offers (R, N, K) [byte].
        present: False where a device is away (R, N, K), bool.
        clock: Largest share of its full speed that a device may use (R, N, K), in (0, 1].
        stay_order: Where too few devices of a cluster would be left to hold the encoder, those away with the
            smallest numbers stay, until it fits (R, N, K), real; ``None`` where all of them go.
    """

    memory_bytes: Array | None = None
    present: Array | None = None
    clock: Array | None = None
    stay_order: Array | None = None


class Price(NamedTuple):
    """Price of a plan beyond the physics of a round.

    Attributes:
        cluster_delay: Added to ``T_n`` (R, N) [s].
        energy: Added to the energy of each node (R, N, K+1) [J].
    """

    cluster_delay: Array
    energy: Array


class Interruption(NamedTuple):
    """Events inside a round, after the decision.

    Attributes:
        cluster_delay: Added to ``T_n`` (R, N) [s].
        energy: Added to the energy of each node (R, N, K+1) [J].
        trained: False where a cluster's round is lost: none of its gradients arrives (R, N), bool.
        failed: What devices that failed did to the rounds; ``None`` where none did.
    """

    cluster_delay: Array
    energy: Array
    trained: Array
    failed: FailedRounds | None = None


@dataclass(frozen=True)
class Observed:
    """A carried array that schedulers see, as a feature of the observation.

    Attributes:
        carried: Name of the carried array (R, *shape); the feature is called after the process and it,
            ``enclosure_temperature`` say.
        shape: ``(N, K)``, ``(N,)`` or ``()``.
        unit: Unit of the carried numbers.
        low: Carried number that the feature shows as 0; smaller ones are shown as it.
        high: Carried number that the feature shows as 1; larger ones are shown as it.
        description: What the carried array holds.
        realistic: Whether schedulers see it under ``visibility: realistic``, too.
    """

    carried: str
    shape: tuple[int, ...]
    unit: str
    low: float
    high: float
    description: str
    realistic: bool = True

    def __post_init__(self) -> None:
        if not self.high > self.low:
            raise ScenarioError(
                f"the observed array {self.carried!r} is shown from {self.low:g} to {self.high:g} "
                f"{self.unit}: its upper bound must be above its lower one"
            )


class Process:
    """Base class of processes. Every part has a default, so a process defines only what it needs.

    Class attributes:
        name: Its name, in the registry and in scenarios.
        after: Processes that are advanced and applied before it, where they are on.
        last: Whether it acts behind all processes that are not ``last``, as it reads what they have made.
        gains: Carried arrays that say gains of links, which no scheduler gets where what is known of them is
            not the truth.
        hides_gains: Whether it says what is known of gains, :attr:`System.known_gain`.
        endogenous: Whether what is played drives it, as heat or a battery; False for what moves by itself,
            whatever is played. It chooses the seconds that :meth:`advance` is told.
        leaves_clusters_short: Whether its limits may leave too few devices of a cluster to hold the encoder.
            Such a cluster sits out, then; else a step is refused.
        hidden: Carried arrays that nobody knows before the round, as the time of a failure; no scheduler gets
            them, whatever is visible.
        Spec: Frozen dataclass of its fields in a scenario, ``dynamics.processes.<name>``; ``None`` where it
            has none.

    Attributes:
        numbers: Uniform numbers of one environment in one round, for :meth:`begin` and :meth:`advance`.
        factors: These are products of so many uniform numbers; see
            :meth:`collapipe_env.backends.base.Backend.uniform`.
        interrupt_numbers: Uniform numbers of :meth:`interrupt`.
        estimate_numbers: Uniform numbers of :meth:`estimate`.
        observed: What schedulers see of it in the observation. Where there is anything, all that it carries
            is in ``state.processes[name]``, too.

    Args:
        scenario: The scenario.
        spec: The process's own fields, an object of ``Spec``.
    """

    name: ClassVar[str]
    after: ClassVar[tuple[str, ...]] = ()
    last: ClassVar[bool] = False
    gains: ClassVar[tuple[str, ...]] = ()
    hides_gains: ClassVar[bool] = False
    endogenous: ClassVar[bool] = True
    leaves_clusters_short: ClassVar[bool] = False
    hidden: ClassVar[tuple[str, ...]] = ()
    Spec: ClassVar[type[Any] | None] = None

    numbers: int = 0
    factors: int = 1
    interrupt_numbers: int = 0
    estimate_numbers: int = 0
    observed: tuple[Observed, ...] = ()

    def __init__(self, scenario: Scenario, spec: Any) -> None:
        self.scenario: Scenario = scenario
        self.spec: Any = spec

    @classmethod
    def of(cls, scenario: Scenario) -> Process | None:
        """The process of a scenario; ``None`` where it is off, as where the scenario does not name it."""
        spec = dict(scenario.dynamics.processes).get(cls.name)
        return None if spec is None else cls(scenario, spec)

    @classmethod
    def idle_fields(cls, spec: Any) -> Mapping[str, str]:  # noqa: ARG003 - the interface
        """Fields that have no effect beside the others, whatever they say.

        Whoever sets one to something other than its default is warned
        (:mod:`collapipe_env.dynamics.idle_fields`).

        Args:
            spec: The fields, an object of ``Spec``.

        Returns:
            By the field's name what would give it an effect: ``"it counts with area: open only"``.
        """
        return {}

    @property
    def moves(self) -> bool:
        """Whether it changes during an episode; :meth:`advance` is called for those that do."""
        return type(self).advance is not Process.advance

    @property
    def sends_away(self) -> bool:
        """Whether its limits may send devices away; the queues of those who are stand still.

        By default it may if it has limits at all. Say False for one whose limits never do: a round then need
        not look for devices that are away.
        """
        return self.defines("limits") or self.defines("limits_under")

    @property
    def shown(self) -> tuple[Observed, ...]:
        """Those of the observed arrays that schedulers see, under the scenario's visibility."""
        if self.scenario.dynamics.visibility == "full":
            return self.observed
        return tuple(seen for seen in self.observed if seen.realistic)

    def begin(self, system: System, u: Array) -> Carried:  # noqa: ARG002 - the interface
        """Start episodes.

        Args:
            system: The system of the layout, before any process that moves (R, ...).
            u: Numbers of the first round (R, numbers / factors), float64; the process may write over them.
        """
        return {}

    def advance(
        self,
        carried: Carried,
        state: SystemState,  # noqa: ARG002 - the interface
        costs: RoundCosts,  # noqa: ARG002 - the interface
        u: Array,  # noqa: ARG002 - the interface
        delta_s: Array,  # noqa: ARG002 - the interface
    ) -> Carried:
        """Move on to the next round.

        Args:
            carried: Of the round just played; not to be written to.
            state: The system before that round (R, ...).
            costs: What the round cost (R, ...).
            u: Numbers of the next round (R, numbers / factors), float64; the process may write over them.
            delta_s: Seconds that passed (R,), by ``dynamics.time_base``: the delay of the round under
                ``real``, ``T_ref`` under ``reference``, and under ``mixed`` the delay if the process is
                ``endogenous``, else ``T_ref``.

        Returns:
            The same names with the arrays of the next round.
        """
        return carried

    def apply(self, system: System, carried: Carried) -> System:  # noqa: ARG002 - the interface
        """The system under the process: ``system._replace(...)``.

        Args:
            system: Of the layout and the processes before this one (R, ...).
            carried: Of the round.
        """
        return system

    def limits(self, carried: Carried) -> Limits:  # noqa: ARG002 - the interface
        """Caps on memory, presence and clock that hold before a plan is decoded."""
        return Limits()

    def limits_under(self, system: System, carried: Carried) -> Limits:  # noqa: ARG002 - the interface
        """The same caps where they depend on the round's system; by default :meth:`limits`.

        Args:
            system: Of the layout under all processes and the limits of those before this one (R, ...).
            carried: Of the round.
        """
        return self.limits(carried)

    def price(self, state: SystemState, plan: Allocation) -> Price:
        """Price of a plan beyond the physics; a function of what is known before the round.

        Args:
            state: The system before the round (R, ...).
            plan: The plan (R, ...).
        """
        raise NotImplementedError

    def interrupt(self, carried: Carried, plan: Allocation, times: RoundCosts, u: Array) -> Interruption:
        """Events inside the round.

        Args:
            carried: Of the round.
            plan: The plan (R, ...).
            times: Delays, energies and element times of the round without interruption.
            u: Uniform numbers (R, interrupt_numbers), float64.
        """
        raise NotImplementedError

    def failures(self, carried: Carried) -> Array:
        """Time after which each device fails in the round (R, N, K) [s]; infinite where it does not.

        The times are those of the process's own clock: where a round lets ``T_ref`` pass for it, whatever its
        delay, they are stretched to the delay of the device's cluster.

        Args:
            carried: Of the round.
        """
        raise NotImplementedError

    @property
    def recovery(self) -> RecoveryTerms | None:
        """Terms on which clusters recover from its failures; ``None`` where it has none."""
        return None

    def estimate(self, carried: Carried, truth: SystemState, u: Array) -> SystemState:
        """Estimate that schedulers and the observation get in place of the truth.

        Memory and presence stay true whatever it says: plans are decoded against them.

        Args:
            carried: Of the round.
            truth: The system before the round (R, ...).
            u: Uniform numbers (R, estimate_numbers), float64.
        """
        raise NotImplementedError

    def realistic(self, carried: Carried) -> Carried:
        """Part of what is carried that schedulers get under ``visibility: realistic``.

        By default these are the ``observed`` arrays that are ``realistic``, as they are.

        Args:
            carried: Of the round.
        """
        return {seen.carried: carried[seen.carried] for seen in self.observed if seen.realistic}

    def check(self, carried: Carried) -> None:
        """Refuse carried arrays of a file that the process cannot have written.

        Shapes and types have been checked, and that all numbers are finite.

        Raises:
            StateError: Names the array.
        """

    def defines(self, part: str) -> bool:
        """Whether the class defines a part: ``limits``, ``limits_under``, ``price``, ``interrupt``, ..."""
        return getattr(type(self), part) is not getattr(Process, part)


def _check(name: object, process: object) -> None:
    """Refuse what is no process of this name."""
    if not (isinstance(process, type) and issubclass(process, Process)):
        raise ScenarioError(f"{process!r} is no process: derive a class from collapipe_env.dynamics.Process")
    if name is None or getattr(process, "name", None) != name:
        raise ScenarioError(
            f"the process {process.__qualname__} has no name: give its class an attribute name, a word of "
            "lower-case letters, digits and underscores"
        )
    after: object = process.after
    if not isinstance(after, tuple) or not all(isinstance(other, str) for other in after):
        raise ScenarioError(
            f"after of the process {name!r} is {after!r}: use a tuple of names, say ('fading',)"
        )
    spec = process.Spec
    if spec is not None and not (isinstance(spec, type) and _is_frozen(spec)):
        raise ScenarioError(
            f"the Spec of the process {name!r} is {spec!r}: use a frozen dataclass, as scenarios are hashable"
        )


def _is_frozen(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind) and bool(getattr(kind, "__dataclass_params__").frozen)  # noqa: B009


PROCESSES: Registry[type[Process]] = Registry(
    "process",
    {
        "presence": "collapipe_env.dynamics.presence:Presence",
        "shadowing": "collapipe_env.dynamics.shadowing:Shadowing",
        "mobility": "collapipe_env.dynamics.mobility:Mobility",
        "fading": "collapipe_env.dynamics.fading:Fading",
        "load": "collapipe_env.dynamics.load:Load",
        "migration": "collapipe_env.dynamics.previous_plan:PreviousPlan",
        "tenants": "collapipe_env.dynamics.tenants:Tenants",
        "server": "collapipe_env.dynamics.server_queue:ServerQueue",
        "heat": "collapipe_env.dynamics.heat:Heat",
        "battery": "collapipe_env.dynamics.battery:Battery",
        "traces": "collapipe_env.dynamics.traces:Traces",
        "channel_knowledge": "collapipe_env.dynamics.channel_knowledge:ChannelKnowledge",
    },
    reserved=("layout", "arrivals", "learner"),
    hint="one of your own is known once its file is imported: commands do that for a scenario named as "
    "file.py:Name, and Python may call collapipe_env.evaluate and write_page",
    check=_check,
    likeness=0.75,  # names of the user's own processes are short, and not meant for others
)
"""Processes by name."""


def leaves_clusters_short(name: str) -> bool:
    """Whether a process may leave too few devices of a cluster to hold the encoder.

    Args:
        name: Of the process; unknown ones do not.
    """
    return name in PROCESSES and PROCESSES.get(name).leaves_clusters_short


Kind = TypeVar("Kind", bound=type[Process])


def register_process(process: Kind) -> Kind:
    """Let scenarios name a process under ``dynamics.processes``; works as a decorator of its class.

    Args:
        process: A subclass of :class:`Process` with a ``name`` and a ``Spec``.

    Raises:
        ScenarioError: If it is no such class, or another process has its name.
    """
    name = getattr(process, "name", None)
    _check(name, process)
    return PROCESSES.register(process.name, process)


def active_processes(scenario: Scenario) -> tuple[Process, ...]:
    """The processes that are on in a scenario, each behind those in its ``after``, then the last ones.

    Raises:
        ScenarioError: If processes wait for each other.
    """
    for name, _ in scenario.dynamics.processes:
        PROCESSES.require(name)
    # By name, so that results do not depend on which module was imported first.
    names = (*PROCESSES.shipped(), *sorted(PROCESSES.added()))
    kinds = {name: PROCESSES.get(name) for name in names}
    waiting = {name: on for name, kind in kinds.items() if (on := kind.of(scenario)) is not None}
    ordered: list[Process] = []
    while waiting:
        closing = all(process.last for process in waiting.values())
        free = ((n, p) for n, p in waiting.items() if closing or not p.last)
        ready = next((n for n, p in free if not waiting.keys() & set(p.after)), None)
        if ready is None:
            raise ScenarioError(
                f"the processes {', '.join(waiting)} wait for each other: take a name out of one's `after`"
            )
        ordered.append(waiting.pop(ready))
    return tuple(ordered)
