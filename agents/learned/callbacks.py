"""Callbacks during training: progress bar, the system's own curves, validations."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from collapipe_env.envs.sb3 import CollaPipeVecEnv
from collapipe_env.ground.progress import progress_bar

from .curves import write_at_once
from .validation import Score, Validator


class ProgressBar(BaseCallback):
    """A bar with the time left and the delay of the latest rounds; no bar without a terminal.

    Args:
        total: Transitions at the end.
        title: Written before the bar.
        env: The training environment.
        done: Transitions before a resume.
    """

    def __init__(self, total: int, title: str, env: CollaPipeVecEnv, done: int) -> None:
        super().__init__()
        self._env, self._total = env, total
        self._bar = progress_bar(total, title, "steps", initial=min(done, total))

    def _on_step(self) -> bool:
        self._bar.set_postfix_str(f"delay {self._env.last_info['delay'].mean():.2f} s", refresh=False)
        self._bar.update(min(self.num_timesteps, self._total) - self._bar.n)
        return True

    def close(self) -> None:
        """Leave the bar as it stands."""
        self._bar.close()


class SystemCurves(BaseCallback):
    """Writes the system's own figures to the log, beside those of the algorithm.

    Means over rounds and environments since the last entry: ``system/round_delay_s``,
    ``system/energy_excess`` (sum over nodes of the energy above budget, in budgets), ``system/backlog``,
    ``system/loss``; and of whole episodes ``episode/mean_delay_s``, ``episode/worst_energy_ratio``,
    ``episode/final_backlog``.

    Args:
        env: The training environment.
    """

    _ROUND = (("delay", "round_delay_s"), ("cost", "energy_excess"), ("backlog", "backlog"), ("loss", "loss"))
    _EPISODE = (
        ("mean_delay", "mean_delay_s"),
        ("energy_ratio_max", "worst_energy_ratio"),
        ("final_backlog", "final_backlog"),
    )

    def __init__(self, env: CollaPipeVecEnv) -> None:
        super().__init__()
        self._env = env

    def _on_step(self) -> bool:
        for source, name in self._ROUND:
            self.logger.record_mean(f"system/{name}", float(np.mean(self._env.last_info[source])))
        for info in self.locals["infos"]:
            if "summary" in info:
                for source, name in self._EPISODE:
                    self.logger.record_mean(f"episode/{name}", info["summary"][source])
        return True


class Validation(BaseCallback):
    """Validates at regular intervals and passes the scores on.

    It acts at the start of a rollout, where the policy has learnt from every transition counted so far.
    Stable-Baselines3's ``EvalCallback`` knows returns alone, plays other episodes each time, and saves
    pickles.

    Args:
        validator: Plays the episodes.
        every: Transitions between two validations.
        seconds_before: Wall-clock time of earlier, resumed training.
        on_score: Called with each score.
        last: Step count of the last validation before a resume.
    """

    def __init__(
        self,
        validator: Validator,
        every: int,
        seconds_before: float,
        on_score: Callable[[Score], None],
        last: int = 0,
    ) -> None:
        super().__init__()
        self._validator, self._every, self._on_score = validator, every, on_score
        self._started = time.perf_counter() - seconds_before
        self._last = last

    @property
    def seconds(self) -> float:
        """Wall-clock time of training so far, validations included."""
        return time.perf_counter() - self._started

    def _on_rollout_start(self) -> None:
        if self.num_timesteps // self._every > self._last // self._every:
            self.validate()

    def _on_step(self) -> bool:
        return True

    def validate(self) -> None:
        """Validate now."""
        self._last = self.model.num_timesteps
        score = self._validator(self.model, self._last, self.seconds)
        write_at_once(self.logger, score.curves, self._last)
        self._on_score(score)
