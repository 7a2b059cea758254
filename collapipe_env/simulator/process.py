"""Interface of a process: a part of the system that changes from round to round.

A process is one class in one file. Its random numbers are hashes of seed, round and place, so each of its
parts is a pure function of arrays with leading axis ``R`` (some environments) on any array library. The
object holds no arrays that change; a dictionary of arrays, ``carried``, is its state of a round. A process
that is off adds nothing to the state, the observation or the time of a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeAlias

from collapipe_env.ground.arrays import Array
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.ground.records import Declared
from collapipe_env.ground.state_trees import LARGEST_NUMBER
from collapipe_env.physics.recovery import RecoveryTerms
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.round import Events, RoundCosts
from collapipe_env.simulator.state import SystemState
from collapipe_env.simulator.system import System

Carried: TypeAlias = Mapping[str, Array]
"""Carried state of a process from round to round: arrays (R, ...) by name."""

EVERY_OTHER = ("*",)
"""Value of ``after`` for a process that reads the results of all others."""


@dataclass(frozen=True)
class CarriedArray(Declared):
    """An array that a process carries from round to round (R, *axes).

    Axes are ``N``, ``K``, ``K+1``, ``L``, ``links`` (as in a system's ``link_gain``) or numbers. Results of
    one's own code and saved states are checked against the declaration.

    Attributes:
        seen: When schedulers receive it: ``never``, as nobody knows it before the round, or it would reveal
            what they do not know; only under ``visibility: full``; or ``always``, also where that is
            ``realistic``.
        shown: Carried numbers that the observation shows as 0 and as 1; others are clipped to them. ``None``
            for an array that is no feature. A feature has axes ``N K``, ``N`` or none and is named after the
            process and the array, for example ``enclosure_temperature``.
        about: Meaning.
        resolution: Step of the numbers that schedulers receive under ``visibility: realistic``; 0 for the
            carried numbers themselves.
    """

    seen: Literal["never", "full", "always"] = "full"
    shown: tuple[float, float] | None = None
    about: str = ""
    resolution: float = 0.0

    def __post_init__(self) -> None:
        choices = {"kind": ("real", "whole", "truth"), "seen": ("never", "full", "always")}
        for name, valid in choices.items():
            value = getattr(self, name)
            if value not in valid:
                raise ScenarioError(f"a carried array has {name} = {value!r}: use one of {', '.join(valid)}")
        if not self.low <= self.high:
            raise ScenarioError(f"a carried array has numbers from {self.low:g} to {self.high:g}: swap them")
        if not 0.0 <= self.resolution <= LARGEST_NUMBER:
            raise ScenarioError(
                f"a carried array has resolution = {self.resolution:g}: give a step, 0 for none"
            )
        if self.shown is None:
            return
        if self.seen == "never":
            raise ScenarioError(
                "a carried array is never seen, but shown in the observation: drop one of them"
            )
        low, high = self.shown
        if not -LARGEST_NUMBER <= low < high <= LARGEST_NUMBER or self.axes not in ("N K", "N", ""):
            raise ScenarioError(
                f"a carried array of axes {self.axes!r} is shown from {low:g} to {high:g} {self.unit}: a "
                "feature has finite bounds, the upper one above the lower one, and axes 'N K', 'N' or ''"
            )


class Process:
    """Base class of processes. Every part has a default, so a process defines only what it needs.

    What a plan costs beyond the physics is a function in :data:`collapipe_env.simulator.costs.PRICES`, under
    the name of its process.

    Class attributes:
        name: Its name, in the registry and in scenarios.
        after: Processes that are advanced and applied before it, where they are on; :data:`EVERY_OTHER` for
            all. Its :meth:`begin` then gets the system under all of them.
        endogenous: Whether plans drive it, as they drive heat; False for a process that moves by
            itself. It chooses the seconds that :meth:`advance` receives.
        leaves_clusters_short: Whether it may leave too few devices of a cluster to hold the encoder. Such a
            cluster then sits out; without this flag the step is refused.
        Spec: Frozen dataclass of its fields in a scenario, ``dynamics.processes.<name>``, best declared with
            :mod:`collapipe_env.scenario.fields`; ``None`` where it has none.

    Attributes:
        numbers: Uniform numbers of one environment in one round, for each method that gets some.
        factors: Number of uniform numbers whose product each of them is; see
            :meth:`collapipe_env.ground.backends.base.Backend.uniform`.
        carries: The arrays that it carries, by name; ``state.processes[name]`` holds those that may be seen.
        recovery: Terms on which clusters recover where its :meth:`events` let devices fail; ``None``
            where they never do.

    Args:
        spec: The process's own fields, an object of ``Spec``.
    """

    name: ClassVar[str]
    after: ClassVar[tuple[str, ...]] = ()
    endogenous: ClassVar[bool] = True
    leaves_clusters_short: ClassVar[bool] = False
    Spec: ClassVar[type[Any] | None] = None

    numbers: int = 0
    factors: int = 1
    carries: Mapping[str, CarriedArray] = MappingProxyType({})
    recovery: RecoveryTerms | None = None

    def __init__(self, scenario: Scenario, spec: Any) -> None:
        self.scenario: Scenario = scenario
        self.spec: Any = spec

    @classmethod
    def of(cls, scenario: Scenario) -> Process | None:
        """The process of a scenario; ``None`` where it is off or the scenario does not name it."""
        spec = dict(scenario.dynamics.processes).get(cls.name)
        return None if spec is None else cls(scenario, spec)

    def begin(self, system: System, u: Array) -> Carried:  # noqa: ARG002 - the interface
        """Start episodes.

        Args:
            system: The system of the layout, before any moving process (R, ...).
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
            carried: Arrays of the round just played; read-only.
            state: The system before that round (R, ...).
            costs: Costs of the round (R, ...).
            u: Numbers of the next round (R, numbers / factors), float64; the process may write over them.
            delta_s: Seconds that passed (R,), by ``dynamics.time_base``: the delay of the round under
                ``real``, ``T_ref`` under ``reference``, and under ``mixed`` the delay if the process is
                ``endogenous``, otherwise ``T_ref``.

        Returns:
            The same names with the arrays of the next round.
        """
        return carried

    def apply(self, system: System, carried: Carried) -> System:  # noqa: ARG002 - the interface
        """Return the system changed by the process: ``system._replace(...)``.

        A cap is a minimum taken here: of ``speed`` and a share of ``full_speed``, or of ``memory_bytes`` and
        some bytes. A device is away where ``present`` is False.

        Args:
            system: The system after the layout and the processes before this one (R, ...).
        """
        return system

    def events(self, carried: Carried, costs: RoundCosts) -> Events:
        """Events inside the round: seconds, joules, lost rounds, and devices that fail.

        What is random about them is drawn before the round and carried, with ``seen="never"``.

        Args:
            costs: The round without them (R, ...), with its plan in ``allocation``.
        """
        raise NotImplementedError

    def known(self, carried: Carried, truth: SystemState, u: Array) -> SystemState:
        """Estimate that schedulers and the observation receive instead of the truth.

        Memory and presence keep their true values whatever it says: plans are decoded against them.

        Args:
            truth: The system before the round (R, ...).
            u: Numbers of this method in the round (R, numbers / factors), float64.
        """
        raise NotImplementedError

    def check(self, carried: Carried) -> None:
        """Refuse carried arrays from a file that do not fit together.

        Shapes, types and ranges have been checked before.

        Raises:
            StateError: Names the array.
        """

    def defines(self, part: str) -> bool:
        """Whether the class defines a part: ``advance``, ``apply``, ``events``, ..."""
        return getattr(type(self), part) is not getattr(Process, part)

    @property
    def told(self) -> Mapping[str, CarriedArray]:
        """Carried arrays that schedulers receive under the scenario's visibility."""
        seen = ("full", "always") if self.scenario.dynamics.visibility == "full" else ("always",)
        return {name: array for name, array in self.carries.items() if array.seen in seen}
