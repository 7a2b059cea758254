"""Schedulers of one's own while they play: what they may not do, and how their faults are told."""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import ClassVar

import numpy as np
import pytest
from even_support import Even

from collapipe_env import evaluate, register_scheduler
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.episode import play_episode
from collapipe_env.evaluation.leaderboard import board_row
from collapipe_env.evaluation.leaderboard.season import CELLS, present_season
from collapipe_env.evaluation.leaderboard.submission import named_player
from collapipe_env.evaluation.own_scheduler import OwnScheduler
from collapipe_env.evaluation.pool import LocalExecutor
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.evaluation.tuning_trial import Candidate, play_candidate
from collapipe_env.execution.planned_rounds import PlannedRounds
from collapipe_env.ground.errors import ScenarioError, SchedulerError
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import SCHEDULERS
from collapipe_env.simulator.build import action_codec, system_parameters
from collapipe_env.simulator.even_split import even_split
from collapipe_env.simulator.state import SystemState

SCENARIO = load_scenario({"base": "small", "dynamics": {"rounds": 3}})
SIZE = action_codec(SCENARIO).action_size
SEED = 1_234_567


class Own(Even):
    """Answers with whatever it is told."""

    name = "own"

    def __init__(self, scenario, answer=None) -> None:
        super().__init__(scenario)
        self._answer = answer

    def act(self, observation, state):
        decision = super().act(observation, state)
        return decision if self._answer is None else self._answer(decision, observation, state)


def play(answer=None):
    def factory(scenario):
        return Own(scenario, answer)

    scheduler = OwnScheduler("own:Name", factory, SCENARIO)
    return play_episode("own", scheduler, SCENARIO, 0, 3, "surrogate").result


def test_whoever_writes_to_the_state_changes_nothing_but_his_own_copy() -> None:
    def cheat(decision, observation, state):
        for array in (state.backlog, state.uplink_gain, state.d2d_gain, state.speed, state.budget):
            array[:] = 1e9
        observation[:] = 0.0
        return decision

    honest, cheated = play(), play(cheat)
    assert cheated.delay == honest.delay
    assert cheated.energy_ratio == honest.energy_ratio
    assert cheated.backlog == honest.backlog


@pytest.mark.parametrize("answer", [lambda *_: np.zeros((1, SIZE)), lambda *_: [[0.0] * SIZE]])
def test_actions_may_be_of_any_real_type(answer) -> None:
    assert play(answer).delay == play(lambda *_: np.zeros((1, SIZE), dtype=np.float32)).delay


def plan(state):
    return even_split(system_parameters(SCENARIO), state)


WRONG = {
    "nothing": (lambda *_: None, "act returned None"),
    "a tuple": (lambda *_: (np.zeros((1, SIZE)), None), "act returned a tuple"),
    "one action": (lambda *_: np.zeros(SIZE), rf"act returned an ndarray of shape \({SIZE},\)"),
    "NaN": (lambda *_: np.full((1, SIZE), np.nan), r"action\[0, 0\] is nan"),
    "words": (lambda *_: np.array([["a"] * SIZE]), "act returned an ndarray"),
    "half a plan": (lambda *args: plan(args[-1]).map(lambda a: a[..., :1]), "returned an Allocation"),
    "too many blocks": (lambda *args: plan(args[-1]).map(lambda a: a * 7), "returned an Allocation"),
    "lists": (lambda *args: plan(args[-1]).map(lambda _: []), "returned an Allocation"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_decisions_that_cannot_be_played_are_described(wrong: str) -> None:
    answer, message = WRONG[wrong]
    with pytest.raises(SchedulerError, match=message) as caught:
        play(answer)
    text = str(caught.value)
    assert text.startswith("scheduler 'own:Name' (name 'own'): act returned ")
    assert f"return actions of shape (1, {SIZE}) or an Allocation" in text
    assert "\n" not in text


def test_an_error_in_act_names_scheduler_file_and_line() -> None:
    def fails(decision, observation, state):
        return np.linalg.inv(np.zeros((2, 2)))

    line = fails.__code__.co_firstlineno + 1
    with pytest.raises(SchedulerError) as caught:
        play(fails)
    place = f"({__file__}, line {line})"
    assert str(caught.value) == (
        f"scheduler 'own:Name' (name 'own') failed in act: LinAlgError: Singular matrix {place}"
    )
    assert isinstance(caught.value.__cause__, np.linalg.LinAlgError)


@pytest.mark.parametrize(
    ("method", "wrong", "hint"),
    [
        ("act", lambda _, observation: observation, r"act\(observation, state\)"),
        ("reset", lambda _: None, r"reset\(seed\)"),
    ],
)
def test_methods_that_take_other_arguments_say_how_they_are_called(
    method: str, wrong, hint: str, monkeypatch
) -> None:
    monkeypatch.setattr(Own, method, wrong)
    with pytest.raises(SchedulerError, match=f"failed in {method}: TypeError: .*: it is called as {hint}$"):
        play()
    monkeypatch.undo()
    with pytest.raises(SchedulerError, match=r"in act: TypeError: .*own_scheduler\.py, line \d+\)$"):
        play(lambda *_: 1 + "a")


class Silent(Own):
    reset = None


NOT_BUILT = {
    "takes nothing": (lambda: None, "cannot be built: TypeError: .*: it is called with the scenario alone"),
    "gives nothing": (lambda _: None, "is None, which has no reset: a scheduler has name"),
    "cannot reset": (Silent, "is a Silent, which has no reset"),
    "nameless": (lambda s: named(s, None), "has no name: give it one line"),
    "odd name": (lambda s: named(s, 3), "has name = 3"),
    "two lines": (lambda s: named(s, "a\nb"), "has name = 'a.*b': give it one line"),
    "fails": (lambda s: s["x"], r"cannot be built: TypeError: .*own_scheduler\.py, line \d+\)"),
}


def named(scenario, name):
    made = Own(scenario)
    made.name = name
    return made


@pytest.mark.parametrize("fault", NOT_BUILT)
def test_what_is_no_scheduler_is_one_clear_line(fault: str) -> None:
    factory, message = NOT_BUILT[fault]
    with pytest.raises(SchedulerError, match=message) as caught:
        OwnScheduler("own:Name", factory, SCENARIO)
    assert "\n" not in str(caught.value)


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class Severe(BaseException):
    pass


class Shy:
    """Something that fails when anything is asked of it."""

    def __getattr__(self, name: str):
        raise RuntimeError(f"no {name} here")


def throw(error):
    raise error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            UnspeakableError(),
            r"UnspeakableError: its message cannot be shown: UnspeakableError\.__str__ fails \(",
        ),
        (Severe("oh"), r"Severe: oh \("),
        (GeneratorExit("oh"), r"GeneratorExit: oh \("),
        (SystemExit(3), r"SystemExit: 3 \("),
        (ScenarioError("oh"), r"ScenarioError: oh \("),
        (StopIteration("oh"), r"StopIteration: oh \("),
    ],
)
def test_whatever_the_users_code_raises_is_one_clear_line(error, message: str, monkeypatch) -> None:
    with pytest.raises(SchedulerError, match=f"failed in act: {message}"):
        play(lambda *_: throw(error))
    monkeypatch.setattr(Own, "__init__", lambda *_: throw(error))
    with pytest.raises(SchedulerError, match=f"cannot be built: {message}"):
        play()


