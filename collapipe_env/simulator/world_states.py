"""States of a world: taken, set, remembered and put back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from collapipe_env.ground.arrays import BoolArray
from collapipe_env.ground.backends import NUMPY, Backend
from collapipe_env.ground.errors import NotResetError, StateError
from collapipe_env.ground.records import mapped, record_of, sizes_of, tree_of
from collapipe_env.ground.state_trees import REMEDY, Tree, require_alike, require_within
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import energy_budgets, system_parameters
from collapipe_env.simulator.idle_fields import warn_of_idle_fields
from collapipe_env.simulator.law_ranges import warn_of_ranges
from collapipe_env.simulator.learner import (
    CountsRounds,
    Learner,
    LearningReport,
    QuickLearner,
    require_report,
    require_snapshots,
)
from collapipe_env.simulator.moving_system import MovingSystem
from collapipe_env.simulator.randomness import SeededGenerators, episode_seeds
from collapipe_env.simulator.record import RoundRecord
from collapipe_env.simulator.saved_round import SavedRound
from collapipe_env.simulator.state import MOST_ROUNDS, SystemState, able_clusters

_REPLACED = ("state", "seen", "learning", "_last_round", "_saved_round", "_was_reset", "_seeds", "_unready")
"""Attributes of a world that are replaced, never written to."""


class WorldStates:
    """A world between two rounds; :class:`~collapipe_env.simulator.world.World` plays them.

    Args:
        learner: Supplies the loss; must have been built for ``num_envs`` environments.
        num_envs: ``E`` >= 1.

    Attributes:
        state: The system before the next round (E, ...).
        seen: The system as schedulers see it; the true one unless a process estimates or hides something.
        learning: Report of the learner.
        quick: The learner, if it can go back after a round that breaks off.

    Warns:
        IdleFieldWarning: Once for each scenario that sets process fields without effect.
        LawRangeWarning: Once for each scenario that uses path losses beyond their sources' ranges.
    """

    def __init__(
        self, scenario: Scenario, learner: Learner, num_envs: int = 1, backend: Backend = NUMPY
    ) -> None:
        self.scenario = scenario
        self.parameters = p = system_parameters(scenario)
        warn_of_idle_fields(scenario)
        warn_of_ranges(scenario)
        self.num_envs = E = num_envs
        self.learner = learner
        # Checked once, because checking an object for a protocol is slow.
        self.quick = learner if isinstance(learner, QuickLearner) else None
        self.backend = backend
        self.system = MovingSystem(scenario, p.costs, E, backend)
        self._seeds = backend.array(np.zeros(E, dtype=np.uint64))
        nodes = (E, scenario.clusters, scenario.max_devices + 1)
        zeros, unknown = backend.array(np.zeros(E)), backend.array(np.full(E, np.nan))
        chosen = "participation" in p.opened
        self.state = self.system.state(
            self.system.carried,
            budget=backend.array(np.broadcast_to(energy_budgets(scenario), nodes)),
            backlog=backend.array(np.zeros(nodes)),
            round_index=backend.array(np.zeros(E, dtype=np.int64)),
            loss=zeros,
            absence=backend.array(np.zeros((E, scenario.clusters))) if chosen else None,
        )
        self.seen = self.system.estimate(self.state, self.system.carried)
        self.learning = LearningReport(loss=zeros, metric=unknown, train_loss=unknown)
        self._was_reset = np.zeros(E, dtype=np.bool_)
        # Rows never reset, and those in which a reset, or a round that cannot be undone, has not ended.
        self._unready = np.ones(E, dtype=np.bool_)
        self._last_round: RoundRecord | None = None
        # A round played before the state was set; recomputed only on request.
        self._saved_round: SavedRound | None = None

    def reset(self, rngs: Sequence[np.random.Generator], mask: BoolArray | None = None) -> SystemState:
        """Start new episodes.

        Args:
            rngs: One generator per environment, length E; the seeds of the components come from it, see
                :mod:`collapipe_env.simulator.randomness`.
            mask: True for the rows to reset (E,); ``None`` for all. The other rows continue.

        Returns:
            The state as schedulers see it (E, ...).
        """
        mask = np.ones(self.num_envs, dtype=np.bool_) if mask is None else mask
        rows = self.backend.rows(mask)
        seeds = episode_seeds(rows.host, rngs, self.system.streams)
        self.system.begin(rows, seeds)  # on an error nothing has changed
        self._unready = self._unready | mask
        self._was_reset = self._was_reset | mask
        self._seeds = rows.put(self._seeds, self.backend.array(seeds["arrivals"]))
        learning = self.learner.reset(SeededGenerators(rngs, rows.host, seeds["learner"]), mask)
        require_report(learning, self.num_envs)
        self.learning = learning
        state = self.state
        self.state = self.system.state(
            self.system.carried,
            state.budget,
            backlog=rows.fill(state.backlog, 0.0),
            round_index=rows.fill(state.round_index, 0),
            loss=rows.put(state.loss, rows.of(self.learning.loss)),
            absence=None if state.absence is None else rows.fill(state.absence, 0.0),
        )
        self.seen = self.system.estimate(self.state, self.system.carried)
        self._unready = self._unready & ~mask
        return self.seen

    def get_state(self) -> Tree:
        """Everything that determines the next rounds, and the last round, as NumPy arrays.

        Raises:
            StateError: If the learner cannot save its state.
            NotResetError: If the last round or reset broke off.
        """
        self._require_whole()
        record, saved = self._last_round, self._saved_round
        if record is not None:
            saved = SavedRound.of(record)
        return {
            **self._own_state(),
            "learning": tree_of(mapped(self.learning, self.backend.host)),
            "learner": require_snapshots(self.learner).get_state(),
            "last_round": None if saved is None else tree_of(saved),
        }

    def _own_state(self) -> Tree:
        """The arrays of the state, without the learner; layout and processes decide the other fields."""
        host, state = self.backend.host, self.state
        own = self.system.get_state()
        own["seeds"]["arrivals"] = host(self._seeds).view(np.uint64)
        kept = {name: getattr(state, name) for name in ("backlog", "round_index", "loss", "absence")}
        return {"system": tree_of(mapped(kept, host)), **own, "was_reset": self._was_reset.copy()}

    def set_state(self, tree: Tree, seeded: BoolArray | None = None) -> None:
        """Continue from a state of :meth:`get_state`; an error leaves everything unchanged.

        Args:
            seeded: Rows that have a generator for their next episodes (E,); ``None`` for all.

        Raises:
            StateError: If the state is damaged, or of another number of environments or another scenario.
        """
        learner, own = require_snapshots(self.learner), self._own_state()
        require_alike(tree, {**own, "learning": ..., "learner": ..., "last_round": ...}, "simulator")
        was_reset, kept = tree["was_reset"], tree["system"]
        most = max(self.scenario.dynamics.rounds, MOST_ROUNDS)
        require_within(kept["round_index"], 0, most, "simulator/system/round_index")
        if seeded is not None and (was_reset & ~seeded).any():
            raise StateError(f"a row that was reset has no generator: {REMEDY}")
        steps, blocks = self.parameters.most_local_steps, self.parameters.costs.blocks
        sizes = {**sizes_of(self.state), "H": (steps,), "L": (blocks,)}
        learning, saved = record_of(LearningReport, tree["learning"], sizes, "simulator/learning"), None
        host, array = self.backend.host, partial(self.backend.array, keep=True)
        if tree["last_round"] is not None:
            saved = record_of(SavedRound, tree["last_round"], sizes, "simulator/last_round")
            like = tree_of(self.state.map(host))
            require_alike(tree["last_round"]["state"], like, "simulator/last_round/state")
        if isinstance(learner, CountsRounds):
            learner.require_rounds(tree["learner"], np.where(was_reset, kept["round_index"], -1))
        seeds = dict(tree["seeds"])
        own_seeds = array(seeds.pop("arrivals"))
        before = self.system.snapshot()
        try:
            with np.errstate(all="ignore"):  # results of damaged arrays are refused below
                self.system.set_state({**tree, "seeds": seeds})
                state = self.system.state(self.system.carried, self.state.budget, **mapped(kept, array))
            found = record_of(SystemState, tree_of(state.map(host)), sizes, "simulator/system")
            able = able_clusters(self.parameters, found)[was_reset]
            if not self.parameters.may_sit_out and not able.all():
                raise StateError(f"simulator/layout: no plan exists, a cluster lacks memory: {REMEDY}")
            if found.memory_cap[~found.present].any():
                raise StateError(f"simulator/layout: a device that is away has memory: {REMEDY}")
            seen = self.system.estimate(state, self.system.carried)
            learner.set_state(tree["learner"])
        except BaseException:
            self.system.put_back(before)
            raise
        # Nothing below can fail.
        self._seeds, self.state, self.seen = own_seeds, state, seen
        self.learning = mapped(learning, array)
        self._was_reset, self._unready = was_reset.copy(), ~was_reset
        self._last_round, self._saved_round = None, saved

    def remember(self) -> Callable[[], None]:
        """Remember everything that a step or a reset changes; returns a function that puts it back.

        Same as getting and setting the state, but faster, and restores the very same objects.

        Raises:
            StateError, NotResetError: As for :meth:`get_state`.
        """
        self._require_whole()
        system = self.system.snapshot()
        if self.quick is not None:
            untrained = self.quick.remember()
        else:
            able = require_snapshots(self.learner)
            untrained = partial(able.set_state, able.get_state())
        kept = {name: getattr(self, name) for name in _REPLACED}

        def put_back() -> None:
            untrained()
            self.system.put_back(system)
            for name, value in kept.items():
                setattr(self, name, value)

        return put_back

    def _require_whole(self) -> None:
        """Refuse to go on, or to take a state, where a round or a reset has broken off."""
        broken = self._unready & self._was_reset
        if broken.any():
            raise NotResetError(
                f"environments {np.flatnonzero(broken).tolist()}: an error broke off the last round or "
                "reset, so the learner may have trained on a part of it; call reset(), or set a state that "
                "was taken before"
            )
