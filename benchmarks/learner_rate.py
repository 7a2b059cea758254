"""Rate of the real learner: milliseconds per round, and compared with a plain PyTorch loop.

The plain loop runs the same architecture, uncut, over the same micro-batches with gradient accumulation, and
one fused AdamW step per cluster and round: no token dropout, no averaging, no compression, no server and no
evaluation. That is the least that any PyTorch code would do. Also measured: the learner with neighbouring
micro-batches in one pass (``samples_per_pass`` of the scenario), mixed precision, and what evaluation adds in
either mode. Run::

    python benchmarks/learner_rate.py
    python benchmarks/learner_rate.py --task ner translation --micro-batches 4

All contestants of a group take turns, so that a busy machine slows all of them alike; ratios are taken turn
by turn. Everything is measured once more on a GPU if there is one.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated

import numpy as np
import torch
from measuring import BenchmarkOptions, Figure, command, publish
from pydantic import Field

from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.models.tokenization import PADDING
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.simulator.learner import Arrivals, RoundOutcome
from collapipe_env.tasks import get_task
from collapipe_env.tasks.base import task_spec
from collapipe_env.training.real_learner import TorchLearner

WHAT = "time of a round of the real learner over a plain loop's; range: quartiles over the turns"
GOAL = 1.15
"""Largest ratio wanted of the learner's time to the plain loop's over the same micro-batches."""
NEVER = 1_000_000
SAME = "learner, same micro-batches"


class Options(BenchmarkOptions):
    """Time of a round of the real learner beside a plain PyTorch loop."""

    scenario: str = "medium"
    """Preset, or path of a scenario."""
    task: tuple[str, ...] = ("classification",)
    """Tasks, one after the other."""
    micro_batches: tuple[Annotated[int, Field(ge=1)], ...] = (4, 64)
    """Numbers of micro-batches at which to compare with the plain loop; the other groups use the first."""
    stages: Annotated[int, Field(ge=1)] = 5
    """Stages of every cluster's pipeline, at least 1."""
    rounds: Annotated[int, Field(ge=1)] = 15
    """Timed turns of each contestant, at least 1."""
    threads: Annotated[int, Field(ge=1)] = 1
    """PyTorch threads, at least 1."""


class PlainLoop:
    """Gradient accumulation over micro-batches, one uncut model and one fused AdamW per cluster.

    Args:
        scenario: Scenario whose task and sizes to take.
        micro_batches: M.
        device: Where to train.
    """

    def __init__(self, scenario: Scenario, micro_batches: int, device: torch.device) -> None:
        self._task, spec = get_task(scenario.workload.task), task_spec(scenario)
        train = self._task.load(spec).train
        self._tokens = torch.tensor(train.tokens, device=device)
        self._targets = torch.tensor(train.targets, device=device)
        self._units = self._task.units(torch.tensor(train.targets)).double().numpy()
        self._batch, self._micro_batches = scenario.workload.batch_size, micro_batches
        self._smoothing = scenario.learning.label_smoothing
        generator, rate = torch.Generator().manual_seed(0), scenario.learning.learning_rate
        self._clusters = []
        for _ in range(scenario.cluster.clusters):
            parts = ClusterModel(spec.architecture, generator), self._task.build_head(spec, generator)
            modules = torch.nn.ModuleList(parts).to(device)
            self._clusters.append((modules, torch.optim.AdamW(modules.parameters(), lr=rate, fused=True)))
        self._rng = np.random.default_rng(0)

    def round(self) -> None:
        """Train every cluster on one mini-batch."""
        for (model, head), optimizer in self._clusters:
            chosen = self._rng.integers(0, len(self._tokens), self._batch)
            units = [float(part.sum()) for part in np.array_split(self._units[chosen], self._micro_batches)]
            places = torch.from_numpy(chosen).to(self._tokens.device)
            optimizer.zero_grad()
            for tokens, targets, count in zip(
                self._tokens[places].tensor_split(self._micro_batches),
                self._targets[places].tensor_split(self._micro_batches),
                units,
                strict=True,
            ):
                outputs = head(model(tokens), tokens != PADDING, targets)
                loss = self._task.loss(outputs, targets, self._smoothing)
                torch.autograd.backward(loss * (count / sum(units)))
            optimizer.step()


