"""The environment: one step is one federated round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from inspect import signature
from operator import itemgetter
from os import PathLike
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from collapipe_env.envs.autoreset import checked_seed, kept_generator
from collapipe_env.envs.mdp import BatchMDP, BatchStep, row_of
from collapipe_env.envs.mdp_views import MDPViews
from collapipe_env.envs.observation_kinds import Observation, row_of_observation
from collapipe_env.envs.rewards import Reward
from collapipe_env.envs.snapshot import Snapshots
from collapipe_env.ground.arrays import BoolArray
from collapipe_env.ground.errors import (
    LARGEST_BITS,
    AllocationError,
    ScenarioError,
    StateError,
    UnknownArgumentError,
    nearest_name,
    shown,
)
from collapipe_env.ground.real_numbers import real_numbers
from collapipe_env.ground.state_trees import (
    REMEDY,
    Tree,
    generator_of,
    generator_tree,
    require_array,
    require_names,
)
from collapipe_env.physics.allocation import Allocation, own_arrays
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.simulator.learner import Learner

ScenarioLike = str | PathLike[str] | Mapping[str, Any] | Scenario
StepResult = tuple[Observation, float, bool, bool, dict[str, Any]]


class CollaPipeEnv(MDPViews, Snapshots[StepResult], gym.Env[Any, Any]):
    """Pipeline-parallel federated training of a Transformer at the wireless edge, one round a step.

    The documentation's page on the environment explains what is only named here. With ``N`` clusters of up to
    ``K`` devices, ``L`` encoder blocks and a mini-batch of ``B`` samples:

    **Action**, ``Box(-1, 1, (N (2K + 3),), float32)``. For each cluster in turn: ``K`` segment scores,
    ``K`` device powers, the CU power, the micro-batch choice and the bandwidth score, decoded by
    :class:`~collapipe_env.simulator.codec.ActionCodec` into an always feasible
    :class:`~collapipe_env.physics.allocation.Allocation`:

    ===============  =================================================================================
    segments         weights ``(a + 1) / 2``; ``L`` blocks apportioned by largest remainder under each
                     device's memory cap; a device at -1 gets none
    powers           geometric between ``power_min_w`` and ``power_max_w``
    micro-batches    nearest of the allowed divisors of ``B``
    bandwidth        a small floor for every cluster, the rest in proportion to ``(a + 1) / 2``
    ===============  =================================================================================

    Each further decision that the scenario opens adds entries to each cluster's part
    (:mod:`collapipe_env.decisions`).

    **Observation**, by default ``Box((6 N K + 2 N + 2,), float32)`` with finite bounds, and more features in
    some scenarios; :attr:`observation_layout` names them all. With ``observation="graph"`` a ``Dict`` of
    ``Box``: ``cu`` (N, ...), ``device`` (N, K, ...), ``hop`` (N, K+1, K+1, ...), ``between`` (N, N, ...),
    ``present`` (N, K) and ``context`` (...) (:mod:`collapipe_env.envs.graph_observation`).

    **Transition**. The allocation fixes the delay ``T``, the energies ``E`` and the loss of micro-batches.
    The learner trains one round. The virtual queues move, ``z <- max(z + E / Ebar - 1, 0)``, and so do the
    scenario's processes, such as fading. Layout and shadowing are drawn once per episode or fixed by the
    scenario.

    **Reward** (:mod:`collapipe_env.envs.rewards`): ``"lyapunov"``, the default unless the scenario opens
    participation or local steps; ``"time_to_target"``, then the default; ``"drift_plus_penalty"``;
    ``"delay"``; a registered name; or a callable ``reward(before, costs, after)``.

    **End**. ``truncated`` after the scenario's number of rounds, ``terminated`` when the smoothed loss
    reaches the target (if the scenario sets one).

    **Info**. The same numbers from every step and from ``reset``, each a ``numpy.float64``: ``delay`` [s],
    ``cost`` (sum over nodes of the energy above the round's budget, in budgets), ``backlog`` (sum of
    ``z``), ``loss`` [nat], ``metric`` (not with the surrogate). At ``reset``, before any round, the first
    three are 0. Plans with groups of devices, which only :meth:`step_allocation` can play, add
    ``left_out``, the number of present devices that take no part.

    **Randomness** comes from ``np_random`` alone, through one seed for each component and episode. After
    :meth:`set_state`, ``copy.deepcopy`` and ``pickle`` the copy continues bit for bit as the original would.

    Args:
        scenario: Name of a shipped scenario, path of a YAML file, mapping or object.
        learner: ``"real"`` (trains a model), ``"surrogate"`` (the fitted bound) or a learner object.
        reward: Name or callable; by default the one that suits the scenario.
        render_mode: ``None`` or ``"rgb_array"``.
        observation: ``"flat"`` or ``"graph"``.

    Raises:
        ScenarioError: For an unknown or misspelt argument or scenario field.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 2}  # noqa: RUF012 - Gymnasium's interface

    def __init__(
        self,
        scenario: ScenarioLike = "medium",
        learner: str | Learner = "real",
        reward: str | Reward | None = None,
        render_mode: str | None = None,
        observation: str = "flat",
        **unknown: Any,
    ) -> None:
        refuse_unknown(unknown, arguments_of(CollaPipeEnv))
        # Gymnasium 1.2's SyncVectorEnv writes into the metadata of wrapped environments: protect the class's.
        self.metadata = dict(self.metadata)
        self.render_mode = checked_render_mode(render_mode)
        self._mdp = BatchMDP(load_scenario(scenario), learner, reward, 1, observation=observation)
        self.action_space: spaces.Box = self._mdp.action_space()
        self.observation_space: spaces.Space[Any] = self._mdp.observer.space()
        # Observation of the only row.
        flat = isinstance(self.observation_space, spaces.Box)
        self._first = itemgetter(0) if flat else partial(row_of_observation, row=0)
        self._delays: list[float] = []
        self._losses: list[float] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode: draw layout, shadowing, channels and loads, and start training afresh.

        Args:
            seed: Seeds ``np_random``, a whole number of at least 0. Without a seed the generator continues,
                and the episode is a new one.
            options: No option exists; any option is refused.

        Returns:
            The observation and the information, in which ``loss`` (and ``metric``) are the untrained model's
            and ``delay``, ``cost`` and ``backlog`` are 0.

        Raises:
            ScenarioError: For another seed, or an option; the environment is left as it was.
        """
        refuse_unknown(options or {}, ())
        seed, put_back = checked_seed(seed), self._remember()
        try:
            super().reset(seed=seed)
            observation = self._mdp.reset([self.np_random])
        except BaseException:
            put_back()
            raise
        self._delays.clear()
        self._losses.clear()
        info = {name: values[0] for name, values in self._mdp.reset_info().items()}
        return self._first(observation), info

    def step(self, action: npt.NDArray[np.float32]) -> StepResult:
        """Play one round with an action of the box.

        Args:
            action: Real numbers (N (2K + 3),); values outside [-1, 1] are clipped.

        Raises:
            AllocationError: For another shape or type, or a number that is not finite; the environment is
                left as it was.
        """
        if type(action) is not np.ndarray:
            action = real_numbers("action", action, self.action_space.shape)
        if action.shape != self.action_space.shape:
            action = real_numbers("action", action)  # reports a wrong type first
            raise AllocationError(f"action has shape {action.shape}, expected {self.action_space.shape}")
        try:
            step = self._mdp.step(action[None])
        except (AllocationError, TypeError):
            action = real_numbers("action", action)
            # This error names the place without a batch axis, which the caller has not given.
            self.codec.check_action(action)
            raise
        return self._unpack(step)

    def step_allocation(self, allocation: Allocation) -> StepResult:
        """Play one round with an allocation, even one that the box cannot express.

        Args:
            allocation: Arrays without a batch axis, or with a leading axis of 1.

        Raises:
            AllocationError: If it is infeasible; the environment is left as it was.
        """
        allocation = own_arrays(allocation)
        if allocation.micro_batches.ndim == 1:
            allocation = allocation.map(lambda a: a[None])
        return self._unpack(self._mdp.play(allocation))

    def _unpack(self, step: BatchStep) -> StepResult:
        info: dict[str, Any] = {name: values[0] for name, values in step.info.items()}
        terminated, truncated = bool(step.terminated[0]), bool(step.truncated[0])
        if terminated or truncated:
            self._mdp.keep_summaries(np.ones(1, dtype=np.bool_))
        if self.render_mode is not None:
            self._delays.append(info["delay"])
            self._losses.append(info["loss"])
        return self._first(step.observation), float(step.reward[0]), terminated, truncated, info

    def summary(self) -> dict[str, float]:
        """Summary of the episode so far; see :meth:`collapipe_env.envs.mdp.BatchMDP.summaries`."""
        return self._mdp.summary(0)

    def ended_summary(self) -> dict[str, float]:
        """Summary of the last episode that ended, kept over the next reset; empty before the first ends."""
        return row_of(self._mdp.ended_summaries, 0)

    def _own_state(self) -> Tree:
        rng = self._np_random
        return {
            "np_random": None if rng is None else generator_tree(rng),
            # Gymnasium's property of the same name returns it.
            "np_random_seed": self._np_random_seed,
            "delays": np.array(self._delays, dtype=np.float64),
            "losses": np.array(self._losses, dtype=np.float64),
        }

    def _read_own_state(self, tree: Any) -> tuple[BoolArray, Callable[[], None]]:
        place = "env"
        names = ("np_random", "np_random_seed", "delays", "losses")
        require_names(tree, names, place)
        for name in ("delays", "losses"):
            require_array(tree[name], np.shape(tree["delays"])[:1], np.float64, f"{place}/{name}")
        given = tree["np_random"]
        rng = None if given is None else generator_of(given, f"{place}/np_random")
        seed = tree["np_random_seed"]
        # Gymnasium says -1 where a generator was set by hand.
        if seed is not None and (type(seed) is not int or not -1 <= seed < 2**LARGEST_BITS):
            raise StateError(f"{place}/np_random_seed is {shown(seed)}, expected a whole number: {REMEDY}")

        def apply() -> None:
            self._np_random, self._np_random_seed = rng, seed
            self._delays, self._losses = tree["delays"].tolist(), tree["losses"].tolist()

        return np.array([rng is not None]), apply

    def _remember(self) -> Callable[[], None]:
        rng, seed = kept_generator(self._np_random), self._np_random_seed
        delays, losses = self._delays.copy(), self._losses.copy()

        def put_back() -> None:
            self._np_random, self._np_random_seed = rng(), seed
            self._delays, self._losses = delays, losses

        return put_back

    def render(self) -> npt.NDArray[np.uint8] | None:
        """The last round as one picture (H, W, 3), uint8; ``None`` without a render mode.

        Before the first round of an episode the picture shows what the even split would do.
        """
        if self.render_mode is None:
            gym.logger.warn("render() needs render_mode='rgb_array', given to gymnasium.make")
            return None
        history = {"loss_history": self._losses, "delay_history": self._delays}
        (picture,) = self._pictures([not self._delays], [self.scenario.name], **history)
        return picture


def checked_render_mode(mode: str | None) -> str | None:
    """Return a mode of :meth:`CollaPipeEnv.render`.

    Raises:
        ScenarioError: If there is no such mode, or Matplotlib is missing, which draws.
    """
    if mode is None:
        return None
    if mode not in CollaPipeEnv.metadata["render_modes"]:
        raise ScenarioError(f"render_mode = {mode!r} is not known: use 'rgb_array' or None")
    if find_spec("matplotlib") is None:
        raise ScenarioError(f"render_mode = {mode!r} needs Matplotlib: pip install 'collapipe-env[plots]'")
    return mode


def arguments_of(kind: type) -> tuple[str, ...]:
    """Names of the arguments that a class knows."""
    return tuple(p.name for p in signature(kind).parameters.values() if p.kind is not p.VAR_KEYWORD)


def refuse_unknown(given: Mapping[str, Any], valid: tuple[str, ...]) -> None:
    """Refuse keys that are not valid, with the nearest valid name.

    Raises:
        UnknownArgumentError: If ``given`` holds a key outside ``valid``.
    """
    for name, value in given.items():
        if name not in valid:
            hint = nearest_name(name, valid) if valid else "none are known"
            raise UnknownArgumentError(f"unexpected keyword argument {name!r} = {value!r}: {hint}")
