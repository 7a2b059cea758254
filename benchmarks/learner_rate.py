"""How fast the real learner trains: milliseconds per round, and beside a plain PyTorch loop.

The plain loop runs the same architecture, uncut, over the same micro-batches with gradient accumulation, one
AdamW step per cluster and round and no averaging, no server and no evaluation: the least that any PyTorch
code would do::

    python benchmarks/learner_rate.py --out benchmarks/results/learner_rate.json

Both take turns round by round, so that a busy machine slows both down alike; the medians are compared.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import tyro
from torch import Tensor

from collapipe_env.learners import RoundOutcome, TorchLearner
from collapipe_env.learners.architecture import Architecture
from collapipe_env.learners.model import ClusterModel, parameter_count
from collapipe_env.scenario.learning import LearningSpec, ProxySpec
from collapipe_env.tasks import TaskSpec, get_task
from collapipe_env.tasks.tokenization import PADDING


@dataclass(frozen=True)
class Arguments:
    """What to measure; the defaults are the medium scenario."""

    out: Path | None = None
    """Where to write the figures as JSON; nowhere if empty."""
    rounds: int = 30
    """Timed rounds of each."""
    clusters: int = 4
    """Clusters N."""
    blocks: tuple[int, ...] = (3, 2, 3, 2, 2)
    """Blocks of each stage."""
    batch_size: int = 64
    """Samples per cluster and round, B."""
    micro_batches: int = 4
    """Micro-batches M."""
    threads: int = 1
    """PyTorch threads."""


class PlainLoop:
    """Gradient accumulation over micro-batches, one uncut model per cluster."""

    def __init__(self, arguments: Arguments, architecture: Architecture, learning: LearningSpec) -> None:
        """Build the models, with random tokens of the data's shape drawn in :meth:`round`."""
        task = get_task("classification")
        spec = TaskSpec(architecture, 2)
        data = task.load(spec)
        self._tokens, self._targets = torch.tensor(data.train.tokens), torch.tensor(data.train.targets)
        generator = torch.Generator().manual_seed(0)
        self._models = [ClusterModel(architecture, generator) for _ in range(arguments.clusters)]
        self._heads = [task.build_head(spec, generator) for _ in self._models]
        self._optimizers = [
            torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=learning.learning_rate)
            for model, head in zip(self._models, self._heads, strict=True)
        ]
        self._loss = task.loss
        self._arguments = arguments
        self._rng = np.random.default_rng(0)

    def round(self) -> None:
        """Train every cluster on one mini-batch."""
        count = self._arguments.micro_batches
        for model, head, optimizer in zip(self._models, self._heads, self._optimizers, strict=True):
            chosen = torch.from_numpy(self._rng.integers(0, len(self._tokens), self._arguments.batch_size))
            optimizer.zero_grad()
            tokens: Tensor
            for tokens, targets in zip(
                self._tokens[chosen].tensor_split(count),
                self._targets[chosen].tensor_split(count),
                strict=True,
            ):
                loss = self._loss(head(model(tokens), tokens != PADDING), targets)
                torch.autograd.backward(loss * (len(tokens) / len(chosen)))
            optimizer.step()


def main(arguments: Arguments) -> None:
    """Measure and print; write JSON if asked to."""
    torch.set_num_threads(arguments.threads)
    proxy = ProxySpec()
    architecture = Architecture(
        blocks=sum(arguments.blocks),
        width=proxy.width,
        feedforward=proxy.feedforward,
        heads=proxy.heads,
        sequence_length=proxy.sequence_length,
        vocabulary=proxy.vocabulary,
    )
    # Evaluation is timed on its own: its share depends on evaluate_every.
    learning = LearningSpec(evaluate_every=1_000_000)
    learner = TorchLearner(
        architecture,
        task="classification",
        outputs=2,
        decoder_blocks=0,
        learning=learning,
        clusters=arguments.clusters,
        batch_size=arguments.batch_size,
        local_steps=1,
        num_envs=1,
    )
    n, m = arguments.clusters, arguments.micro_batches
    outcome = RoundOutcome(
        blocks=np.tile(np.array(arguments.blocks), (1, n, 1)),
        micro_batches=np.full((1, n), m),
        survived=np.ones((1, n, 1, m), dtype=np.bool_),
        success=np.ones((1, n)),
    )
    plain = PlainLoop(arguments, architecture, learning)
    learner.reset([np.random.default_rng(0)])
    start = time.perf_counter()
    learner.reset([np.random.default_rng(0)])
    reset_s = time.perf_counter() - start

    times: dict[str, list[float]] = {"learner": [], "plain": []}
    for turn in range(arguments.rounds + 2):
        for name, action in (("learner", lambda: learner.train_round(outcome)), ("plain", plain.round)):
            start = time.perf_counter()
            action()
            if turn >= 2:  # the first rounds allocate, and the first one evaluates
                times[name].append(time.perf_counter() - start)
    learner_s, plain_s = (statistics.median(times[name]) for name in ("learner", "plain"))
    figures = {
        "learner_ms_per_round": round(1e3 * learner_s, 2),
        "plain_ms_per_round": round(1e3 * plain_s, 2),
        "ratio": round(learner_s / plain_s, 4),
        "fastest_ratio": round(min(times["learner"]) / min(times["plain"]), 4),
        "reset_with_evaluation_ms": round(1e3 * reset_s, 1),
        "parameters_per_cluster": parameter_count(ClusterModel(architecture, torch.Generator())),
        "architecture": asdict(architecture),
        "arguments": {key: value for key, value in asdict(arguments).items() if key != "out"},
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    print(json.dumps(figures, indent=2))
    if arguments.out is not None:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        temporary = arguments.out.with_name(arguments.out.name + ".tmp")
        temporary.write_text(json.dumps(figures, indent=2) + "\n")
        temporary.replace(arguments.out)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
