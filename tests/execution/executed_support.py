"""Executions beside the in-process learner, for tests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.execution.predicted import predicted_events
from collapipe_env.physics.allocation import with_schedule
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import SCHEDULERS
from collapipe_env.training.real_learner import TorchLearner

DIRECTIONS = {"forward": 0, "backward": 1, "weight": 2}
QUICK = {
    # One micro-batch a pass, so that sums are taken in the same order.
    "learning.samples_per_pass": 1,
    "learning.evaluation_samples": 8,
    "learning.metric_samples": 8,
    "learning.proxy.width": 8,
    "learning.proxy.feedforward": 8,
    "learning.proxy.heads": 1,
    "learning.proxy.sequence_length": 16,
    "radio.link_errors": "none",
    "budgets.device_energy_j": 1e4,
    "budgets.cu_energy_j": 1e4,
}


TINY = {"workload.batch_size": 8, "workload.blocks": 4}
"""Rounds of fewer passes still."""


def quick(base="small", **changes):
    """A scenario whose rounds are trained in milliseconds."""
    return load_scenario(base).with_overrides({**QUICK, **changes})


def failing(**presence):
    """A scenario of four devices a cluster, which fail now and then."""
    law = {"on_mean_s": 60.0, "off_mean_s": 5.0, "graceful": 0.0, **presence}
    return load_scenario(
        {
            "base": "small",
            "cluster": {"clusters": 2, "devices": 4},
            "budgets": {"device_energy_j": 1e4, "cu_energy_j": 1e4},
            "dynamics": {"processes": {"presence": law}},
        }
    ).with_overrides(QUICK)


class Changed:
    """A scheduler whose plans get another schedule and number of micro-batches."""

    def __init__(self, scenario, name="pipeline", schedule=None, micro_batches=None, chunks=1):
        self._inner = SCHEDULERS.get(name)(scenario)
        self._schedule, self._micro_batches, self._chunks = schedule, micro_batches, chunks

    def reset(self, seed=None):
        self._inner.reset(seed)

    def act(self, observation, state):
        plan = self._inner.act(observation, state)
        if self._micro_batches is not None:
            plan = replace(plan, micro_batches=np.full_like(plan.micro_batches, self._micro_batches))
        if self._schedule is None:
            return plan
        return with_schedule(plan, self._schedule, np.full(plan.blocks.shape, 8), self._chunks)


class InProcess:
    """The same rounds, trained by the learner in one process."""

    def __init__(self, scenario, scheduler, seed=0):
        self.learner = TorchLearner.from_scenario(scenario, 1)
        self.env = CollaPipeVectorEnv(1, scenario, self.learner, reward="delay")
        self._scheduler = scheduler
        self._observation, _ = self.env.reset(seed=seed)
        scheduler.reset(seed)

    def play(self):
        plan = self._scheduler.act(self._observation, self.env.state)
        step = self.env.step if isinstance(plan, np.ndarray) else self.env.step_allocation
        self._observation = step(plan)[0]

    @property
    def run(self):
        return self.learner._runs[0]

    @property
    def train_loss(self):
        return self.learner._train_loss[0]


def weights(run):
    """All weights of a training run: the common model's, and the head's."""
    return [p.detach() for module in run.common_model for p in module.parameters()]


def largest_difference(one, other):
    pairs = zip(weights(one), weights(other), strict=True)
    return max(float((a - b).abs().max()) for a, b in pairs)


def same_weights(one, other):
    return all(torch.equal(a, b) for a, b in zip(weights(one), weights(other), strict=True))


def sorted_events(result, cluster):
    """What was done for a cluster: element, micro-batch, direction, start and end."""
    rows = [row for row in result["events"] if row[0] == cluster]
    return np.array(sorted((*row[2:5], row[6], row[7]) for row in rows))


def priced_events(planned, cluster):
    """The simulator's own events of the round."""
    timeline = predicted_events(planned.record, 0, cluster)
    rows = [(e.element, e.micro_batch, DIRECTIONS[e.direction], e.start_s, e.end_s) for e in timeline.events]
    return np.array(sorted(rows))
