"""Every algorithm trains, validates, keeps its best version, goes on bit by bit, and tells a tracker.

A row is an algorithm with the smallest nets that it can have. Its training is one for most tests.
"""

import dataclasses
import json
import shutil
import sys
import types
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from collapipe_env.agents.learned.agent_file import TRAINING, read_agent_file, write_agent_file
from collapipe_env.agents.learned.agent_loading import ALGORITHMS, load_agent
from collapipe_env.agents.learned.agent_training import TrainingPlan, train
from collapipe_env.agents.learned.graph import graph_training
from collapipe_env.agents.learned.graph.graph_files import require_graph_net
from collapipe_env.agents.learned.graph.graph_parameters import GraphParameters
from collapipe_env.agents.learned.graph.graph_training import GraphPlan, GraphTraining, GraphValidator
from collapipe_env.agents.learned.hyperparameters import PPOParameters, SACParameters, usual
from collapipe_env.agents.learned.training_files import TrainingFiles
from collapipe_env.agents.learned.training_state import TrainingState, read_training
from collapipe_env.agents.learned.validation import Score, Validator
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import CheckpointError
from collapipe_env.scenario import load_scenario

SCENARIO = load_scenario({"base": "small", "dynamics": {"rounds": 4}})
Say = Callable[[str], object]


class Playing:
    """A scheduler as a policy of Stable-Baselines3."""

    def __init__(self, scheduler) -> None:
        self._scheduler = scheduler

    def predict(self, observation, *, deterministic: bool):
        assert deterministic
        return self._scheduler.act(observation, None), None


@dataclass(frozen=True)
class Row:
    """An algorithm: its training of some steps, with a validation every third, and a version's score."""

    algorithm: str
    steps: int
    train: Callable[..., TrainingState]
    score: Callable[[Path], Score]


def by_rewards(parameters: PPOParameters | SACParameters, steps: int) -> Row:
    def trained(files: TrainingFiles, steps_: int = steps, say: Say = str, seed: int = 3, track=None):
        plan = TrainingPlan(
            scenario=SCENARIO,
            algorithm=parameters.algorithm,
            parameters=parameters,
            steps=steps_,
            envs=2,
            seed=seed,
            learner="surrogate",
            reward="drift_plus_penalty",
            validate_every=steps // 3,
            validation_episodes=2,
            command="the command",
            track=track,
        )
        return train(plan, files, say)

    def scored(file: Path) -> Score:
        record = read_agent_file(file).record
        return Validator(SCENARIO, 2)(Playing(load_agent(file, SCENARIO)), record.steps, 0.0)

    return Row(parameters.algorithm, steps, trained, scored)