def test_ctrl_c_in_the_users_code_stays_ctrl_c(monkeypatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        play(lambda *_: throw(KeyboardInterrupt()))
    monkeypatch.setattr(Own, "__init__", lambda *_: throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        play()


def test_asking_may_fail_too(monkeypatch) -> None:
    monkeypatch.setattr(Own, "__getattr__", Shy.__getattr__, raising=False)
    scheduler = OwnScheduler("own:Name", Own, SCENARIO)
    with pytest.raises(SchedulerError, match="failed in fingerprint: RuntimeError: no fingerprint here"):
        scheduler.fingerprint()
    with pytest.raises(SchedulerError, match="act returned a Shy, which cannot be played"):
        play(lambda *_: Shy())
    with pytest.raises(SchedulerError, match="cannot be built: RuntimeError: no reset here"):
        OwnScheduler("own:Name", lambda _: Shy(), SCENARIO)


class Watcher:
    """Keeps whatever it is given."""

    name = "Watcher"
    given: ClassVar[list] = []

    def __init__(self, *given) -> None:
        self._inner = make_scheduler("pipeline", given[0])
        self.given.append(given)

    def reset(self, *given) -> None:
        self.given.append(given)

    def act(self, observation, state):
        self.given.append((observation, state))
        return self._inner.act(observation, state)


def whole_numbers(value) -> set[int]:
    """Every whole number that something holds, in texts and generators, too."""
    if isinstance(value, np.random.Generator):
        return {value.bit_generator.seed_seq.entropy}
    if isinstance(value, str):
        return {int(digits) for digits in re.findall(r"\d+", value)}
    if isinstance(value, int | float | np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype == object:
            return {int(value)}
        return {int(n) for n in np.unique(array).tolist() if np.isfinite(n) and n == int(n)}
    if isinstance(value, Mapping):
        value = [*value, *value.values()]
    elif dataclasses.is_dataclass(value):
        value = [getattr(value, field.name) for field in dataclasses.fields(value)]
    return set().union(*map(whole_numbers, value)) if isinstance(value, Iterable) else set()


def compared(folder) -> None:
    evaluate([Watcher], SCENARIO, seeds=2, rounds=3)


def tuned(folder) -> None:
    play_candidate(Candidate("watcher", SCENARIO, {}, SEED, 2, 3))


def on_the_board(folder) -> None:
    player, cells = named_player("watcher"), [CELLS["small"]]
    board_row.play(present_season(), player, cells, folder, LocalExecutor(1), episodes=2, rounds=3)


def executed(folder) -> None:
    rounds = PlannedRounds(SCENARIO, Watcher(SCENARIO), SEED)
    rounds.next(), rounds.next()


@pytest.mark.parametrize("play", [compared, tuned, on_the_board, executed])
def test_nothing_that_a_scheduler_receives_is_the_seed_of_its_episode(play, tmp_path, monkeypatch) -> None:
    """Whoever knows it can play a copy of the episode beside it, and see what comes."""
    begun, given, reset = [], [], CollaPipeVectorEnv.reset

    def watched(env, *, seed=None, options=None):
        found = reset(env, seed=seed, options=options)
        begun.extend((seed + row, gain.tobytes()) for row, gain in enumerate(env.truth.uplink_gain))
        return found

    monkeypatch.setattr(Watcher, "given", given)
    with monkeypatch.context() as patched:
        patched.setattr(CollaPipeVectorEnv, "reset", watched)
        patched.setattr(SCHEDULERS, "_added", {})
        register_scheduler("watcher", Watcher)
        play(tmp_path)
    assert any(isinstance(part, SystemState) for call in given for part in call)
    seeds, gains = map(set, zip(*begun, strict=True))
    numbers = whole_numbers(given)
    assert not numbers & seeds
    twin = CollaPipeVectorEnv(1, SCENARIO, "surrogate")

    def copies(seed) -> bool:
        twin.reset(seed=seed)
        return twin.truth.uplink_gain[0].tobytes() in gains

    assert all(map(copies, seeds))
    assert not any(copies(number) for number in numbers if number >= 0)
