"""Training PPO or SAC on a scenario: resumable, interruptible, with the best version kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from tqdm import tqdm

from collapipe_env.envs.sb3 import make_sb3_vec_env
from collapipe_env.scenario import Scenario

from .agent_file import AgentFile
from .callbacks import ProgressBar, SystemCurves, Validation
from .curves import curves_logger
from .hyperparameters import Algorithm, HyperParameters
from .sb3_models import build_model, restore_model, saved_model
from .tracking import Tracker
from .training_files import TrainingFiles
from .training_state import TrainingState, read_training
from .validation import Score, Validator


@dataclass(frozen=True)
class TrainingPlan:
    """A training to do.

    Attributes:
        scenario: The scenario.
        algorithm: ``"ppo"`` or ``"sac"``.
        parameters: Its hyper-parameters.
        steps: Transitions in all; PPO completes the rollout it is in.
        envs: Environments that play at once.
        seed: Governs weights, exploration and episodes.
        learner: ``"surrogate"``, ``"real"`` or a registered name.
        reward: Name of the reward.
        validate_every: Transitions between two validations.
        validation_episodes: Episodes of a validation.
        command: Command that started it, for the record.
        track: Tracker that receives its curves, in addition to TensorBoard.
    """

    scenario: Scenario
    algorithm: Algorithm
    parameters: HyperParameters
    steps: int
    envs: int
    seed: int
    learner: str
    reward: str
    validate_every: int
    validation_episodes: int = 16
    command: str = ""
    track: Tracker | None = None

    @property
    def recorded(self) -> dict[str, Any]:
        """Plain values that an agent's file keeps."""
        names = ("seed", "steps", "envs", "learner", "reward", "validation_episodes", "command")
        return {name: getattr(self, name) for name in names}

    @property
    def told(self) -> dict[str, Any]:
        """Plain values that describe it to a tracker."""
        about = {"scenario": self.scenario.name, "algorithm": self.algorithm}
        return {**about, **self.recorded, **asdict(self.parameters)}


def train(plan: TrainingPlan, files: TrainingFiles, say: Callable[[str], None] = tqdm.write) -> TrainingState:
    """Train until the plan's steps are done, continuing from the last checkpoint if there is one.

    A resumed run plays new episodes and, with SAC, refills its memory; everything else continues. The
    learning rate falls in a straight line over the plan's steps. If there are more steps than before, the
    rate moves to the longer line, which is higher, so a lengthened training differs from one that was long
    from the start.

    Args:
        files: Where to keep it.
        say: Receives one line for every validation.

    Returns:
        Its progress; the best version is in ``files.best``.

    Raises:
        KeyboardInterrupt: After saving, if the user interrupts.
        CheckpointError: If the checkpoint is damaged or does not fit.
    """
    state, saved = read_training(files)
    if state.steps >= plan.steps and files.best.exists():
        return state
    if 0 < state.planned < plan.steps:
        state.shorter_plans.append(state.planned)
    state.planned = plan.steps
    env = make_sb3_vec_env(plan.scenario, plan.envs, learner=plan.learner, reward=plan.reward)
    # A resumed run must not replay the episodes it began with.
    seed = int(np.random.SeedSequence([plan.seed, state.steps]).generate_state(1)[0] % 2**30)
    model = build_model(plan.parameters, env, seed)
    if saved is not None:
        restore_model(model, saved, plan.scenario, str(files.latest))
    model.set_logger(curves_logger(files.tensorboard, plan.track, plan.told))

    def kept() -> AgentFile:
        state.steps, state.seconds = int(model.num_timesteps), validation.seconds
        progress = {"lengthened_from": state.shorter_plans, "seconds": state.seconds}
        history = [score.to_dict() for score in state.history]
        record = {**plan.recorded, **progress}
        return saved_model(model, plan.algorithm, plan.parameters, plan.scenario, record, history)

    def keep(score: Score) -> None:
        say(state.keep(score, kept, files))

    validator = Validator(plan.scenario, plan.validation_episodes)
    validation = Validation(validator, plan.validate_every, state.seconds, keep, state.steps)
    bar = ProgressBar(plan.steps, f"training {plan.algorithm.upper()}", env, state.steps)
    remaining = plan.steps - model.num_timesteps
    try:
        if remaining > 0:
            model.learn(remaining, [bar, SystemCurves(env), validation], reset_num_timesteps=False)
        else:
            validation.init_callback(model)
        validation.validate()
        model.logger.dump(model.num_timesteps)
    except KeyboardInterrupt:
        say(state.keep_interrupted(kept(), files))
        raise
    finally:
        bar.close()
        model.logger.close()
        env.close()
    if state.collapsed:
        say(
            "the last version is far worse than the best one: the training collapsed. Try another --seed, a "
            f"smaller --{plan.algorithm}.learning-rate, or more --steps"
        )
    return state
