"""Training of the graph net: resumable, interruptible, with the best version kept.

Agents play with the average of the weights of the last steps, which is steadier than the latest weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from collapipe_env.agents.learned.agent_file import Tensors, read_agent_file, write_agent_file
from collapipe_env.agents.learned.curves import curves_logger
from collapipe_env.agents.learned.training_files import TrainingFiles
from collapipe_env.agents.learned.validation import Score
from collapipe_env.ground.errors import CheckpointError
from collapipe_env.ground.progress import progress_bar
from collapipe_env.ground.version import __version__

from .graph_files import ADAM, LEARNING, first_weights, graph_record, net_shape, require_graph_net
from .graph_run import GraphPlan
from .graph_step import Losses, learn_and_play
from .graph_validation import GraphValidator, graph_validator
from .net import GraphNet
from .training_groups import Curriculum, Group
from .training_range import training_range

CURVE_EVERY = 50
"""Gradient steps between two entries of the curves."""
MOST_SKIPPED = 100
"""Steps in a row without a finite gradient after which training stops with an error."""


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
        self._net = GraphNet(net_shape(p))
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
        self._average = GraphNet(net_shape(p)).requires_grad_(False)
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
        plan, p = self.plan, self.plan.parameters
        if self.done:
            return
        # A resumed run must not replay the systems it began with.
        rng = np.random.default_rng([plan.seed, self.steps])
        curriculum = Curriculum(
            p.scenarios, p.random_groups, p.most_clusters, p.clusters, p.longest_backlog, p.random_systems
        )
        groups: list[Group | None] = [None] * len(curriculum)
        validator = graph_validator(plan.scenario, p)
        logger = curves_logger(self.files.tensorboard, plan.track, plan.told)
        bar = progress_bar(plan.steps, "training GRAPH", "steps", initial=self.steps)
        started, skipped = time.perf_counter() - self.seconds, 0
        try:
            due = self.steps % plan.validate_every == 0 or self.steps >= plan.steps
            if self.steps and due and not self._judged:
                say(self._validate(validator, logger))  # interrupted between this step and its validation
            while self.steps < plan.steps:
                left = 1.0 - self.steps / plan.steps
                for group in self._adam.param_groups:
                    warm = min(1.0, (self.steps + 1) / 100)
                    group["lr"] = warm * (
                        p.final_learning_rate + (p.learning_rate - p.final_learning_rate) * left
                    )
                place = self.steps % len(groups)
                current = groups[place]
                if current is None or current.ended:
                    current = groups[place] = curriculum.group(place, rng)
                entropy = p.final_entropy + (p.entropy - p.final_entropy) * left**2
                losses = learn_and_play(self._net, current, p, entropy, rng)
                norm = self._learn(losses)
                skipped = 0 if np.isfinite(norm) else skipped + 1
                if skipped:
                    groups[place] = None
                    if skipped > MOST_SKIPPED:
                        self.seconds = time.perf_counter() - started
                        self._write(self.files.latest, for_training=True)
                        raise CheckpointError(
                            f"training has diverged at step {self.steps:,}: no finite gradient in {skipped} "
                            f"steps; {self.files.latest} holds the weights; train again with --fresh and a "
                            "smaller --graph.learning-rate"
                        )
                self.steps += 1
                bar.update()
                if self.steps % CURVE_EVERY == 0:
                    self._record(logger, losses, norm)
                    bar.set_postfix_str(f"objective {losses.objective:.3f}", refresh=False)
                if self.steps % plan.validate_every == 0 or self.steps == plan.steps:
                    self.seconds = time.perf_counter() - started
                    say(self._validate(validator, logger))
            if not self.files.best.exists():  # interrupted before the first validation, or removed since
                say(self._validate(validator, logger))
        except KeyboardInterrupt:
            self.seconds = time.perf_counter() - started
            self._write(self.files.latest, for_training=True)
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
    def _judged(self) -> bool:
        """Whether the present version has been validated."""
        return bool(self.history) and self.history[-1].steps == self.steps

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
        training = {
            "command": self.plan.command,
            "seed": self.plan.seed,
            "steps": self.plan.steps,
            "seconds": self.seconds,
        }
        record = graph_record(
            self.plan.parameters,
            self.steps,
            training,
            [score.to_dict() for score in self.history],
            __version__,
            self._range,
        )
        tensors: Tensors = {n: v.numpy() for n, v in self._average.state_dict().items()}
        if for_training:
            tensors |= {f"{LEARNING}{n}": v.numpy() for n, v in self._net.state_dict().items()}
            names = [name for name, _ in self._net.named_parameters()]
            for name, parameter in zip(names, self._net.parameters(), strict=True):
                for part, value in self._adam.state[parameter].items():
                    tensors[f"{ADAM}{part}.{name}"] = value.detach().numpy()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_agent_file(path, record, tensors)

    def _read(self) -> None:
        path = self.files.latest
        agent = read_agent_file(path)
        parameters, weights = require_graph_net(agent, str(path))
        if parameters != self.plan.parameters:
            wanted, found = asdict(self.plan.parameters), asdict(parameters)
            odd = next(name for name in wanted if wanted[name] != found[name])
            raise CheckpointError(
                f"{path} was trained with {odd} = {found[odd]}, not {wanted[odd]}: choose another --out, or "
                "train again with --fresh"
            )
        self._average.load_state_dict(weights)
        tensors = agent.tensors
        for name, parameter in self._net.named_parameters():
            learning = tensors.get(f"{LEARNING}{name}")
            state = {part: tensors.get(f"{ADAM}{part}.{name}") for part in ("step", "exp_avg", "exp_avg_sq")}
            shapes = {"step": (), "exp_avg": tuple(parameter.shape), "exp_avg_sq": tuple(parameter.shape)}
            unfit = any(value is None or value.shape != shapes[part] for part, value in state.items())
            if unfit or learning is None or learning.shape != tuple(parameter.shape):
                raise CheckpointError(
                    f"{path} lacks the training data of {name}: it can only play; continue from "
                    "latest.safetensors, or train again with --fresh"
                )
            parameter.data.copy_(torch.from_numpy(learning.copy()))
            self._adam.state[parameter] = {
                part: torch.from_numpy(np.array(value)) for part, value in state.items()
            }
        try:
            self.history = [Score.from_dict(entry) for entry in agent.record.history]
            self.seconds = float(agent.record.training["seconds"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{path}: the record of its training is damaged ({error!r}): train again with --fresh"
            ) from None
        self.steps = agent.record.steps
        for score in self.history if self.files.best.exists() else ():
            if score.better_than(self.best):
                self.best = score
