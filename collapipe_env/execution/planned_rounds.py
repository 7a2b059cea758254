"""Rounds to execute: a scheduler plays the environment, and its plans are trained elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.labels import counted
from collapipe_env.execution.committed_rounds import Committed
from collapipe_env.execution.script_building import round_script
from collapipe_env.execution.scripts import RoundScript
from collapipe_env.ground.arrays import BoolArray
from collapipe_env.ground.errors import StateError
from collapipe_env.ground.state_files import tree_bytes
from collapipe_env.ground.state_trees import Tree, generator_of, generator_tree
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import Scheduler, scheduler_seed
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.failed_records import NOBODY
from collapipe_env.simulator.learner import LearningReport, RoundOutcome
from collapipe_env.simulator.record import RoundRecord


class OutcomeKeeper(IdleLearner):
    """Learner that trains nothing and keeps the outcomes that it should train.

    Attributes:
        generator: State of the generator that the run begins with; ``None`` before the first reset.
        outcome: Outcome of the last round.
    """

    def __init__(self) -> None:
        super().__init__(1)
        self.generator: Tree | None = None
        self.outcome: RoundOutcome | None = None

    def reset(self, rngs: Sequence[np.random.Generator], mask: BoolArray | None = None) -> LearningReport:
        """Keep the generator."""
        self.generator = generator_tree(rngs[0])
        return super().reset(rngs, mask)

    def train_round(self, outcome: RoundOutcome) -> LearningReport:
        """Keep the outcome."""
        self.outcome = outcome
        return super().train_round(outcome)


@dataclass(frozen=True)
class PlannedRound:
    """A round to execute.

    Attributes:
        script: Script of all roles.
        record: The simulator's record.
        outcome: Outcome that the learner is to train.
    """

    script: RoundScript
    record: RoundRecord
    outcome: RoundOutcome

    @property
    def failures(self) -> list[tuple[int, int, float]]:
        """Cluster, number and time since the start of the round [s] of devices that fail in the simulator."""
        happened = self.record.interruption
        if happened is None or happened.failed is None:
            return []
        failed = happened.failed
        return [
            (n, int(failed.device[0, n]) + 1, float(failed.at_s[0, n]))
            for n in range(failed.device.shape[-1])
            if failed.device[0, n] != NOBODY
        ]


class PlannedRounds:
    """Rounds of one episode.

    Args:
        scheduler: Decides the rounds; it sees a loss of zero.
        seed: Seed of the episode.
    """

    def __init__(self, scenario: Scenario, scheduler: Scheduler, seed: int) -> None:
        self._learner, self._parameters = OutcomeKeeper(), system_parameters(scenario)
        self._env = CollaPipeVectorEnv(1, scenario, self._learner, reward="delay")
        self._scheduler = scheduler
        self._observation, _ = self._env.reset(seed=seed)
        scheduler.reset(scheduler_seed(0))

    def new_generator(self) -> np.random.Generator:
        """Return a generator in the state at the beginning of the training run."""
        assert self._learner.generator is not None
        return generator_of(self._learner.generator, "generator")

    def next(self) -> PlannedRound:
        """Play a round."""
        answer = self._scheduler.act(self._observation, self._env.state.map(np.copy))
        if isinstance(answer, np.ndarray):
            self._observation, *_ = self._env.step(answer)
        else:
            self._observation, *_ = self._env.step_allocation(answer)
        record, outcome = self._env.last_round, self._learner.outcome
        assert outcome is not None
        assert record is not None
        script = round_script(record, 0, self._parameters)
        return PlannedRound(script, record, outcome)

    def get_state(self) -> Tree:
        """Return the simulator's state, as copies."""
        return self._env.get_state()

    def replay(self, committed: Committed) -> list[PlannedRound]:
        """Plan the rounds played once more, so that the scheduler remembers what it did then.

        Args:
            committed: The stored state of the run.

        Returns:
            The rounds.

        Raises:
            StateError: If the state is damaged or another run's, or the scheduler now decides differently.
        """
        rounds = [self.next() for _ in range(committed.rounds)]
        if tree_bytes(self.get_state()) != tree_bytes(committed.simulator):
            # A damaged or foreign state is refused here; otherwise the scheduler decides differently.
            self._env.set_state(committed.simulator)
            raise StateError(
                f"scheduler {self._scheduler.name} decides differently from the "
                f"{counted(committed.rounds, 'round')} already played: its decisions must depend only on the "
                "seed; start over with --fresh"
            )
        return rounds
