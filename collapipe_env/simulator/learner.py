"""Interface between the simulator and learners, which supply the loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Protocol, runtime_checkable

import numpy as np

from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray, WordArray, namespace
from collapipe_env.ground.errors import ScenarioError, StateError, fits_a_line, shown
from collapipe_env.ground.records import Declared, declarations
from collapipe_env.ground.state_trees import Tree

ANY_NUMBER = Declared("", low=-math.inf, high=math.inf, unknown=True)
"""A number of each environment, which may be infinite or unknown: training may diverge."""


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Number of micro-batches whose gradients arrived in each local step, and on request which ones.

    The individual micro-batches are worked out only on request, since only real training needs them.

    Attributes:
        counts: Micro-batches that arrived (E, N, H), int.
        micro_batches: Micro-batches per local step M_n (E, N).
        pick: Random words from which the arrived ones are chosen (E, N, H); every set of the counted size is
            equally likely. ``None`` where ``survived`` is not available.
        most: Largest allowed number of micro-batches M_max.
        known: True where a micro-batch arrived, if already known (E, N, H, M_max).
    """

    counts: IntArray
    micro_batches: IntArray
    pick: WordArray | None
    most: int
    known: BoolArray | None = None

    @classmethod
    def of(cls, survived: BoolArray, micro_batches: IntArray) -> Arrivals:
        """Wrap a known outcome.

        Args:
            survived: True where a micro-batch arrived (E, N, H, M_max); only the first M_n count.
            micro_batches: M_n (E, N).
        """
        counted = np.arange(survived.shape[-1]) < micro_batches[..., None, None]
        kept = survived & counted
        pick = np.zeros(survived.shape[:-1], dtype=np.uint64)
        return cls(kept.sum(axis=-1), micro_batches, pick, survived.shape[-1], kept)

    def within(self, local_steps: IntArray) -> Arrivals:
        """Return a copy without arrivals in local steps that clusters do not take.

        Args:
            local_steps: Local steps that each cluster takes (E, N), int; the first ones count.
        """
        xp = namespace(local_steps)
        # Counted on the arrays' own device.
        taken = xp.cumulative_sum(xp.ones_like(self.counts), axis=-1) <= local_steps[..., None]
        known = None if self.known is None else self.known & taken[..., None]
        return replace(self, counts=self.counts * taken, known=known)

    def only(self, clusters: BoolArray) -> Arrivals:
        """Return a copy with the arrivals of some clusters only.

        Args:
            clusters: True for clusters that keep what arrived (E, N).
        """
        known = None if self.known is None else self.known & clusters[..., None, None]
        return replace(self, counts=self.counts * clusters[..., None], known=known)

    @cached_property
    def survived(self) -> BoolArray:
        """True where a micro-batch's gradient arrived (E, N, H, M_max); False beyond the first M_n."""
        if self.known is not None:
            return self.known
        from collapipe_env.kernels.arrivals import survivors

        assert self.pick is not None
        survived = np.empty((*self.counts.shape, self.most), dtype=np.bool_)
        survivors(
            np.ascontiguousarray(self.counts), np.ascontiguousarray(self.micro_batches), self.pick, survived
        )
        return survived


@dataclass(frozen=True)
class RoundOutcome:
    """The parts of one round's outcome that learners need; the leading axis E counts environments.

    Attributes:
        blocks: Transformer blocks of each stage slot in pipeline order, shape (E, N, slots); 0 skips the
            slot. Every cluster's blocks sum to L less those of the server. There may be any number of slots:
            plans with interleaved chunks pass their virtual stages.
        micro_batches: Micro-batches per local step M_n, at least 1, shape (E, N).
        arrivals: Micro-batches that arrived in each of the H local steps.
        survival: Probability that a micro-batch survives a local step, in [0, 1], shape (E, N).
        server_blocks: Number of the encoder's last blocks that the server runs, in [0, L], shape (E, N); None
            for 0 everywhere. More than 0 needs a ``server_mode`` other than ``COMMON``.
        server_mode: Index in :data:`collapipe_env.physics.allocation.SERVER_MODES`, shape (E,): ``COPIES``
            (SplitFed V1) trains a server-side copy for each cluster and averages them at the end of the
            round, ``SEQUENTIAL`` (V2) has one server-side model that serves the clusters in turn, and
            ``COMMON`` (-1) one head that follows the mean gradient of all clusters; None for ``COMMON``
            everywhere.
        staleness: Version gap of each stage slot in optimiser steps, at least 0, shaped as ``blocks``; not
            read in slots without blocks. A gap matters only within a round, so only with H > 1. None for 0
            everywhere.
        moments: Fate of the optimiser's moments of every encoder block before the round, shape (E, N, L):
            ``STAY``, ``TRAVEL`` or ``LOST`` of :mod:`collapipe_env.physics.moves`; None where all stay.
        recompute: Clusters whose devices recompute activations, shape (E, N), bool; None for the setting of
            the workload.
        participates: Clusters that take part, shape (E, N), bool; None if all do. The others do not train,
            nothing arrives from them, and the mean of the clusters' models leaves them out.
        local_steps: Local steps H_n that each cluster takes, shape (E, N), at most H; None if all take H.
    """

    blocks: IntArray
    micro_batches: IntArray
    arrivals: Arrivals
    survival: FloatArray
    server_blocks: IntArray | None = None
    server_mode: IntArray | None = None
    staleness: IntArray | None = None
    moments: IntArray | None = None
    recompute: BoolArray | None = None
    participates: BoolArray | None = None
    local_steps: IntArray | None = None

    @property
    def real_steps(self) -> FloatArray:
        """Local steps of the clusters (E, N) as real numbers, 0 for those that sit out."""
        xp, most, steps = namespace(self.survival), self.arrivals.counts.shape[-1], self.local_steps
        if steps is None:
            steps = xp.full_like(self.micro_batches, most)
        if self.participates is not None:
            steps = xp.where(self.participates, steps, xp.zeros_like(steps))
        real: FloatArray = xp.astype(steps, self.survival.dtype)
        return real


