"""Snapshots of an environment for planning: read, set, save and load states, and simulate steps."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Generic, TypeVar

from collapipe_env.envs.mdp import BatchMDP
from collapipe_env.ground.arrays import BoolArray
from collapipe_env.ground.errors import StateError, shown
from collapipe_env.ground.state_files import read_tree, write_tree
from collapipe_env.ground.state_trees import Tree, require_alike
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario.loading import scenario_digest

STATE_VERSION = 4
"""Version of a state's contents. Raised with every change, after which older states cannot be loaded."""

Result = TypeVar("Result")


class Snapshots(Generic[Result]):
    """States of the single and the vector environment; ``Result`` is what a step returns.

    A state is a nested dictionary of NumPy arrays, integers, strings and booleans. It holds everything that
    decides how the environment continues: queues, channels, loads, the learner (with its models and
    optimisers under real training), the sums of the episode, the last round and the generators of later
    episodes. After ``set_state`` an environment continues bit for bit as the one the state was taken from,
    including later episodes. The state does not hold the arguments of the environment, data of wrappers, or
    the generator of ``action_space``.
    """

    _mdp: BatchMDP

    def get_state(self) -> Tree:
        """Take the state, as copies.

        Raises:
            StateError: If the learner is your own and has no ``get_state`` and ``set_state``.
            NotResetError: If an error broke off the last round or reset.
        """
        return {**self._state_header, "mdp": self._mdp.get_state(), "env": self._own_state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a state. The state is not changed and may be set any number of times.

        ``reset`` need not have been called; wrappers of ``gymnasium.make`` still require one reset before
        the first step.

        Args:
            state: Result of ``get_state`` of an environment with the same class, scenario, learner and number
                of environments.

        Raises:
            StateError: If it is damaged or belongs to another environment, which then stays unchanged.
        """
        if not isinstance(state, Mapping) or "format" not in state:
            raise StateError("this is not an environment's state: use the result of get_state() or a file")
        for name, here in self._state_header.items():
            there = state.get(name)
            if type(there) is not type(here) or there != here:
                raise StateError(
                    f"the state has {name} = {shown(there)}, this environment {here!r}: set a state that an "
                    "environment of the same class, scenario, learner, length and number of rows has returned"
                )
        require_alike(state, {**self._state_header, "mdp": ..., "env": ...}, "state")
        seeded, apply_own = self._read_own_state(state["env"])
        self._mdp.set_state(state["mdp"], seeded)
        apply_own()

    def save_state(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file (``.safetensors``), which is either complete afterwards or absent.

        Args:
            path: The file; missing folders are created.

        Raises:
            DataError: If the file cannot be written.
            StateError: As for :meth:`get_state`.
        """
        write_tree(path, self.get_state())

    def load_state(self, path: str | os.PathLike[str]) -> None:
        """Continue from a file of :meth:`save_state`; nothing in it is unpickled or executed.

        Raises:
            StateError: If it cannot be read, is damaged or belongs to another environment; this environment
                then stays unchanged.
        """
        self.set_state(read_tree(path))

    def simulate(self, action: Any) -> Result:
        """Return the result of a step without taking it: the environment stays unchanged.

        Two calls return the same result, and so does the step itself: the state includes the round's random
        draws. To look ahead over several rounds, take the state, step, and set the state again.

        Args:
            action: An action, as for ``step``, or an :class:`~collapipe_env.physics.allocation.Allocation`,
                as for ``step_allocation``.

        Raises:
            AllocationError: As for ``step`` and ``step_allocation``.
            StateError, NotResetError: As for :meth:`get_state`.
        """
        put_back_mdp, put_back_own = self._mdp.remember(), self._remember()
        try:
            return self.step_allocation(action) if isinstance(action, Allocation) else self.step(action)
        finally:
            put_back_mdp()
            put_back_own()

    @cached_property
    def _state_header(self) -> Tree:
        """The fields in which state and environment must agree."""
        scenario = self._mdp.scenario
        return {
            "format": "collapipe_env state",
            "version": STATE_VERSION,
            "kind": type(self).__name__,
            "num_envs": self._mdp.num_envs,
            "rounds": self._mdp.rounds,
            "learner": type(self._mdp.world.learner).__name__,
            "scenario": f"{scenario.name} {scenario_digest(scenario)[:16]}",
        }

    @abstractmethod
    def step(self, action: Any) -> Result:
        """Play one round."""

    @abstractmethod
    def step_allocation(self, allocation: Allocation) -> Result:
        """Play one round with an allocation."""

    @abstractmethod
    def _own_state(self) -> Tree:
        """State of the class apart from its MDP."""

    @abstractmethod
    def _read_own_state(self, tree: Any) -> tuple[BoolArray, Callable[[], None]]:
        """Check a result of :meth:`_own_state`.

        Returns:
            Rows that have a generator (E,), and a function that sets the state and cannot fail.
        """

    @abstractmethod
    def _remember(self) -> Callable[[], None]:
        """Remember everything that a step changes outside the MDP; returns a function that puts it back."""
