"""Federated training written down plainly: dictionaries of tensors and loops, no flat vectors.

Split training, stale and predicted weights, own local steps, FedProx, clipping, momentum, schedules and rules
of aggregation are all here, so that any mixture of them can be compared.
"""

import copy
import math

import numpy as np
import torch
from torch.func import functional_call
from torch.nn.functional import cross_entropy

COMMON, COPIES, SEQUENTIAL = -1, 0, 1
BETAS, EPS, PADDING = (0.9, 0.98), 1e-8, 0


class PlainOptimizer:
    """AdamW, or SGD with momentum, on a dictionary of tensors, one state per name."""

    def __init__(self, learning, learning_rate):
        self.kind, self.decay, self.full = learning.optimizer, learning.weight_decay, learning_rate
        self.momentum, self.lr, self.state = learning.momentum, learning_rate, {}

    def step(self, weights, gradients):
        for name, gradient in gradients.items():
            decay = self.decay if gradient.ndim >= 2 else 0.0
            if self.kind == "sgd":
                velocity = self.momentum * self.state.get(name, 0.0) + gradient + decay * weights[name]
                self.state[name] = velocity
                weights[name] = weights[name] - self.lr * velocity
                continue
            t, mean, square = self.state.get(name, (0, 0.0, 0.0))
            mean = BETAS[0] * mean + (1 - BETAS[0]) * gradient
            square = BETAS[1] * square + (1 - BETAS[1]) * gradient**2
            self.state[name] = (t + 1, mean, square)
            weights[name] = weights[name] * (1 - self.lr * decay) - self.next_step(name)

    def next_step(self, name, last=None):
        """The step for an unchanged gradient; ``last`` is the gradient of plain SGD's last step."""
        if self.kind == "sgd" and not self.momentum:
            return 0.0 if last is None else self.lr * last[name]
        if name not in self.state:
            return 0.0
        if self.kind == "sgd":
            return self.lr * self.state[name]
        t, mean, square = self.state[name]
        return self.lr * (mean / (1 - BETAS[0] ** t)) / ((square / (1 - BETAS[1] ** t)) ** 0.5 + EPS)


class ServerRule:
    """In the letters of Reddi et al., Algorithm 2 (and Hsu et al. for FedAvgM), for numbers or tensors."""

    def __init__(self, learning):
        adaptive = learning.aggregation in ("fedadam", "fedyogi")
        self.kind, self.eta = learning.aggregation, learning.aggregation_rate
        if self.eta is None:
            self.eta = 0.01 if adaptive else 1.0
        self.beta1, self.beta2 = learning.aggregation_momentum, learning.aggregation_second_momentum
        self.tau = learning.aggregation_floor
        self.m, self.v = 0.0, self.tau**2

    def step(self, delta):
        if self.kind == "fedavg":
            return self.eta * delta
        if self.kind == "fedavgm":
            self.m = self.beta1 * self.m + delta
            return self.eta * self.m
        self.m = self.beta1 * self.m + (1 - self.beta1) * delta
        if self.kind == "fedadam":
            self.v = self.beta2 * self.v + (1 - self.beta2) * delta**2
        else:
            larger = self.v > delta**2
            smaller = self.v < delta**2
            self.v = self.v - (1 - self.beta2) * delta**2 * (1.0 * larger - 1.0 * smaller)
        return self.eta * self.m / (self.v**0.5 + self.tau)


def share_of_step(learning, t, steps):
    """The schedule's share of the full step size in local step ``t``."""
    warmup = learning.warmup_steps
    if t < warmup:
        return (t + 1) / (warmup + 1)
    gone = min(1.0, (t - warmup) / max(steps - warmup, 1))
    return {
        "constant": 1.0, "linear": 1 - gone, "cosine": (1 + math.cos(math.pi * gone)) / 2,
        "inverse-sqrt": math.sqrt((warmup + 1) / (t + 1)),
    }[learning.schedule]  # fmt: skip


