"""Evaluation of the common model on held-out samples: its figures, its schedule and background threads."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.state_trees import Tree, require_alike
from collapipe_env.models.tokenization import PADDING
from collapipe_env.scenario.learning import LearningSpec
from collapipe_env.tasks import Task, TaskData, TaskSpec
from collapipe_env.tasks.base import require_writing
from collapipe_env.training.compute_device import full_precision, mixed_precision

EVALUATION_BATCH = {"cpu": 64, "cuda": 512}
"""Samples evaluated at once: on a CPU few enough for the activations to stay in a core's cache."""


class Evaluation(NamedTuple):
    """Result of an evaluation.

    Attributes:
        loss: Mean loss over the units of the evaluated samples, in nats.
        metrics: The task's metrics by name; empty if they were not computed.
    """

    loss: float
    metrics: Mapping[str, float]


class Evaluator:
    """Evaluates models on the same held-out samples; it keeps no state, so threads may share one."""

    def __init__(
        self, task: Task, task_spec: TaskSpec, data: TaskData, learning: LearningSpec, device: torch.device
    ) -> None:
        """Choose the samples and put them on the device of the models."""
        held_out = data.dev if learning.evaluation_split == "dev" else data.test
        # A fixed random subset: files are often sorted by class or source.
        order = np.random.default_rng(0).permutation(len(held_out))[: learning.evaluation_samples]
        self._task, self._spec, self._data = task, task_spec, data
        self._measure: Callable[[Tensor, Tensor], Tensor] | None = getattr(task, "measure", None)
        self._precision, self._device = learning.precision, device
        self._held_out = held_out
        self._tokens = torch.tensor(held_out.tokens[order], device=device)
        self._targets = torch.tensor(held_out.targets[order], device=device)
        self._scored = held_out.subset(order[: learning.metric_samples])
        self._batch = EVALUATION_BATCH.get(device.type, EVALUATION_BATCH["cuda"])

    @torch.no_grad()
    def __call__(self, model: nn.Module, head: nn.Module, *, metrics: bool = True) -> Evaluation:
        """Evaluate a model, which maps token ids (samples, q) to encoder outputs (samples, q, d).

        Metrics are computed on the first ``metric_samples`` of the samples.
        """
        losses, units, predictions = [], [], []
        with _evaluating(model, head):
            for start in range(0, len(self._tokens), self._batch):
                tokens = self._tokens[start : start + self._batch]
                targets = self._targets[start : start + self._batch]
                mask = tokens != PADDING
                count = min(len(self._scored) - start, len(tokens)) if metrics else 0
                with mixed_precision(self._precision, self._device):
                    hidden = model(tokens)
                    outputs = full_precision(head(hidden, mask, targets))
                    if count > 0 and self._measure is not None:  # measurements in place of predictions
                        predictions.append(self._measure(outputs[:count], targets[:count]).cpu())
                    elif count > 0:
                        found = self._task.predict(head, hidden[:count], mask[:count], self._spec)
                        predictions.append(found.cpu())
                losses.append(self._task.loss(outputs, targets))
                units.append(self._task.units(targets).sum())
            # Fetched at the end: on a GPU, reading a number earlier would hold up the next batch.
            means, counts = torch.stack(losses).tolist(), torch.stack(units).tolist()
        loss = sum(mean * count for mean, count in zip(means, counts, strict=True)) / sum(counts)
        scores = self._task.score(_joined(predictions), self._scored, self._data) if metrics else {}
        return Evaluation(loss, dict(scores))

    def written(self, model: nn.Module, head: nn.Module, count: int) -> list[dict[str, str]]:
        """Let a model continue ``count`` held-out documents; see ``continuations`` of the task.

        Raises:
            ScenarioError: If the task writes no text.
        """
        write = require_writing(self._task)
        with _evaluating(model, head):
            found: list[dict[str, str]] = write(model, head, self._held_out, self._data, count)
        return found


def metrics_due(round_number: int, evaluate_every: int, metric_every: int) -> bool:
    """Whether metrics are computed in a round (1, 2, ...) that evaluates the loss.

    Metrics are computed in the first round, and whenever a multiple of ``metric_every`` has been reached
    since the last evaluation.
    """
    before = round_number - evaluate_every
    return round_number == 1 or round_number // metric_every > before // metric_every


@contextlib.contextmanager
def _evaluating(*parts: nn.Module) -> Iterator[None]:
    """Put modules in evaluation mode, and back."""
    modes = [(module, module.training) for part in parts for module in part.modules()]
    for part in parts:
        part.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