def by_gradients(parameters: GraphParameters, steps: int) -> Row:
    def trained(files: TrainingFiles, steps_: int = steps, say: Say = str, seed: int = 3, track=None):
        plan = GraphPlan(SCENARIO, parameters, steps_, seed, steps // 3, "the command", track)
        training = GraphTraining(plan, files)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(graph_training, "graph_validator", lambda *_: validator())
            patch.setattr(graph_training, "CURVE_EVERY", 2)
            training.run(say)
        return training.state

    def validator() -> GraphValidator:
        return GraphValidator(SCENARIO, (), episodes=2, rounds=4)

    def scored(file: Path) -> Score:
        agent = read_agent_file(file)
        return validator()(require_graph_net(agent, str(file)), agent.record.steps, 0.0)

    return Row("graph", steps, trained, scored)


PPO = usual(PPOParameters, rollout_steps=4, minibatch=8, epochs=1, hidden_units=(8,))
SAC = usual(
    SACParameters, buffer_size=100, learning_starts=8, minibatch=8, gradient_steps=1, hidden_units=(8,)
)
GRAPH = usual(
    GraphParameters, scenarios=("small",), random_groups=0, clusters=4, samples=2, width=8, hidden=8, heads=2
)
ROWS = {
    "ppo of clusters": by_rewards(PPO, 24),
    "ppo": by_rewards(dataclasses.replace(PPO, policy="mlp", gamma=0.9), 24),
    "sac of clusters": by_rewards(SAC, 24),
    "sac": by_rewards(dataclasses.replace(SAC, policy="mlp", gamma=0.9), 24),
    "graph": by_gradients(GRAPH, 6),
}


def test_every_algorithm_has_a_row() -> None:
    assert {row.algorithm for row in ROWS.values()} == set(ALGORITHMS.shipped())


@dataclass(frozen=True)
class Trained:
    """A training of a row's steps."""

    row: Row
    files: TrainingFiles
    state: TrainingState
    lines: list[str]


@pytest.fixture(scope="module", params=ROWS)
def trained(request: pytest.FixtureRequest, tmp_path_factory) -> Trained:
    row, files = ROWS[request.param], TrainingFiles(tmp_path_factory.mktemp("trained"))
    lines: list[str] = []
    return Trained(row, files, row.train(files, say=lines.append), lines)


def copied(trained: Trained, folder: Path) -> TrainingFiles:
    """The same training in a folder of its own."""
    shutil.copytree(trained.files.folder, folder)
    return TrainingFiles(folder)


def assert_same(first, second, *, same: bool = True) -> None:
    """Whether versions have the same tensors, bit for bit."""
    assert first.tensors.keys() == second.tensors.keys()
    alike = [np.array_equal(value, second.tensors[name]) for name, value in first.tensors.items()]
    assert all(alike) == same


def without_seconds(record) -> dict[str, Any]:
    """Plain data of a record but for wall-clock times, which no two trainings share."""
    data = json.loads(json.dumps(asdict(record)))
    for entry in (data["training"], *data["history"]):
        del entry["seconds"]
    return data


def test_it_is_validated_at_intervals_and_its_best_version_kept(trained: Trained) -> None:
    row, state = trained.row, trained.state
    assert state.steps == row.steps
    assert len(trained.lines) == len(state.history) >= 3
    assert all("priced delay" in line for line in trained.lines)
    assert state.history[-1].steps == row.steps
    assert state.best is min(state.history, key=lambda score: score.objective)
    latest, best = read_agent_file(trained.files.latest), read_agent_file(trained.files.best)
    assert (latest.record.steps, best.record.steps) == (row.steps, state.best.steps)
    assert best.record.algorithm == row.algorithm
    assert best.record.training["command"] == "the command"
    again, _ = read_training(trained.files)
    for part in ("steps", "history", "best", "seconds"):
        assert getattr(again, part) == getattr(state, part)
    # The best version only plays; it scores as it did.
    assert best.tensors.keys() == latest.playing.tensors.keys() < latest.tensors.keys()
    found = row.score(trained.files.best)
    assert found.steps == state.best.steps
    assert asdict(found) == pytest.approx({**asdict(state.best), "seconds": 0.0}, rel=1e-9)


def test_it_is_loaded_as_a_scheduler_with_the_same_actions(trained: Trained, tmp_path: Path) -> None:
    env = CollaPipeVectorEnv(3, SCENARIO, "surrogate")
    observation, _ = env.reset(seed=0)
    alone = tmp_path / "alone.safetensors"
    write_agent_file(alone, *read_agent_file(trained.files.latest).playing)
    first, second = (
        load_agent(file, SCENARIO).act(observation, env.state) for file in (trained.files.latest, alone)
    )
    if trained.row.algorithm == "graph":
        for part in ("blocks", "micro_batches", "bandwidth", "device_power", "cu_power"):
            np.testing.assert_array_equal(getattr(first, part), getattr(second, part))
    else:
        assert first.shape == (3, 18)
        assert 0.0 < np.abs(first).max() <= 1.0
        np.testing.assert_array_equal(first, second)


def test_a_seed_trains_the_same_agent_and_another_does_not(trained: Trained, tmp_path: Path) -> None:
    expected = read_agent_file(trained.files.latest)
    for seed in (3, 4):
        files = TrainingFiles(tmp_path / str(seed))
        trained.row.train(files, seed=seed)
        found = read_agent_file(files.latest)
        assert_same(found, expected, same=seed == 3)
        assert (without_seconds(found.record) == without_seconds(expected.record)) == (seed == 3)


def test_nothing_is_done_twice_and_what_was_read_is_written_bit_for_bit(
    trained: Trained, tmp_path: Path
) -> None:
    files, lines = copied(trained, tmp_path / "copy"), []
    before = files.latest.read_bytes(), files.best.read_bytes()
    assert trained.row.train(files, say=lines.append).history == trained.state.history
    assert (files.latest.read_bytes(), files.best.read_bytes()) == before
    assert not lines
    # Without a best version, one more validation is all that is left to do.
    files.best.unlink()
    assert len(trained.row.train(files).history) == len(trained.state.history) + 1
    assert files.best.exists()
    assert_same(read_agent_file(files.latest), read_agent_file(trained.files.latest))


def test_what_is_interrupted_goes_on_with_steps_history_and_weights(trained: Trained, tmp_path: Path) -> None:
    row, said = trained.row, []

    def interrupt(line: str) -> None:
        said.append(line)
        if len(said) == 1:  # SAC fills its memory again before it learns
            before, present = (read_agent_file(one.latest) for one in (trained.files, files))
            assert_same(present, before, same=row.algorithm == "sac")
        if len(said) == 2:
            raise KeyboardInterrupt

    files = copied(trained, tmp_path / "first")
    with pytest.raises(KeyboardInterrupt):
        row.train(files, 2 * row.steps, say=interrupt)
    assert f"the training is kept at step {read_training(files)[0].steps:,}: {files.latest}" in said[-1]
    stopped, kept = read_training(files)
    assert row.steps < stopped.steps < 2 * row.steps
    assert stopped.history[:-2] == trained.state.history
    assert_same(kept, read_agent_file(trained.files.latest), same=False)
    shutil.copytree(files.folder, tmp_path / "second")
    for name in ("first", "second"):
        state = row.train(TrainingFiles(tmp_path / name), 2 * row.steps)
        assert state.steps == 2 * row.steps
        assert state.history[: len(stopped.history)] == stopped.history
        assert state.history[len(stopped.history)].steps > stopped.steps
        assert state.seconds > stopped.seconds
    assert_same(*(read_agent_file(TrainingFiles(tmp_path / name).latest) for name in ("first", "second")))


def refusal(row: Row, files: TrainingFiles) -> str:
    """The one line with which a training does not go on."""
    before = files.latest.read_bytes()
    with pytest.raises(CheckpointError) as caught:
        row.train(files, 2 * row.steps)
    assert files.latest.read_bytes() == before
    assert str(caught.value).startswith(str(files.latest))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_damaged_and_foreign_files_are_refused_in_one_line(trained: Trained, tmp_path: Path) -> None:
    row, files = trained.row, TrainingFiles(tmp_path)
    record, tensors = read_agent_file(trained.files.latest)

    def replaced(tensors=tensors, **changes) -> str:
        write_agent_file(files.latest, dataclasses.replace(record, **changes), tensors)
        return refusal(row, files)

    for odd in ({"seconds": "x"}, {"steps": None}, {"lengthened_from": ["x"]}):
        assert "the record of its training is damaged" in replaced(training={**record.training, **odd})
    assert "the record of its training is damaged" in replaced(history=[{"steps": 1}])
    moments = next(name for name in tensors if "exp_avg_sq" in name)
    assert tensors[moments].any()
    odd = {**tensors, moments: np.zeros((3, 3, 3), np.float32)}
    assert f"need other weights: {moments} is" in replaced(odd)
    playing = {name: value for name, value in tensors.items() if not name.startswith(TRAINING)}
    assert "only play" in replaced(playing) or "need other weights: training." in replaced(playing)
    files.latest.write_bytes(trained.files.latest.read_bytes()[:-4])
    assert "is damaged" in refusal(row, files)


@pytest.mark.parametrize("name", ROWS)
def test_a_training_of_another_algorithm_is_not_gone_on_with(name: str, tmp_path: Path) -> None:
    other = {"graph": "sac", "sac": "ppo", "sac of clusters": "sac"}.get(name, "graph")
    files = TrainingFiles(tmp_path)
    ROWS[other].train(files)
    assert refusal(ROWS[name], files)


class StandIn(types.ModuleType):
    """A module with the part of wandb's interface that is used, as its documentation has it."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.begun: list[dict] = []
        self.curves: dict[str, list[tuple[int, float]]] = {}
        self.finished = 0

    def init(self, **told):
        self.begun.append(told)
        return self

    def log(self, numbers: dict[str, float], step: int) -> None:
        for name, value in numbers.items():
            self.curves.setdefault(name, []).append((step, value))

    def finish(self) -> None:
        self.finished += 1


@pytest.mark.parametrize("name", ROWS)
def test_a_tracker_is_told_what_tensorboard_is_told_in_one_run(name: str, tmp_path, monkeypatch) -> None:
    wandb, row, files = StandIn(), ROWS[name], TrainingFiles(tmp_path / "my run")
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    for steps in (row.steps, 2 * row.steps):
        row.train(files, steps, track="wandb")
    events = EventAccumulator(str(files.tensorboard)).Reload()
    assert set(events.Tags()["scalars"]) == set(wandb.curves)
    assert {"validation/priced_delay_s", "validation/objective"} < set(wandb.curves)
    assert any(curve.startswith("train/") for curve in wandb.curves)
    history = read_agent_file(files.latest).record.history
    told = events.Scalars("validation/objective")
    assert [event.step for event in told] == [score["steps"] for score in history]
    for curve, points in wandb.curves.items():
        told = events.Scalars(curve)
        assert [event.step for event in told] == [step for step, _ in points]
        # TensorBoard keeps single precision.
        values = [value for _, value in points]
        assert [event.value for event in told] == pytest.approx(values, rel=1e-6, nan_ok=True)
    first, second = wandb.begun
    assert (first["name"], first["project"], first["resume"]) == ("my run", "collapipe", "allow")
    assert first["id"] == second["id"]
    assert (first["config"]["scenario"], first["config"]["algorithm"]) == ("custom", row.algorithm)
    assert (first["config"]["steps"], second["config"]["steps"]) == (row.steps, 2 * row.steps)
    assert wandb.finished == 2
    row.train(TrainingFiles(tmp_path / "other"), row.steps // 3, track="wandb")
    assert wandb.begun[-1]["id"] != first["id"]
