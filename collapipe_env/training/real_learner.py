"""The real learner: trains the Transformer of every environment of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from collapipe_env.ground.arrays import BoolArray, IntArray
from collapipe_env.ground.errors import StateError
from collapipe_env.ground.forking import one_thread_after_fork
from collapipe_env.ground.state_trees import REMEDY, Tree, require_alike, require_names
from collapipe_env.ground.torch_settings import under_own_settings
from collapipe_env.models.hf_saving import save_checkpoint
from collapipe_env.simulator.learner import LearningReport, RoundOutcome
from collapipe_env.training.compute_device import resolve_device
from collapipe_env.training.federation import Federation
from collapipe_env.training.held_out_evaluation import EvaluationDesk, Evaluator
from collapipe_env.training.outcome_checks import trained_round
from collapipe_env.training.training_setup import Training, TrainingSetup

if TYPE_CHECKING:
    from collapipe_env.scenario import Scenario


@under_own_settings
class TorchLearner:
    """Trains the Transformer of every environment in PyTorch, one environment after the other.

    Each environment has a training run of its own (:class:`Federation`), so environment i is the same
    whatever the number of environments. Data and tokeniser are prepared at the first reset and shared within
    the process. Every public method works under :func:`~collapipe_env.ground.torch_settings.own_settings`, so
    the caller's ``torch.no_grad``, default types and devices, and so on, change nothing. PyTorch's global
    random state is not read, and every call leaves it as it was; with dropout a round borrows it
    (:mod:`collapipe_env.models.dropout`). Small models train fastest in one thread
    (``torch.set_num_threads(1)``); that setting belongs to the process, so the learner leaves it alone,
    except in processes forked after the first reset: these use one thread
    (:mod:`collapipe_env.ground.forking`). The same seeds give bit-identical losses on a CPU for the same
    number of threads. On a GPU, PyTorch does not promise the order of the sums in the attention's backward
    pass, so last digits may differ there. Its evaluations are those of
    :class:`~collapipe_env.training.held_out_evaluation.EvaluationDesk`; reports in between repeat the last.
    """

    def __init__(self, training: Training, num_envs: int, device: str = "auto") -> None:
        """Describe the training; nothing is loaded before the first reset.

        Args:
            num_envs: Environments E.
            device: PyTorch device to train on, by name. It is looked up at the first reset, so a process may
                be forked before that.
        """
        self.training, self.num_envs, self._device_name = training, num_envs, device
        self._prepared: tuple[TrainingSetup, EvaluationDesk] | None = None
        self._runs: list[Federation | None] = [None] * num_envs
        self._train_loss = np.full(num_envs, np.nan)

    @classmethod
    def from_scenario(cls, scenario: Scenario, num_envs: int, device: str | None = None) -> TorchLearner:
        """Return the learner of a scenario; ``device`` None takes ``learning.device``.

        Raises:
            ScenarioError: If the task does not exist.
        """
        return cls(Training.of(scenario), num_envs, device or scenario.learning.device)

    def reset(self, rngs: Sequence[np.random.Generator], mask: BoolArray | None = None) -> LearningReport:
        """Start fresh training runs; see :class:`~collapipe_env.simulator.learner.Learner`.

        Raises:
            DataError: If the data cannot be loaded or does not fit the workload.
            ScenarioError: If the task cannot be built as configured, or the device is not available.
            ValueError: If there is not one generator per environment.
        """
        if len(rngs) != self.num_envs:
            raise ValueError(f"{len(rngs)} generators for {self.num_envs} environments; pass one for each")
        if self._prepared is None:
            self._prepared = self.prepare()
        setup, desk = self._prepared
        for e in range(self.num_envs) if mask is None else np.flatnonzero(mask).tolist():
            run = self._runs[e] = Federation(setup, rngs[e])
            desk.begin_run(e, *run.common_model)
            self._train_loss[e] = np.nan
        return self._report(desk)

    def train_round(self, outcome: RoundOutcome) -> LearningReport:
        """Train one round in every environment; see :class:`~collapipe_env.simulator.learner.Learner`.

        Raises:
            AllocationError: If the outcome's shapes, segments or micro-batches do not fit the workload.
            RuntimeError: If an environment was never reset.
        """
        runs = [self._run(e, "train_round") for e in range(self.num_envs)]
        assert self._prepared is not None
        setup, desk = self._prepared
        plans = trained_round(outcome, setup, self.num_envs)
        for e, run in enumerate(runs):
            self._train_loss[e] = run.train_round(plans[e])
            desk.end_round(e, *run.common_model)
        return self._report(desk)

    def _run(self, env: int, before: str) -> Federation:
        """Return an environment's training run.

        Raises:
            RuntimeError: If the environment was never reset.
        """
        run = self._runs[env]
        if run is None:
            raise RuntimeError(f"environment {env} has no training run; call reset before {before}")
        return run

    def written_samples(self, count: int, env: int = 0) -> list[dict[str, str]]:
        """Let the trained model of an environment continue the beginnings of ``count`` held-out documents.

        Nothing of the training changes.

        Returns:
            For each, ``prompt``, ``document`` (its own continuation), ``greedy`` and ``top_p``.

        Raises:
            ScenarioError: If the task writes no text.
            RuntimeError: If the environment was never reset.
        """
        run = self._run(env, "written_samples")
        assert self._prepared is not None
        return self._prepared[1].evaluator.written(*run.common_model, count)

    def save_checkpoint(self, folder: str | Path, env: int = 0) -> None:
        """Write an environment's language model as a new folder in Hugging Face format, with its tokeniser.

        Raises:
            CheckpointError: If the model is of no style of language models, or the folder cannot be written.
            RuntimeError: If the environment was never reset.
        """
        spec, made = self.training.task_spec, self._run(env, "saving").common_model
        data = self.training.task.load(spec)  # cached since the first reset
        save_checkpoint(folder, *made, spec.checkpoint, data.tokenizer, data.end)

    def get_state(self) -> Tree:
        """Return copies of models, optimisers, data orders, generators and figures of every environment.

        Waits for evaluations that run in the background.
        """
        if self._prepared is None:
            return {"prepared": False}
        setup, desk = self._prepared
        return {
            "prepared": True,
            "data": setup.data_digest,
            "runs": {str(e): None if run is None else run.get_state() for e, run in enumerate(self._runs)},
            "desk": desk.get_state(),
            "train_loss": self._train_loss.copy(),
        }

    def set_state(self, tree: Tree) -> None:
        """Continue from a state of :meth:`get_state`; on an error nothing changes.

        Raises:
            StateError: If the state is damaged, or comes from another model or other data.
            DataError: If the data cannot be loaded.
        """
        if _unprepared(tree):
            self._prepared, self._runs = None, [None] * self.num_envs
            self._train_loss = np.full(self.num_envs, np.nan)
            return
        setup, desk = self._prepared or self.prepare()
        template = {"prepared": True, "data": "", "runs": ..., "desk": ..., "train_loss": self._train_loss}
        require_alike(tree, template, "learner")
        if tree["data"] != setup.data_digest:
            raise StateError(
                "the state comes from training with other data: use the files and options with which it "
                "was taken"
            )
        names = [str(e) for e in range(self.num_envs)]
        require_names(tree["runs"], names, "learner/runs")
        runs = [
            None if tree["runs"][e] is None else Federation.from_state(setup, tree["runs"][e]) for e in names
        ]
        desk = desk.restored(tree["desk"])
        if tree["desk"]["rounds"].tolist() != [0 if run is None else run.rounds for run in runs]:
            raise StateError(f"learner/desk/rounds does not agree with the runs: {REMEDY}")
        self._prepared = setup, desk
        self._runs, self._train_loss = runs, tree["train_loss"].copy()

    def require_rounds(self, tree: Tree, rounds: IntArray) -> None:
        """Refuse other numbers of rounds; see :class:`~collapipe_env.simulator.learner.CountsRounds`."""
        runs = {} if _unprepared(tree) else tree.get("runs") if isinstance(tree, Mapping) else None
        for e, played in enumerate(rounds.tolist()):
            run = runs.get(str(e)) if isinstance(runs, Mapping) else None
            found = run.get("round") if isinstance(run, Mapping) else -1 if run is None else None
            if type(found) is not int or found != played:
                raise StateError(f"learner/runs/{e}/round does not agree with the system's rounds: {REMEDY}")

    def prepare(self) -> tuple[TrainingSetup, EvaluationDesk]:
        """Load the data and put it on the device."""
        one_thread_after_fork()
        device = resolve_device(self._device_name)
        task, spec, learning = self.training.task, self.training.task_spec, self.training.learning
        data = task.load(spec)
        tokens, targets = torch.tensor(data.train.tokens), torch.tensor(data.train.targets)
        setup = TrainingSetup(
            **vars(self.training),
            strata=data.strata,
            lengths=data.lengths,
            train=(tokens.to(device), targets.to(device)),
            # They stay on the CPU, where they are summed, so that nothing waits for a GPU.
            units=task.units(targets).double().numpy(),
            hidden=data.hidden,
            pack=data.pack,
        )
        evaluator = Evaluator(task, spec, data, learning, device)
        return setup, EvaluationDesk(evaluator, learning, self.num_envs, task.metrics)

    def _report(self, desk: EvaluationDesk) -> LearningReport:
        """Return the report, as copies, so that later rounds do not change it."""
        metrics = {name: values.copy() for name, values in desk.metrics.items()}
        return LearningReport(
            desk.loss.copy(), metrics[self.training.task.metrics[0]].copy(), self._train_loss.copy(), metrics
        )


def _unprepared(tree: Any) -> bool:
    """Whether a state is that of a learner before its first reset."""
    return isinstance(tree, Mapping) and set(tree) == {"prepared"} and tree["prepared"] is False
