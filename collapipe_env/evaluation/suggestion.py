"""Suggested energy budgets of a scenario, what rounds are like within them, and what makes them unfair."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from collapipe_env.agents.learned.agent_file import read_agent_file
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.declared_sight import seen_by, sees_truth
from collapipe_env.evaluation.gate import late_slope
from collapipe_env.evaluation.round_phases import phase_seconds
from collapipe_env.evaluation.rounds import lasting
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.feasibility.energy_range import EnergyRange, energy_range
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.queues import budgets_used
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import scheduler_seed
from collapipe_env.simulator.build import Joules, reference_delay
from collapipe_env.zoo.shipped_agents import agent_path

EVEN, REFERENCE = "pipeline", "dssra"
"""Schedulers that are played: the even split, and DSSRA."""
KINDS = ("device", "CU")
LARGEST_SHARE = 0.8
"""Share of a round above which what shortens the other phases hardly matters."""
LARGEST_LEAST = 0.95
"""Least over full energy above which no budget between them binds fairly."""
LEAST_USE = 0.97
"""Energy over budget of the worst node, on average, below which a budget does not bind."""
LARGEST_GROWTH = 0.005
"""Growth of the largest queue at the end above which DSSRA does not keep the budgets [budgets a round]."""
AGENT = "zoo:graph"
"""Agent of the zoo for systems of every size."""
REMEDIES = {
    "compute": "raise devices.profiles[].flops_per_cycle, or lower workload.batch_size",
    "hops": "raise radio.d2d_total_hz",
    "uplink and downlink": "raise radio.uplink_bandwidth_hz and radio.downlink_bandwidth_hz",
    "server": "raise cluster.server_flops",
    "collect": "raise radio.d2d_total_hz, or let clusters do more: workload.local_steps",
    "relay": "raise radio.d2d_total_hz, or let clusters do more: workload.local_steps",
    "upload": "raise radio.uplink_bandwidth_hz, or let clusters do more: workload.local_steps",
    "broadcast": "raise radio.downlink_bandwidth_hz or radio.bs_power_w",
}
"""Changes of a scenario in which a phase takes most of a round."""


@dataclass(frozen=True)
class Trial:
    """Rounds of one scheduler.

    Attributes:
        seconds: Seconds of a round by phase, on average [s].
        priced_delay: Mean delay with the price of the queues' growth [s].
        use: Energy over budget of the worst device and of the worst CU, averaged over rounds and episodes.
        growth: Growth of the largest queue in the last half of each episode (E,) [budgets a round].
    """

    seconds: Mapping[str, float]
    priced_delay: float
    use: tuple[float, float]
    growth: FloatArray

    def share(self, phase: str) -> float:
        """Share of a phase in a round, 0 to 1."""
        return self.seconds.get(phase, 0.0) / sum(self.seconds.values())

    @property
    def sure_growth(self) -> float:
        """Growth that chance does not explain: the mean less twice its standard error [budgets a round]."""
        error = self.growth.std(ddof=1) / math.sqrt(len(self.growth))
        return float(self.growth.mean() - 2.0 * error)


@dataclass(frozen=True)
class Suggestion:
    """Suggested budgets of a scenario, and two schedulers that were played within them.

    Attributes:
        reference_delay: ``T_ref`` [s].
        range: Least and full energy [J].
        budgets: The suggested budgets [J].
        trials: Trials by name: :data:`EVEN`, :data:`REFERENCE`.
        warnings: What makes the scenario with these budgets a poor problem, in sentences; empty if nothing.
    """

    reference_delay: float
    range: EnergyRange
    budgets: Joules
    trials: Mapping[str, Trial]
    warnings: tuple[str, ...]


def suggested(
    scenario: Scenario,
    tightness: float,
    rounds: int,
    episodes: int = 8,
    seed: int = 0,
    on_round: Callable[[], object] = lambda: None,
) -> Suggestion:
    """Suggest budgets of a scenario, whatever it has itself, and play both schedulers within them.

    Args:
        tightness: Place of the budgets between least (0) and full energy (1).
        rounds: Rounds of each episode, at least 4.
        episodes: Episodes of each scheduler, played at once, at least 2.
        seed: Seed of the first episode; the others' follow.
        on_round: Called after each round, ``2 rounds`` times.

    Raises:
        CollaPipeError: If no budgets can be met, or a scheduler cannot play the scenario.
    """
    between = energy_range(scenario)
    budgets = between.at(tightness)
    changes = {f"budgets.{name}": value for name, value in budgets._asdict().items()}
    tried = lasting(scenario.with_overrides({**changes, "dynamics.target_loss": None}), rounds)
    trials = {name: _tried(tried, name, rounds, episodes, seed, on_round) for name in (EVEN, REFERENCE)}
    found = tuple(_warnings(tried, tightness, between, trials[REFERENCE]))
    return Suggestion(reference_delay(tried), between, budgets, trials, found)


def _tried(
    scenario: Scenario, name: str, rounds: int, episodes: int, seed: int, on_round: Callable[[], object]
) -> Trial:
    """Play a scheduler in all episodes at once."""
    scheduler = make_scheduler(name, scenario)
    env = CollaPipeVectorEnv(episodes, scenario, IdleLearner(episodes), reward="lyapunov")
    observation, _ = env.reset(seed=seed)
    scheduler.reset(scheduler_seed(0))
    totals: dict[str, float] = {}
    reward, used, granted, queues = 0.0, 0.0, 0.0, []
    for _ in range(rounds):
        plan = scheduler.act(observation, seen_by(env, oracle=sees_truth(scheduler)))
        assert isinstance(plan, Allocation)
        observation, rewards, *_ = env.step_allocation(plan)
        record = env.last_round
        assert record is not None
        for phase, seconds in phase_seconds(record.costs, scenario.workload.local_steps).items():
            totals[phase] = totals.get(phase, 0.0) + float(seconds.mean()) / rounds
        reward += float(np.mean(rewards)) / rounds
        used = used + record.costs.energy_ratio.sum(axis=0)
        granted = granted + record.granted.sum(axis=0)
        queues.append(record.backlog.max(axis=(1, 2)))
        on_round()
    use = budgets_used(np.asarray(used), np.asarray(granted))
    return Trial(
        totals,
        -reward * env.reference_delay,
        (float(use[:, 1:].max()), float(use[:, 0].max())),
        np.array([late_slope(episode) for episode in np.transpose(queues)]),
    )


def _warnings(scenario: Scenario, tightness: float, between: EnergyRange, trial: Trial) -> Iterator[str]:
    grows = trial.sure_growth > LARGEST_GROWTH
    for phase in trial.seconds:
        if (share := trial.share(phase)) > LARGEST_SHARE:
            advice = f": {REMEDIES[phase]}" if phase in REMEDIES else ""
            taken = f"{phase} takes {100.0 * share:.0f} % of a round"
            yield f"{taken}, so what shortens the others hardly matters{advice}"
    for kind, use, least, full, budget in zip(KINDS, trial.use, *between, between.at(tightness), strict=True):
        if least > LARGEST_LEAST * full:
            yield (
                f"no fair {kind} budget exists: in the worst episode plans need {least:.3g} J, and the even "
                f"split uses {full:.3g} J in a typical one; let episodes differ less (cluster.layout: fixed, "
                "less shadowing, a smaller cluster.cu_distance_max_m), or offer more memory"
            )
        elif use < LEAST_USE:
            remedy = "; take a lower tightness" if tightness > 0.0 else ""
            if grows:  # the other budget is the tight one
                remedy = f"; give both budgets in joules, this one below {budget * use:.3g} J"
            yield (
                f"the {kind} budget never binds: DSSRA uses {100.0 * use:.0f} % of it at most, so nobody has "
                f"to save this energy{remedy}"
            )
    if grows:
        percent = 100.0 * trial.growth.mean()
        yield (
            f"DSSRA's largest queue still grows by {percent:.1f} % of a budget a round at the end: take "
            f"{'a higher tightness, ' if tightness < 1.0 else ''}a smaller budgets.tradeoff, or more "
            "--rounds to see it settle"
        )
    if found := untrained(scenario):
        yield f"{AGENT} was not trained for such a system: {', '.join(found)}"


def untrained(scenario: Scenario) -> list[str]:
    """What of a scenario lies outside the systems that the zoo's graph net was trained on, in words."""
    # Imported here: the package of the nets imports PyTorch.
    from collapipe_env.agents.learned.graph.training_range import outside

    return outside(scenario, read_agent_file(agent_path(AGENT)).record.systems)
