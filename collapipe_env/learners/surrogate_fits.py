"""Constants of the surrogate: the shipped fits, and the choice of one for a scenario."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collapipe_env.ground.errors import DataError, ScenarioError
from collapipe_env.ground.files import read_json

if TYPE_CHECKING:
    from collapipe_env.scenario import Scenario

SKEWED_PARTITIONS = ("dirichlet", "length", "quantity")
"""Partitions with a constant of their own."""
REMEDY = "install the package again, or make a fit with `python tools/fit_surrogate.py`"


@dataclass(frozen=True)
class SurrogateConstants:
    """Constants of the bound's dynamics, fitted to real runs of one scenario and task.

    Their formulas: :func:`collapipe_env.learners.surrogate_progress.progress` and
    :func:`collapipe_env.physics.loss_curve.loss_at`. All are finite.

    Attributes:
        initial_loss: ``F_0`` [nat], above ``floor_loss``.
        floor_loss: ``F*`` [nat], at least 0: the limit of the curve if training continues for ever.
        shape: Exponent of the curve, above 0: 1 is geometric decay, above 1 the curve is an S.
        head_share: Share ``w`` of the fall to the floor that the head makes alone, in [0, 1].
        head_speed: Speed ``v`` of the head relative to progress, at least 0.
        rate: Progress of a local step without any error, above 0.
        noise: Samples at which the gradient's noise is as strong as the gradient, above 0.
        drift: ``C eta Lip``: weight of the noise within a cluster, at least 0.
        participation: Weight of unequal participation of clusters with different data, in units of
            ``zeta^2``, at least 0.
        error: ``Gamma^2`` over the squared gradient norm, at least 0.
        heterogeneity: ``zeta^2`` over the squared gradient norm for each skewed partition at its greatest
            skew, at least 0.
        sitting_out: Weight of the share of the clusters that sit a round out, at least 0; 0 where the
            fit had no such runs.
    """

    initial_loss: float
    floor_loss: float
    shape: float
    head_share: float
    head_speed: float
    rate: float
    noise: float
    drift: float
    participation: float
    error: float
    heterogeneity: Mapping[str, float]
    sitting_out: float = 0.0

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], place: str) -> SurrogateConstants:
        """Read plain data.

        Args:
            data: One number for each attribute, a mapping for ``heterogeneity``.
            place: Source of the data, for the error.

        Raises:
            DataError: If a constant is missing, unknown or out of range.
        """
        names = {f.name for f in fields(cls)}
        data = {"sitting_out": 0.0, **data}
        if set(data) != names:
            raise DataError(f"{place}: constants {sorted(data)}, expected {sorted(names)}; {REMEDY}")
        zeta = data["heterogeneity"]
        if not isinstance(zeta, Mapping) or set(zeta) != set(SKEWED_PARTITIONS):
            raise DataError(
                f"{place}: heterogeneity is {zeta!r}, expected a number for each of {SKEWED_PARTITIONS}; "
                f"{REMEDY}"
            )
        values: dict[str, Any] = {name: data[name] for name in names - {"heterogeneity"}}
        for name, value in {**values, **{f"heterogeneity.{kind}": v for kind, v in zeta.items()}}.items():
            positive = name in ("shape", "rate", "noise")
            number = isinstance(value, int | float) and math.isfinite(value)
            if not number or value < 0.0 or (positive and value == 0.0):
                least = "above" if positive else "of at least"
                raise DataError(f"{place}: {name} is {value!r}, expected a number {least} 0; {REMEDY}")
        if values["head_share"] > 1.0:
            raise DataError(f"{place}: head_share is {values['head_share']}, expected at most 1; {REMEDY}")
        if values["initial_loss"] <= values["floor_loss"]:
            raise DataError(
                f"{place}: initial_loss = {values['initial_loss']} is not above floor_loss = "
                f"{values['floor_loss']}; {REMEDY}"
            )
        return cls(**values, heterogeneity=dict(zeta))


@dataclass(frozen=True)
class SurrogateFit:
    """A shipped fit.

    Attributes:
        key: ``"<scenario>/<task>"``, for instance ``"medium/ner"``.
        task: Name of the task.
        blocks: Encoder blocks ``L`` of the runs.
        clusters: Clusters ``N`` of the scenario.
        constants: The fitted constants.
    """

    key: str
    task: str
    blocks: int
    clusters: int
    constants: SurrogateConstants

    def distance(self, blocks: int, clusters: int) -> float:
        """Return the distance of a system from that of the runs: factors in size, on a logarithmic scale."""
        apart = abs(math.log(blocks / self.blocks)) + abs(math.log(clusters / self.clusters))
        return round(apart, 9)  # equal distances stay equal


def has_fit(scenario: Scenario) -> bool:
    """Return whether a fit is shipped for the scenario's task.

    Raises:
        DataError: If the shipped file is damaged.
    """
    return any(fit.task == scenario.workload.task for fit in load_fits().values())


def fit_for(scenario: Scenario) -> SurrogateFit:
    """Return the shipped fit for the scenario's task whose blocks and clusters are nearest.

    The fit with the least ``|ln(L / L_fit)| + |ln(N / N_fit)|`` is chosen, and the smaller system among
    equals. The scenario's name does not count, yet a preset with a fit of its own gets that one.

    Raises:
        ScenarioError: If no fit is shipped for the task.
        DataError: If the shipped file is damaged.
    """
    fits = load_fits()
    task = scenario.workload.task
    suitable = [fit for fit in fits.values() if fit.task == task]
    if not suitable:
        raise ScenarioError(
            f"workload.task = {task!r} has no surrogate fit (fitted: {', '.join(sorted(fits))}); use "
            "learner='real', or make a fit with `python tools/fit_surrogate.py`"
        )
    return min(
        suitable, key=lambda f: (f.distance(scenario.blocks, scenario.clusters), f.blocks * f.clusters)
    )


def fits_file() -> Path:
    """Return the shipped file of the fits."""
    return Path(str(resources.files("collapipe_env") / "data" / "surrogate_fits.json"))


@lru_cache(maxsize=1)
def fits_digest() -> str:
    """Return the SHA-256 of the shipped fits, on which every result with the surrogate learner depends.

    Raises:
        DataError: If the file cannot be read.
    """
    path = fits_file()
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise DataError(f"cannot read {path} ({error.strerror}): {REMEDY}") from None


@lru_cache(maxsize=1)
def load_fits() -> dict[str, SurrogateFit]:
    """Return the fits shipped with the package, by ``"<scenario>/<task>"``.

    Raises:
        DataError: If the shipped file is damaged.
    """
    return read_fits(fits_file())


def read_fits(path: Path) -> dict[str, SurrogateFit]:
    """Read a file that ``fit_surrogate`` wrote.

    Raises:
        DataError: If the file cannot be read, or an entry is missing or out of range.
    """
    entries = read_json(path, REMEDY).get("fits")
    if not isinstance(entries, Mapping):
        raise DataError(f"{path} holds no fits; {REMEDY}")
    fits = {}
    for key, entry in entries.items():
        place = f"{path}: fit {key!r}"
        if not isinstance(entry, Mapping) or not isinstance(entry.get("constants"), Mapping):
            raise DataError(f"{place} holds no constants; {REMEDY}")
        blocks, clusters, task = (entry.get(name) for name in ("blocks", "clusters", "task"))
        for name, size in (("blocks", blocks), ("clusters", clusters)):
            if not isinstance(size, int) or size < 1:
                raise DataError(f"{place}: {name} is {size!r}, expected a whole number above 0; {REMEDY}")
        if not isinstance(task, str):
            raise DataError(f"{place}: task is {task!r}, expected the name of a task; {REMEDY}")
        assert isinstance(blocks, int)
        assert isinstance(clusters, int)
        constants = SurrogateConstants.from_dict(entry["constants"], place)
        fits[key] = SurrogateFit(key, task, blocks, clusters, constants)
    return fits
