"""Episodes made up for tests of comparisons."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from collapipe_env.evaluation.comparison import ScenarioComparison, summarise_scenario
from collapipe_env.evaluation.episode_result import EpisodeResult
from collapipe_env.evaluation.plan import EvaluationPlan
from collapipe_env.evaluation.runner import Outcome
from collapipe_env.scenario import load_scenario

OFFERED = [[4e8, 2e8], [5e8, 0.0]]


def episode(
    scheduler: str, number: int, delay: Sequence[float], *, energy: float = 1.0, server_blocks: int = 0
) -> EpisodeResult:
    """An episode with these round delays, whose loss falls by a tenth of a nat a round."""
    rounds = len(delay)
    losses = (1.0 - 0.1 * np.arange(1, rounds + 1)).tolist()
    return EpisodeResult(
        scheduler=scheduler,
        title=scheduler.upper(),
        episode=number,
        delay=list(delay),
        reward=[-value for value in delay],
        reference_delay_s=1.0,
        worst_energy=[energy] * rounds,
        backlog=[0.5] * rounds,
        largest_backlog=(0.2 + max(energy - 1.0, 0.0) * np.arange(rounds)).tolist(),
        loss=losses,
        smoothed_loss=losses,
        initial_loss=1.0,
        metric=[float("nan")] * rounds,
        metrics={},
        memory_bytes=[1e8] * rounds,
        decision_s=[0.001] * rounds,
        energy_j=[2.0] * rounds,
        progress=[math.nan] * rounds,
        energy_ratio=[[energy, 0.5, 0.2], [0.1, 0.3, 0.0]],
        device_memory_bytes=[[1e8, 1e8], [0.0, 0.0]],
        offered_memory_bytes=OFFERED,
        server_blocks=server_blocks,
    )


def comparison(
    name: str,
    delays: dict[str, Sequence[Sequence[float]]],
    reference: str = "dssra",
    impossible: dict[str, str] | None = None,
    energy: dict[str, float] | None = None,
    server_blocks: dict[str, int] | None = None,
    agents: tuple[Path, ...] = (),
) -> ScenarioComparison:
    """A scenario's comparison from the round delays of each scheduler's episodes."""
    results = {
        scheduler: [
            episode(
                scheduler,
                number,
                rounds,
                energy=(energy or {}).get(scheduler, 1.0),
                server_blocks=(server_blocks or {}).get(scheduler, 0),
            )
            for number, rounds in enumerate(episodes)
        ]
        for scheduler, episodes in delays.items()
    }
    plan = EvaluationPlan(
        scenario=load_scenario({"name": name, "base": "small"}),
        schedulers=(*results, *(impossible or {})),
        agents=agents,
        episodes=max((len(episodes) for episodes in delays.values()), default=1),
        rounds=3,
        learner="surrogate",
        folder=Path(name),
    )
    return summarise_scenario(plan, Outcome(results, impossible or {}), reference)
