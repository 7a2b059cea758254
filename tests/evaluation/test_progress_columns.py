"""Comparisons where clusters may sit out or choose their local steps: by time per progress, not by delay."""

import dataclasses
import json
import math

import numpy as np
import pytest
from comparison_support import comparison

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.agents.dssra.target import DSSRATarget
from collapipe_env.agents.learned.validation import Validator
from collapipe_env.evaluation.comparison import overall, summarise_scenario
from collapipe_env.evaluation.delay_profile import delay_profile
from collapipe_env.evaluation.episode import play_episode
from collapipe_env.evaluation.episode_result import EpisodeResult
from collapipe_env.evaluation.figures import delay_bars, energy_against_delay, loss_over
from collapipe_env.evaluation.report import markdown_report
from collapipe_env.evaluation.runner import Outcome
from collapipe_env.learners import expected_progress
from collapipe_env.learners.expected_progress import ExpectedProgress, progress_law
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.decision_names import COLLAPIPE
from collapipe_env.simulator.build import system_parameters

SMALL = load_scenario("small")
OPEN = SMALL.with_overrides({"decisions": [*COLLAPIPE, "participation", "local_steps"]})


def by_progress(progress: dict[str, float]):
    """A comparison of schedulers with delays of 1, 2, ... s, whose rounds make some progress."""
    names = list(progress)
    made = comparison("one", {name: [[1.0 + i, 2.0 + i]] * 2 for i, name in enumerate(names)})
    results = {
        name: [dataclasses.replace(e, progress=[progress[name]] * 2) for e in episodes]
        for name, episodes in made.results.items()
    }
    return summarise_scenario(made.plan, Outcome(results, {}))


def test_the_shortest_rounds_do_not_win_if_they_make_least_progress() -> None:
    done = by_progress({"random": 0.1, "dssra": 1.0, "pipeline": 0.5})
    assert [s.scheduler for s in done.summaries] == ["dssra", "pipeline", "random"]
    seconds = {s.scheduler: s.seconds_per_progress.mean for s in done.summaries}
    assert seconds == pytest.approx({"random": 3.0 / 0.2, "dssra": 5.0 / 2.0, "pipeline": 7.0 / 1.0})
    assert {s.scheduler: s.rank.mean for s in done.summaries} == {"dssra": 1, "pipeline": 2, "random": 3}
    random = done.summaries[-1]
    assert random.difference.mean == pytest.approx(15.0 / 2.5 - 1.0)
    assert random.improvement.mean == 0.0
    assert [one.scheduler for one in overall([done])] == ["dssra", "pipeline", "random"]


def test_tables_show_time_per_progress_and_to_the_target_before_delays() -> None:
    text = markdown_report([by_progress({"random": 0.1, "dssra": 1.0})])
    header = next(line for line in text.splitlines() if line.startswith("| scheduler"))
    assert header.startswith(
        "| scheduler | per progress (s) | difference (%) | faster (%) | rank | time to target (s) | priced "
    )
    assert header.count("time to target") == 1
    assert "Difference: priced time per unit of progress divided by that of DSSRA" in text
    assert "episodes with a shorter priced time per unit of progress than DSSRA's" in text
    closed = markdown_report([comparison("one", {"dssra": [[1.0]]})])
    assert "per progress" not in closed
    assert "Difference: priced delay divided by that of DSSRA" in closed
    assert "Faster: share of episodes with a shorter priced delay than DSSRA's; ties count half." in closed


def test_an_episode_without_progress_comes_last() -> None:
    done = by_progress({"dssra": 1.0, "random": 0.0})
    assert [s.scheduler for s in done.summaries] == ["dssra", "random"]
    assert done.summaries[-1].seconds_per_progress.mean > 1e9


