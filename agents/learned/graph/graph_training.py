"""Training of the graph net: resumable, interruptible, with the best version kept.

Agents play with the average of the weights of the last steps, which is steadier than the latest weights.
Versions are compared in held-out episodes of the given scenario and of systems of other sizes.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from collapipe_env.agents.learned.agent_file import TRAINING, AgentFile, Tensors, require_tensors
from collapipe_env.agents.learned.curves import curves_logger
from collapipe_env.agents.learned.tracking import Tracker
from collapipe_env.agents.learned.training_files import TrainingFiles
from collapipe_env.agents.learned.training_state import read_training
from collapipe_env.agents.learned.validation import VALIDATION_SEED, Score, score_of
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.feasibility import EnergyBudgetWarning
from collapipe_env.ground.errors import CheckpointError
from collapipe_env.ground.progress import progress_bar
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.scenario import Scenario, load_scenario

from .graph_files import first_weights, graph_record, require_graph_net
from .graph_parameters import GraphParameters, with_new_layouts
from .graph_scheduler import GraphScheduler
from .net import GraphNet
from .step import Losses, learn_and_play
from .systems import Group, new_group, scaled, wild_system
from .training_range import training_range

ADAM, LEARNING = f"{TRAINING}adam.", f"{TRAINING}learning."
"""Prefixes of tensors that only training needs: the optimiser's moments, and weights before averaging."""
CURVE_EVERY = 50
"""Gradient steps between two entries of the curves."""
MOST_SKIPPED = 100
"""Steps in a row without a finite gradient after which training stops with an error."""
WARM_UP = 100
"""Steps in which the learning rate rises."""
_BETWEEN = scaled(8) | {
    "cluster.devices": 6,
    "cluster.cluster_separation_min_m": 60.0,
}
"""A size between medium and large, with new layouts in every episode."""


def validation_scenarios() -> tuple[Scenario, ...]:
    """Scenarios of the ladder on which versions of the net are compared: two sizes, and one between them.

    `boards` is none of them: where a change of plan has a price, objectives swing by a tenth from one version
    to the next, which drowns the differences on other scenarios.
    """
    medium = load_scenario("medium")
    return (load_scenario("small"), medium, with_new_layouts(medium.with_overrides(_BETWEEN)))


def wild_scenarios() -> tuple[Scenario, ...]:
    """Scenarios of the tier Wild on which versions are compared: `large-wild`, and one of 48 clusters.

    `large-wild` alone hardly tells nets apart that differ by a tenth on systems three times as large.
    """
    return (load_scenario("large-wild"), wild_system(np.random.default_rng(0), 48, least_clusters=48))


class GraphValidator:
    """Plays the same held-out episodes of several scenarios, all of one scenario at once.

    Args:
        shown: Scenario whose delay, energy and backlog the scores give.
        others: Scenarios on which versions are compared besides; ``shown`` among them counts once.
        rounds: Rounds of an episode.
    """

    def __init__(
        self, shown: Scenario, others: tuple[Scenario, ...], episodes: int = 8, rounds: int = 100
    ) -> None:
        length = {"dynamics.rounds": rounds, "dynamics.target_loss": None}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EnergyBudgetWarning)  # of layouts that are redrawn
            self._envs = [
                CollaPipeVectorEnv(
                    episodes,
                    scenario=scenario.with_overrides(length),
                    learner=IdleLearner(episodes),
                    reward="lyapunov",
                    autoreset_mode="Disabled",
                )
                for scenario in (*(scenario for scenario in others if scenario != shown), shown)
            ]

    def __call__(self, net: GraphNet, steps: int, seconds: float) -> Score:
        """Validate a version of the net.

        Args:
            steps: Recorded in the score.
            seconds: Recorded in the score.

        Returns:
            Score of the scenario shown, with the geometric mean of the priced delays of all, so that longer
            rounds give none of them more weight.
        """
        scores = []
        for env in self._envs:
            env.reset(seed=VALIDATION_SEED)
            scheduler, rounds = GraphScheduler(env.scenario, net), env.scenario.dynamics.rounds
            for _ in range(rounds):
                env.step_allocation(scheduler.act(None, env.state))
            scores.append(score_of(env, rounds, steps, seconds))
        priced = [score.priced_delay for score in scores]
        return replace(scores[-1], objective=math.exp(float(np.mean(np.log(priced)))))


