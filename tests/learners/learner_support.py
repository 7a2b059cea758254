"""A small learner, and the same training written down plainly: dictionaries of tensors, no flat vectors."""

import copy

import numpy as np
import torch
from torch.func import functional_call

from collapipe_env.models.architecture import Architecture
from collapipe_env.models.tokenization import PADDING
from collapipe_env.physics.allocation import COMMON, COPIES, SEQUENTIAL
from collapipe_env.scenario.learning import LearningSpec
from collapipe_env.simulator.learner import Arrivals, RoundOutcome
from collapipe_env.tasks import TaskSpec, get_task
from collapipe_env.training.real_learner import TorchLearner
from collapipe_env.training.training_setup import Training

BLOCKS, N, B = 4, 3, 6
BETAS, EPS = (0.9, 0.98), 1e-8


def new_learner(
    local_steps=1,
    num_envs=1,
    head="copies",
    most_local_steps=None,
    workload=None,
    **learning,
):
    """A learner before its first reset, of another workload if asked for."""
    defaults = {
        "evaluation_samples": 20, "evaluate_every": 100, "partition": "dirichlet",
        "learning_rate": 0.01, "server_learning_rate": 0.02, "warmup_steps": 0,
    }  # fmt: skip
    trained = {"task": "classification", "outputs": 2, "decoder_blocks": 0, **(workload or {})}
    return learner_of(
        Architecture(BLOCKS, 8, 12, 2, 7, 200),
        LearningSpec(**{**defaults, **learning}),
        **trained,
        num_envs=num_envs,
        clusters=N,
        batch_size=B,
        local_steps=local_steps,
        head=head,
        most_local_steps=most_local_steps or local_steps,
    )


def learner_of(sizes, learning, task, outputs, decoder_blocks=0, num_envs=1, **training):
    """A learner of a model of some sizes."""
    described = Training(
        task=get_task(task),
        task_spec=TaskSpec.of(sizes, outputs, decoder_blocks, learning),
        learning=learning,
        schedule_steps=learning.schedule_steps or 100,
        **training,
    )
    return TorchLearner(described, num_envs)


def small_learner(local_steps, seeds=(11,), **options):
    learner = new_learner(local_steps, len(seeds), **options)
    learner.reset([np.random.default_rng(seed) for seed in seeds])
    return learner


def single_outcome(blocks, survived, micro_batches=(2, 3, 1), server_blocks=None, mode=None, staleness=None):
    """The outcome of one environment from arrays without the leading axis."""
    return RoundOutcome(
        blocks=np.array([blocks]),
        micro_batches=np.array([micro_batches]),
        arrivals=Arrivals.of(survived[None], np.array([micro_batches])),
        survival=np.ones((1, N)),
        server_blocks=None if server_blocks is None else np.array([server_blocks]),
        server_mode=None if mode is None else np.array([mode]),
        staleness=None if staleness is None else np.array([staleness]),
    )


class PlainOptimizer:
    """AdamW or SGD on a dictionary of tensors, one state per name."""

    def __init__(self, learning, learning_rate):
        self.kind, self.decay, self.lr = learning.optimizer, learning.weight_decay, learning_rate
        self.state = {}

    def step(self, weights, gradients):
        for name, gradient in gradients.items():
            t, mean, square = self.state.get(name, (0, 0.0, 0.0))
            mean = BETAS[0] * mean + (1 - BETAS[0]) * gradient
            square = BETAS[1] * square + (1 - BETAS[1]) * gradient**2
            self.state[name] = (t + 1, mean, square)
            decay = self.decay if gradient.ndim >= 2 else 0.0
            move = self.rule(self.state, name) if self.kind == "adamw" else self.lr * gradient
            weights[name] = weights[name] * (1 - self.lr * decay) - move

    def rule(self, state, name):
        t, mean, square = state[name]
        return self.lr * (mean / (1 - BETAS[0] ** t)) / ((square / (1 - BETAS[1] ** t)) ** 0.5 + EPS)