class PlainTraining:
    """Trains beside a run (:class:`learner_support.SmallRun`), with weights and batches of a twin of it."""

    def __init__(self, twin):
        self.setup, self.run = twin.setup, twin.federation
        self.learning, self.clusters = self.setup.learning, self.setup.clusters
        self.model, self.head_module = (copy.deepcopy(part) for part in self.run.common_model)
        self.common = {k: v.detach().clone() for k, v in self.model.named_parameters()}
        self.head = {k: v.detach().clone() for k, v in self.head_module.named_parameters()}
        rates = self.learning.learning_rate, self.learning.server_learning_rate
        self.optimizers, self.head_optimizers = (
            [PlainOptimizer(self.learning, rate) for _ in range(self.clusters)] for rate in rates
        )
        self.server_optimizer, self.head_optimizer = (PlainOptimizer(self.learning, rate) for rate in rates)
        self.rules = {name: ServerRule(self.learning) for name in self.common}
        self.steps = 0

    def gradients(self, weights, head, tokens, targets):
        leaves, head_leaves = ({k: v.clone().requires_grad_() for k, v in x.items()} for x in (weights, head))
        hidden = functional_call(self.model, leaves, (tokens,))
        outputs = functional_call(self.head_module, head_leaves, (hidden, tokens != PADDING))
        loss = cross_entropy(outputs, targets, label_smoothing=self.learning.label_smoothing)
        found = torch.autograd.grad(loss, [*leaves.values(), *head_leaves.values()])
        self.losses.append((len(tokens), loss.item()))
        split = len(leaves)
        return dict(zip(leaves, found[:split], strict=True)), dict(zip(head, found[split:], strict=True))

    def stale(self, versions, step, gaps):
        """Weights of mini-batch ``step``: every name from its own version, carried on by the rule."""
        weights = {}
        for name in self.common:
            lag = min(gaps[self.block_of(name)], step)
            values, rule, last = versions[step - lag]
            weights[name] = values[name].clone()
            if self.learning.weight_prediction:
                weights[name] -= lag * rule.next_step(name, last)
        return weights

    @staticmethod
    def block_of(name):
        """The block of a parameter; the embedding lags like the first one."""
        return int(name.split(".")[1]) if name.startswith("blocks") else 0

    def own_gradients(self, found, weights, start, served):
        """With the pull of FedProx, but for what only the server trains, and clipped."""
        found = {
            k: g if k in served else g + self.learning.proximal * (weights[k] - start[k])
            for k, g in found.items()
        }
        norm = math.sqrt(sum(float((g**2).sum()) for g in found.values()))
        if self.learning.gradient_clip and norm > self.learning.gradient_clip:
            found = {k: g * self.learning.gradient_clip / norm for k, g in found.items()}
        return found

    def round(
        self, survived, blocks, micro_batches, server_blocks=None, mode=COMMON, staleness=None, steps=None
    ):
        """Train a round and return the mean loss of the samples that arrive."""
        N, last = self.clusters, len(self.model.blocks)
        on_server = (0,) * N if server_blocks is None else server_blocks
        self.losses = []
        steps = [survived.shape[1]] * N if steps is None else steps
        if mode == COMMON and max(steps) > 1 and self.setup.head == "copies":
            mode = COPIES
        clusters = [dict(self.common) for _ in range(N)]
        copies = [dict(self.head) for _ in range(N)]
        served = [
            {k for k in self.common if k.startswith("blocks") and self.block_of(k) >= last - count}
            for count in on_server
        ]
        server = {k: self.common[k] for k in served[0]} if mode == SEQUENTIAL else {}
        gaps = [
            [gap for count, gap in zip(*pair, strict=True) for _ in range(count)] + [0] * own
            for *pair, own in zip(blocks, staleness or blocks, on_server, strict=True)
        ]
        versions, updated = [[] for _ in range(N)], np.zeros(N)
        for h in range(max(steps)):
            share = share_of_step(self.learning, self.steps, self.setup.schedule_steps)
            self.steps += 1
            for one in (
                *self.optimizers, *self.head_optimizers, self.server_optimizer, self.head_optimizer
            ):  # fmt: skip
                one.lr = one.full * share
            head_gradients = []
            for n in range(N):
                if h == 0:
                    versions[n].append((dict(clusters[n]), copy.deepcopy(self.optimizers[n]), None))
                if steps[n] <= h:
                    continue
                tokens, targets, _ = self.run.samples.next_batch(self.setup, self.run.streams[n])
                parts = torch.arange(len(tokens)).tensor_split(micro_batches[n])
                arrive = survived[n, h, : micro_batches[n]]
                kept = torch.cat(
                    [p for p, alive in zip(parts, arrive, strict=True) if alive] or [parts[0][:0]]
                )
                if not len(kept):
                    versions[n].append(versions[n][-1])
                    continue
                weights = clusters[n] if staleness is None else self.stale(versions[n], h, gaps[n])
                weights = {**weights, **server}
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
                found = self.own_gradients(found, clusters[n], self.common, server)
                self.optimizers[n].step(clusters[n], found)
                versions[n].append((dict(clusters[n]), copy.deepcopy(self.optimizers[n]), found))
                updated[n] = 1
            total = sum(count for count, _ in head_gradients)
            if total:
                mean = {k: sum(c * g[k] for c, g in head_gradients) / total for k in self.head}
                self.head_optimizer.step(self.head, mean)
        self.merge(clusters, copies if mode == COPIES else [], server, updated)
        counts, losses = zip(*self.losses, strict=True) if self.losses else ([1], [np.nan])
        return np.average(losses, weights=counts)

    def merge(self, clusters, copies, server, updated):
        """The next common model: the weighted mean of the updates, moved by the server's rule."""
        weights = self.run.samples.sizes * updated
        if not weights.any():
            return
        weights = weights / weights.sum()
        for name, before in self.common.items():
            mean = sum(w * (c[name] - before) for w, c in zip(weights, clusters, strict=True))
            self.common[name] = before + self.rules[name].step(0.0 * mean if name in server else mean)
        self.common.update(server)
        for name in self.head if copies else ():
            self.head[name] = sum(w * c[name] for w, c in zip(weights, copies, strict=True))

    def assert_equals(self, run, loss, mean_loss, atol=1e-9):
        """Compare the run with what :meth:`round` made."""
        np.testing.assert_allclose(loss, mean_loss, rtol=1e-9)
        for model, *_ in run.federation.replicas:
            for name, value in model.named_parameters():
                torch.testing.assert_close(value.detach(), self.common[name], rtol=0, atol=atol, msg=name)
        for name, value in run.federation.common_model[1].named_parameters():
            torch.testing.assert_close(value.detach(), self.head[name], rtol=0, atol=atol, msg=name)
