"""How fast the real learner trains: milliseconds a round, and beside a plain PyTorch loop.

The plain loop runs the same architecture, uncut, over the same micro-batches with gradient accumulation, and
one fused AdamW step per cluster and round: no token dropout, no averaging, no compression, no server and no
evaluation, so the least that any PyTorch code would do. Also measured: the learner with neighbouring
micro-batches in one pass (``samples_per_pass`` of the scenario), the shortcut of plain SGD, mixed precision,
and what evaluation adds in either mode::

    python benchmarks/learner_rate.py --out benchmarks/results/learner_rate.json
    python benchmarks/learner_rate.py --task ner translation --micro-batches 4

All contestants of a group take turns, so that a busy machine slows all of them alike; ratios are taken turn
by turn. Everything is measured once more on a GPU if there is one.
"""

from __future__ import annotations

import gc
import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import torch
import tyro

from collapipe_env import files
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
class Arguments:
    """What to measure."""

    out: Path | None = None
    """Where to write the figures as JSON; nowhere if empty."""
    scenario: str = "medium"
    """Preset, or path of a scenario."""
    task: tuple[str, ...] = ("classification",)
    """Tasks, one after the other."""
    micro_batches: tuple[int, ...] = (4, 64)
    """Micro-batches M to compare with the plain loop at; the other groups take the first."""
    stages: int = 5
    """Stages of every cluster's pipeline."""
    rounds: int = 15
    """Timed turns of each contestant."""
    threads: int = 1
    """PyTorch threads."""


@dataclass(frozen=True)
class Row:
    """One contestant's figures.

    Attributes:
        task: Name of the task.
        device: Where it ran.
        group: Contestants that took turns.
        name: Contestant.
        milliseconds: Median time of a round.
        beside: Contestant that the ratio compares with.
        ratio: Median over the turns of its time over the other's.
        quartiles: First and third quartile of the same.
        goal: Most that the ratio may be; None if it has no goal.
    """

    task: str
    device: str
    group: str
    name: str
    milliseconds: float
    beside: str
    ratio: float
    quartiles: tuple[float, float]
    goal: float | None


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


def rows_of(
    place: tuple[str, str, str],
    times: dict[str, np.ndarray],
    beside: str,
    goals: dict[str, float] | None = None,
    rounds: int = 1,
) -> list[Row]:
    """Compare the contestants of a group with one of them; a turn has ``rounds`` rounds."""
    rows = []
    for name, seconds in times.items():
        quartiles = np.quantile(seconds / times[beside], (0.25, 0.5, 0.75))
        low, middle, high = (round(float(value), 3) for value in quartiles)
        milliseconds = round(1e3 * float(np.median(seconds)) / rounds, 2)
        goal = (goals or {}).get(name)
        rows.append(Row(*place, name, milliseconds, beside, middle, (low, high), goal))
    return rows


def measure(arguments: Arguments, task: str, device: torch.device) -> list[Row]:
    """Measure everything for one task on one device."""
    scenario = override_scenario(load_scenario(arguments.scenario), {"workload.task": task})
    first, turns = arguments.micro_batches[0], arguments.rounds
    rows: list[Row] = []

    def learner(micro_batches: int = first, **settings: str | float) -> Learner:
        changes = {name.replace("__", "."): value for name, value in settings.items()}
        return Learner(scenario, device, arguments.stages, micro_batches, changes)

    def compare(
        group: str, actions: dict[str, Callable[[], None]], beside: str, goals: dict[str, float] | None = None
    ) -> None:
        rows.extend(rows_of((task, device.type, group), timed(actions, turns, device), beside, goals))
        gc.collect()

    for m in arguments.micro_batches:
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
    rows.extend(evaluation_rows(learner, scenario, task, device, turns))
    return rows


def evaluation_rows(
    learner: Callable[..., Learner], scenario: Scenario, task: str, device: torch.device, turns: int
) -> list[Row]:
    """Time an evaluation by itself, and rounds with the scenario's evaluations, metrics once in a turn."""
    spec, trained = task_spec(scenario), learner()
    evaluator = Evaluator(get_task(task), spec, get_task(task).load(spec), scenario.learning, device)
    model, head = PlainLoop(scenario, 1, device, flat=False).modules
    alone: dict[str, Callable[[], object]] = {
        "a round": trained.round,
        "an evaluation of the loss": partial(evaluator, model, head, metrics=False),
        "an evaluation with metrics": partial(evaluator, model, head, metrics=True),
    }
    rows = rows_of((task, device.type, "evaluation by itself"), timed(alone, turns, device), "a round")
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
    place = task, device.type, f"evaluation every {every} rounds, metrics every {metric_every}"
    actions = {name: partial(contestant.rounds, period) for name, contestant in contestants.items()}
    times = timed(actions, max(3, turns // 2), device)
    return rows + rows_of(place, times, "no evaluation", rounds=period)


def main(arguments: Arguments) -> None:
    """Measure and print; write JSON if asked to."""
    torch.set_num_threads(arguments.threads)
    devices = [torch.device("cpu")]
    if torch.cuda.is_available():
        devices.append(torch.device("cuda"))
    else:
        print("No GPU that PyTorch can use: GPU figures are skipped.")
    rows: list[Row] = []
    for task in arguments.task:
        for device in devices:
            rows += measure(arguments, task, device)
            for row in (row for row in rows if (row.task, row.device) == (task, device.type)):
                print(line(row))
    if arguments.out is not None:
        store(arguments, devices, rows)


def line(row: Row) -> str:
    """Return a row as a line of text."""
    goal = "" if row.goal is None else f"  goal <= {row.goal} {'met' if row.ratio <= row.goal else 'MISSED'}"
    low, high = row.quartiles
    return (
        f"{row.task:15} {row.device:5} {row.group:48} {row.name:28} {row.milliseconds:9.2f} ms  "
        f"x {row.ratio:.3f} ({low:.3f} to {high:.3f}) of {row.beside}{goal}"
    )


def store(arguments: Arguments, devices: list[torch.device], rows: list[Row]) -> None:
    """Write the figures and what they were measured with."""
    figures = {
        "rows": [asdict(row) for row in rows],
        "gpu": torch.cuda.get_device_name() if len(devices) > 1 else "skipped: none that PyTorch can use",
        "arguments": {name: value for name, value in asdict(arguments).items() if name != "out"},
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    assert arguments.out is not None
    files.write_json(arguments.out, figures)
    print(f"Written to {arguments.out}")


if __name__ == "__main__":
    main(tyro.cli(Arguments))
