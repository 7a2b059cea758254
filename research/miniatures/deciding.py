"""Schedulers of a miniature that try every action: the best one, some with a few scalars, and fixed plans."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.physics.allocation import Allocation
from collapipe_env.schedulers import StateScheduler
from collapipe_env.simulator.state import SystemState
from research.miniatures.grid import Model, successors
from research.miniatures.system import Coordinates, Rounds


class TriesAll(StateScheduler):
    """Base of schedulers that score every action, and play the one with the least score at full power.

    Args:
        model: The miniature on a grid. Without heat the grid holds every state, so rounds are looked up
            there, at mean gains; with heat they are played from the present state.
    """

    name = "tries all"

    def __init__(self, model: Model) -> None:
        super().__init__(model.grid.system.scenario)
        self.model, self.system = model, model.grid.system

    def coordinates(self, state: SystemState) -> tuple[Coordinates, IntArray]:
        """Coordinates of states of the environment (E, ...), and which have a previous plan (E,), bool."""
        K, rows = self.system.devices, state.speed.shape[0]
        zeros = np.zeros((rows, K), dtype=np.int64)
        load, temperature, level, plan = zeros, zeros.astype(np.float64), zeros, zeros[:, 0]
        started = np.ones(rows, dtype=np.bool_)
        if len(self.system.loads) > 1:
            levels = np.asarray(self.scenario.dynamics.load_levels)
            share = state.speed[:, 0] / self.system.full_speed
            load = np.argmin(np.abs(levels - share[:, :, None]), axis=-1)
        if self.system.heat is not None:
            warm = state.processes["heat"]
            temperature = warm["temperature"][:, 0]
            level = warm["level"][:, 0] if "level" in warm else zeros
        if self.system.remembers:
            before = state.processes["migration"]["blocks"]
            same = (before == self.system.splits).all(axis=-1)
            started, plan = same.any(axis=-1), np.argmax(same, axis=-1)
        return Coordinates(load, temperature, level, plan), started

    def rounds(self, state: SystemState, at: Coordinates, started: IntArray) -> Rounds:
        """Rounds of every action (E, A)."""
        if self.system.heat is not None:
            return self.system.rounds_from(state)
        grid, decisions = self.model.grid, self.model.decisions
        K = self.system.devices
        cold = np.zeros((2 * K, len(at.plan)), dtype=np.int64)
        place = np.ravel_multi_index((*at.load.T, *cold, at.plan), grid.sizes)
        moving = self.model.moving[place]
        paid = np.where(started[:, None], moving, 0.0)
        temperature = np.zeros((*moving.shape, K))
        return Rounds(
            decisions.cost[place] - moving + paid, paid, temperature, self.model.micro_batches[place]
        )

    def scores(self, state: SystemState, at: Coordinates, rounds: Rounds) -> FloatArray:
        """Scores of every action (E, A), the smaller the better."""
        raise NotImplementedError

    def allocate(self, state: SystemState) -> Allocation:
        """Decide one round; see :meth:`StateScheduler.act`."""
        at, started = self.coordinates(state)
        rounds = self.rounds(state, at, started)
        action = np.argmin(self.scores(state, at, rounds), axis=-1)
        return self.system.plan(
            self.system.split_of[action], rounds.micro_batches[np.arange(len(action)), action]
        )


class Best(TriesAll):
    """Least delay now plus the value of the state after it: the best schedule, by the values of a solution.

    Args:
        model: The miniature.
        value: Values of its states (S,).
    """

    name = "optimum"

    def __init__(self, model: Model, value: FloatArray) -> None:
        super().__init__(model)
        self.value = value

    def scores(self, state: SystemState, at: Coordinates, rounds: Rounds) -> FloatArray:
        """Delay and expected value (E, A)."""
        remainder = state.processes["heat"].get("remainder") if self.system.heat is not None else None
        later = successors(self.model.grid, at, rounds, remainder) @ self.value
        return np.asarray(rounds.delay + later.reshape(rounds.delay.shape))


class Scalars(TriesAll):
    """The present round alone, with some prices: row ``e`` of a batch has the prices of index ``e``.

    The score is the delay, where moving counts ``weight`` times, plus for each device its energy times
    ``heat_price`` times ``max(0, headroom - start) / (1 - start)``. With weight 1 and no heat price it is
    what one-step DSSRA minimises without energy budgets; with weight 0 it does not see the price of moving.

    Args:
        model: The miniature.
        weight: Weight of the price of moving (E,).
        heat_price: Price of energy in hot devices (E,) [s/J].
        start: Thermal headroom from which heat has a price (E,), below 1.
    """

    name = "scalars"

    def __init__(self, model: Model, weight: ArrayLike, heat_price: ArrayLike, start: ArrayLike) -> None:
        super().__init__(model)
        self.weight, self.heat_price, self.start = (
            np.asarray(a)[:, None] for a in (weight, heat_price, start)
        )

    def scores(self, state: SystemState, at: Coordinates, rounds: Rounds) -> FloatArray:  # noqa: ARG002
        """Priced delays (E, A)."""
        found = rounds.delay + (self.weight - 1.0) * rounds.moving
        if self.system.heat is None or rounds.energy is None:
            return found
        headroom = state.processes["heat"]["headroom"][:, 0]
        hot = np.maximum(headroom - self.start, 0.0) / (1.0 - self.start)
        return np.asarray(found + self.heat_price * (rounds.energy * hot[:, None, :]).sum(axis=-1))


class Fixed(TriesAll):
    """The same action in every round; row ``e`` of a batch has its own.

    Args:
        model: The miniature.
        action: Index of the action (E,).
    """

    name = "fixed"

    def __init__(self, model: Model, action: ArrayLike) -> None:
        super().__init__(model)
        self.action = np.asarray(action)

    def scores(self, state: SystemState, at: Coordinates, rounds: Rounds) -> FloatArray:  # noqa: ARG002
        """Return 0 for the action, and 1 for the others (E, A)."""
        others = np.arange(rounds.delay.shape[1]) != self.action[:, None]
        return np.asarray(others, dtype=np.float64)

    def rounds(self, state: SystemState, at: Coordinates, started: IntArray) -> Rounds:
        """Rounds of every action, without their costs where numbers of micro-batches do not need them."""
        if self.system.heat is None:
            return super().rounds(state, at, started)
        micro_batches = self.system.micro_batches(state)
        nothing = np.zeros(micro_batches.shape)
        return Rounds(nothing, nothing, nothing[..., None], micro_batches)
