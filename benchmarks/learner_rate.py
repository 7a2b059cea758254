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
import itertools
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
NEVER = {"learning.evaluate_every": 1_000_000, "learning.metric_every": 1_000_000}
"""Unless a contestant says otherwise, only the first round is evaluated."""
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


def plain_loop(scenario: Scenario, micro_batches: int, device: torch.device) -> Callable[[], None]:
    """A round of gradient accumulation over micro-batches, one uncut model and fused AdamW per cluster."""
    task, spec = get_task(scenario.workload.task), task_spec(scenario)
    train = task.load(spec).train
    tokens_of, targets_of = (torch.tensor(part, device=device) for part in (train.tokens, train.targets))
    counts = task.units(torch.tensor(train.targets)).double().numpy()
    generator, rng = torch.Generator().manual_seed(0), np.random.default_rng(0)
    clusters = []
    for _ in range(scenario.cluster.clusters):
        parts = ClusterModel(spec.architecture, generator), task.build_head(spec, generator)
        modules = torch.nn.ModuleList(parts).to(device)
        adam = torch.optim.AdamW(modules.parameters(), lr=scenario.learning.learning_rate, fused=True)
        clusters.append((modules, adam))

    def play() -> None:
        for (model, head), optimizer in clusters:
            chosen = rng.integers(0, len(tokens_of), scenario.workload.batch_size)
            units = [float(part.sum()) for part in np.array_split(counts[chosen], micro_batches)]
            places = torch.from_numpy(chosen).to(device)
            optimizer.zero_grad()
            for tokens, targets, count in zip(
                tokens_of[places].tensor_split(micro_batches),
                targets_of[places].tensor_split(micro_batches),
                units,
                strict=True,
            ):
                outputs = head(model(tokens), tokens != PADDING, targets)
                loss = task.loss(outputs, targets, scenario.learning.label_smoothing)
                torch.autograd.backward(loss * (count / sum(units)))
            optimizer.step()

    return play


def real_learner(
    scenario: Scenario, device: torch.device, stages: int, M: int, settings: Mapping[str, str | float]
) -> Callable[..., None]:
    """A function that trains rounds by the learner of a scenario with some of its settings changed."""
    scenario = scenario.with_overrides({**NEVER, **settings})
    learner = TorchLearner.from_scenario(scenario, 1, device=str(device))
    learner.reset([np.random.default_rng(0)])
    n, steps = scenario.cluster.clusters, scenario.workload.local_steps
    sizes = [len(part) for part in np.array_split(np.arange(scenario.workload.blocks), stages)]
    counts = np.full((1, n), M)
    outcome = RoundOutcome(
        blocks=np.tile(np.array(sizes), (1, n, 1)),
        micro_batches=counts,
        arrivals=Arrivals.of(np.ones((1, n, steps, M), dtype=np.bool_), counts),
        survival=np.ones((1, n)),
    )

    def play(rounds: int = 1) -> None:
        for _ in range(rounds):
            learner.train_round(outcome)

    return play


def timed(
    actions: Mapping[str, Callable[[], object]], turns: int, device: torch.device
) -> dict[str, np.ndarray]:
    """Let actions take turns and return their times in seconds, each of shape (turns,)."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for turn, (name, action) in itertools.product(range(turns + 2), actions.items()):
        start = time.perf_counter()
        action()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if turn >= 2:  # the first ones allocate and evaluate
            times[name].append(time.perf_counter() - start)
    return {name: np.array(values) for name, values in times.items()}


def figures_of(group: str, times: Mapping[str, np.ndarray], rounds: int = 1) -> list[Figure]:
    """Median ratio of each contestant to the first of its group, turn by turn, between its quartiles.

    The note has the median time of a round, of which a turn has several.
    """
    found, beside = [], next(iter(times))
    for name, seconds in times.items():
        low, middle, high = (float(q) for q in np.quantile(seconds / times[beside], (0.25, 0.5, 0.75)))
        note = f"{1e3 * float(np.median(seconds)) / rounds:.2f} ms"
        goal = GOAL if name == SAME else None
        found.append(Figure(f"{group}: {name}", middle, f"x {beside}", low, high, goal, note))
    return found


def measure(options: Options, task: str, device: torch.device) -> list[Figure]:
    """Measure everything for one task on one device."""
    scenario = load_scenario(options.scenario).with_overrides({"workload.task": task})
    first, turns = options.micro_batches[0], options.rounds
    found: list[Figure] = []

    def learner(m: int = first, **settings: str | float) -> Callable[..., None]:
        changes = {f"learning.{name}": value for name, value in settings.items()}
        return real_learner(scenario, device, options.stages, m, changes)

    def compare(group: str, actions: dict[str, Callable[[], None]], rounds: int = 1) -> None:
        """Compare the actions with the first of them."""
        times = timed(actions, turns if rounds == 1 else max(3, turns // 2), device)
        found.extend(figures_of(f"{task}, {device.type}, {group}", times, rounds))
        gc.collect()

    for m in options.micro_batches:
        compare(
            f"rounds of M = {m}",
            {
                "plain loop": plain_loop(scenario, m, device),
                SAME: learner(m, samples_per_pass=1),
                "learner, joint passes": learner(m),
            },
        )
    compare("precision", {"float32": learner(), "bfloat16": learner(precision="bfloat16")})

    every, metric_every = scenario.learning.evaluate_every, scenario.learning.metric_every
    period = max(every, metric_every)
    evaluated = {"no evaluation": learner()}
    for where in ("inline", "background"):
        evaluated[f"{where} evaluation"] = learner(
            evaluate_every=every, metric_every=metric_every, evaluation=where
        )
    for contestant in evaluated.values():
        # So that evaluations begin within a turn, and none in the background ends in another's turn.
        contestant(period // 2)
    compare(
        f"evaluation every {every} rounds, metrics every {metric_every}",
        {name: partial(contestant, period) for name, contestant in evaluated.items()},
        rounds=period,
    )
    return found


def _run(options: Options) -> None:
    torch.set_num_threads(options.threads)
    devices, gpu = [torch.device("cpu")], "skipped: none that PyTorch can use"
    if torch.cuda.is_available():
        devices.append(torch.device("cuda"))
        gpu = torch.cuda.get_device_name()
    else:
        print("No GPU that PyTorch can use: GPU figures are skipped.")
    pairs = itertools.product(options.task, devices)
    publish(options, WHAT, [one for pair in pairs for one in measure(options, *pair)], gpu=gpu)


main = command(Options, _run, __doc__)

if __name__ == "__main__":
    sys.exit(main())
