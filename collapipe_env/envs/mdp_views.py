"""Views of the MDP that both environments offer beyond Gymnasium's interface."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec

from collapipe_env.envs.graph_layout import GraphLayout
from collapipe_env.envs.mdp import BatchMDP
from collapipe_env.envs.observation import ObservationLayout
from collapipe_env.ground.arrays import Array
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.codec import ActionCodec
from collapipe_env.simulator.record import RoundRecord
from collapipe_env.simulator.state import SystemState
from collapipe_env.simulator.system import reach_of, walking_side

Pictures = tuple[npt.NDArray[np.uint8], ...]


class MDPViews:
    """Views of the MDP that both environments offer beyond Gymnasium's interface."""

    _mdp: BatchMDP
    _spec: EnvSpec | None = None

    @property
    def spec(self) -> EnvSpec | None:
        """Gymnasium's specification, with the environment's own :attr:`rounds`; ``None`` if made without."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        self._spec = copy(spec)
        if self._spec is not None:
            self._spec.max_episode_steps = self.rounds

    @property
    def scenario(self) -> Scenario:
        """The scenario."""
        return self._mdp.scenario

    @property
    def codec(self) -> ActionCodec:
        """Maps actions to allocations and back."""
        return self._mdp.codec

    @property
    def observation_layout(self) -> ObservationLayout | GraphLayout:
        """Names, places, shapes and units of the observation's features."""
        return self._mdp.observer.layout

    @property
    def reference_delay(self) -> float:
        """``T_ref`` [s]: round delay of the even split at mean gains."""
        return self._mdp.reference_delay

    @property
    def rounds(self) -> int:
        """The horizon: the number of rounds after which an episode is truncated.

        It respects ``max_episode_steps`` of ``gymnasium.make_vec``, but not of ``gymnasium.make``: there
        Gymnasium's wrapper ends episodes without the environment's knowledge, and ``ended_summary`` stays
        empty. Set ``dynamics.rounds`` for shorter episodes there.
        """
        return self._mdp.rounds

    @property
    def state(self) -> SystemState:
        """The system before the next round, as model-based schedulers see it (E, ...); E = 1 if single."""
        return self._mdp.world.seen

    @property
    def truth(self) -> SystemState:
        """The true system before the next round (E, ...), even where schedulers see an estimate.

        For rewards, pictures and oracles that declare ``sees = "truth"``, not for schedulers.
        """
        return self._mdp.world.state

    @property
    def path_gains(self) -> Array:
        """True gains of all links before the next round, without small-scale fading (E, links).

        Uplinks come first, then each cluster's pairs of nodes. Like :attr:`truth`, not for schedulers.
        """
        return self._mdp.world.system.path_gains

    def _pictures(self, fresh: Sequence[bool], titles: Sequence[str], **history: Any) -> Pictures:
        """Pictures (H, W, 3), uint8, of all rows' last rounds; of the even split where a row is fresh."""
        # Imported late: Matplotlib is an extra, and slow to import.
        from collapipe_env.rendering import draw_round
        from collapipe_env.rendering.round_view import RoundView, preview

        planned = preview(self._mdp.world) if any(fresh) else None
        pictures = []
        for row, (new, title) in enumerate(zip(fresh, titles, strict=True)):
            record = planned if new else self.last_round
            assert record is not None
            view = RoundView(
                record,
                title + (" (even split, not played)" if new else ""),
                row,
                side_m=walking_side(self.scenario),
                reach_m=reach_of(self.scenario),
                **history,
            )
            pictures.append(draw_round(view))
        return tuple(pictures)

    @property
    def last_round(self) -> RoundRecord | None:
        """Record of the round just played (E, ...); ``None`` before the first."""
        return self._mdp.world.last_round
