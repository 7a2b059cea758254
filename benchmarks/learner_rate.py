"""Rate of the real learner: milliseconds a round, and beside a plain PyTorch loop.

The plain loop runs the same architecture, uncut, over the same micro-batches with gradient accumulation, and
one fused AdamW step per cluster and round: no token dropout, no averaging, no compression, no server and no
evaluation, so the least that any PyTorch code would do. Also measured: the learner with neighbouring
micro-batches in one pass (``samples_per_pass`` of the scenario), the shortcut of plain SGD, mixed precision,
and what evaluation adds in either mode::

    python benchmarks/learner_rate.py --output benchmarks/results/learner_rate.json
    python benchmarks/learner_rate.py --task ner translation --micro-batches 4

All contestants of a group take turns, so that a busy machine slows all of them alike; ratios are taken turn
by turn. Everything is measured once more on a GPU if there is one.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated
from unittest import mock

import numpy as np
import torch
import tyro
from measuring import Figure, command, figure_table, listed, store, within

from collapipe_env.learners import RoundOutcome, TorchLearner
from collapipe_env.learners.base import Arrivals
from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.models.tokenization import PADDING
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.scenario.loading import override_scenario
from collapipe_env.tasks import get_task
from collapipe_env.tasks.base import task_spec
from collapipe_env.training.flat_parameters import FlatParameters, parameter_count
from collapipe_env.training.held_out_evaluation import Evaluator

GOAL = 1.15
"""Most that the learner may take of the plain loop's time over the same micro-batches."""
NEVER = 1_000_000


@dataclass(frozen=True)
class Options:
    """Time of a round of the torch learner beside a plain PyTorch loop."""

    output: Annotated[Path | None, tyro.conf.arg(aliases=["--out"])] = None
    """JSON file to write; none by default."""
    scenario: str = "medium"
    """Preset, or path of a scenario."""
    task: tuple[str, ...] = ("classification",)
    """Tasks, one after the other."""
    micro_batches: tuple[int, ...] = (4, 64)
    """Micro-batches M to compare with the plain loop at; the other groups take the first."""
    stages: int = 5
    """Stages of every cluster's pipeline, 1 to 1000."""
    rounds: int = 15
    """Timed turns of each contestant, 1 to 100,000."""
    threads: int = 1
    """PyTorch threads, 1 to 1024."""

    def check(self) -> None:
        """Refuse what cannot be run."""
        within(
            ("--stages", self.stages, 1, 1000),
            ("--rounds", self.rounds, 1, 100_000),
            ("--threads", self.threads, 1, 1024),
            *(("--micro-batches", count, 1, 100_000) for count in self.micro_batches),
        )


class PlainLoop:
    """Gradient accumulation over micro-batches, one uncut model and one optimiser per cluster.

    Attributes:
        modules: Encoder and head of the first cluster.
    """

    def __init__(self, scenario: Scenario, micro_batches: int, device: torch.device, *, flat: bool) -> None:
        """Build the models.

        Args:
            scenario: Whose task and sizes to take.
            micro_batches: M.
            device: Where to train.
            flat: Step one flat vector, as the learner does, instead of every parameter tensor.
        """
        self._task, spec = get_task(scenario.workload.task), task_spec(scenario)
        train = self._task.load(spec).train
        self._tokens = torch.tensor(train.tokens, device=device)
        self._targets = torch.tensor(train.targets, device=device)
        self._units = self._task.units(torch.tensor(train.targets)).double().numpy()
        self._batch, self._micro_batches = scenario.workload.batch_size, micro_batches
        self._smoothing = scenario.learning.label_smoothing
        generator, learning = torch.Generator().manual_seed(0), scenario.learning
        self._clusters = []
        for _ in range(scenario.cluster.clusters):
            modules = torch.nn.ModuleList(
                [
                    ClusterModel(spec.architecture, generator).to(device),
                    self._task.build_head(spec, generator).to(device),
                ]
            )
            size = parameter_count(modules)
            if flat:
                vectors = torch.empty(size, device=device), torch.zeros(size, device=device)
                optimizer = FlatParameters(modules, *vectors).optimizer(
                    "adamw", learning.learning_rate, learning.weight_decay
                )
            else:
                optimizer = torch.optim.AdamW(modules.parameters(), lr=learning.learning_rate, fused=True)
            self._clusters.append((modules, optimizer))
        self.modules = self._clusters[0][0]
        self._flat = flat
        self._rng = np.random.default_rng(0)

    def round(self) -> None:
        """Train every cluster on one mini-batch."""
        for (model, head), optimizer in self._clusters:
            chosen = self._rng.integers(0, len(self._tokens), self._batch)
            units = [float(part.sum()) for part in np.array_split(self._units[chosen], self._micro_batches)]
            places = torch.from_numpy(chosen).to(self._tokens.device)
            optimizer.zero_grad(set_to_none=not self._flat)
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