def test_episodes_hold_the_progress_of_the_law_and_the_energy() -> None:
    played = play_episode("dssra-target", DSSRATarget(OPEN), OPEN, 0, 3, "surrogate")
    result, law = played.result, ExpectedProgress.of(OPEN)
    for made, plan in zip(result.progress, played.allocations, strict=True):
        steps = np.where(plan.participates, plan.local_steps, 0)[None]
        assert made == pytest.approx(law.of_round(np.ones(steps.shape), steps)[0], rel=5e-3)
    priced = len(result.delay) * result.priced_delay
    assert result.seconds_per_progress == pytest.approx(priced / sum(result.progress))
    assert priced > sum(result.delay)  # the queues have begun to fill
    assert min(result.energy_j) > 0.0
    stored = json.dumps(result.to_dict())
    assert json.dumps(EpisodeResult.from_json(stored, "a file").to_dict()) == stored


def test_other_scenarios_have_no_progress(monkeypatch) -> None:
    assert progress_law(SMALL) is None
    assert progress_law(OPEN) is not None
    result = play_episode("dssra", DSSRA(SMALL), SMALL, 0, 2, "surrogate").result
    assert math.isnan(result.seconds_per_progress)
    monkeypatch.setattr(expected_progress, "has_fit", lambda _: False)
    assert progress_law(OPEN) is None


def test_pictures_compare_time_per_progress_too() -> None:
    done = by_progress({"random": 0.1, "dssra": 1.0})
    bars, scatter = delay_bars([done]).axes[0], energy_against_delay([done]).axes[0]
    assert bars.get_xlabel().startswith("priced time per unit of progress (s); whisker: ")
    assert "tick" not in bars.get_xlabel()
    assert max(patch.get_width() for patch in bars.patches) == pytest.approx(15.0)
    assert scatter.get_xlabel() == "mean round delay (s)"
    assert (
        delay_bars([comparison("one", {"dssra": [[1.0]]})])
        .axes[0]
        .get_xlabel()
        .startswith("priced delay (s)")
    )


def test_losses_are_drawn_against_energy() -> None:
    done = comparison("one", {"dssra": [[1.0] * 4, [2.0] * 4]})
    axes = loss_over([done], "energy_j", 1e3, "energy of all nodes (kJ)").axes[0]
    assert axes.get_xlabel() == "energy of all nodes (kJ)"
    assert axes.lines[0].get_xdata()[-1] == pytest.approx(4 * 2.0 / 1e3)


def test_profiles_say_what_their_ratios_are_of() -> None:
    def label(*comparisons):
        return delay_profile(comparisons).axes[0].get_xlabel()

    closed, opened = comparison("one", {"dssra": [[1.0]]}), by_progress({"random": 0.1, "dssra": 1.0})
    assert label(closed).startswith("priced delay over")
    assert label(opened).startswith("priced time per progress over")
    assert label(closed, opened).startswith("priced delay or priced time per progress over")


def test_versions_of_an_agent_are_chosen_by_drift_plus_penalty_per_progress() -> None:
    class Still:
        def predict(self, observation, *, deterministic=True):  # noqa: ARG002
            return np.zeros((len(observation), self.size), dtype=np.float32), None

    scenario = OPEN.with_overrides({"dynamics.rounds": 4})
    validator, policy = Validator(scenario, 2), Still()
    policy.size = validator.env.action_space.shape[-1]
    score = validator(policy, 0, 0.0)
    plan = system_parameters(scenario).tradeoff_v * score.objective
    # The same episodes by hand: totals over both, then their ratio.
    law, total, made = ExpectedProgress.of(scenario), 0.0, 0.0
    env = validator.env
    env.reset(seed=1_200_000_000)
    for _ in range(4):
        env.step(policy.predict(np.zeros(2))[0])
        costs = env.last_round.costs
        total += system_parameters(scenario).tradeoff_v * costs.delay.sum()
        made += law.of_costs(costs).sum()
    total += 0.5 * (env.state.backlog**2).sum() + 0.5 * (env.state.absence**2).sum()
    assert plan == pytest.approx(total / made, rel=1e-9)
