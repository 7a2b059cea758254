"""Held-out episodes: the same for all, replayable, and stored without loss."""

import dataclasses
import json

import gymnasium
import numpy as np
import pytest

from collapipe_env.evaluation.episode import (
    HELD_OUT_SEED,
    pack_allocations,
    play_episode,
    replayed_rounds,
    typical_round,
    unpack_allocations,
)
from collapipe_env.evaluation.episode_result import LARGEST, EpisodeResult
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.evaluation.statistics import summarise_all
from collapipe_env.ground.errors import DataError
from collapipe_env.ground.files import without_nan
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.decision_names import COLLAPIPE
from collapipe_env.simulator.build import system_parameters

ROUNDS = 5


@pytest.fixture(scope="module")
def scenario():
    return load_scenario({"base": "small", "dynamics": {"rounds": ROUNDS, "target_loss": 5.0}})


@pytest.mark.parametrize("name", ["splitfed_v1", "pipar", "pipeline"])
def test_blocks_on_the_server_are_those_of_the_plans(scenario, name: str) -> None:
    played = play_episode(name, make_scheduler(name, scenario), scenario, 0, 2, "surrogate")
    kept = [0 if a.server_blocks is None else int(a.server_blocks.max()) for a in played.allocations]
    assert played.result.server_blocks == max(kept)
    assert (max(kept) > 0) == (name != "pipeline")


def test_all_rounds_are_played_beyond_the_target_loss(scenario) -> None:
    ticks = []
    played = play_episode(
        "pipeline",
        make_scheduler("pipeline", scenario),
        scenario,
        0,
        ROUNDS,
        "surrogate",
        lambda: ticks.append(1),
    )
    assert len(played.result.delay) == len(played.allocations) == len(ticks) == ROUNDS
    assert played.result.initial_loss < 5.0  # below the target from the start


@pytest.mark.parametrize("name", ["random", "dssra"])
def test_replay_gives_the_round_that_was_played(scenario, name: str) -> None:
    played = play_episode(name, make_scheduler(name, scenario), scenario, 1, ROUNDS, "surrogate")
    allocations = unpack_allocations(pack_allocations(played.allocations), ROUNDS)
    assert isinstance(allocations[0], Allocation)
    for index, record in enumerate(replayed_rounds(scenario, 1, allocations)):
        assert record.costs.delay[0] == played.result.delay[index]
        assert record.backlog.sum() == pytest.approx(played.result.backlog[index], abs=1e-12)
        assert record.backlog.max() == played.result.largest_backlog[index]


def test_figures_of_an_episode(scenario) -> None:
    played = play_episode("pipeline", make_scheduler("pipeline", scenario), scenario, 0, ROUNDS, "surrogate")
    records = list(replayed_rounds(scenario, 0, played.allocations))
    ratios = np.mean([r.costs.energy_ratio[0] for r in records], axis=0)
    assert played.result.worst_energy_ratio == pytest.approx(ratios.max(), rel=1e-12)
    assert played.result.peak_memory_bytes == max(float(r.costs.memory.max()) for r in records)


@pytest.mark.parametrize("opened", [(), ("participation",), ("server_blocks",)])
def test_priced_delay_is_the_return_of_the_environment_and_the_worth_of_its_queues(opened) -> None:
    changes = {"dynamics.rounds": ROUNDS, "decisions": [*COLLAPIPE, *opened]}
    if "server_blocks" in opened:
        changes |= {"server": {"energy_budget_j": 1.0}}
    scenario = load_scenario("small").with_overrides(changes)
    played = play_episode("random", make_scheduler("random", scenario), scenario, 2, ROUNDS, "surrogate")
    env = gymnasium.make("CollaPipeSurrogate-v0", scenario=scenario, reward="lyapunov").unwrapped
    env.reset(seed=HELD_OUT_SEED + 2)
    earned = sum(env.step_allocation(plan)[1] for plan in played.allocations)
    result, state = played.result, env.state
    assert result.return_per_round == pytest.approx(earned / ROUNDS, rel=1e-12)
    assert result.priced_delay == pytest.approx(-earned * env.reference_delay / ROUNDS, rel=1e-12)
    queues = [state.backlog, state.absence, state.server_backlog]
    left = sum(0.5 * float(np.square(queue).sum()) for queue in queues if queue is not None)
    v = system_parameters(scenario).tradeoff_v
    assert result.priced_delay == pytest.approx((v * sum(result.delay) + left) / (v * ROUNDS), rel=1e-9)
    assert left > 0.0


def test_typical_round_has_the_median_delay() -> None:
    assert typical_round([5.0, 1.0, 3.0]) == 2
    assert typical_round([4.0, 1.0, 3.0, 2.0]) == 3


def test_storing_a_result_loses_nothing_and_damage_is_named(scenario) -> None:
    result = play_episode(
        "pipeline", make_scheduler("pipeline", scenario), scenario, 0, 3, "surrogate"
    ).result
    again = EpisodeResult.from_json(json.dumps(result.to_dict()), "x.npz")
    assert np.isnan(again.metric).all()  # the surrogate has none
    assert dataclasses.replace(again, metric=[], progress=[]) == dataclasses.replace(
        result, metric=[], progress=[]
    )
    for damage in ({"delay": ["a"]}, {"delay": []}, {"energy_ratio": 3.0}, {"delay": None}, {"more": 1}):
        with pytest.raises(DataError, match=r"x\.npz.*run again to measure"):
            EpisodeResult.from_json(json.dumps({**result.to_dict(), **damage}), "x.npz")
    with pytest.raises(DataError, match=r"x\.npz is damaged \(it lacks the field 'delay'\)"):
        EpisodeResult.from_json(
            json.dumps({k: v for k, v in result.to_dict().items() if k != "delay"}), "x.npz"
        )


ODD = (
    None, True, -1, 0, 3.5, 10**400, -(10**400), float("inf"), float("-inf"), "", "a", [], [[]], [[[]]], {},
    {"a": []}, [None], [[None]], ["a"], [["a"]], [[1.0], [1.0, 2.0]], [[], [1.0]], [10**400], [[10**400]],
    [float("inf")], [[float("inf")]], [1.0] * 4, [[1.0] * 9] * 9, {"accuracy": float("inf")},
    {"accuracy": "a"},
)  # fmt: skip


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(EpisodeResult)])
def test_no_content_of_a_field_is_more_than_a_clear_error(scenario, name: str) -> None:
    result = play_episode("random", make_scheduler("random", scenario), scenario, 0, 3, "surrogate").result
    messages = []
    for odd in ODD:
        try:
            read = EpisodeResult.from_json(json.dumps({**result.to_dict(), name: odd}), "x.npz")
        except DataError as error:
            messages.append(str(error))
            continue
        # What passes is a figure that can be reckoned with.
        (summary,) = summarise_all({"random": [read]}, 0.5, None, 3)
        assert json.dumps(without_nan(summary))
        assert read.worst_energy_ratio < LARGEST
        assert read.peak_memory_bytes < LARGEST or np.isnan(read.memory_bytes).any()
    assert len(messages) >= len(ODD) - 5
    assert all("\n" not in message and len(message) < 200 for message in messages)
