"""Constants of the surrogate: the shipped fits, and the choice of one for a scenario."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

from collapipe_env.ground.errors import DataError, ScenarioError, fault_line
from collapipe_env.ground.files import read_json

if TYPE_CHECKING:
    from collapipe_env.scenario import Scenario

SKEWED_PARTITIONS = ("dirichlet", "length", "quantity")
"""Partitions with a constant of their own."""
REMEDY = "install the package again, or make a fit with `python tools/fit_surrogate.py`"


NotNegative = Annotated[float, Field(ge=0.0, strict=True)]
Positive = Annotated[float, Field(gt=0.0, strict=True)]
Size = Annotated[int, Field(ge=1, strict=True)]


def _of_each_partition(zeta: Mapping[str, float]) -> Mapping[str, float]:
    if set(zeta) != set(SKEWED_PARTITIONS):
        raise ValueError(f"expected a number for each of {SKEWED_PARTITIONS}")
    return zeta


@dataclass(frozen=True)
class SurrogateConstants:
    """Constants of the bound's dynamics, fitted to real runs of one scenario and task.

    Their formulas: :func:`collapipe_env.learners.surrogate_progress.progress` and
    :func:`collapipe_env.physics.loss_curve.loss_at`. All are finite.

    Attributes:
        initial_loss: ``F_0`` [nat], above ``floor_loss``.
        floor_loss: ``F*`` [nat], at least 0: the limit of the curve if training continues for ever.
        exponent: Exponent of the curve, above 0: 1 is geometric decay, above 1 the curve is an S.
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

    __pydantic_config__ = ConfigDict(allow_inf_nan=False, extra="forbid")

    initial_loss: NotNegative
    floor_loss: NotNegative
    exponent: Positive
    head_share: Annotated[NotNegative, Field(le=1.0)]
    head_speed: NotNegative
    rate: Positive
    noise: Positive
    drift: NotNegative
    participation: NotNegative
    error: NotNegative
    heterogeneity: Annotated[Mapping[str, NotNegative], AfterValidator(_of_each_partition)]
    sitting_out: NotNegative = 0.0


def _falling(constants: SurrogateConstants) -> SurrogateConstants:
    if constants.initial_loss <= constants.floor_loss:
        raise ValueError(
            f"initial_loss = {constants.initial_loss} is not above floor_loss = {constants.floor_loss}"
        )
    return constants


@dataclass(frozen=True)
class SurrogateFit:
    """A shipped fit.

    Attributes:
        key: ``"<scenario>/<task>"``, for instance ``"medium/ner"``.
        blocks: Encoder blocks ``L`` of the runs.
        clusters: Clusters ``N`` of the scenario.
    """

    key: str
    task: str
    blocks: Size
    clusters: Size
    constants: Annotated[SurrogateConstants, AfterValidator(_falling)]

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
    named = {k: {**entry, "key": k} if isinstance(entry, Mapping) else entry for k, entry in entries.items()}
    try:
        return TypeAdapter(dict[str, SurrogateFit]).validate_python(named)
    except ValidationError as error:
        fault = fault_line(error.errors(include_url=False)[0], f"{path}: fits")
        raise DataError(f"{fault}; {REMEDY}") from None