class Learner:
    """The learner of a scenario with some of its settings changed, ready to train rounds."""

    def __init__(
        self,
        scenario: Scenario,
        device: torch.device,
        stages: int,
        micro_batches: int,
        settings: Mapping[str, str | float],
    ) -> None:
        """Reset it.

        Args:
            scenario: What to start from.
            device: Where to train.
            stages: Stages of every cluster's pipeline.
            micro_batches: M.
            settings: Scenario fields to change, by dotted path.
        """
        # Unless a contestant says otherwise, only the first round is evaluated.
        never = {"learning.evaluate_every": NEVER, "learning.metric_every": NEVER}
        scenario = override_scenario(scenario, {**never, **settings})
        self.learner = TorchLearner.from_scenario(scenario, 1, device=str(device))
        self.learner.reset([np.random.default_rng(0)])
        n = scenario.cluster.clusters
        sizes = [len(part) for part in np.array_split(np.arange(scenario.workload.blocks), stages)]
        steps = scenario.workload.local_steps
        counts = np.full((1, n), micro_batches)
        self._outcome = RoundOutcome(
            blocks=np.tile(np.array(sizes), (1, n, 1)),
            micro_batches=counts,
            arrivals=Arrivals.of(np.ones((1, n, steps, micro_batches), dtype=np.bool_), counts),
            survival=np.ones((1, n)),
        )

    def round(self) -> None:
        """Train one round."""
        self.learner.train_round(self._outcome)

    def rounds(self, count: int) -> None:
        """Train some rounds."""
        for _ in range(count):
            self.round()

    def loop_round(self) -> None:
        """Train one round without the shortcut of plain SGD."""
        with mock.patch("collapipe_env.training.federation.can_merge", return_value=False):
            self.round()


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
        beside: Contestant that the others are held against.
        goals: Most that a ratio may be, by contestant.
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
    scenario = override_scenario(load_scenario(options.scenario), {"workload.task": task})
    first, turns = options.micro_batches[0], options.rounds
    place = f"{task}, {device.type}"
    found: list[Figure] = []

    def learner(micro_batches: int = first, **settings: str | float) -> Learner:
        changes = {name.replace("__", "."): value for name, value in settings.items()}
        return Learner(scenario, device, options.stages, micro_batches, changes)

    def compare(
        group: str, actions: dict[str, Callable[[], None]], beside: str, goals: dict[str, float] | None = None
    ) -> None:
        found.extend(figures_of(f"{place}, {group}", timed(actions, turns, device), beside, goals))
        gc.collect()

    for m in options.micro_batches:
        compare(
            f"rounds of M = {m}",
            {
                "plain loop": PlainLoop(scenario, m, device, flat=False).round,
                "plain loop, flat optimiser": PlainLoop(scenario, m, device, flat=True).round,
                "learner, same micro-batches": learner(m, learning__samples_per_pass=1).round,
                "learner, joint passes": learner(m).round,
            },
            "plain loop",
            {"learner, same micro-batches": GOAL},
        )
    loop, merged = (
        learner(learning__optimizer="sgd", learning__momentum=0.0, workload__weight_bits=32) for _ in range(2)
    )
    compare("plain SGD", {"loop": loop.loop_round, "merged step": merged.round}, "loop")
    compare(
        "precision",
        {"float32": learner().round, "bfloat16": learner(learning__precision="bfloat16").round},
        "float32",
    )
    return [*found, *evaluation_figures(learner, scenario, task, device, turns)]


def evaluation_figures(
    learner: Callable[..., Learner], scenario: Scenario, task: str, device: torch.device, turns: int
) -> list[Figure]:
    """Time an evaluation by itself, and rounds with the scenario's evaluations, metrics once in a turn."""
    spec, trained = task_spec(scenario), learner()
    evaluator = Evaluator(get_task(task), spec, get_task(task).load(spec), scenario.learning, device)
    model, head = PlainLoop(scenario, 1, device, flat=False).modules
    alone: dict[str, Callable[[], object]] = {
        "a round": trained.round,
        "an evaluation of the loss": partial(evaluator, model, head, metrics=False),
        "an evaluation with metrics": partial(evaluator, model, head, metrics=True),
    }
    place = f"{task}, {device.type}"
    found = figures_of(f"{place}, evaluation by itself", timed(alone, turns, device), "a round")
    every, metric_every = scenario.learning.evaluate_every, scenario.learning.metric_every
    period = max(every, metric_every)
    periods = {"learning__evaluate_every": every, "learning__metric_every": metric_every}
    contestants = {
        "no evaluation": learner(),
        "inline evaluation": learner(**periods, learning__evaluation="inline"),
        "background evaluation": learner(**periods, learning__evaluation="background"),
    }

    for contestant in contestants.values():
        # So that evaluations begin within a turn, and the background's do not end in another contestant's.
        contestant.rounds(period // 2)
    group = f"{place}, evaluation every {every} rounds, metrics every {metric_every}"
    actions = {name: partial(contestant.rounds, period) for name, contestant in contestants.items()}
    times = timed(actions, max(3, turns // 2), device)
    return found + figures_of(group, times, "no evaluation", rounds=period)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and store if asked to; returns the exit status."""
    return command(Options, _run, __doc__, arguments)


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
    print(figure_table(found))
    if options.output is not None:
        gpu = torch.cuda.get_device_name() if len(devices) > 1 else "skipped: none that PyTorch can use"
        what = "time of a round of the torch learner over a plain loop's; range: quartiles over the turns"
        store(options.output, what, options, gpu=gpu, figures=listed(found))


if __name__ == "__main__":
    sys.exit(main())
