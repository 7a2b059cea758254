"""Training of the graph net: resumable, interruptible, with the best version kept.

Agents play with the average of the weights of the last steps, which is steadier than the latest weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from collapipe_env.agents.learned.agent_file import (
    TRAINING,
    AgentRecord,
    Tensors,
    read_agent_file,
    require_tensors,
    write_agent_file,
)
from collapipe_env.agents.learned.curves import curves_logger
from collapipe_env.agents.learned.tracking import Tracker
from collapipe_env.agents.learned.training_files import TrainingFiles
from collapipe_env.agents.learned.validation import Score
from collapipe_env.ground.errors import CheckpointError
from collapipe_env.ground.progress import progress_bar
from collapipe_env.ground.version import __version__
from collapipe_env.scenario import Scenario

from .graph_files import ADAM, LEARNING, first_weights, graph_record, require_graph_net
from .graph_parameters import GraphParameters
from .graph_step import Losses, learn_and_play
from .graph_validation import GraphValidator, graph_validator
from .net import GraphNet
from .training_groups import Curriculum, Group
from .training_range import training_range

CURVE_EVERY = 50
"""Gradient steps between two entries of the curves."""
MOST_SKIPPED = 100
"""Steps in a row without a finite gradient after which training stops with an error."""
WARM_UP = 100
"""Steps in which the learning rate rises."""


@dataclass(frozen=True)
class GraphPlan:
    """A training to do.

    Attributes:
        scenario: Scenario whose validations are shown; the net trains on systems of many sizes in any case.
        parameters: Hyper-parameters.
        steps: Gradient steps in all.
        seed: Governs weights, systems, episodes and samples.
        validate_every: Gradient steps between two validations.
        command: Command that trains it, for the record.
        track: Tracker that receives its curves, in addition to TensorBoard.
    """

    scenario: Scenario
    parameters: GraphParameters
    steps: int
    seed: int
    validate_every: int
    command: str = ""
    track: Tracker | None = None

    @property
    def told(self) -> dict[str, Any]:
        """Plain values that describe it to a tracker."""
        own = {"scenario": self.scenario.name, "algorithm": "graph", "steps": self.steps, "seed": self.seed}
        return {**own, "command": self.command, **asdict(self.parameters)}


class GraphTraining:
    """A training of the graph net, new or resumed.

    A resumed training draws new systems and episodes; weights, moments of the optimiser and schedules
    continue.

    Args:
        plan: The training.
        files: Where to keep it.

    Raises:
        CheckpointError: If the stored version is damaged or of other hyper-parameters, or the net to start
            from does not suit them.

    Attributes:
        steps: Gradient steps so far.
        seconds: Wall-clock time so far, validations included.
        history: Validations, oldest first.
        best: The best of them.
    """

    def __init__(self, plan: GraphPlan, files: TrainingFiles) -> None:
        self.plan, self.files = plan, files
        self.steps, self.seconds = 0, 0.0
        self.history: list[Score] = []
        self.best: Score | None = None
        p = plan.parameters
        self._range = training_range(p)
        torch.manual_seed(plan.seed)
        self._net = GraphNet(p)
        if p.start_from and not files.latest.exists():
            self._net.load_state_dict(first_weights(p), strict=False)
        self._net.leave_out(p.without)
        self._adam = torch.optim.Adam(
            self._net.parameters(), lr=p.learning_rate, betas=(0.9, 0.98), fused=True
        )
        for parameter in self._net.parameters():
            # As Adam has it at its first step, so that a run that ends before that step can be resumed too.
            nothing = {part: torch.zeros_like(parameter.data) for part in ("exp_avg", "exp_avg_sq")}
            self._adam.state[parameter] = {"step": torch.zeros(()), **nothing}
        self._average = GraphNet(p).requires_grad_(requires_grad=False)
        self._average.load_state_dict(self._net.state_dict())
        if files.latest.exists():
            self._read()

    def run(self, say: Callable[[str], None] = tqdm.write) -> None:
        """Train until the plan's steps are done.

        Args:
            say: Receives one line for every validation.

        Raises:
            KeyboardInterrupt: After saving, if the user interrupts.
            CheckpointError: If the loss stays without a finite gradient.
        """
        plan = self.plan
        if self.done:
            return
        validator = graph_validator(plan.scenario, plan.parameters)
        logger = curves_logger(self.files.tensorboard, plan.track, plan.told)
        bar = progress_bar(plan.steps, "training GRAPH", "steps", initial=self.steps)
        started = time.perf_counter() - self.seconds
        try:
            if self.steps and self._due and not self._judged:
                say(self._validate(validator, logger))  # interrupted between this step and its validation
            for losses, norm in self._steps():
                bar.update()
                if self.steps % CURVE_EVERY == 0:
                    self._record(logger, losses, norm)
                    bar.set_postfix_str(f"objective {losses.objective:.3f}", refresh=False)
                if self._due:
                    self.seconds = time.perf_counter() - started
                    say(self._validate(validator, logger))
            if not self.files.best.exists():  # interrupted before the first validation, or removed since
                say(self._validate(validator, logger))
        except (KeyboardInterrupt, CheckpointError) as error:
            self.seconds = time.perf_counter() - started
            self._write(self.files.latest, for_training=True)
            if isinstance(error, KeyboardInterrupt):
                say(f"the training is kept at step {self.steps:,}: {self.files.latest}")
            raise
        finally:
            bar.close()
            logger.close()

    @property
    def done(self) -> bool:
        """Whether all steps are taken and the last version has been validated."""
        return self.steps >= self.plan.steps and self._judged and self.files.best.exists()

    @property
    def _due(self) -> bool:
        """Whether the present version is to be validated."""
        return self.steps % self.plan.validate_every == 0 or self.steps >= self.plan.steps

    @property
    def _judged(self) -> bool:
        """Whether the present version has been validated."""
        return bool(self.history) and self.history[-1].steps == self.steps

    def _steps(self) -> Iterator[tuple[Losses, float]]:
        """Take the steps that are left, and give the losses and the norm of the gradient of each."""
        plan, p = self.plan, self.plan.parameters
        # A resumed run must not replay the systems it began with.
        rng = np.random.default_rng([plan.seed, self.steps])
        curriculum, skipped = Curriculum(p), 0
        groups: list[Group | None] = [None] * len(curriculum)
        while self.steps < plan.steps:
            left = 1.0 - self.steps / plan.steps
            rate = p.final_learning_rate + (p.learning_rate - p.final_learning_rate) * left
            for weights in self._adam.param_groups:
                weights["lr"] = min(1.0, (self.steps + 1) / WARM_UP) * rate
            entropy = p.final_entropy + (p.entropy - p.final_entropy) * left**2
            place = self.steps % len(groups)
            group = groups[place]
            if group is None or group.ended:
                group = groups[place] = curriculum.group(place, rng)
            losses = learn_and_play(self._net, group, p, entropy, rng)
            norm = self._learn(losses)
            skipped = 0 if np.isfinite(norm) else skipped + 1
            if skipped:
                groups[place] = None
            if skipped > MOST_SKIPPED:
                raise CheckpointError(
                    f"training has diverged at step {self.steps:,}: no finite gradient in {skipped} "
                    f"steps; {self.files.latest} holds the weights; train again with --fresh and a "
                    "smaller --graph.learning-rate"
                )
            self.steps += 1
            yield losses, norm

    def _learn(self, losses: Losses) -> float:
        """Take a gradient step unless the gradient is not finite; returns its norm."""
        self._adam.zero_grad()
        losses.total.backward()  # type: ignore[no-untyped-call]
        norm = float(torch.nn.utils.clip_grad_norm_(self._net.parameters(), 1.0))
        if np.isfinite(norm):
            self._adam.step()
            part = 1.0 / min(self.steps + 1, self.plan.parameters.averaged_steps)
            for average, weight in zip(self._average.parameters(), self._net.parameters(), strict=True):
                average.lerp_(weight.detach(), part)
        return norm

    def _record(self, logger: Any, losses: Losses, norm: float) -> None:
        for name in ("objective", "micro_batches", "entropy"):
            logger.record(f"train/{name}", getattr(losses, name))
        logger.record("train/gradient_norm", norm)
        logger.record("train/learning_rate", self._adam.param_groups[0]["lr"])
        logger.dump(self.steps)

    def _validate(self, validator: GraphValidator, logger: Any) -> str:
        """Validate, save, and return a line about it."""
        score = validator(self._average, self.steps, self.seconds)
        self.history.append(score)
        better = score.better_than(self.best)
        if better:
            self.best = score
            self._write(self.files.best, for_training=False)
        self._write(self.files.latest, for_training=True)
        logger.record("validation/priced_delay_s", score.priced_delay)
        logger.record("validation/mean_delay_s", score.mean_delay)
        logger.record("validation/worst_energy_ratio", score.energy_ratio)
        logger.record("validation/objective", score.objective)
        logger.dump(self.steps)
        return (
            f"{score.steps:>10,} steps  {score.seconds:6.0f} s   priced delay {score.priced_delay:7.3f} s   "
            f"energy {100.0 * (score.energy_ratio - 1.0):+6.1f} %{'   best' if better else ''}"
        )

    def _write(self, path: Path, *, for_training: bool) -> None:
        plan = self.plan
        training = {"command": plan.command, "seed": plan.seed, "steps": plan.steps, "seconds": self.seconds}
        history = [score.to_dict() for score in self.history]
        record = graph_record(plan.parameters, self.steps, training, history, __version__, self._range)
        tensors = {name: value.numpy() for name, value in self._average.state_dict().items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_agent_file(path, record, tensors | (self._learning() if for_training else {}))

    def _learning(self) -> Tensors:
        """Weights before averaging and Adam's moments, which only training needs."""
        tensors = {f"{LEARNING}{name}": value.numpy() for name, value in self._net.state_dict().items()}
        for name, parameter in self._net.named_parameters():
            for part, value in self._adam.state[parameter].items():
                tensors[f"{ADAM}{part}.{name}"] = value.numpy()
        return tensors

    def _read(self) -> None:
        path = self.files.latest
        agent = read_agent_file(path)
        net = require_graph_net(agent, str(path))
        if net.sizes != self.plan.parameters:
            wanted, found = asdict(self.plan.parameters), asdict(net.sizes)
            odd = next(name for name in wanted if wanted[name] != found[name])
            raise CheckpointError(
                f"{path} was trained with {odd} = {found[odd]}, not {wanted[odd]}: choose another --out, or "
                "train again with --fresh"
            )
        own = {name: value for name, value in agent.tensors.items() if name.startswith(TRAINING)}
        if not own:
            raise CheckpointError(
                f"{path} lacks the training data of the net: it can only play; continue from "
                "latest.safetensors, or train again with --fresh"
            )
        require_tensors(own, {name: value.shape for name, value in self._learning().items()}, str(path))
        self._average = net.requires_grad_(requires_grad=False)
        for name, parameter in self._net.named_parameters():
            parameter.data.copy_(torch.from_numpy(own[f"{LEARNING}{name}"]))
            for part in self._adam.state[parameter]:
                self._adam.state[parameter][part] = torch.from_numpy(own[f"{ADAM}{part}.{name}"].copy())
        self._read_history(agent.record)

    def _read_history(self, record: AgentRecord) -> None:
        try:
            self.history = [Score.from_dict(entry) for entry in record.history]
            self.seconds = float(record.training["seconds"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{self.files.latest}: the record of its training is damaged ({error!r}): train again with "
                "--fresh"
            ) from None
        self.steps = record.steps
        for score in self.history if self.files.best.exists() else ():
            if score.better_than(self.best):
                self.best = score
