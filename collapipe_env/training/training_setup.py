"""Setup that all training runs of a learner share."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.models.architecture import Architecture
from collapipe_env.physics.payload import UpdateFormat
from collapipe_env.physics.training_memory import FULL_PRECISION, TrainingMemory
from collapipe_env.scenario.learning import LearningSpec
from collapipe_env.tasks import Split, Task, TaskSpec
from collapipe_env.training.optimizer_state import array_of


@dataclass(frozen=True)
class TrainingSetup:
    """The setup that all training runs of a learner share; nothing in it changes.

    Attributes:
        architecture: The trained embedding and encoder.
        clusters: Clusters N.
        batch_size: Samples per cluster and local step, B.
        local_steps: Local steps per round, H.
        most_local_steps: Most local steps that a cluster may take.
        strata: Class of every training sample, or document.
        lengths: Real tokens of every training sample, or document.
        train: Tokens and targets to train on.
        units: Number of predictions in every training sample, shape (samples,).
        hidden: Token that stands for a hidden one.
        update_format: Format of model updates on the air.
        schedule_steps: Local steps that the step-size schedule spans.
        moment_bits: Bits per number of moments that travel with their blocks; None if moments never travel
            and are never lost.
        head: Server's head within a round: ``copies``, one for each cluster, or ``common``.
        memory: Format of the numbers that the clusters train.
        pack: Packs documents into samples, where ``strata`` and ``lengths`` describe documents; see
            :class:`~collapipe_env.tasks.base.TaskData`.
        own_steps: Whether clusters may sit out or take different numbers of local steps.
    """

    architecture: Architecture
    task: Task
    task_spec: TaskSpec
    learning: LearningSpec
    clusters: int
    batch_size: int
    local_steps: int
    most_local_steps: int
    strata: IntArray
    lengths: IntArray
    train: tuple[Tensor, Tensor]
    units: FloatArray
    hidden: int
    update_format: UpdateFormat
    schedule_steps: int
    moment_bits: int | None = None
    head: str = "copies"
    memory: TrainingMemory = FULL_PRECISION
    pack: Callable[[IntArray], Split] | None = None
    own_steps: bool = False

    def head_copies(self, local_steps: int) -> bool:
        """Whether each cluster has its own head in a round of so many local steps; with one none needs it."""
        return self.head == "copies" and local_steps > 1

    @cached_property
    def data_digest(self) -> str:
        """Digest of the samples, which must be the same when a saved run is restored."""
        digest = hashlib.sha256()
        for part in self.train:
            digest.update(array_of(part).tobytes())
        return digest.hexdigest()[:16]

    def __deepcopy__(self, memo: dict[int, Any]) -> TrainingSetup:
        # Nothing in it changes, and the data may be large.
        return self