class EvaluationDesk:
    """Schedule of the evaluations, and the figures to report for each environment.

    The loss is evaluated at a reset, after the first round and after every ``evaluate_every``-th; metrics at
    a reset and in those of these rounds for which :func:`metrics_due` holds. In between, the last figures
    stay.

    With ``evaluation: background`` the model is copied and a thread evaluates the copy while later rounds
    train. Its figures are reported at the next evaluation round, which waits for them if necessary. So
    reports do not depend on timing: they are those of ``inline``, one evaluation later. The untrained model
    is evaluated at once, and the last evaluation of a run is never reported. One thread computes at a time;
    it ends with its evaluation. Its errors are raised when its figures are due.

    Attributes:
        loss: Loss to report, shape (E,); NaN before a reset.
        metrics: Metrics to report, each of shape (E,).
    """

    def __init__(
        self, evaluator: Evaluator, learning: LearningSpec, num_envs: int, names: tuple[str, ...]
    ) -> None:
        """Begin without figures; ``names`` are those of the metrics."""
        self.evaluator, self._learning = evaluator, learning
        self._rounds = [0] * num_envs
        self._waiting: dict[int, Callable[[], Evaluation]] = {}
        self._last: _Job | None = None
        self.loss: FloatArray = np.full(num_envs, np.nan)
        self.metrics: dict[str, FloatArray] = {name: np.full(num_envs, np.nan) for name in names}

    def begin_run(self, env: int, model: nn.Module, head: nn.Module) -> None:
        """Evaluate an environment's untrained model."""
        self._rounds[env] = 0
        self._waiting.pop(env, None)
        self._keep(env, self.evaluator(model, head))

    def end_round(self, env: int, model: nn.Module, head: nn.Module) -> None:
        """Count a round and evaluate the environment's model if it is time to."""
        every = self._learning.evaluate_every
        self._rounds[env] += 1
        number = self._rounds[env]
        if number > 1 and number % every:
            return
        metrics = metrics_due(number, every, self._learning.metric_every)
        if self._learning.evaluation == "inline":
            self._keep(env, self.evaluator(model, head, metrics=metrics))
            return
        if env in self._waiting:
            self._keep(env, self._waiting.pop(env)())
        model, head = copy.deepcopy(model), copy.deepcopy(head)
        work = partial(self.evaluator, model, head, metrics=metrics)
        self._last = self._waiting[env] = _Job(work, self._last)

    def get_state(self) -> Tree:
        """Return the figures and the counts of rounds; waits for evaluations that run in the background.

        Raises:
            Exception: An error of such an evaluation.
        """
        found = {str(env): result() for env, result in self._waiting.items()}
        return {
            "rounds": np.array(self._rounds, dtype=np.int64),
            "loss": self.loss.copy(),
            "metrics": {name: values.copy() for name, values in self.metrics.items()},
            "waiting": {
                env: {
                    "loss": np.array(one.loss),
                    "metrics": {name: np.array(value) for name, value in one.metrics.items()},
                }
                for env, one in found.items()
            },
        }

    def restored(self, tree: Tree) -> EvaluationDesk:
        """Return a desk like this one that continues from a state of :meth:`get_state`.

        Raises:
            StateError: If the state is damaged or does not fit.
        """
        desk = EvaluationDesk(*self._given())
        desk.__setstate__(tree)
        return desk

    def __reduce__(self) -> tuple[Any, ...]:
        # Threads can be neither copied nor pickled.
        return EvaluationDesk, self._given(), self.get_state()

    def __setstate__(self, tree: Tree) -> None:
        rounds = np.array(self._rounds, dtype=np.int64)
        template = {"rounds": rounds, "loss": self.loss, "metrics": self.metrics, "waiting": ...}
        place = "learner/desk/waiting"
        require_alike(tree, template, "learner/desk")
        self._rounds, self.loss = tree["rounds"].tolist(), tree["loss"].copy()
        self.metrics = {name: values.copy() for name, values in tree["metrics"].items()}
        background = self._learning.evaluation == "background"
        expected = [str(env) for env, played in enumerate(self._rounds) if played and background]
        number = np.array(0.0)
        require_alike(tree["waiting"], {env: {"loss": number, "metrics": ...} for env in expected}, place)
        for env, found in tree["waiting"].items():
            names = () if found["metrics"] == {} else self.metrics  # none where they were not due
            require_alike(found["metrics"], dict.fromkeys(names, number), f"{place}/{env}/metrics")
            scores = {name: float(value) for name, value in found["metrics"].items()}
            self._waiting[int(env)] = partial(Evaluation, float(found["loss"]), scores)

    def _given(self) -> tuple[Evaluator, LearningSpec, int, tuple[str, ...]]:
        return self.evaluator, self._learning, len(self._rounds), tuple(self.metrics)

    def _keep(self, env: int, found: Evaluation) -> None:
        self.loss[env] = found.loss
        for name, value in found.metrics.items():
            self.metrics[name][env] = value


class _Job:
    """One evaluation in a thread of its own."""

    def __init__(self, work: Callable[[], Evaluation], after: _Job | None) -> None:
        self._work = work
        self._outcome: list[Evaluation | Exception] = []  # a single one, once it is there
        previous = () if after is None else (after._thread,)
        self._thread: threading.Thread = threading.Thread(target=self._run, args=previous, name="evaluation")
        self._thread.start()

    def __call__(self) -> Evaluation:
        """Wait for the evaluation and return it, or raise what it raised."""
        self._thread.join()
        if not self._outcome:
            self._run()  # threads do not survive a fork of the process
        (outcome,) = self._outcome
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _run(self, *previous: threading.Thread) -> None:
        for thread in previous:
            thread.join()
        try:
            self._outcome.append(self._work())
        except Exception as error:
            self._outcome.append(error)


def _joined(predictions: list[Tensor]) -> np.ndarray:
    """Join batches of predicted rows; generated rows may differ in length and are padded."""
    if predictions[0].ndim == 2:
        rows = [row for part in predictions for row in part]
        return pad_sequence(rows, batch_first=True, padding_value=PADDING).numpy()
    return torch.cat(predictions).numpy()