@dataclass(frozen=True)
class LearningReport:
    """State of learning after a round (or after a reset), shape (E,)."""

    loss: Annotated[FloatArray, ANY_NUMBER]
    """Held-out loss of the most recent evaluation, in nats."""
    metric: Annotated[FloatArray, ANY_NUMBER]
    """The task's headline metric; in [0, 1], except the perplexity of language models. NaN if the learner has
    none."""
    train_loss: Annotated[FloatArray, ANY_NUMBER]
    """Mean training loss over the round's arrivals; NaN if there were none."""
    metrics: Mapping[str, Annotated[FloatArray, ANY_NUMBER]] = field(default_factory=dict)
    """All metrics of the task by name; empty if the learner has none."""


def require_report(report: object, num_envs: int) -> None:
    """Refuse a report without a real number for each environment, or with metrics that tables cannot name.

    Raises:
        ScenarioError: Names the fault.
    """
    if not isinstance(report, LearningReport) or not isinstance(report.metrics, Mapping):
        raise ScenarioError(f"the learner returned {type(report).__name__}: return LearningReport(...)")
    for name in report.metrics:
        if not isinstance(name, str) or not fits_a_line(name):
            raise ScenarioError(
                f"metric {shown(name)} of the learner or task: name it by one line of text, without "
                "control characters"
            )
    numbers = {name: getattr(report, name) for name in declarations(LearningReport)}
    for name, values in {**numbers, **report.metrics}.items():
        shape, kind = getattr(values, "shape", None), getattr(getattr(values, "dtype", None), "kind", "f")
        if shape is None or tuple(shape) != (num_envs,) or kind != "f":
            found = type(values).__name__ if shape is None else f"{values.dtype} {tuple(shape)}"
            raise ScenarioError(
                f"the learner returned {name} as {found}: return a real number for each of {num_envs} "
                "environments"
            )


class Learner(Protocol):
    """Source of the loss. It draws randomness only from the generators given to :meth:`reset`.

    A learner never touches channels, delays, energies or queues: the same seeds and actions give the same
    system trajectory under every learner.
    """

    def reset(self, rngs: Sequence[np.random.Generator], mask: BoolArray | None = None) -> LearningReport:
        """Start fresh training runs and evaluate them.

        Args:
            rngs: One generator per environment, length E; those of environments not reset are left alone.
            mask: True for the environments to reset, shape (E,); None resets all.

        Returns:
            The report of all E environments.
        """
        ...

    def train_round(self, outcome: RoundOutcome) -> LearningReport:
        """Train one federated round in every environment and return the report."""
        ...


@runtime_checkable
class SnapshotLearner(Learner, Protocol):
    """A learner whose training can be saved and continued.

    With another learner an environment can be played, but not saved, restored or simulated.
    """

    def get_state(self) -> Tree:
        """Return copies of everything that decides further training (see its ``state_trees``)."""
        ...

    def set_state(self, tree: Tree) -> None:
        """Continue from a state of :meth:`get_state`, which is not changed; on an error nothing changes.

        Raises:
            StateError: If the state does not fit.
        """
        ...


@runtime_checkable
class QuickLearner(Protocol):
    """A learner that can go back at no cost, because it replaces its arrays and never writes to them."""

    def remember(self) -> Callable[[], None]:
        """Remember the training so far, and return a function that restores it."""
        ...


@runtime_checkable
class CountsRounds(Protocol):
    """A learner whose state contains the number of rounds that each environment has played."""

    def require_rounds(self, tree: Tree, rounds: IntArray) -> None:
        """Refuse a state that contains other numbers of rounds.

        Args:
            tree: The learner's state, not checked yet.
            rounds: Rounds that the environments have played since their resets, shape (E,); -1 for one that
                was never reset.

        Raises:
            StateError: If its numbers differ.
        """
        ...


def require_snapshots(learner: Learner) -> SnapshotLearner:
    """Return a learner, typed as one whose state can be saved.

    Raises:
        StateError: If its state cannot be saved.
    """
    if not isinstance(learner, SnapshotLearner):
        raise StateError(
            f"the learner {type(learner).__name__} has no get_state() and set_state(tree): give it both, as "
            "collapipe_env.simulator.learner.SnapshotLearner describes, or use learner='surrogate' or 'real'"
        )
    return learner