class RealLearner:
    """The learner of a scenario with some of its settings changed, ready to train rounds.

    Args:
        scenario: Scenario to start from.
        device: Where to train.
        stages: Stages of every cluster's pipeline.
        micro_batches: M.
        settings: Scenario fields to change, by dotted path.
    """

    def __init__(
        self,
        scenario: Scenario,
        device: torch.device,
        stages: int,
        micro_batches: int,
        settings: Mapping[str, str | float],
    ) -> None:
        # Unless a contestant says otherwise, only the first round is evaluated.
        never = {"learning.evaluate_every": NEVER, "learning.metric_every": NEVER}
        scenario = scenario.with_overrides({**never, **settings})
        self._learner = TorchLearner.from_scenario(scenario, 1, device=str(device))
        self._learner.reset([np.random.default_rng(0)])
        n, steps = scenario.cluster.clusters, scenario.workload.local_steps
        sizes = [len(part) for part in np.array_split(np.arange(scenario.workload.blocks), stages)]
        counts = np.full((1, n), micro_batches)
        self._outcome = RoundOutcome(
            blocks=np.tile(np.array(sizes), (1, n, 1)),
            micro_batches=counts,
            arrivals=Arrivals.of(np.ones((1, n, steps, micro_batches), dtype=np.bool_), counts),
            survival=np.ones((1, n)),
        )

    def rounds(self, count: int = 1) -> None:
        """Train some rounds."""
        for _ in range(count):
            self._learner.train_round(self._outcome)


def timed(
    actions: Mapping[str, Callable[[], object]], turns: int, device: torch.device
) -> dict[str, np.ndarray]:
    """Let actions take turns and return their times in seconds, each of shape (turns,)."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(turns + 2):
        for name, action in actions.items():
            start = time.perf_counter()
            action()
            if device.type == "cuda":
                torch.cuda.synchronize()
            if turn >= 2:  # the first ones allocate and evaluate
                times[name].append(time.perf_counter() - start)
    return {name: np.array(values) for name, values in times.items()}


def figures_of(
    group: str,
    times: Mapping[str, np.ndarray],
    beside: str,
    goals: Mapping[str, float] | None = None,
    rounds: int = 1,
) -> list[Figure]:
    """Compare the contestants of a group with one of them.

    Args:
        group: Contestants that took turns; begins the figures' names.
        times: Seconds of each one's turns.
        beside: Contestant with which the others are compared.
        goals: Largest ratio wanted, by contestant.
        rounds: Rounds of a turn.

    Returns:
        Median ratio of each, turn by turn, between its quartiles; the note has the median time of a round.
    """
    found = []
    for name, seconds in times.items():
        low, middle, high = (float(q) for q in np.quantile(seconds / times[beside], (0.25, 0.5, 0.75)))
        note = f"{1e3 * float(np.median(seconds)) / rounds:.2f} ms"
        goal = (goals or {}).get(name)
        found.append(Figure(f"{group}: {name}", middle, f"x {beside}", low, high, goal, note))
    return found


def measure(options: Options, task: str, device: torch.device) -> list[Figure]:
    """Measure everything for one task on one device."""
    scenario = load_scenario(options.scenario).with_overrides({"workload.task": task})
    first, turns = options.micro_batches[0], options.rounds
    found: list[Figure] = []

    def learner(settings: Mapping[str, str | float] | None = None, m: int = first) -> RealLearner:
        return RealLearner(scenario, device, options.stages, m, settings or {})

    def compare(group: str, actions: dict[str, Callable[[], None]], rounds: int = 1) -> None:
        """Compare the actions with the first of them."""
        times = timed(actions, turns if rounds == 1 else max(3, turns // 2), device)
        name = f"{task}, {device.type}, {group}"
        found.extend(figures_of(name, times, next(iter(actions)), {SAME: GOAL}, rounds))
        gc.collect()

    for m in options.micro_batches:
        compare(
            f"rounds of M = {m}",
            {
                "plain loop": PlainLoop(scenario, m, device).round,
                SAME: learner({"learning.samples_per_pass": 1}, m).rounds,
                "learner, joint passes": learner(m=m).rounds,
            },
        )
    half = learner({"learning.precision": "bfloat16"})
    compare("precision", {"float32": learner().rounds, "bfloat16": half.rounds})

    every, metric_every = scenario.learning.evaluate_every, scenario.learning.metric_every
    period = max(every, metric_every)
    evaluated = {
        "no evaluation": learner(),
        **{
            f"{where} evaluation": learner(
                {
                    "learning.evaluate_every": every,
                    "learning.metric_every": metric_every,
                    "learning.evaluation": where,
                }
            )
            for where in ("inline", "background")
        },
    }
    for contestant in evaluated.values():
        # So that evaluations begin within a turn, and none in the background ends in another's turn.
        contestant.rounds(period // 2)
    compare(
        f"evaluation every {every} rounds, metrics every {metric_every}",
        {name: partial(contestant.rounds, period) for name, contestant in evaluated.items()},
        rounds=period,
    )
    return found


def _run(options: Options) -> None:
    torch.set_num_threads(options.threads)
    devices = [torch.device("cpu")]
    if torch.cuda.is_available():
        devices.append(torch.device("cuda"))
    else:
        print("No GPU that PyTorch can use: GPU figures are skipped.")
    found: list[Figure] = []
    for task in options.task:
        for device in devices:
            found += measure(options, task, device)
    gpu = torch.cuda.get_device_name() if len(devices) > 1 else "skipped: none that PyTorch can use"
    publish(options, WHAT, found, gpu=gpu)


main = command(Options, _run, __doc__)

if __name__ == "__main__":
    sys.exit(main())