class PlainTraining:
    """Trains beside a learner, from its initial weights and with a twin's stream of batches."""

    def __init__(self, twin):
        run = twin._runs[0]
        self.run, self.learning, self.kind_of_head = run, twin.training.learning, twin._prepared[0].head
        self.model, self.head_module = copy.deepcopy(run.replicas[0].module), copy.deepcopy(run._head.module)
        self.common = {k: v.detach().clone() for k, v in self.model.named_parameters()}
        self.head = {k: v.detach().clone() for k, v in self.head_module.named_parameters()}
        rates = self.learning.learning_rate, self.learning.server_learning_rate
        self.optimizers = [PlainOptimizer(self.learning, rates[0]) for _ in range(N)]
        self.head_optimizers = [PlainOptimizer(self.learning, rates[1]) for _ in range(N)]
        self.server_optimizer = PlainOptimizer(self.learning, rates[0])
        self.head_optimizer = PlainOptimizer(self.learning, rates[1])

    def gradients(self, weights, head, tokens, targets):
        leaves = {k: v.clone().requires_grad_() for k, v in weights.items()}
        head_leaves = {k: v.clone().requires_grad_() for k, v in head.items()}
        hidden = functional_call(self.model, leaves, (tokens,))
        outputs = functional_call(self.head_module, head_leaves, (hidden, tokens != PADDING))
        loss = torch.nn.functional.cross_entropy(outputs, targets)
        found = torch.autograd.grad(loss, [*leaves.values(), *head_leaves.values()])
        self.losses.append((len(tokens), loss.item()))
        split = len(leaves)
        return dict(zip(leaves, found[:split], strict=True)), dict(zip(head, found[split:], strict=True))

    def stale(self, versions, step, gaps):
        """Weights of mini-batch ``step``: every name from its own version, carried on by the rule."""
        weights = {}
        for name in self.common:
            gap = gaps(name)
            values, state, last = versions[max(step - gap, 0)]
            weights[name] = values[name].clone()
            if not self.learning.weight_prediction:
                continue
            if self.learning.optimizer == "adamw":
                if name in state:
                    rule = self.optimizers[0].rule(state, name)
                    weights[name] -= min(gap, step) * rule
            elif last is not None:
                weights[name] -= min(gap, step) * self.learning.learning_rate * last[name]
        return weights

    def round(
        self, survived, micro_batches=(2, 3, 1), server_blocks=(0,) * N, mode=COMMON, gaps=None, steps=None
    ):
        """Train a round and return the mean loss of the samples that arrive."""
        self.losses = []
        steps = [survived.shape[1]] * N if steps is None else steps
        if mode == COMMON and max(steps) > 1 and self.kind_of_head == "copies":
            mode = COPIES
        clusters = [dict(self.common) for _ in range(N)]
        copies = [dict(self.head) for _ in range(N)]
        served = [
            {k for k in self.common if k.startswith("blocks") and int(k.split(".")[1]) >= BLOCKS - count}
            for count in server_blocks
        ]
        server = {k: self.common[k] for k in served[0]} if mode == SEQUENTIAL else {}
        versions = [[(dict(c), dict(self.optimizers[n].state), None)] for n, c in enumerate(clusters)]
        updated = np.zeros(N)
        for h in range(max(steps)):
            head_gradients = []
            for n in range(N):
                if steps[n] <= h:
                    continue
                tokens, targets, _ = self.run.samples.next_batch(self.run._setup, self.run.streams[n])
                M = micro_batches[n]
                parts = torch.arange(len(tokens)).tensor_split(M)
                kept = torch.cat([p for p, alive in zip(parts, survived[n, h, :M], strict=True) if alive] or
                                 [torch.arange(0)])  # fmt: skip
                if not len(kept):
                    versions[n].append(versions[n][-1])
                    continue
                weights = clusters[n] if gaps is None else self.stale(versions[n], h, gaps[n])
                # Blocks on the server never lag behind.
                weights = {**weights, **{k: clusters[n][k] for k in served[n]}, **server}
                head = copies[n] if mode == COPIES else self.head
                found, found_head = self.gradients(weights, head, tokens[kept], targets[kept])
                if mode == SEQUENTIAL:
                    self.server_optimizer.step(server, {k: found[k] for k in server})
                    found = {k: torch.zeros_like(g) if k in server else g for k, g in found.items()}
                    self.head_optimizer.step(self.head, found_head)
                elif mode == COPIES:
                    self.head_optimizers[n].step(copies[n], found_head)
                else:
                    head_gradients.append((len(kept), found_head))
                self.optimizers[n].step(clusters[n], found)
                versions[n].append((dict(clusters[n]), dict(self.optimizers[n].state), found))
                updated[n] = 1
            total = sum(count for count, _ in head_gradients)
            if total:
                mean = {k: sum(c * g[k] for c, g in head_gradients) / total for k in self.head}
                self.head_optimizer.step(self.head, mean)
        weights = np.array([len(stream._indices) for stream in self.run.streams]) * updated
        if weights.any():
            weights = weights / weights.sum()
            self.common = {
                k: sum(w * c[k] for w, c in zip(weights, clusters, strict=True)) for k in self.common
            }
            self.common.update(server)
            if mode == COPIES:
                self.head = {
                    k: sum(w * c[k] for w, c in zip(weights, copies, strict=True)) for k in self.head
                }
        counts, losses = zip(*self.losses, strict=True) if self.losses else ([1], [np.nan])
        return np.average(losses, weights=counts)

    def assert_equals(self, learner, report, mean_loss, atol=1e-9):
        run = learner._runs[0]
        np.testing.assert_allclose(report.train_loss, mean_loss, rtol=1e-9)
        for model, *_ in run.replicas:
            for name, value in model.named_parameters():
                torch.testing.assert_close(value.detach(), self.common[name], rtol=0, atol=atol, msg=name)
        for name, value in run._head.module.named_parameters():
            torch.testing.assert_close(value.detach(), self.head[name], rtol=0, atol=atol, msg=name)