def graph_validator(shown: Scenario, parameters: GraphParameters) -> GraphValidator:
    """The validator of a training.

    Args:
        shown: Scenario of the training, whose delay, energy and backlog the scores give.
        parameters: Hyper-parameters of the training.
    """
    if not parameters.random_groups:
        # Without random systems, a net is for its own.
        return GraphValidator(shown, ())
    if parameters.random_systems == "wild":
        return GraphValidator(shown, wild_scenarios(), episodes=4, rounds=60)
    return GraphValidator(shown, validation_scenarios())


@dataclass(frozen=True)
class GraphPlan:
    """A training to do.

    Attributes:
        scenario: Scenario of the validations; the net trains on systems of many sizes in any case.
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
        state: Its progress.
    """

    def __init__(self, plan: GraphPlan, files: TrainingFiles) -> None:
        self.plan, self.files, p = plan, files, plan.parameters
        self.state, saved = read_training(files)
        self._systems = training_range(p)
        torch.manual_seed(plan.seed)
        self._net = GraphNet(p)
        if p.start_from and saved is None:
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
        if saved is not None:
            self._restore(saved, str(files.latest))

    def run(self, say: Callable[[str], None] = tqdm.write) -> None:
        """Train until the plan's steps are done.

        Args:
            say: Receives one line for every validation.

        Raises:
            KeyboardInterrupt: After saving, if the user interrupts.
            CheckpointError: If the loss stays without a finite gradient.
        """
        plan, state, files = self.plan, self.state, self.files
        if self.done:
            return
        validator = graph_validator(plan.scenario, plan.parameters)
        logger = curves_logger(files.tensorboard, plan.track, plan.told)
        bar = progress_bar(plan.steps, "training GRAPH", "steps", initial=state.steps)
        started = time.perf_counter() - state.seconds

        def validate() -> None:
            score = validator(self._average, state.steps, state.seconds)
            line = state.keep(score, self._version, files)
            for name, value in score.curves.items():
                logger.record(name, value)
            logger.dump(state.steps)
            say(line)

        try:
            if state.steps and self._due and not state.judged:
                validate()  # interrupted between this step and its validation
            for losses, norm in self._steps():
                bar.update()
                if state.steps % CURVE_EVERY == 0:
                    self._record(logger, losses, norm)
                    bar.set_postfix_str(f"objective {losses.objective:.3f}", refresh=False)
                if self._due:
                    state.seconds = time.perf_counter() - started
                    validate()
            if not files.best.exists():  # interrupted before the first validation, or removed since
                validate()
        except (KeyboardInterrupt, CheckpointError) as error:
            state.seconds = time.perf_counter() - started
            kept = state.keep_interrupted(self._version(), files)
            if isinstance(error, KeyboardInterrupt):
                say(kept)
            raise
        finally:
            bar.close()
            logger.close()

    @property
    def done(self) -> bool:
        """Whether all steps are taken and the last version has been validated."""
        return self.state.steps >= self.plan.steps and self.state.judged and self.files.best.exists()

    @property
    def _due(self) -> bool:
        """Whether the present version is to be validated."""
        steps, plan = self.state.steps, self.plan
        return steps % plan.validate_every == 0 or steps >= plan.steps

    def _steps(self) -> Iterator[tuple[Losses, float]]:
        """Take the steps that are left, and give the losses and the norm of the gradient of each."""
        plan, p, state = self.plan, self.plan.parameters, self.state
        # A resumed run must not replay the systems it began with.
        rng = np.random.default_rng([plan.seed, state.steps])
        groups: list[Group | None] = [None] * p.groups
        skipped = 0
        while state.steps < plan.steps:
            left = 1.0 - state.steps / plan.steps
            rate = p.final_learning_rate + (p.learning_rate - p.final_learning_rate) * left
            for weights in self._adam.param_groups:
                weights["lr"] = min(1.0, (state.steps + 1) / WARM_UP) * rate
            entropy = p.final_entropy + (p.entropy - p.final_entropy) * left**2
            place = state.steps % len(groups)
            group = groups[place]
            if group is None or group.ended:
                group = groups[place] = new_group(p, place, rng)
            losses = learn_and_play(self._net, group, p, entropy, rng)
            norm = self._learn(losses)
            skipped = 0 if np.isfinite(norm) else skipped + 1
            if skipped:
                groups[place] = None
            if skipped > MOST_SKIPPED:
                raise CheckpointError(
                    f"training has diverged at step {state.steps:,}: no finite gradient in {skipped} "
                    f"steps; {self.files.latest} holds the weights; train again with --fresh and a "
                    "smaller --graph.learning-rate"
                )
            state.steps += 1
            yield losses, norm

    def _learn(self, losses: Losses) -> float:
        """Take a gradient step unless the gradient is not finite; returns its norm."""
        self._adam.zero_grad()
        losses.total.backward()  # type: ignore[no-untyped-call]
        norm = float(torch.nn.utils.clip_grad_norm_(self._net.parameters(), 1.0))
        if np.isfinite(norm):
            self._adam.step()
            part = 1.0 / min(self.state.steps + 1, self.plan.parameters.averaged_steps)
            for average, weight in zip(self._average.parameters(), self._net.parameters(), strict=True):
                average.lerp_(weight.detach(), part)
        return norm

    def _record(self, logger: Any, losses: Losses, norm: float) -> None:
        for name in ("objective", "micro_batches", "entropy"):
            logger.record(f"train/{name}", getattr(losses, name))
        logger.record("train/gradient_norm", norm)
        logger.record("train/learning_rate", self._adam.param_groups[0]["lr"])
        logger.dump(self.state.steps)

    def _version(self) -> AgentFile:
        """The present version, with what only training needs."""
        plan, state = self.plan, self.state
        training = {"command": plan.command, "seed": plan.seed, "steps": plan.steps, "seconds": state.seconds}
        history = [score.to_dict() for score in state.history]
        record = graph_record(plan.parameters, self._systems, state.steps, training, history)
        tensors = {name: value.numpy() for name, value in self._average.state_dict().items()}
        return AgentFile(record, tensors | self._learning())

    def _learning(self) -> Tensors:
        """Weights before averaging and Adam's moments; changes to them are changes to the training."""
        tensors = {f"{LEARNING}{name}": value.numpy() for name, value in self._net.state_dict().items()}
        for name, parameter in self._net.named_parameters():
            for part, value in self._adam.state[parameter].items():
                tensors[f"{ADAM}{part}.{name}"] = value.numpy()
        return tensors

    def _restore(self, saved: AgentFile, place: str) -> None:
        net = require_graph_net(saved, place)
        if net.sizes != self.plan.parameters:
            wanted, found = asdict(self.plan.parameters), asdict(net.sizes)
            odd = next(name for name in wanted if wanted[name] != found[name])
            raise CheckpointError(
                f"{place} was trained with {odd} = {found[odd]}, not {wanted[odd]}: choose another --out, or "
                "train again with --fresh"
            )
        own = {name: value for name, value in saved.tensors.items() if name.startswith(TRAINING)}
        if not own:
            raise CheckpointError(
                f"{place} lacks the training data of the net: it can only play; continue from "
                "latest.safetensors, or train again with --fresh"
            )
        learning = self._learning()
        require_tensors(own, {name: value.shape for name, value in learning.items()}, place)
        for name, value in learning.items():
            value[...] = own[name]
        self._average = net.requires_grad_(requires_grad=False)
