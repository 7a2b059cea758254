"""Path loss by name: 3GPP TR 38.901, ITU-R M.1225, free space and a log-distance law.

Formulas of TR 38.901 (release 16 and later) are those of its table 7.4.1-1, with the heights of its tables
7.2-1 to 7.2-4 and the probabilities of a line of sight of its table 7.4.2-1. Clutter in factories has the
size of table 7.2-4, and the density and height of the calibration in table 7.8-7. A name such as ``umi``
draws for each link whether there is a line of sight; ``umi-los`` and ``umi-nlos`` fix it. Distances are
horizontal [m], losses in dB, carriers in GHz. Formulas work on arrays of any library.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from collapipe_env.ground.arrays import Array, at_least, exp, namespace, sqrt, where
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.ground.registry import Registry
from collapipe_env.physics.line_of_sight import Antennas, Factory, Office, Street

LIGHT_M_PER_S = 3e8
"""Speed of light as TR 38.901 rounds it (note 1 of table 7.4.1-1)."""


Loss = Callable[[Array, Antennas], Array]
Span = tuple[float, float]


@dataclass(frozen=True)
class PathLoss:
    """A law of the path loss.

    Attributes:
        about: What it describes, and its source.
        in_sight: Loss with a line of sight, from distances (any shape) and the antennas [dB].
        hidden: Loss without one [dB]; ``None`` where the law does not tell.
        sight: Probability of a line of sight, from the same; ``None`` where it is not drawn.
        shadowing_db: Standard deviations of the log-normal shadowing with and without a line of sight [dB].
        range_m: Distances for which the source gives it [m].
        carriers_ghz: Carriers for which the source gives it [GHz].
        heights_m: Usual heights of the higher and the lower antenna [m].
        spans_m: Heights of both for which the source gives it [m]; ``None`` for any.
    """

    about: str
    in_sight: Loss
    hidden: Loss | None = None
    sight: Loss | None = None
    shadowing_db: tuple[float, float] = (0.0, 0.0)
    range_m: Span = (1.0, 1e5)
    carriers_ghz: Span = (0.5, 100.0)
    heights_m: tuple[float, float] = (1.5, 1.5)
    spans_m: tuple[Span, Span] | None = None

    @property
    def draws_sight(self) -> bool:
        """Whether it is drawn which links have a line of sight."""
        return self.sight is not None and self.hidden is not None

    @property
    def feels_heights(self) -> bool:
        """Whether heights of antennas change it."""
        return not isinstance(self.in_sight, AtKilometre)

    def fixed(self, *, sight: bool) -> PathLoss:
        """The law of links that all have a line of sight, or of which none has."""
        chosen = self.in_sight if sight or self.hidden is None else self.hidden
        deviation = self.shadowing_db[0 if sight else 1]
        words = f"{self.about}, {'with' if sight else 'without'} a line of sight"
        return replace(
            self, about=words, in_sight=chosen, hidden=None, sight=None, shadowing_db=(deviation, deviation)
        )


def _log10(x: Array) -> Array:
    return namespace(x).log10(x)


@dataclass(frozen=True)
class Straight:
    """Loss ``constant + slope log10(d_3D) + carrier log10(f_c) - lift (h_UT - 1.5)``."""

    constant: float
    slope: float
    carrier: float = 20.0
    lift: float = 0.0

    def __call__(self, distance_m: Array, antennas: Antennas) -> Array:
        """Losses of the shape of the distances [dB]."""
        rise = antennas.higher_m - antennas.lower_m
        fixed = self.constant + self.carrier * math.log10(antennas.carrier_ghz)
        fixed -= self.lift * (antennas.lower_m - 1.5)
        return fixed + self.slope * _log10(sqrt(distance_m * distance_m + rise * rise))


@dataclass(frozen=True)
class AtKilometre:
    """Loss ``constant + slope log10(d / km)``, with carrier and heights in the constant."""

    constant: float
    slope: float

    def __call__(self, distance_m: Array, antennas: Antennas) -> Array:  # noqa: ARG002 - one form for all
        """Losses of the shape of the distances [dB]."""
        return self.constant + self.slope * _log10(distance_m / 1000.0)


@dataclass(frozen=True)
class TwoSlopes:
    """Loss of UMa and UMi with a line of sight: 40 dB a decade beyond the breakpoint ``d'_BP``.

    Attributes:
        near: Loss before it.
        beyond: Factor of ``log10(d'_BP^2 + (h_BS - h_UT)^2)``, which is taken off beyond it.
    """

    near: Straight
    beyond: float

    def __call__(self, distance_m: Array, antennas: Antennas) -> Array:
        """Losses of the shape of the distances [dB]."""
        # The environment is 1 m high: what is lower sees no ground. Note 1 of the table draws higher ones for
        # UMa's antennas above 13 m, which only moves the breakpoint.
        heights = max(antennas.higher_m - 1.0, 0.1) * max(antennas.lower_m - 1.0, 0.1)
        break_m = 4.0 * heights * antennas.carrier_ghz * 1e9 / LIGHT_M_PER_S
        rise = antennas.higher_m - antennas.lower_m
        far = replace(self.near, slope=40.0)(distance_m, antennas)
        far = far - self.beyond * math.log10(break_m * break_m + rise * rise)
        return where(distance_m <= break_m, self.near(distance_m, antennas), far)


@dataclass(frozen=True)
class Largest:
    """The largest of several losses: nothing hidden is stronger than what is in sight."""

    losses: tuple[Loss, ...]

    def __call__(self, distance_m: Array, antennas: Antennas) -> Array:
        """Losses of the shape of the distances [dB]."""
        first, *others = (loss(distance_m, antennas) for loss in self.losses)
        for other in others:
            first = where(other > first, other, first)
        return first


def log_distance(exponent: float, reference_db: float | None) -> PathLoss:
    """A log-distance law, ``reference + 10 n log10(d / m)``.

    Args:
        exponent: ``n``.
        reference_db: Loss at 1 m [dB]; ``None`` for that of free space.
    """
    if reference_db is None:
        return PathLoss("log-distance from free space at 1 m", Straight(FREE_SPACE_DB, 10.0 * exponent))
    return PathLoss(
        f"log-distance from {reference_db:g} dB at 1 m", Straight(reference_db, 10.0 * exponent, carrier=0.0)
    )


FREE_SPACE_DB = 20.0 * math.log10(4.0 * math.pi * 1e9 / 299_792_458.0)
"""Loss in free space at 1 m and 1 GHz, 32.4 dB (ITU-R P.525)."""

_UMA = TwoSlopes(Straight(28.0, 22.0), 9.0)
_UMI = TwoSlopes(Straight(32.4, 21.0), 9.5)
_INH = Straight(32.4, 17.3)
_INF = Straight(31.84, 21.5, 19.0)
_SPARSE = Straight(33.0, 25.5)
_INH_HIDDEN = Largest((_INH, Straight(17.3, 38.3, 24.9)))
_TR = "3GPP TR 38.901"
_CLUTTER = {"sparse": (10.0, 0.2, 2.0), "dense": (2.0, 0.6, 6.0)}
"""Size [m], share of the floor and height [m] of clutter in factories."""
_CEILING_M = 25.0


def _factory(letters: str, clutter: str, hidden: tuple[Loss, ...], hidden_db: float) -> PathLoss:
    """A law of InF, whose base station is within (L) or above (H) the clutter, and devices within it."""
    size, density, height = _CLUTTER[clutter]
    high = letters[1] == "H"
    return PathLoss(
        f"factory, {clutter} clutter {'below' if high else 'above'} the base station, {_TR} InF-{letters}",
        _INF,
        Largest((_INF, *hidden)),
        Factory(size, density, height if high else 0.0),
        (4.3, hidden_db),
        (1.0, 600.0),
        heights_m=(8.0 if high else 1.5, 1.5),
        spans_m=((height, _CEILING_M) if high else (0.0, height), (0.0, height)),
    )


DRAWN = {
    "uma": PathLoss(
        f"urban macro cell, {_TR} UMa",
        _UMA,
        Largest((_UMA, Straight(13.54, 39.08, lift=0.6))),
        Street(63.0, roofs=True),
        (4.0, 6.0),
        (10.0, 5e3),
        heights_m=(25.0, 1.5),
        spans_m=((25.0, 25.0), (1.5, 22.5)),
    ),
    "umi": PathLoss(
        f"street canyon, {_TR} UMi",
        _UMI,
        Largest((_UMI, Straight(22.4, 35.3, 21.3, lift=0.3))),
        Street(36.0),
        (4.0, 7.82),
        (10.0, 5e3),
        heights_m=(10.0, 1.5),
        spans_m=((10.0, 10.0), (1.5, 22.5)),
    ),
    "inh-open": PathLoss(
        f"open office, {_TR} InH",
        _INH,
        _INH_HIDDEN,
        Office((5.0, 70.8), (49.0, 211.7), 0.54),
        (3.0, 8.03),
        (1.0, 150.0),
        heights_m=(3.0, 1.0),
    ),
    "inh-mixed": PathLoss(
        f"office with rooms, {_TR} InH",
        _INH,
        _INH_HIDDEN,
        Office((1.2, 4.7), (6.5, 32.6), 0.32),
        (3.0, 8.03),
        (1.0, 150.0),
        heights_m=(3.0, 1.0),
    ),
    "inf-sl": _factory("SL", "sparse", (_SPARSE,), 5.7),
    "inf-dl": _factory("DL", "dense", (_SPARSE, Straight(18.6, 35.7)), 7.2),
    "inf-sh": _factory("SH", "sparse", (Straight(32.4, 23.0),), 5.9),
    "inf-dh": _factory("DH", "dense", (Straight(33.63, 21.9),), 4.0),
}
"""Laws of which a link draws its line of sight."""

PATH_LOSSES: Registry[Any] = Registry(
    "path loss",
    {
        "itu-m1225-vehicular": PathLoss(
            "ITU-R M.1225 vehicular test environment at 2 GHz, antenna 15 m above the roofs",
            AtKilometre(128.1, 37.6),
            shadowing_db=(10.0, 10.0),
            carriers_ghz=(2.0, 2.0),
        ),
        "itu-m1225-pedestrian": PathLoss(
            "ITU-R M.1225 outdoor to indoor and pedestrian test environment at 2 GHz",
            AtKilometre(148.0, 40.0),
            shadowing_db=(10.0, 10.0),
            carriers_ghz=(2.0, 2.0),
        ),
        "free-space": PathLoss("free space, ITU-R P.525", Straight(FREE_SPACE_DB, 20.0)),
        "log-distance": "collapipe_env.physics.path_loss:log_distance",
        "inf-hh": PathLoss(
            f"factory, both antennas above the clutter, {_TR} InF-HH",
            _INF,
            shadowing_db=(4.3, 4.3),
            range_m=(1.0, 600.0),
            heights_m=(8.0, 8.0),
            spans_m=((2.0, _CEILING_M), (2.0, _CEILING_M)),
        ),
        **DRAWN,
        **{
            f"{name}-{'los' if sight else 'nlos'}": one.fixed(sight=sight)
            for name, one in DRAWN.items()
            for sight in (True, False)
        },
    },
    names=None,
)
"""Laws by name; :meth:`~collapipe_env.ground.registry.Registry.register` adds one for this process."""


def path_loss(name: str, exponent: float, reference_db: float | None) -> PathLoss:
    """The law of a name.

    Args:
        exponent: Of ``log-distance``.
        reference_db: Of ``log-distance``.

    Raises:
        ScenarioError: If there is no law of that name, or what was registered is none.
    """
    if name == "log-distance":
        return log_distance(exponent, reference_db)
    found = PATH_LOSSES.get(name)
    if not isinstance(found, PathLoss):
        raise ScenarioError(
            f"path loss {name!r} is of type {type(found).__name__}: register a "
            "collapipe_env.physics.path_loss.PathLoss"
        )
    return found


class Links(NamedTuple):
    """Links of one kind: their path loss and antennas.

    Attributes:
        law: Law of the path loss.
        antennas: Heights and carrier.
        gains_db: Gains of both antennas less what walls take [dB].
    """

    law: PathLoss
    antennas: Antennas
    gains_db: float

    def gain(self, distance_m: Array, luck: Array | None = None) -> Array:
        """Gains of the shape of the distances, at most 1.

        Args:
            distance_m: Horizontal distances, > 0 [m].
            luck: Uniform numbers in [0, 1) by which a drawn line of sight is there; ``None`` counts as there.
        """
        loss = self.law.in_sight(distance_m, self.antennas)
        if self.law.hidden is not None and (seen := self._seen(distance_m, luck)) is not None:
            loss = where(seen, loss, self.law.hidden(distance_m, self.antennas))
        return exp((-math.log(10.0) / 10.0) * at_least(loss - self.gains_db, 0.0))

    def deviation_db(self, distance_m: Array, luck: Array | None = None) -> Array:
        """Deviations of the law's own shadowing [dB], of the shape of the distances; arguments as above."""
        sight, hidden = self.law.shadowing_db
        seen = self._seen(distance_m, luck)
        return distance_m * 0.0 + (sight if seen is None else where(seen, sight, hidden))

    def _seen(self, distance_m: Array, luck: Array | None) -> Array | None:
        """Which links have a line of sight; ``None`` where all do."""
        sight = self.law.sight
        if sight is None or self.law.hidden is None or luck is None:
            return None
        return luck < sight(distance_m, self.antennas)

    def range_db(self, near_m: float, far_m: float) -> tuple[float, float]:
        """Largest and smallest gain between two distances [dB]."""
        far = self.law.in_sight if self.law.hidden is None else self.law.hidden
        ends = self.law.in_sight(np.array(near_m), self.antennas), far(np.array(far_m), self.antennas)
        most, least = (float(min(self.gains_db - loss, 0.0)) for loss in ends)
        return most, least
