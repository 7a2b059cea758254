"""One training run of the federation: clusters, server and the exchange between them."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from collapipe_env.ground.arrays import BoolArray, IntArray
from collapipe_env.ground.errors import StateError, shortened
from collapipe_env.ground.state_trees import (
    REMEDY,
    Tree,
    generator_of,
    generator_tree,
    require_alike,
    require_names,
)
from collapipe_env.ground.torch_settings import under_own_settings
from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.models.dropout import private_randomness
from collapipe_env.physics.allocation import COMMON, COPIES, SEQUENTIAL
from collapipe_env.physics.moves import LOST
from collapipe_env.training.beginning import begin_training
from collapipe_env.training.block_moments import change_hands
from collapipe_env.training.cluster_samples import ClusterSamples
from collapipe_env.training.compute_device import full_precision
from collapipe_env.training.exchange import Exchange
from collapipe_env.training.flat_parameters import FlatParameters, Trained, parameter_count
from collapipe_env.training.optimizer_state import array_of, optimizer_tree, set_optimizer, tensor_of
from collapipe_env.training.outcome_checks import TrainedRound
from collapipe_env.training.pipeline_step import CutModel, pipeline_step
from collapipe_env.training.servers import CommonServer, CopiesServer, SequentialServer, Server
from collapipe_env.training.staleness import WeightVersions
from collapipe_env.training.step_sizes import StepSizes
from collapipe_env.training.tied_head import tied_places
from collapipe_env.training.training_setup import TrainingSetup


@under_own_settings
class Federation:
    """Clusters that train embedding and encoder in pipelines and exchange updates; the head is on the server.

    Within a round every cluster starts from the common model and takes H local steps with its own optimiser,
    whose state lives on from round to round. With ``head`` ``copies`` each cluster has a head of its own
    within the round, with its own optimiser, averaged like the rest. With ``common``, and in rounds of one
    local step, the server updates one head once per local step, with the mean gradient over all arrivals from
    all clusters. A cluster none of whose micro-batches arrive in a local step makes no update in it, but its
    batch is used up, so the order of samples does not depend on arrivals. With FedProx (Li et al., 2020,
    arXiv 1812.06127) ``mu (w - w_round)`` is added to the clusters' gradients; then each cluster's gradient
    is clipped by its norm. Neither applies to the server's modules.

    Under split training (SplitFed) the server trains its side differently, and may run the encoder's last
    blocks: see :class:`~collapipe_env.training.servers.CopiesServer` (V1) and
    :class:`~collapipe_env.training.servers.SequentialServer` (V2). Every round starts from one common model
    and ends with one, so the server's mode may change from round to round. Under an asynchronous pipeline
    stages compute with weights that lag behind: see
    :class:`~collapipe_env.training.staleness.WeightVersions`.

    Clusters may sit rounds out and take different numbers of local steps. A common head then steps with the
    gradients of the clusters that are still training, and the step-size schedule counts the steps of the
    cluster that takes most.

    At the end of the round the clusters' updates travel to the server and their mean travels back: see
    :class:`~collapipe_env.training.exchange.Exchange`. The mean is weighted by the clusters' shares of the
    training data, over those clusters that made at least one update. If none did, the model stays as it is.

    Attributes:
        streams: Order of each cluster's samples.
        replicas: The clusters' models, each with its parameters and their optimiser.
        step_sizes: Schedule of the step sizes, which counts the local steps begun in all rounds.
    """

    def __init__(self, setup: TrainingSetup, rng: np.random.Generator) -> None:
        """Initialise parameters and spread the data; ``rng`` is the only source of randomness."""
        self._setup = setup
        learning, device = setup.learning, setup.train[0].device
        self._loss = partial(setup.task.loss, smoothing=learning.label_smoothing)
        self.samples, self.streams, model, head, self._noise_rng = begin_training(setup, rng)
        self._data_sizes = self.samples.sizes
        self._head = Trained.of(head, learning, learning.server_learning_rate)
        size = parameter_count(model)
        # Row n holds cluster n's parameters; between rounds all rows are equal, the common model.
        self._parameters = torch.empty(setup.clusters, size).to(model.embedding.weight)
        self._common = torch.empty_like(self._parameters[0])
        self._gradients = torch.zeros_like(self._parameters[0])
        self._rounding = torch.Generator(device).manual_seed(int(self._noise_rng.integers(2**63)))
        self.replicas = [self._replica(copy.deepcopy(model), row) for row in self._parameters]
        self._tied = tied_places(self.replicas[0], self._head)
        # Eight-bit moments travel as they are.
        self._moments_rounded = setup.moment_bits == 16 and setup.memory.moment_bits != 8
        self.step_sizes = StepSizes(learning, setup.schedule_steps)
        self.rounds = 0
        self._exchange = Exchange(self.replicas, setup.update_format, learning, self._rounding)
        self._servers: dict[int, Server] = {COMMON: CommonServer(self._head)}
        self._lagging: tuple[ClusterModel, FlatParameters] | None = None
        # Places of the clusters' copies of the blocks that only a sequential server trains in the round.
        self._idle: list[slice] = []

    def _replica(self, model: ClusterModel, values: torch.Tensor) -> Trained[ClusterModel]:
        """Return a cluster's model with its parameters in a row; the gradients are those of all clusters."""
        setup, flat = self._setup, FlatParameters(model, values, self._gradients)
        apart = list(model.blocks) if setup.moment_bits is not None else ()
        optimizer = flat.optimizer(
            setup.learning, setup.learning.learning_rate, apart, setup.memory.moment_bits, self._rounding
        )
        return Trained(model, flat, optimizer)

    @property
    def _models(self) -> list[ClusterModel]:
        return [replica.module for replica in self.replicas]

    def train_round(self, plan: TrainedRound) -> float:
        """Train one round.

        Returns:
            Mean training loss over the samples that arrived, in nats; NaN if none did.
        """
        most, server_mode = int(plan.local_steps.max()), int(plan.server_mode)
        self.rounds += 1
        if not most:
            return float("nan")
        server = self.open_round(plan.server_blocks, server_mode, most, plan.moments)
        self._next_step(server)
        randomness: AbstractContextManager[None] = nullcontext()
        if self._setup.architecture.dropout:  # which may draw from PyTorch's global generators then
            seed = int(self._noise_rng.integers(2**63))
            randomness = private_randomness(seed, self._common.device)
        with randomness:
            updated, mean_loss = self._train_clusters(server, plan)
        self.close_round(server, updated, plan.server_blocks)
        return mean_loss

    def open_round(
        self, on_server: IntArray, server_mode: int, local_steps: int, moments: IntArray
    ) -> Server:
        """Begin a round and return the server's side of it: all clusters start from the common model.

        Args:
            on_server: Last encoder blocks that the server runs, shape (N,).
            server_mode: ``COMMON``, ``COPIES`` or ``SEQUENTIAL`` of :mod:`collapipe_env.physics.allocation`.
            local_steps: Most local steps that a cluster takes.
            moments: Fate of the optimiser's moments of each block, shape (N, L).
        """
        # In a single local step no cluster needs a head of its own.
        copied = server_mode == COMMON and self._setup.head == "copies" and local_steps > 1
        server = self._server(COPIES if copied else server_mode)
        server.begin_round(self._models, on_server)
        change_hands(self.replicas, moments, rounded=self._moments_rounded)
        server.forget(np.flatnonzero((moments == LOST).any(axis=0)).tolist())
        model, flat, _ = self.replicas[0]
        trained = len(model.blocks) - int(on_server[0])
        self._idle = flat.slices(model.blocks[trained:] if server_mode == SEQUENTIAL else [])
        self._common.copy_(self._parameters[0])
        return server

    def close_round(self, server: Server, updated: BoolArray, on_server: IntArray) -> None:
        """End a round: the clusters' updates and the server's part make the next common model.

        Args:
            updated: Clusters that made an update, shape (N,). If none did, the model stays as it is.
            on_server: Last encoder blocks that the server ran, shape (N,).
        """
        if not updated.any():
            return
        sizes = self._data_sizes * updated
        weights = torch.from_numpy(sizes / sizes.sum()).to(full_precision(self._common[:1]))
        table, matrix = self._tied
        of_server = table, server.head_after(weights)[matrix] - self._common[table]
        self._exchange.end_round(self._parameters, self._common, weights, on_server, self._idle, of_server)
        server.end_round(self._models, weights)
        self._head.flat.values[matrix] = self._parameters[0, table]

    def _train_clusters(self, server: Server, plan: TrainedRound) -> tuple[BoolArray, float]:
        """Let every cluster take its local steps.

        Returns:
            Which clusters made an update, shape (N,), and the mean training loss, NaN if nothing arrived.
        """
        setup = self._setup
        versions = self._versions(plan)
        updated = np.zeros(setup.clusters, dtype=np.bool_)
        losses, units = [], []
        for step in range(int(plan.local_steps.max())):
            if step:  # those of the first step are set: predictions of stale weights use them
                self._next_step(server)
            server.begin_step()
            for n in np.flatnonzero(plan.local_steps > step).tolist():
                batch = self.samples.next_batch(setup, self.streams[n])
                self._gradients.zero_()
                blocks_of_server, head = server.serve(n)
                cut = CutModel(
                    self._lagging_model(versions[n]) if n in versions else self.replicas[n].module,
                    head,
                    self._loss,
                    plan.blocks[n].tolist(),
                    blocks_of_server,
                    setup.learning.precision,
                    recompute=bool(plan.recompute[n]),
                )
                survived = plan.survived[n, step, : plan.micro_batches[n]].tolist()
                arrived, loss = pipeline_step(cut, *batch, survived, setup.learning.samples_per_pass)
                if arrived:
                    self._update(n)
                    server.after_batch(n, arrived)
                    updated[n] = True
                    losses.append(loss)
                    units.append(arrived)
                if n in versions and step + 1 < plan.local_steps[n]:
                    versions[n].record(bool(arrived))
            server.end_step()
        if not units:
            return updated, float("nan")
        # Fetched at the end: on a GPU, reading a number earlier would hold up the next batch.
        return updated, float(np.average(torch.stack(losses).tolist(), weights=units))

    def _next_step(self, server: Server) -> None:
        """Set the step sizes of a local step."""
        self.step_sizes.next_step([*(each.optimizer for each in self.replicas), *server.optimizers()])

    @torch.no_grad()
    def _update(self, cluster: int) -> None:
        """Step a cluster's optimiser, after adding the proximal term to its gradient and clipping it."""
        learning = self._setup.learning
        if learning.proximal:
            pull = self.replicas[cluster].flat.values - self._common
            for place in self._idle:
                pull[place] = 0.0  # these copies drift, but the cluster's objective does not contain them
            self._gradients.add_(pull, alpha=learning.proximal)
        if learning.gradient_clip:
            self._gradients.mul_((learning.gradient_clip / self._gradients.norm()).clamp(max=1.0))
        self.replicas[cluster].optimizer.step()

    def begin_steps(self, local_steps: int) -> list[float]:
        """Count a round's local steps, taken elsewhere, and return each one's share of the full step size."""
        self.rounds += 1
        return [self.step_sizes.next_factor() for _ in range(local_steps)]

    @property
    def common_model(self) -> tuple[ClusterModel, nn.Module]:
        """The clusters' model (between rounds all are equal) and the server's head; not copies."""
        return self.replicas[0].module, self._head.module

    def get_state(self) -> Tree:
        """Return copies of everything that decides how the run continues; call it between rounds only."""
        model, head = self.common_model
        return {
            "streams": {str(n): stream.get_state() for n, stream in enumerate(self.streams)},
            # The clusters' models are equal between rounds, so one is enough.
            "model": {name: array_of(values) for name, values in model.named_parameters()},
            "head": {name: array_of(values) for name, values in head.named_parameters()},
            "optimizers": {str(n): optimizer_tree(each.optimizer) for n, each in enumerate(self.replicas)},
            "head_optimizer": optimizer_tree(self._head.optimizer),
            "servers": {
                str(mode): {name: optimizer_tree(one) for name, one in server.own_optimizers().items()}
                for mode, server in self._servers.items()
            },
            "exchange": self._exchange.get_state(),
            "round": self.rounds,
            "step": self.step_sizes.step,
            "noise_rng": generator_tree(self._noise_rng),
            "partition": self.samples.get_state(),
        }

    @classmethod
    def from_state(cls, setup: TrainingSetup, tree: Tree) -> Federation:
        """Return the run whose state :meth:`get_state` returned; the state is only read.

        Raises:
            StateError: If the state is damaged or does not fit the setup.
        """
        run = cls(setup, np.random.default_rng(0))  # its draws are replaced
        try:
            run._set_state(tree)
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError, RuntimeError) as error:
            if isinstance(error, StateError):
                raise
            raise StateError(f"learner/runs is damaged ({shortened(repr(error))}): {REMEDY}") from None
        return run

    def _set_state(self, tree: Tree) -> None:
        mine = self.get_state()
        # What may differ in its names or shapes is checked where it is read.
        free: Tree = dict.fromkeys(("head_optimizer", "servers", "noise_rng", "partition"), ...)
        free |= {name: dict.fromkeys(mine[name], ...) for name in ("streams", "optimizers")}
        require_alike(tree, {**mine, **free}, "learner/runs")
        self.samples = ClusterSamples.from_state(self._setup, tree["partition"])
        self._data_sizes = self.samples.sizes
        for n, (stream, part) in enumerate(zip(self.streams, self.samples.parts, strict=True)):
            stream.set_state(tree["streams"][str(n)], part)
        for module, name in [*((m, "model") for m in self._models), (self._head.module, "head")]:
            for key, parameter in module.named_parameters():
                parameter.data.copy_(tensor_of(tree[name][key], parameter))
        for n, replica in enumerate(self.replicas):
            set_optimizer(replica.optimizer, tree["optimizers"][str(n)], f"optimizers/{n}")
        set_optimizer(self._head.optimizer, tree["head_optimizer"], "head_optimizer")
        for mode, memories in tree["servers"].items():
            server = self._server(int(mode))
            server.know(memories, self._models)
            require_names(memories, server.own_optimizers(), f"servers/{mode}")
            for name, optimizer in server.own_optimizers().items():
                set_optimizer(optimizer, memories[name], f"servers/{mode}/{name}")
        self._exchange.set_state(tree["exchange"])
        for name in ("round", "step"):
            if tree[name] < 0:
                raise StateError(f"learner/runs: {name} is {tree[name]}, expected at least 0: {REMEDY}")
        self._noise_rng = generator_of(tree["noise_rng"], "noise_rng")
        self.rounds, self.step_sizes.step = tree["round"], tree["step"]

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies of the modules would no longer share their parameters with the flat vectors.
        return Federation.from_state, (self._setup, self.get_state())

    def _server(self, mode: int) -> Server:
        """Return the server's side for a mode; its optimisers' state lives as long as the run."""
        if mode not in self._servers:
            learning = self._setup.learning
            if mode == COPIES:
                self._servers[mode] = CopiesServer(self._head, self._setup.clusters, learning)
            elif mode == SEQUENTIAL:
                self._servers[mode] = SequentialServer(self._head, learning, self._rounding)
            else:
                raise ValueError(f"server mode {mode}: {COMMON}, {COPIES} and {SEQUENTIAL} exist")
        return self._servers[mode]

    def _versions(self, plan: TrainedRound) -> dict[int, WeightVersions]:
        """Return the weight versions of the clusters in which some stage will lag behind."""
        versions = {}
        lagging = ((plan.blocks > 0) & (plan.staleness > 0)).any(axis=-1) & (plan.local_steps > 1)
        for n in np.flatnonzero(lagging).tolist():
            model, flat, _ = self.replicas[n]
            active = plan.blocks[n] > 0
            stage_gaps = np.minimum(plan.staleness[n][active], plan.local_steps[n] - 1).tolist()
            # The control unit comes before the first stage and waits for the same gradients.
            gaps = [(flat.slices([model.embedding]), stage_gaps[0])]
            for segment, gap in zip(model.segments(plan.blocks[n][active].tolist()), stage_gaps, strict=True):
                gaps.append((flat.slices(segment), gap))
            predict = self._setup.learning.weight_prediction
            versions[n] = WeightVersions(self.replicas[n], gaps, predict=predict)
        return versions

    def _lagging_model(self, versions: WeightVersions) -> ClusterModel:
        """Return a model with the stale weights; it adds to the same gradients as the other models."""
        if self._lagging is None:
            model = copy.deepcopy(self.replicas[0].module)
            values = torch.empty_like(self._parameters[0])
            self._lagging = model, FlatParameters(model, values, self._gradients)
        model, flat = self._lagging
        versions.fill(flat.values)
        return model
