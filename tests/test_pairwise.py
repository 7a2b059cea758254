"""Everything that can be combined, in pairs: each combination plays, or is refused with one clear error.

The default run plays few cases, which hold nine in ten of all pairs; the slow tests play the others.
"""

from functools import cache
from itertools import product

import numpy as np
import pytest
from combination_support import FACTORS, REFUSALS, plays, refusal_of, scenario_of
from covering_support import covering_cases, groups_of_levels
from playing_support import Played, play
from variants_support import mostly_slow

from collapipe_env.envs.rewards import REWARDS
from collapipe_env.ground.errors import CollaPipeError
from collapipe_env.learners.factory import LEARNERS
from collapipe_env.physics.allocation import SCHEDULES
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.task_registry import SHIPPED_TRAITS
from collapipe_env.simulator.process_registry import PROCESSES, active_processes

# Where fading has no diversity, some uplinks hardly ever deliver, and no budget covers that.
pytestmark = pytest.mark.filterwarnings("ignore::collapipe_env.feasibility.EnergyBudgetWarning")

PAIRS = covering_cases(FACTORS, plays)
QUICK = (
    *(0, 1, 2, 3, 5, 6, 9, 10, 11, 14, 15, 16, 18, 19, 20, 21, 24, 25, 26, 27, 28, 30, 31, 32, 33),
    *(35, 39, 40, 51, 53, 57),
)
"""Cases that the default run plays: those that hold most for their time."""


QUICKEST = sorted(
    PAIRS, key=lambda case: (case["scheduler"] not in ("pipeline", "random"), case["observation"])
)


def refused_cases():
    """For each refusal every combination of its levels, in a case that nothing else refuses."""
    for refusal in REFUSALS:
        for levels in product(*refusal.levels.values()):
            forced = dict(zip(refusal.levels, levels, strict=True))
            bases = ({**case, **forced} for case in QUICKEST)
            yield refusal, next(case for case in bases if [r for r in REFUSALS if r.holds(case)] == [refusal])


REFUSED = list(refused_cases())


def check(case, path):
    """Play a case, and go on from its saved state in another environment, bit for bit."""
    played, decisions = play(case, path)
    for row in played.out:
        for name, values in row.items():
            # The surrogate and the idle learner have no metric.
            if name != "info/metric":
                assert np.isfinite(values).all(), f"{name} is {values}"
        assert np.all(row.get("info/delay", 0.0) >= 0.0)
    assert any(np.any(row["info/delay"] > 0.0) for row in played.out if "info/delay" in row)
    again = Played(case)
    again.load(path)
    later = len(again.out)
    again.done = played.done_when_saved.copy()
    for decision in decisions:
        again.step(decision)
    expected = played.out[played.saved_at :]
    assert len(again.out) - later == len(expected)
    for place, (found, row) in enumerate(zip(again.out[later:], expected, strict=True)):
        assert found.keys() == row.keys()
        for name, values in row.items():
            np.testing.assert_array_equal(found[name], values, err_msg=f"{name}, {place} steps on")
    return played, decisions


@pytest.mark.parametrize("place", mostly_slow(range(len(PAIRS)), QUICK))
def test_each_pair_plays_goes_on_from_a_file_and_is_what_its_twins_play(place, tmp_path):
    case = PAIRS[place]
    played, decisions = check(case, tmp_path / "state.safetensors")
    if case["kind"] == "torch":
        compare_with_numpy(case, played, decisions)
    if case["kind"] == "vector" and case["learner"] != "real":
        compare_with_a_single_environment(case, played, decisions)


def compare_with_numpy(case, played, decisions):
    """Tensors play what NumPy plays."""
    twin = Played(case, "vector")
    twin.reset(seed=5)
    for decision in [played.first, *decisions]:
        twin.step(decision)
    for found, row in zip(played.out, twin.out, strict=True):
        assert found.keys() == row.keys()
        for name, values in row.items():
            close = {"rtol": 1e-9, "atol": 1e-12} if name.startswith("info") else {"rtol": 1e-5, "atol": 1e-5}
            np.testing.assert_allclose(found[name], values, **close, err_msg=name)


def compare_with_a_single_environment(case, played, decisions):
    """A row plays what a single environment plays, bit for bit."""
    twin = Played(case, "single")
    twin.reset(seed=5)
    for decision in [played.first, *decisions]:
        if twin.done.any():  # the row's next step begins an episode, the other is asked for one
            break
        twin.step(decision[:1] if isinstance(decision, np.ndarray) else decision)
    assert len(twin.out) > 1
    for found, row in zip(twin.out, played.out, strict=False):
        for name, values in found.items():
            np.testing.assert_array_equal(values, row[name][0], err_msg=name)


def test_pairs_of_the_default_run_hold_twins_of_both_kinds_and_most_pairs():
    quick = [PAIRS[place] for place in QUICK]
    held, every = ({pair for case in cases for pair in pairs_of(case)} for cases in (quick, PAIRS))
    assert len(held) > 0.9 * len(every)
    assert {item for case in quick for item in case.items()} == {
        item for case in PAIRS for item in case.items()
    }
    kinds = [(case["kind"], case["learner"] == "real") for case in quick]
    assert ("torch", False) in kinds
    assert ("vector", False) in kinds


@pytest.mark.parametrize(("refusal", "case"), REFUSED, ids=[f"{place}" for place in range(len(REFUSED))])
def test_what_is_refused_says_why_and_what_to_do(refusal, case, tmp_path):
    with pytest.raises(CollaPipeError) as raised:
        play(case, tmp_path / "state.safetensors")
    assert refusal.says(raised.value), f"{refusal.reason}: {raised.value}"


def test_each_pair_of_levels_is_in_some_case():
    cases = [*PAIRS, *(case for _, case in REFUSED)]
    held = {pair for case in cases for pair in pairs_of(case)}
    every = {frozenset(group.items()) for group in groups_of_levels(FACTORS, 2)}
    assert held == every
    # Pairs that nothing refuses are in a case that plays.
    playing = {pair for case in PAIRS for pair in pairs_of(case)}
    assert every - playing == {pair for pair in every if refusal_of(dict(pair)) is not None}


def test_what_the_package_ships_is_among_the_factors():
    found = set()
    for case in PAIRS[:20]:
        found |= {process.name for process in active_processes(load_scenario(scenario_of(case)))}
    assert found >= set(PROCESSES.shipped())
    assert set(FACTORS["plan"]) == set(SCHEDULES)
    assert set(FACTORS["reward"]) >= set(REWARDS.shipped())
    assert set(FACTORS["learner"]) >= set(LEARNERS.shipped())
    assert set(FACTORS["task"]) == set(SHIPPED_TRAITS)


def pairs_of(case):
    items = list(case.items())
    return [frozenset((a, b)) for i, a in enumerate(items) for b in items[i + 1 :]]


PARTS = 16


@cache
def triples():
    return covering_cases(FACTORS, plays, strength=3)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_each_triple_plays_and_goes_on_from_a_file(part, tmp_path):
    faults = []
    for case in triples()[part::PARTS]:
        try:
            check(case, tmp_path / "state.safetensors")
        except Exception as error:  # all faults of a part at once
            faults.append(f"{type(error).__name__}: {error}\n  in {case}")
    assert not faults, "\n".join(faults)
