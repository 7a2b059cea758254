"""Systems to train on: some of the shipped scenarios, most drawn anew for every group of environments.

Most random systems are like the shipped ladder: its workload, devices and prices, with other sizes, layouts,
budgets and tradeoff. Others have other workloads, radios, speeds and prices, too, and moments that move.
Where they are to be like the tier Wild, only sizes, densities and budgets are drawn. Budgets follow from the
energy that a system can use (``budgets.tightness``), so that they bind and can be met.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any, TypeAlias

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
from collapipe_env.scenario import Scenario, block_bytes, load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.failed_rounds import Failures
from collapipe_env.simulator.state import SystemState, able_clusters
from collapipe_env.simulator.unable_clusters import sitting_out, with_room_everywhere

from .graph_parameters import GraphParameters, RandomSystems, with_new_layouts, within
from .graph_scheduler import Decider

WIDE_SHARE = 0.5
"""Share of systems that differ from the ladder in more than size, layout, budgets and tradeoff."""
Range: TypeAlias = tuple[float, float]
RANGES: dict[RandomSystems, dict[str, Range]] = {
    "ladder": {
        "cluster.devices": (3, 16),
        "cluster.cu_distance_max_m": (150.0, 400.0),
        "workload.blocks": (6, 48),
        "workload.batch_size": (16, 256),
        "workload.local_steps": (1, 8),
        "radio.diversity": (1, 8),
        "radio.idle_w": (0.0, 0.3),
        "budgets.tradeoff": (1.5, 25.0),
    },
    "wild": {
        "cluster.devices": (4, 16),
        "cluster.cu_distance_max_m": (300.0, 500.0),
        "workload.blocks": (8, 16),
    },
}
"""Least and largest values of what is drawn."""
BASES: dict[RandomSystems, tuple[str, ...]] = {
    "ladder": ("medium", "boards", "phones"),
    "wild": ("large-wild",),
}
"""Scenarios from which random systems take everything else."""
FAILURE_DRAWS = 32
"""Draws of failures of every environment, where devices fail."""
_TRIES = 50
_PER_CLUSTER_HZ = 25e6


def random_system(rng: np.random.Generator, most_clusters: int, like: RandomSystems = "ladder") -> Scenario:
    """A scenario whose layout is redrawn in every episode.

    Args:
        most_clusters: Largest number of clusters, >= 2.
        like: What it is like.

    Raises:
        ScenarioError: If no valid one is found in many draws.
    """
    for _ in range(_TRIES):
        try:
            draw = wild_system if like == "wild" else _ladder_system
            return draw(rng, most_clusters)
        except ScenarioError:
            continue  # too little memory or room: the next draw has other sizes
    raise ScenarioError(f"no valid system in {_TRIES} draws with at most {most_clusters} clusters")


def wild_system(rng: np.random.Generator, most_clusters: int, least_clusters: int = 3) -> Scenario:
    """A scenario like those of the tier Wild, of any size.

    Args:
        most_clusters: Largest number of clusters.
        least_clusters: Smallest number of clusters, or the largest if that is smaller.

    Raises:
        ScenarioError: If its clusters have too little room.
    """
    N, of = round(_between(rng, min(least_clusters, most_clusters), most_clusters)), RANGES["wild"]
    changes = (
        scaled(N)
        | {
            "workload.blocks": _whole(rng, *of["workload.blocks"]),
            "cluster.devices": _whole(rng, *of["cluster.devices"]),
            "cluster.cu_distance_max_m": rng.uniform(*of["cluster.cu_distance_max_m"]),
            "cluster.cluster_separation_min_m": rng.uniform(45.0, 100.0),
            "server.energy_budget_j": 20.0 * N,
        }
        | within(rng.uniform(0.5, 1.0))
    )
    return _named(load_scenario("large-wild"), changes)


def _between(rng: np.random.Generator, low: float, high: float) -> float:
    """Number whose logarithm is uniform."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _whole(rng: np.random.Generator, low: float, high: float) -> int:
    """Whole number from ``low`` to ``high``."""
    return int(rng.integers(int(low), int(high) + 1))


def scaled(N: int) -> dict[str, Any]:
    """``N`` clusters, and what they share: as much for each as on the ladder."""
    return {
        "cluster.clusters": N,
        "cluster.server_flops": 0.5e12 * N,
        "radio.uplink_bandwidth_hz": _PER_CLUSTER_HZ * N,
        "radio.downlink_bandwidth_hz": _PER_CLUSTER_HZ * N,
        "radio.bs_power_w": 2.5 * N,
        "budgets.bandwidth_floor": 0.08 / N,
    }


def _sizes(rng: np.random.Generator, most_clusters: int) -> dict[str, Any]:
    """Numbers of clusters, devices and blocks, and where they stand."""
    # Many clusters are as frequent as few: their effects on each other are the harder part.
    few = rng.random() < 0.5
    clusters = _between(rng, 1.6, most_clusters) if few else rng.uniform(1.6, most_clusters)
    N, of = max(2, round(clusters)), RANGES["ladder"]
    K = _whole(rng, *of["cluster.devices"])
    fewest, most = of["workload.blocks"]
    L = _whole(rng, fewest, 16) if rng.random() < 0.6 else round(_between(rng, 12, most))
    return (
        scaled(N)
        | {
            "workload.blocks": L,
            "cluster.devices": K,
            "cluster.layout": "per_episode",
            "cluster.layout_seed": int(rng.integers(2**31)),
            "cluster.cu_distance_max_m": rng.uniform(*of["cluster.cu_distance_max_m"]),
            "cluster.cluster_separation_min_m": rng.uniform(25.0, 100.0),
            "budgets.tradeoff": _between(rng, *of["budgets.tradeoff"]),
        }
        | within(rng.uniform(0.0, 0.7))
    )


