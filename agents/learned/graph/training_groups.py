"""Groups of environments to train on: some of the shipped scenarios, most of random systems."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np

from collapipe_env.agents.dssra.hazard_memory import RISK, failure_risk
from collapipe_env.dynamics.channel_knowledge import gains_are_exact, hidden_gains
from collapipe_env.dynamics.presence import PRESENCE
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.feasibility import EnergyBudgetWarning
from collapipe_env.ground.arrays import BoolArray, FloatArray
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.kernels.channels import split_links
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.failed_rounds import Failures
from collapipe_env.simulator.state import SystemState, able_clusters
from collapipe_env.simulator.unable_clusters import sitting_out, with_room_everywhere

from .graph_decision import Decider
from .graph_parameters import GraphParameters
from .random_systems import random_system, with_new_layouts

FAILURE_DRAWS = 32
"""Draws of failures of every environment, where devices fail."""


class Group:
    """Environments of one scenario, which play the net's plans while it learns.

    Args:
        environments: Their number, >= 1.
        life: Rounds after which the group ends.
        seed: Seed of the environments.
        longest_backlog: Mean longest queue [budgets] above which the group is replaced: its budgets cannot be
            met, or only in the long run.

    Raises:
        ScenarioError: If a layout cannot be placed.
    """

    def __init__(
        self,
        scenario: Scenario,
        environments: int,
        life: int,
        seed: int,
        longest_backlog: float = math.inf,
    ) -> None:
        self.scenario, self.life, self.age = scenario, life, 0
        self.longest_backlog = longest_backlog
        self.parameters = system_parameters(scenario)
        self.decider = Decider(self.parameters)
        with warnings.catch_warnings():
            # Budgets are drawn at random; groups whose queues run away end by themselves.
            warnings.simplefilter("ignore", EnergyBudgetWarning)
            self.env = CollaPipeVectorEnv(
                environments,
                scenario=scenario,
                learner=IdleLearner(environments),
                autoreset_mode="SameStep",
            )
        self.env.reset(seed=seed)
        self.exact, self.risk = gains_are_exact(scenario), failure_risk(scenario)
        self._failures = None if self.risk is None else Failures(self.parameters, self.risk.spec.terms)

    @property
    def surprises(self) -> bool:
        """Whether rounds may differ from what is known: gains are hidden, or devices fail."""
        return not self.exact or self.risk is not None

    @property
    def able(self) -> BoolArray:
        """Clusters whose devices can hold the encoder (E, N); the others sit the round out."""
        if not self.parameters.may_sit_out:
            return np.ones((self.env.num_envs, self.parameters.clusters), dtype=np.bool_)
        return np.asarray(able_clusters(self.parameters, self.env.truth))

    @property
    def whole(self) -> BoolArray:
        """Environments in which every cluster can hold the encoder (E,)."""
        return np.all(self.able, axis=-1)  # type: ignore[no-any-return]

    @property
    def known(self) -> SystemState:
        """Known state of the systems (E, ...), with room where clusters sit out: plans follow from it.

        Where devices fail, the estimated probabilities are among the arrays of ``presence``.
        """
        state = self.env.state if self.risk is None else self.risk.added(self.env.state)
        return with_room_everywhere(state, self.able, self.parameters.costs.blocks)

    @property
    def truth(self) -> SystemState:
        """True state of the systems (E, ...), with room where clusters sit out: plans are priced by it."""
        return with_room_everywhere(self.env.truth, self.able, self.parameters.costs.blocks)

    def possible_truths(self, draws: int, rng: np.random.Generator) -> SystemState:
        """True states (E D, ...), the D of an environment together, which differ in their fading alone.

        Where the known gains say something of the round's fading, it is not drawn anew: D is then 1.

        Args:
            draws: Draws of the fading of every environment, >= 1.
        """
        scenario, known = self.scenario, hidden_gains(self.scenario)
        late = known is not None and (known.delay > 0 or "mean" in known.modes)
        if (
            not late
            or scenario.radio.fading_correlation > 0.0
            or "traces" in dict(scenario.dynamics.processes)
        ):
            return self.truth
        gains: FloatArray = np.repeat(np.asarray(self.env.path_gains), draws, axis=0)
        m = scenario.radio.diversity
        gains = gains * rng.gamma(m, 1.0 / m, gains.shape)
        uplink, d2d = split_links(gains, None, (scenario.clusters, scenario.max_devices))
        rows = np.repeat(np.arange(self.env.num_envs), draws)
        return replace(self.truth[rows], uplink_gain=uplink, d2d_gain=d2d)

    def possible_failures(self, plan: Allocation, gains: int, rng: np.random.Generator) -> FloatArray:
        """Delays that failures would add to the clusters' rounds (E G F, N, K), over the rounds' delays.

        Devices fail with their estimated probabilities; 0 where one does not. What a failure costs is drawn
        from replays of this very round: in each cluster one device of the plan fails at any time.

        Args:
            plan: The plan (E, ...).
            gains: Draws ``G`` of the gains of every environment, >= 1. Each has as many of failures, ``F``; 1
                where nothing fails. Those of an environment are together.
            rng: Draws devices, times and failures.
        """
        E, N, K = self.env.state.present.shape
        if self._failures is None:
            return np.zeros((E * gains, N, K))
        draws = gains * max(1, FAILURE_DRAWS // gains)
        costs = round_costs(self.parameters, self.truth, plan)
        T = costs.cluster_delay
        device = np.where(costs.allocation.device_blocks > 0, rng.random((E, N, K)), -1.0).argmax(axis=-1)
        failing = np.full((E, N, K), np.inf)
        np.put_along_axis(failing, device[..., None], (rng.random((E, N)) * T)[..., None], axis=-1)
        replayed = self._failures.replayed(self.truth, costs, failing)
        more = np.zeros_like(T) if replayed is None else replayed.cluster_delay / np.maximum(T, 1e-9)
        state = self.known
        risk = np.where(state.present, state.processes[PRESENCE][RISK], 0.0)
        fails = rng.random((E * draws, N, K)) < np.repeat(risk, draws, axis=0)
        return np.where(fails, rng.choice(more.ravel(), fails.shape), 0.0)

    def play(self, plan: Allocation) -> None:
        """Play a plan (E, ...), which clusters without room sit out."""
        able = self.able
        self.env.step_allocation(plan if able.all() else sitting_out(plan, able))
        self.age += 1

    @property
    def ended(self) -> bool:
        """Whether another group should take its place."""
        longest = self.env.state.backlog.max(axis=(-2, -1)).mean()
        return self.age >= self.life or bool(longest > self.longest_backlog)


class Curriculum:
    """Systems to train on: scenarios first, each with its own layout and with new ones, then random systems.

    Args:
        p: Hyper-parameters, of which it reads scenarios, random systems, and what ends a group.
        longest_life: Most rounds of a group with a fixed layout; other groups end sooner.
    """

    def __init__(self, p: GraphParameters, longest_life: int = 400) -> None:
        self._p, self._longest_life = p, longest_life

    def __len__(self) -> int:
        return 2 * len(self._p.scenarios) + self._p.random_groups

    def group(self, place: int, rng: np.random.Generator) -> Group:
        """A new group for a place among the groups.

        Args:
            place: From 0 to the number of groups less 1.
            rng: Draws its scenario, life and seed.

        Raises:
            ScenarioError: New layouts do not suit the place's scenario.
        """
        p, fixed = self._p, len(self._p.scenarios)
        while True:
            life = int(rng.integers(60, self._longest_life if place < fixed else 160))
            try:
                if place >= 2 * fixed:
                    scenario = random_system(rng, p.most_clusters, p.random_systems)
                else:
                    scenario = load_scenario(p.scenarios[place % fixed])
                    if place >= fixed:
                        scenario = with_new_layouts(scenario)
                environments = max(1, p.clusters // scenario.clusters)
                return Group(scenario, environments, life, int(rng.integers(2**30)), p.longest_backlog)
            except ScenarioError:
                if place < 2 * fixed:
                    raise
                continue  # some draw of a layout did not fit into the cell
