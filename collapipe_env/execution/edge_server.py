"""Edge server: the learner's own federation, whose clusters train elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from collapipe_env.execution.cluster_round import ClusterResult, ClusterTask
from collapipe_env.execution.parts import (
    EMBEDDING,
    VALUES,
    Arrays,
    PartName,
    Parts,
    memory_arrays,
    set_memory,
)
from collapipe_env.execution.planned_rounds import PlannedRound
from collapipe_env.execution.scripts import ClusterScript
from collapipe_env.execution.server_heads import ServerHeads
from collapipe_env.ground.errors import StateError
from collapipe_env.ground.state_files import tree_bytes, tree_of
from collapipe_env.ground.state_trees import require_names
from collapipe_env.physics.moves import STAY
from collapipe_env.scenario import Scenario
from collapipe_env.training.federation import Federation
from collapipe_env.training.real_learner import TorchLearner
from collapipe_env.training.training_setup import Training

MOMENT_BITS = 32
"""Bits of moments that travel: each part keeps its own moments and sends them unchanged."""
REMEDY = "start over with --fresh"
"""Remedy for a damaged state."""


class EdgeServer:
    """The edge server, with its rule of aggregation and the order of the clusters' samples.

    Attributes:
        setup: Setup of the training.
        federation: The training run.
        loss: Mean loss of (outputs, targets).

    Args:
        rng: Returns the generator of the run, at its beginning.
        content: Result of :meth:`save` to continue from; ``None`` to begin.

    Raises:
        StateError: If the content is damaged, or comes from other data.
    """

    def __init__(
        self, scenario: Scenario, rng: Callable[[], np.random.Generator], content: bytes | None = None
    ) -> None:
        self.setup, self._desk = TorchLearner(Training.of(scenario, MOMENT_BITS), 1, "cpu").prepare()
        smoothing = self.setup.learning.label_smoothing
        self.loss: Callable[[Tensor, Tensor], Tensor] = partial(self.setup.task.loss, smoothing=smoothing)
        self._none = np.zeros(self.setup.clusters, dtype=np.int64)
        if content is None:
            self.federation = Federation(self.setup, rng())
            self._desk.begin_run(0, *self.federation.common_model)
            return
        tree = tree_of(content, "the state of the training", REMEDY)
        require_names(tree, ("data", "run", "desk"), "training")
        if tree["data"] != self.setup.data_digest:
            raise StateError(
                "the state comes from training with other data: use the files with which the run began"
            )
        self.federation = Federation.from_state(self.setup, tree["run"])
        self._desk = self._desk.restored(tree["desk"])

    def save(self) -> bytes:
        """Return the state of the run between rounds, and that of its evaluation."""
        run, desk = self.federation.get_state(), self._desk.get_state()
        return tree_bytes({"data": self.setup.data_digest, "run": run, "desk": desk})

    def open_round(self, planned: PlannedRound) -> ServerHeads:
        """Begin a round, and return the heads of its clusters."""
        script, fed = planned.script, self.federation
        steps = [cluster.local_steps if cluster.plays else 0 for cluster in script.clusters]
        moments = np.full((self.setup.clusters, self.setup.architecture.blocks), STAY)
        if planned.outcome.moments is not None:
            moments = planned.outcome.moments[0]
        self._server = fed.open_round(self._none, script.server_mode, max(1, *steps), moments)
        self._factors = fed.begin_steps(max(steps))
        return ServerHeads(self._server, steps, self._factors)

    def task(self, script: ClusterScript) -> ClusterTask:
        """Return the work of a cluster in the round, and draw its samples."""
        n, fed, learning = script.cluster, self.federation, self.setup.learning
        _, flat, optimizer = fed.replicas[n]
        model: Parts = {}
        for name, module in self._modules(n):
            if places := flat.slices([module]):
                values = torch.cat([flat.values[place] for place in places]).numpy()
                model[name] = {VALUES: values, **memory_arrays(flat, optimizer, module)}
        batches = [fed.samples.next_batch(self.setup, fed.streams[n]) for _ in range(script.local_steps)]
        return ClusterTask(script, model, batches, [learning.learning_rate * f for f in self._factors])

    def _modules(self, n: int) -> list[tuple[int | str, nn.Module]]:
        model = self.federation.replicas[n].module
        return [(EMBEDDING, model.embedding), *enumerate(model.blocks)]

    def close_round(self, results: Mapping[int, ClusterResult]) -> None:
        """Take the clusters' updates, and make the next common model.

        Args:
            results: Result of each cluster that took part.
        """
        updated = np.zeros(self.setup.clusters, dtype=np.bool_)
        for n, result in results.items():
            updated[n] = result.updated
            if result.update is not None:
                self._take(n, result.update.parts)
        self.federation.close_round(self._server, updated, self._none)

    @torch.no_grad()
    def _take(self, n: int, parts: Mapping[PartName, Arrays]) -> None:
        """Write a cluster's weights and moments into the federation."""
        _, flat, optimizer = self.federation.replicas[n]
        for name, module in self._modules(n):
            start = 0
            for place in flat.slices([module]):
                stop = start + place.stop - place.start
                flat.values[place] = torch.from_numpy(np.array(parts[name][VALUES][start:stop]))
                start = stop
            if start:
                set_memory(flat, optimizer, module, parts[name], f"update of cluster {n}, {name}")

    def evaluate(self) -> dict[str, float]:
        """Return loss and metrics of the common model after a round."""
        self._desk.end_round(0, *self.federation.common_model)
        metrics = {name: float(values[0]) for name, values in self._desk.metrics.items()}
        return {"loss": float(self._desk.loss[0]), **metrics}

    def weights(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the weights of the common model and of the head."""
        return {
            f"{part}/{name}": parameter.detach().numpy().copy()
            for part, module in zip(("model", "head"), self.federation.common_model, strict=True)
            for name, parameter in module.named_parameters()
        }
