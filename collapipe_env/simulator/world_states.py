"""States of a world: taken, set, remembered and put back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from collapipe_env.ground.arrays import Array, BoolArray
from collapipe_env.ground.backends import Backend
from collapipe_env.ground.errors import NotResetError, StateError
from collapipe_env.ground.records import mapped, record_of, sizes_of, tree_of
from collapipe_env.ground.state_trees import REMEDY, Tree, require_alike, require_within
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.learner import (
    CountsRounds,
    Learner,
    LearningReport,
    QuickLearner,
    require_snapshots,
)
from collapipe_env.simulator.moving_system import MovingSystem
from collapipe_env.simulator.record import RoundRecord
from collapipe_env.simulator.saved_round import SavedRound
from collapipe_env.simulator.state import MOST_ROUNDS, Parameters, SystemState, able_clusters

_REPLACED = ("state", "seen", "learning", "_last_round", "_saved_round", "_was_reset", "_seeds", "_unready")
"""Attributes of a world that are replaced, never written to."""


class WorldStates:
    """A world between two rounds; :class:`~collapipe_env.simulator.world.World` plays them."""

    scenario: Scenario
    parameters: Parameters
    num_envs: int
    learner: Learner
    quick: QuickLearner | None
    backend: Backend
    system: MovingSystem
    state: SystemState
    seen: SystemState
    learning: LearningReport
    _seeds: Array
    _was_reset: BoolArray
    _unready: BoolArray
    _last_round: RoundRecord | None = None
    # A round played before the state was set; recomputed only on request.
    _saved_round: SavedRound | None = None

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
