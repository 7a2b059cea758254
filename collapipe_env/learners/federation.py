"""One training run of the federation: clusters, server, averaging and evaluation."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from collapipe_env.allocation import COMMON, COPIES, SEQUENTIAL
from collapipe_env.learners.architecture import Architecture
from collapipe_env.learners.base import BoolArray, FloatArray, IntArray
from collapipe_env.learners.model import ClusterModel, FlatParameters, parameter_count
from collapipe_env.learners.pipeline_step import pipeline_step
from collapipe_env.learners.servers import CommonServer, CopiesServer, SequentialServer, Server, Trained
from collapipe_env.learners.staleness import WeightVersions
from collapipe_env.scenario.learning import LearningSpec
from collapipe_env.tasks import Split, Task, TaskData, TaskSpec
from collapipe_env.tasks.partition import partition
from collapipe_env.tasks.tokenization import PADDING, UNKNOWN

EVALUATION_BATCH = 64
"""Samples evaluated at once: few enough for the activations to stay in a core's cache."""


@dataclass(frozen=True)
class TrainingSetup:
    """What all training runs of a learner share; nothing in it changes.

    Attributes:
        architecture: The trained embedding and encoder.
        task: The task.
        task_spec: What the task's data and head depend on.
        learning: Partition and optimisers.
        clusters: Clusters N.
        batch_size: Samples per cluster and local step, B.
        local_steps: Local steps per round, H.
        strata: Class of every training sample.
        lengths: Real tokens of every training sample.
        train: Tokens and targets to train on.
        units: Predictions that every training sample asks for.
        data: All data of the task.
        held_out: The samples to evaluate on.
        evaluation: Their tokens and targets.
    """

    architecture: Architecture
    task: Task
    task_spec: TaskSpec
    learning: LearningSpec
    clusters: int
    batch_size: int
    local_steps: int
    strata: IntArray
    lengths: IntArray
    train: tuple[Tensor, Tensor]
    units: Tensor
    data: TaskData
    held_out: Split
    evaluation: tuple[Tensor, Tensor]


class SampleStream:
    """Endless shuffled passes over a cluster's samples; a batch may end one pass and begin the next."""

    def __init__(self, indices: IntArray, rng: np.random.Generator) -> None:
        self._indices = indices
        self._rng = rng
        self._waiting = rng.permutation(indices)

    def take(self, count: int) -> IntArray:
        """Return the next ``count`` samples' indices, shape (count,)."""
        while len(self._waiting) < count:
            self._waiting = np.concatenate((self._waiting, self._rng.permutation(self._indices)))
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken

    def hide(self, shape: tuple[int, ...], probability: float) -> BoolArray:
        """Draw which tokens to hide, each with ``probability``."""
        return self._rng.random(shape) < probability


