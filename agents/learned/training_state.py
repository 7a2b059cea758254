"""Progress of a training, whichever algorithm trains: kept with every version, read when it goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from collapipe_env.ground.errors import CheckpointError

from .agent_file import AgentFile, read_agent_file, write_agent_file
from .training_files import TrainingFiles
from .validation import Score


@dataclass
class TrainingState:
    """Progress of a training.

    Attributes:
        steps: Transitions, or gradient steps, so far.
        history: Validations, oldest first.
        best: The best of them, of equal ones the first; ``None`` before them, and where its file is missing.
        seconds: Wall-clock time so far, validations included.
        planned: Steps in all by the latest plan; 0 before it begins.
        shorter_plans: Steps in all by earlier, shorter plans, oldest first.
    """

    steps: int = 0
    history: list[Score] = field(default_factory=list)
    best: Score | None = None
    seconds: float = 0.0
    planned: int = 0
    shorter_plans: list[int] = field(default_factory=list)

    @property
    def judged(self) -> bool:
        """Whether the present version has been validated."""
        return bool(self.history) and self.history[-1].steps == self.steps

    @property
    def collapsed(self) -> bool:
        """Whether the last version is worse than the best by more than a fifth."""
        return self.best is not None and self.history[-1].objective > 1.2 * self.best.objective

    def keep(self, score: Score, agent: Callable[[], AgentFile], files: TrainingFiles) -> str:
        """Add a validation and write its version, twice if it is the best; returns a line about it.

        Args:
            agent: Gives the version, with what only training needs.
        """
        self.history.append(score)
        better, version = score.better_than(self.best), agent()
        if better:
            self.best = score
            write_agent_file(files.best, *version.playing)
        write_agent_file(files.latest, *version)
        return (
            f"{score.steps:>10,} steps  {score.seconds:6.0f} s   priced delay {score.priced_delay:7.3f} s   "
            f"energy {100.0 * (score.energy_ratio - 1.0):+6.1f} %{'   best' if better else ''}"
        )

    def keep_interrupted(self, agent: AgentFile, files: TrainingFiles) -> str:
        """Write a version without a validation; returns a line about it."""
        write_agent_file(files.latest, *agent)
        return f"the training is kept at step {self.steps:,}: {files.latest}"


def read_training(files: TrainingFiles) -> tuple[TrainingState, AgentFile | None]:
    """Return the progress of the training in a folder and its last version; a new one if there is none.

    Raises:
        CheckpointError: If the last version is damaged.
    """
    if not files.latest.exists():
        return TrainingState(), None
    saved = read_agent_file(files.latest)
    told = saved.record.training
    try:
        history = [Score.from_dict(entry) for entry in saved.record.history]
        judged = history if files.best.exists() else []
        state = TrainingState(
            steps=saved.record.steps,
            history=history,
            best=min(judged, key=lambda score: score.objective, default=None),
            seconds=float(told["seconds"]),
            planned=int(told["steps"]),
            shorter_plans=[int(steps) for steps in told.get("lengthened_from", ())],
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CheckpointError(
            f"{files.latest}: the record of its training is damaged ({error!r}): train again with --fresh"
        ) from None
    return state, saved
