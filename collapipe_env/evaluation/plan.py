"""Plan of an evaluation, and its units: one scheduler on one episode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from collapipe_env.evaluation.declared_sight import is_marked
from collapipe_env.evaluation.episode import HELD_OUT_SEED
from collapipe_env.evaluation.episode_files import EpisodeFiles
from collapipe_env.evaluation.episode_result import EpisodeResult
from collapipe_env.evaluation.labels import counted
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import LEARNED, Factory


@dataclass(frozen=True)
class EvaluationPlan:
    """Evaluation of schedulers on one scenario.

    Attributes:
        schedulers: Names, ``"agent"`` for the learned scheduler.
        agents: Files of the learned scheduler, one for each training run.
        episodes: Held-out episodes that each scheduler plays.
        learner: ``"real"``, ``"surrogate"`` or a registered name.
        folder: Folder of finished episodes.
        threads: Threads of PyTorch in each process.
        factories: Schedulers given as Python objects, by name.
        own_learner: Source of a user's own learner, from which other processes register it: its factory, or
            its place in a file or module.
        samples: Continuations that each trained model writes at the end of the first episode; only of a task
            that writes text, with the learner ``"real"``.
        save_models: Whether to keep the trained language model of each first episode as a folder in Hugging
            Face format; with the learner ``"real"`` only.
        seeds: Seed of each episode; by default those of the held-out episodes.
        blind: Whether schedulers receive no state, and decide from the observation alone.
        until_target: Whether the scenario's target loss ends episodes; otherwise all rounds are played.
    """

    scenario: Scenario
    schedulers: tuple[str, ...]
    agents: tuple[Path, ...]
    episodes: int
    rounds: int
    learner: str
    folder: Path
    threads: int = 1
    factories: Mapping[str, Factory] = field(default_factory=dict)
    own_learner: object = None
    samples: int = 0
    save_models: bool = False
    seeds: tuple[int, ...] = ()
    blind: bool = False
    until_target: bool = False

    def seed_of(self, episode: int) -> int:
        """Seed of an episode."""
        return self.seeds[episode] if self.seeds else HELD_OUT_SEED + episode

    def samples_of(self, episode: int) -> int:
        """Continuations to write at the end of an episode."""
        return 0 if episode else self.samples

    @property
    def size(self) -> str:
        """Numbers of episodes and rounds, in words."""
        return f"{counted(self.episodes, 'held-out episode')} of {counted(self.rounds, 'round')}"

    def runs_of(self, scheduler: str) -> int:
        """Training runs of a scheduler, each of which plays all episodes; one for those that do not learn."""
        return max(len(self.agents), 1) if scheduler == LEARNED else 1

    def agent_of(self, run: int) -> Path | None:
        """File of a training run of the learned scheduler, where there is one."""
        return self.agents[run] if self.agents else None


@dataclass(frozen=True)
class Unit:
    """One scheduler, or a training run of it, on one episode.

    Attributes:
        run: Its training run, from 0.
        episode: Number of the episode, from 0.
        key: Digest of everything that the result depends on.
        title: Title of a user's own scheduler.
        keeps_model: Whether the trained model is kept, on request or to replace that of an earlier run.
        agent: Content of the learned scheduler's file, for a worker that does not see the file.
    """

    plan: EvaluationPlan
    scheduler: str
    run: int
    episode: int
    key: str
    title: str | None = None
    keeps_model: bool = False
    agent: bytes | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"scheduler {self.scheduler!r}, {self.place}"

    @property
    def place(self) -> str:
        """Episode, and training run where there are several, in words."""
        several = self.plan.runs_of(self.scheduler) > 1
        return f"{f'run {self.run}, ' if several else ''}episode {self.episode}"

    @property
    def files(self) -> EpisodeFiles:
        """Its files."""
        return EpisodeFiles(self.plan.folder, self.scheduler, self.episode, self.run)

    def read(self, content: bytes | None = None) -> EpisodeResult:
        """Its result, under the title that tells the scheduler apart; an oracle's mark stays.

        Args:
            content: Content of its file, where it is at hand.
        """
        result = self.files.read(content)
        if self.title is None or is_marked(result.title) > is_marked(self.title):
            return result
        return replace(result, title=self.title)
