"""Presence: devices leave and come back, announced or unannounced."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from collapipe_env.dynamics.sojourns import LognormalStay, WeibullStay
from collapipe_env.ground.arrays import Array, Constant, at_least, namespace, where
from collapipe_env.ground.errors import StateError
from collapipe_env.ground.state_trees import REMEDY
from collapipe_env.physics.recovery import RecoveryKind, RecoveryTerms
from collapipe_env.physics.replication import ReplicationKind
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.fields import OnlyIf, field, real, spec, whole
from collapipe_env.simulator.build import usual_round
from collapipe_env.simulator.process import Carried, CarriedArray, Process
from collapipe_env.simulator.randomness import normal
from collapipe_env.simulator.round import Events, RoundCosts
from collapipe_env.simulator.system import System

PRESENCE = "presence"
"""Name of the process, for modules that show its carried arrays."""
SHORTEST_S = 1e-6
"""Least remaining time of a stay after a round [s]; at most two stays end in a round."""
NUMBERS = 4
"""Uniform numbers of a device: its class, state and kind of end; a stay; two for an absence."""
_FAIL = OnlyIf("with graceful below 1", lambda spec: spec.graceful < 1.0)
_RECOVER = OnlyIf(
    "with graceful below 1 and recovery: light or heavy, as a round that is given up needs no replicas",
    lambda spec: spec.graceful < 1.0 and spec.recovery != "drop-round",
)


@spec
class PresenceSpec:
    """Fields of ``dynamics.processes.presence``.

    A stay ends gracefully where the device announces it one round ahead and completes that round; otherwise
    it fails inside a round. In every episode each device belongs to one class, all equally likely; the factor
    of its class multiplies its hazard and divides its stay. The default stay, 36 minutes, has the hazard at
    which 8 % of devices are lost in 3 minutes.
    """

    on_mean_s: float = real(2160.0, "mean time that a device of hazard factor 1 stays", "[1, 1e9] s")
    on_shape: float = real(1.0, "shape of its Weibull law; 1 for a constant hazard", "[0.2, 20]")
    off_mean_s: float = real(600.0, "mean time that it is away", "[1, 1e9] s")
    off_deviation: float = real(
        1.0, "standard deviation of the logarithm of that time, which is lognormal", "[0, 3]"
    )
    graceful: float = real(0.5, "probability that a stay ends gracefully", "[0, 1]")
    hazard_factors: tuple[float, ...] = field((1.0,), "factors of the device classes, 0.01 to 100 each")
    recovery: RecoveryKind = field(
        "light",
        "how a cluster continues when a device fails inside a round: light moves blocks between the "
        "remaining stages, heavy plans again and sends all blocks over the CU, drop-round gives up the "
        "cluster's round",
        _FAIL,
    )
    heartbeat_s: float = real(0.5, "period of the devices' heartbeats", "[0.01, 1e3] s", _FAIL)
    misses: int = whole(4, "missed heartbeats after which a device counts as failed", 1, 1000, _FAIL)
    replication: ReplicationKind = field(
        "none",
        "who gets replicas of the parts that devices train, after every local step: nobody, a device of the "
        "next stage, or the CU",
        _RECOVER,
    )

    def __post_init__(self) -> None:
        factors = self.hazard_factors
        if not factors or not all(0.01 <= factor <= 100.0 for factor in factors):
            raise ValueError(f"hazard_factors are {list(factors)}: give one or more from 0.01 to 100")

    @property
    def terms(self) -> RecoveryTerms:
        """Terms on which clusters recover."""
        return RecoveryTerms(self.recovery, self.heartbeat_s, self.misses)


class Presence(Process):
    """Devices that are on and off by turns ([X]): a semi-Markov process of each device.

    A stay lasts a Weibull time, divided by the hazard factor of the device's class, an absence a lognormal
    one. Episodes begin in the stationary law of each class. A device whose stay ends within a round is away
    from the next round on. A graceful end is announced and the device completes the round; otherwise the
    device fails inside the round, see :meth:`failures`. A cluster whose devices cannot hold the encoder sits
    out.
    """

    name = PRESENCE
    endogenous = False
    leaves_clusters_short = True
    Spec = PresenceSpec

    def __init__(self, scenario: Scenario, spec: PresenceSpec) -> None:
        super().__init__(scenario, spec)
        N, K = scenario.clusters, scenario.max_devices
        self._devices = (N, K)
        self.numbers = NUMBERS * N * K
        self._factors = Constant(np.asarray(spec.hazard_factors, dtype=np.float64))
        self._on = WeibullStay(spec.on_mean_s, spec.on_shape)
        self._off = LognormalStay(spec.off_mean_s, spec.off_deviation)
        there = np.arange(K) < np.asarray(scenario.cluster.devices_per_cluster)[:, None]
        self._there = Constant(there)
        self._horizon_s = usual_round(scenario)
        self.recovery = spec.terms
        hidden, told = partial(CarriedArray, "N K", seen="never"), partial(CarriedArray, "N K", seen="always")
        announced = "1 for a device that has announced its departure"
        since = "time since the device came or left, or since the episode began"
        self.carries = {
            "present": CarriedArray("N K", kind="truth"),
            "announced": told(kind="truth", shown=(0.0, 1.0), about=announced),
            "since_s": told("s", 0.0, shown=(0.0, spec.on_mean_s), about=since),
            "residual_s": hidden("s", SHORTEST_S, about="remaining time of the stay or absence"),
            "graceful": hidden(kind="truth", about="whether the stay ends gracefully"),
            "factor": hidden(about="hazard factor of the device's class"),
        }

    def begin(self, system: System, u: Array) -> Carried:  # noqa: ARG002 - the interface
        """Start in the stationary law of each class."""
        xp, spec = namespace(u), self.spec
        which, of_stay, noise = self._of_devices(u, (u.shape[0], *self._devices))
        classes = len(spec.hazard_factors)
        scaled = classes * which
        index = xp.clip(xp.astype(xp.floor(scaled), xp.int64), 0, classes - 1)
        factor = self._factors.like(u)[index]
        rest = scaled - xp.astype(index, u.dtype)
        stay = spec.on_mean_s / factor
        share = stay / (stay + spec.off_mean_s)
        present = (rest < share) & self._there.like(u, xp.bool)
        residual = xp.where(present, self._on.left(of_stay) / factor, self._off.left(of_stay, noise))
        return self._carried(
            present,
            at_least(residual, SHORTEST_S),
            rest < spec.graceful * share,
            xp.zeros_like(which),
            factor,
        )

    def advance(self, carried: Carried, state: Any, costs: Any, u: Array, delta_s: Array) -> Carried:  # noqa: ARG002
        """Let stays and absences run for the seconds that passed; at most two end for each device."""
        xp = namespace(u)
        seconds = (delta_s if xp is np else xp.astype(delta_s, xp.float64))[:, None, None]
        present, graceful, factor = carried["present"], carried["graceful"], carried["factor"]
        left, since = carried["residual_s"] - seconds, carried["since_s"] + seconds
        ended = left <= 0.0
        if xp is not np:
            found = self._after_end(u, left, present, factor)
            present, left, graceful, since = (
                xp.where(ended, new, old)
                for new, old in zip(found, (present, left, graceful, since), strict=True)
            )
            present = present & self._there.like(u, xp.bool)
        elif len(at := np.flatnonzero(ended)):
            # Numbers are only worked out for devices whose stay or absence ends.
            u = np.reshape(u, (-1, NUMBERS))[at]
            found = self._after_end(u, *(np.ravel(array)[at] for array in (left, present, factor)))
            present, graceful = present.copy(), graceful.copy()
            for array, new in zip((present, left, graceful, since), found, strict=True):
                array.flat[at] = new
            present &= self._there.values
        return self._carried(present, at_least(left, SHORTEST_S), graceful, since, factor)

    def _after_end(
        self, u: Array, left: Array, present: Array, factor: Array
    ) -> tuple[Array, Array, Array, Array]:
        """Presence, remaining time [s], kind of end and time since the last change [s], after a stay's end.

        Args:
            u: Uniform numbers, ``NUMBERS`` for each device.
            left: Time that was left after the round, at most 0 (...) [s].
            present: Devices that were there (...).
            factor: Hazard factors (...).
        """
        xp = namespace(u)
        which, of_stay, noise = self._of_devices(u, left.shape)
        stay, absence = self._on.drawn(of_stay) / factor, self._off.drawn(noise)
        first, second = xp.where(present, absence, stay), xp.where(present, stay, absence)
        once = left + first
        twice = once <= 0.0
        residual = once + xp.where(twice, second, xp.zeros_like(second))
        since = xp.where(twice, -once, -left)
        return present ^ ~twice, residual, which < self.spec.graceful, since

    def apply(self, system: System, carried: Carried) -> System:
        """Devices that are off are away."""
        return system._replace(present=system.present & carried["present"])

    def events(self, carried: Carried, costs: RoundCosts) -> Events:  # noqa: ARG002
        """Devices whose time is over fail, unless they have announced it."""
        silent = carried["present"] & ~carried["graceful"]
        return Events(fails_s=where(silent, carried["residual_s"], np.inf))

    def check(self, carried: Carried) -> None:
        """Refuse unknown classes, and announcements without a matching end."""
        place = f"simulator/processes/{self.name}"
        if not np.isin(carried["factor"], self.spec.hazard_factors).all():
            raise StateError(
                f"{place}/factor is not one of dynamics.processes.presence.hazard_factors: {REMEDY}"
            )
        if (carried["announced"] != self._announced(carried)).any():
            raise StateError(f"{place}/announced does not agree with the time that is left: {REMEDY}")

    def _carried(
        self, present: Array, residual: Array, graceful: Array, since: Array, factor: Array
    ) -> Carried:
        carried = {
            "present": present,
            "residual_s": residual,
            "graceful": graceful,
            "since_s": since,
            "factor": factor,
        }
        return {**carried, "announced": self._announced(carried)}

    def _announced(self, carried: Carried) -> Array:
        return carried["present"] & carried["graceful"] & (carried["residual_s"] <= self._horizon_s)

    def _of_devices(self, u: Array, shape: tuple[int, ...]) -> tuple[Array, Array, Array]:
        """Two uniform numbers and a normal one of each device, from ``NUMBERS`` uniform ones, in a shape."""
        xp = namespace(u)
        each = xp.reshape(u, (-1, NUMBERS))
        which, of_stay, noise = each[:, 0], each[:, 1], normal(each, 2, 1)[:, 0]
        return xp.reshape(which, shape), xp.reshape(of_stay, shape), xp.reshape(noise, shape)