class Federation:
    """Weighted FedAvg over clusters that train embedding and encoder in pipelines; the head is on the server.

    Within a round every cluster starts from the common model and takes H local steps with its own optimiser,
    whose state lives on from round to round. In each local step the server updates the head once, with the
    mean gradient over all samples of all clusters that arrived. A cluster none of whose micro-batches arrive
    in a local step makes no update in it, but its batch is used up, so which samples come next does not
    depend on losses.

    Under split training (SplitFed) the server trains its side in another way, and may run the encoder's last
    blocks: see :class:`~collapipe_env.learners.servers.CopiesServer` (V1) and
    :class:`~collapipe_env.learners.servers.SequentialServer` (V2). Every round starts from one common model
    and ends with one, so the way may change from round to round. Under an asynchronous pipeline stages
    compute with weights that lag behind: see :class:`~collapipe_env.learners.staleness.WeightVersions`.

    At the end of the round the new model is the mean of the clusters' models, weighted by their shares of
    the training data, over those clusters that made at least one update. If none did, the model stays as it
    is. Models are exchanged in float32; the precision of transfers is priced by the simulator but not
    imitated.
    """

    def __init__(self, setup: TrainingSetup, rng: np.random.Generator) -> None:
        """Initialise parameters and spread the data.

        Args:
            setup: What is trained.
            rng: Only source of randomness; child generators are spawned from it.
        """
        self._setup = setup
        learning, device = setup.learning, setup.train[0].device
        self._loss = partial(setup.task.loss, smoothing=learning.label_smoothing)
        partition_rng, model_rng, *stream_rngs = rng.spawn(2 + setup.clusters)
        parts = partition(
            learning.partition, setup.strata, setup.clusters, learning.dirichlet_alpha, partition_rng
        )
        self._streams = [SampleStream(part, child) for part, child in zip(parts, stream_rngs, strict=True)]
        self._shares = np.array([len(part) for part in parts], dtype=np.float64)

        generator = torch.Generator().manual_seed(int(model_rng.integers(2**63)))
        model = ClusterModel(setup.architecture, generator).to(device)
        self._models = [copy.deepcopy(model) for _ in range(setup.clusters)]
        self._head = Trained(
            setup.task.build_head(setup.task_spec, generator).to(device),
            learning,
            learning.server_learning_rate,
        )
        size = parameter_count(model)
        # Row n holds cluster n's parameters; between rounds all rows are equal, the common model.
        self._parameters = torch.empty(setup.clusters, size, device=device)
        self._gradients = torch.zeros(size, device=device)
        self._flats = [
            FlatParameters(replica, row, self._gradients)
            for replica, row in zip(self._models, self._parameters, strict=True)
        ]
        self._optimizers = [
            flat.optimizer(learning.optimizer, learning.learning_rate, learning.weight_decay)
            for flat in self._flats
        ]
        self._servers: dict[int, Server] = {COMMON: CommonServer(self._head)}
        self._lagging: tuple[ClusterModel, FlatParameters] | None = None

    def train_round(
        self,
        blocks: IntArray,
        micro_batches: IntArray,
        survived: BoolArray,
        server_blocks: IntArray | None = None,
        server_mode: int = COMMON,
        staleness: IntArray | None = None,
    ) -> float:
        """Train one round.

        Args:
            blocks: Blocks of each stage slot, shape (N, slots), each row summing to L less the server's.
            micro_batches: Micro-batches per local step, shape (N,).
            survived: Which of them arrive, shape (N, H, M_max).
            server_blocks: Last encoder blocks that the server runs, shape (N,), all equal if sequential;
                None for 0.
            server_mode: ``COMMON``, ``COPIES`` or ``SEQUENTIAL`` of :mod:`collapipe_env.allocation`.
            staleness: Version gap of each stage slot, shape (N, slots); None for 0.

        Returns:
            Mean training loss over the samples that arrived, in nats; NaN if none did.
        """
        setup = self._setup
        server = self._server(server_mode)
        server.begin_round(
            self._models, np.zeros_like(micro_batches) if server_blocks is None else server_blocks
        )
        versions = self._versions(blocks, staleness)
        updated = np.zeros(setup.clusters, dtype=np.bool_)
        losses: list[float] = []
        weights_of_losses: list[float] = []
        for step in range(setup.local_steps):
            server.begin_step()
            for n, stream in enumerate(self._streams):
                tokens, targets, units = self._next_batch(stream)
                self._gradients.zero_()
                blocks_of_server, head = server.serve(n)
                result = pipeline_step(
                    self._lagging_model(versions[n]) if n in versions else self._models[n],
                    head,
                    self._loss,
                    tokens,
                    targets,
                    blocks[n].tolist(),
                    survived[n, step, : micro_batches[n]].tolist(),
                    setup.learning.samples_per_pass,
                    blocks_of_server,
                    units,
                )
                if result.units:
                    self._optimizers[n].step()
                    server.after_batch(n, result.units)
                    updated[n] = True
                    losses.append(float(result.loss))
                    weights_of_losses.append(result.units)
                if n in versions and step + 1 < setup.local_steps:
                    versions[n].record(bool(result.units))
            server.end_step()
        if updated.any():
            weights = self._average(self._shares * updated)
            server.end_round(self._models, weights)
        return float(np.average(losses, weights=weights_of_losses)) if losses else float("nan")

    def _server(self, mode: int) -> Server:
        """Return the server's side of that mode; its optimisers' state lives as long as the run."""
        if mode not in self._servers:
            learning = self._setup.learning
            if mode == COPIES:
                self._servers[mode] = CopiesServer(self._head, self._setup.clusters, learning)
            elif mode == SEQUENTIAL:
                self._servers[mode] = SequentialServer(self._head, learning)
            else:
                raise ValueError(f"server mode {mode}: {COMMON}, {COPIES} and {SEQUENTIAL} exist")
        return self._servers[mode]

    def _versions(self, blocks: IntArray, staleness: IntArray | None) -> dict[int, WeightVersions]:
        """Return the weight versions of the clusters in which some stage will lag behind."""
        if staleness is None or self._setup.local_steps == 1:
            return {}
        versions = {}
        for n in np.flatnonzero(((blocks > 0) & (staleness > 0)).any(axis=-1)).tolist():
            model, flat = self._models[n], self._flats[n]
            active = blocks[n] > 0
            stage_gaps = np.minimum(staleness[n][active], self._setup.local_steps - 1).tolist()
            # The control unit stands in front of the first stage and waits for the same gradients.
            gaps = [(flat.slices([model.embedding]), stage_gaps[0])]
            for segment, gap in zip(model.segments(blocks[n][active].tolist()), stage_gaps, strict=True):
                gaps.append((flat.slices(segment), gap))
            versions[n] = WeightVersions(
                flat, self._optimizers[n], gaps, predict=self._setup.learning.weight_prediction
            )
        return versions

    def _lagging_model(self, versions: WeightVersions) -> ClusterModel:
        """Return a model of the weights that lag behind; its gradients go where all models' go."""
        if self._lagging is None:
            model = copy.deepcopy(self._models[0])
            values = torch.empty_like(self._parameters[0])
            self._lagging = model, FlatParameters(model, values, self._gradients)
        model, flat = self._lagging
        versions.fill(flat.values)
        return model

    def _next_batch(self, stream: SampleStream) -> tuple[Tensor, Tensor, Tensor]:
        """Return a cluster's next mini-batch and its units, some tokens replaced by the unknown token."""
        tokens, targets = self._setup.train
        chosen = torch.from_numpy(stream.take(self._setup.batch_size)).to(tokens.device)
        tokens, targets, units = tokens[chosen], targets[chosen], self._setup.units[chosen]
        hidden = torch.from_numpy(stream.hide(tuple(tokens.shape), self._setup.learning.token_dropout))
        return tokens.masked_fill(hidden.to(tokens.device) & (tokens != PADDING), UNKNOWN), targets, units

    def _average(self, weights: FloatArray) -> Tensor:
        """Replace every cluster's model by the weighted mean of all and return the normalised weights."""
        normalised = torch.from_numpy(weights / weights.sum()).to(self._parameters)
        self._parameters.copy_(normalised @ self._parameters)
        return normalised

    @torch.no_grad()
    def evaluate(self) -> tuple[float, dict[str, float]]:
        """Return the common model's mean loss (nats) on the samples to evaluate on, and the metrics."""
        setup = self._setup
        loss = total = 0.0
        predictions = []
        for tokens, targets in zip(
            *(torch.split(part, EVALUATION_BATCH) for part in setup.evaluation), strict=True
        ):
            mask = tokens != PADDING
            hidden = self._models[0](tokens)
            units = float(setup.task.units(targets).sum())
            loss += float(setup.task.loss(self._head.module(hidden, mask, targets), targets)) * units
            total += units
            predictions.append(setup.task.predict(self._head.module, hidden, mask, setup.task_spec).cpu())
        metrics = setup.task.score(torch.cat(predictions).numpy(), setup.held_out, setup.data)
        return loss / total, dict(metrics)
