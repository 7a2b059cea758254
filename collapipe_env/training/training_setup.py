"""Description of a training, which needs no data, and the setup that its runs share."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torch import Tensor

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.models.architecture import Architecture
from collapipe_env.physics.payload import UpdateFormat
from collapipe_env.physics.training_memory import FULL_PRECISION, TrainingMemory
from collapipe_env.scenario.block_prices import training_memory
from collapipe_env.scenario.decision_names import opens
from collapipe_env.scenario.learning import LearningSpec
from collapipe_env.tasks import Split, Task, TaskSpec, get_task
from collapipe_env.tasks.base import task_spec
from collapipe_env.training.optimizer_state import array_of

if TYPE_CHECKING:
    from collapipe_env.scenario import Scenario


@dataclass(frozen=True, kw_only=True)
class Training:
    """Description of what a learner trains; building it loads no data.

    Attributes:
        task_spec: Data, head and metrics, with the trained embedding and encoder.
        clusters: Clusters N.
        batch_size: Samples per cluster and local step, B.
        schedule_steps: Local steps that the step-size schedule spans.
        local_steps: Local steps per round, H.
        most_local_steps: Most local steps that a cluster may take.
        update_format: Format of model updates on the air.
        moment_bits: Bits per number of moments that travel with their blocks; None if moments never travel
            and are never lost.
        head: Server's head within a round: ``copies``, one for each cluster, or ``common``.
        memory: Format of the numbers that the clusters train.
    """

    task: Task
    task_spec: TaskSpec
    learning: LearningSpec
    clusters: int
    batch_size: int
    schedule_steps: int
    local_steps: int = 1
    most_local_steps: int = 1
    update_format: UpdateFormat = field(default_factory=UpdateFormat)
    moment_bits: int | None = None
    head: str = "copies"
    memory: TrainingMemory = FULL_PRECISION

    @classmethod
    def of(cls, scenario: Scenario, moment_bits: int | None = None) -> Training:
        """Return that of a scenario: its proxy, or the priced architecture without one.

        Without ``moment_bits`` they are what the scenario's processes need.

        Raises:
            ScenarioError: If the task does not exist.
        """
        workload, learning, processes = scenario.workload, scenario.learning, scenario.dynamics.processes
        # Where devices fail, moments are lost even if plans change for free.
        needed = 32 if "presence" in dict(processes) else None
        if "migration" in dict(processes):
            needed = dict(processes)["migration"].moment_bits
        return cls(
            task=get_task(workload.task),
            task_spec=task_spec(scenario),
            learning=learning,
            clusters=scenario.cluster.clusters,
            batch_size=workload.batch_size,
            schedule_steps=learning.schedule_steps or scenario.dynamics.rounds * workload.local_steps,
            local_steps=workload.local_steps,
            most_local_steps=(
                workload.local_steps_choices[-1] if opens(scenario, "local_steps") else workload.local_steps
            ),
            update_format=UpdateFormat(
                workload.weight_bits,
                workload.update_compression,
                workload.top_k_share,
                workload.lora_rank,
                workload.lora_alpha,
            ),
            moment_bits=needed if moment_bits is None else moment_bits,
            head=workload.head,
            memory=training_memory(workload),
        )

    @property
    def architecture(self) -> Architecture:
        """Sizes of the trained embedding and encoder."""
        return self.task_spec.architecture


@dataclass(frozen=True, kw_only=True)
class TrainingSetup(Training):
    """The setup that all training runs of a learner share; nothing in it changes.

    Attributes:
        strata: Class of every training sample, or document.
        lengths: Real tokens of every training sample, or document.
        train: Tokens and targets to train on.
        units: Number of predictions in every training sample, shape (samples,).
        hidden: Token that stands for a hidden one.
        pack: Packs documents into samples, where ``strata`` and ``lengths`` describe documents; see
            :class:`~collapipe_env.tasks.base.TaskData`.
    """

    strata: IntArray
    lengths: IntArray
    train: tuple[Tensor, Tensor]
    units: FloatArray
    hidden: int
    pack: Callable[[IntArray], Split] | None = None

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
