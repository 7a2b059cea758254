"""Small systems that really train: learners, runs without evaluations, and outcomes of their rounds."""

from dataclasses import fields

import numpy as np
import torch

from collapipe_env.models.architecture import Architecture
from collapipe_env.scenario.learning import LearningSpec
from collapipe_env.simulator.learner import Arrivals, RoundOutcome
from collapipe_env.tasks import TaskSpec, get_task
from collapipe_env.training.federation import Federation
from collapipe_env.training.outcome_checks import trained_round
from collapipe_env.training.real_learner import TorchLearner
from collapipe_env.training.training_setup import Training

BLOCKS, N, B = 4, 3, 6
MICRO_BATCHES = (2, 3, 1)
CUT = [(2, 2, 0), (1, 0, 3), (4, 0, 0)]


def learner_of(sizes, learning, task, outputs, num_envs=1, **training):
    """A learner of a model of some sizes, before its first reset."""
    described = Training(
        task=get_task(task),
        task_spec=TaskSpec.of(sizes, outputs, 0, learning),
        learning=learning,
        schedule_steps=learning.schedule_steps or 100,
        **training,
    )
    return TorchLearner(described, num_envs)


def new_learner(
    local_steps=1, num_envs=1, sizes=None, task="classification", outputs=2, evaluation_samples=20, **options
):
    """A learner before its first reset; options are of its training or of how it learns."""
    training = {"clusters": N, "batch_size": B, "local_steps": local_steps, "most_local_steps": local_steps}
    for name in {field.name for field in fields(Training)} & options.keys() - {"schedule_steps"}:
        training[name] = options.pop(name)
    defaults = {
        "evaluate_every": 100, "partition": "dirichlet", "learning_rate": 0.01,
        "server_learning_rate": 0.02, "warmup_steps": 0,
    }  # fmt: skip
    learning = LearningSpec(**{**defaults, "evaluation_samples": evaluation_samples, **options})
    sizes = sizes or Architecture(BLOCKS, 8, 12, 2, 7, 200, dropout=learning.dropout)
    return learner_of(sizes, learning, task, outputs, num_envs, **training)


def small_learner(local_steps=1, seeds=(11,), **options):
    learner = new_learner(local_steps, len(seeds), **options)
    learner.reset([np.random.default_rng(seed) for seed in seeds])
    return learner


def outcome_of(
    blocks=CUT, survived=None, *, local_steps=1, micro_batches=MICRO_BATCHES, alive=None, steps=None, **more
):
    """The outcome of one environment from arrays without the leading axis.

    Everything arrives unless ``survived`` (N, H, B) or ``alive`` (N,) say otherwise. ``steps`` are the
    clusters' own local steps, 0 for those that sit out.
    """
    clusters = len(blocks)
    survived = np.ones((clusters, local_steps, B), dtype=bool) if survived is None else survived
    survived = survived & (True if alive is None else np.array(alive)[:, None, None])
    if steps is not None:
        steps = np.array(steps)
        survived = survived & (np.arange(survived.shape[1]) < steps[:, None])[..., None]
        more |= {"participates": steps > 0, "local_steps": np.where(steps > 0, steps, survived.shape[1])}
    if "mode" in more:
        more["server_mode"] = more.pop("mode")
    counts = np.array([micro_batches])
    return RoundOutcome(
        blocks=np.array([blocks]),
        micro_batches=counts,
        arrivals=Arrivals.of(survived[None], counts),
        survival=np.ones((1, clusters)),
        **{name: None if value is None else np.array([value]) for name, value in more.items()},
    )


class SmallRun:
    """A training run with its setup, without a learner's evaluations; options are those of a learner."""

    def __init__(self, local_steps=1, seed=11, **options):
        self.setup = new_learner(local_steps, **options).prepare()[0]
        self.federation = Federation(self.setup, np.random.default_rng(seed))

    def train(self, rounds=1, **outcome):
        """The last round's mean loss; the server's blocks may stand for the cut."""
        if "server_blocks" in outcome and "blocks" not in outcome:
            outcome["blocks"] = [(BLOCKS - count,) for count in outcome["server_blocks"]]
        outcome = outcome_of(**{"local_steps": self.setup.most_local_steps, **outcome})
        plan = trained_round(outcome, self.setup, 1)[0]
        return [self.federation.train_round(plan) for _ in range(rounds)][-1]

    @property
    def weights(self):
        """A copy of the clusters' parameters, one row each."""
        return torch.stack([replica.flat.values for replica in self.federation.replicas])

    @property
    def head(self):
        """A copy of the head's parameters."""
        return torch.cat([p.detach().flatten() for p in self.federation.common_model[1].parameters()])

    @property
    def places(self):
        """Places of the embedding and of every block."""
        model, flat, _ = self.federation.replicas[0]
        return [flat.slices([part]) for part in (model.embedding, *model.blocks)]


def language_learner(partition="iid", seed=1, **options):
    """A learner of the embedded stories, after its first reset."""
    learner = new_learner(
        sizes=Architecture(BLOCKS, 8, 12, 2, 16, 300, causal=True), task="language-modelling", outputs=300,
        partition=partition, token_dropout=0.0, evaluate_every=1, metric_every=1, **options,
    )  # fmt: skip
    learner.reset([np.random.default_rng(seed)])
    return learner