def _room(rng: np.random.Generator, scenario: Scenario, changes: dict[str, Any]) -> dict[str, Any]:
    """Memories in which the cluster can always hold its blocks; those of the scenario where they suffice."""
    memory = scenario.devices.profiles[0].memory_bytes
    batch = {"workload.batch_size": changes.get("workload.batch_size", scenario.workload.batch_size)}
    block = block_bytes(scenario.with_overrides(batch | {"devices.profiles.0.memory_bytes": [1e12]}))
    most = math.ceil(changes["workload.blocks"] / changes["cluster.devices"])
    factor = _between(rng, 1.0, 1.5) * max(1.0, most * block / min(memory))
    return {"devices.profiles.0.memory_bytes": [size * factor for size in memory]}


def _named(scenario: Scenario, changes: dict[str, Any]) -> Scenario:
    N, K, L = (changes[name] for name in ("cluster.clusters", "cluster.devices", "workload.blocks"))
    return scenario.with_overrides({"name": f"random-{N}x{K}x{L}", **changes})


def _ladder_system(rng: np.random.Generator, most_clusters: int) -> Scenario:
    """A scenario like the ladder in all but sizes, layout, budgets and tradeoff, or a wider one."""
    wide = rng.random() < WIDE_SHARE
    scenario = load_scenario(str(rng.choice(BASES["ladder"], p=[0.4, 0.4, 0.2])) if wide else "medium")
    changes = _sizes(rng, most_clusters)
    if not wide:
        return _named(scenario, changes | _room(rng, scenario, changes))
    changes |= {
        "workload.local_steps": int(rng.choice([1, 1, 1, 2, 4, 8])),
        "cluster.area_side_m": _between(rng, 20.0, 60.0),
        "radio.diversity": int(rng.choice([1, 2, 4, 8])),
        "radio.d2d_path_loss": str(rng.choice(["inh-mixed", "inh-mixed-nlos"])),
        "radio.bs_antenna_dbi": rng.uniform(8.0, 17.0),
        "radio.idle_w": float(rng.choice([0.0, 0.1, 0.3])),
    }
    for name in ("cluster.server_flops", "radio.uplink_bandwidth_hz", "radio.downlink_bandwidth_hz"):
        changes[name] *= _between(rng, 0.6, 1.6)
    changes["radio.d2d_total_hz"] = scenario.radio.d2d_total_hz * _between(rng, 0.5, 2.0)
    if scenario.name == "medium":
        faster, batch = _between(rng, 0.6, 2.5), int(rng.choice([16, 32, 64, 96, 128, 256]))
        changes["workload.batch_size"] = batch
        changes["devices.profiles.0.flops_per_cycle"] = scenario.devices.profiles[0].flops_per_cycle * faster
        changes |= _room(rng, scenario, changes)
        if rng.random() < 0.5:
            changes["dynamics.load_levels"] = [0.4, 0.7, 1.0]
    if scenario.name == "boards" or rng.random() < 0.25:
        changes["dynamics.processes.migration"] = {
            "moments": "move",
            "moment_bits": int(rng.choice([16, 32])),
            "route": str(rng.choice(["direct", "cu"], p=[0.7, 0.3])),
        }
    changes["radio.link_errors"] = str(rng.choice(["harq", "drop", "arq"], p=[0.6, 0.2, 0.2]))
    changes["workload.distribution"] = str(rng.choice(["cu", "relay"], p=[0.8, 0.2]))
    prices = _between(rng, 0.3, 3.0) if rng.random() < 0.85 else 0.0
    for name in (
        "block_s", "update_s", "message_s", "latency_s", "edge_message_s", "edge_latency_s", "server_s",
    ):  # fmt: skip
        changes[f"overheads.{name}"] = getattr(scenario.overheads, name) * prices
    return _named(scenario, changes)


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


def new_group(p: GraphParameters, place: int, rng: np.random.Generator) -> Group:
    """A new group for a place: scenarios with their own layouts come first, then with new ones, then random.

    Args:
        p: Hyper-parameters, of which it reads scenarios, random systems, and what ends a group.
        place: From 0 to ``p.groups`` less 1.
        rng: Draws its scenario, life and seed.

    Raises:
        ScenarioError: New layouts do not suit the place's scenario.
    """
    fixed = len(p.scenarios)
    while True:
        life = int(rng.integers(60, 400 if place < fixed else 240))
        try:
            if place >= 2 * fixed:
                scenario = random_system(rng, p.most_clusters, p.random_systems)
            else:
                scenario = load_scenario(p.scenarios[place % fixed])
                scenario = scenario if place < fixed else with_new_layouts(scenario)
            environments = max(1, p.clusters // scenario.clusters)
            return Group(scenario, environments, life, int(rng.integers(2**30)), p.longest_backlog)
        except ScenarioError:
            if place < 2 * fixed:
                raise
            continue  # some draw of a layout did not fit into the cell
