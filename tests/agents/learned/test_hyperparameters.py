"""Learned agents: saved and read without executing anything, resumed, and the best version kept."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from collapipe_env.agents.learned.agent_file import read_agent_file, write_agent_file
from collapipe_env.agents.learned.agent_loading import load_agent
from collapipe_env.agents.learned.agent_training import TrainingPlan, train
from collapipe_env.agents.learned.graph.graph_parameters import GraphParameters
from collapipe_env.agents.learned.hyperparameters import (
    PARAMETERS,
    VALUES,
    PPOParameters,
    SACParameters,
    check_parameters,
    fitting_minibatch,
    initial_learning_rate,
    linear_schedule,
    usual,
)
from collapipe_env.agents.learned.training_files import TrainingFiles
from collapipe_env.agents.learned.training_state import read_training
from collapipe_env.agents.learned.validation import VALIDATION_SEED, Score, Validator
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import CheckpointError, ScenarioError
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import Scheduler

SCENARIO = load_scenario({"base": "small", "dynamics": {"rounds": 5}})
TINY = {
    "ppo": usual(PPOParameters, rollout_steps=4, minibatch=8, epochs=1, hidden_units=(8,)),
    "sac": usual(
        SACParameters, buffer_size=200, learning_starts=8, minibatch=8, gradient_steps=1, hidden_units=(8,)
    ),
}
TINY |= {f"{name} mlp": dataclasses.replace(tiny, policy="mlp", gamma=0.9) for name, tiny in TINY.items()}
AGENTS = list(TINY)


def plan(agent: str = "ppo", **changes) -> TrainingPlan:
    values = {
        "scenario": SCENARIO,
        "algorithm": agent.split()[0],
        "parameters": TINY[agent],
        "steps": 48,
        "envs": 4,
        "seed": 3,
        "learner": "surrogate",
        "reward": "drift_plus_penalty",
        "validate_every": 16,
        "validation_episodes": 2,
        **changes,
    }
    return TrainingPlan(**values)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> TrainingFiles:
    files = TrainingFiles(tmp_path_factory.mktemp("trained"))
    train(plan(), files, say=lambda _: None)
    return files


def actions(path: Path) -> np.ndarray:
    env = CollaPipeVectorEnv(num_envs=3, scenario=SCENARIO, learner="surrogate")
    observation, _ = env.reset(seed=0)
    return load_agent(path, SCENARIO).act(observation, env.state)


@pytest.mark.parametrize("agent", AGENTS)
def test_training_saves_an_agent_that_plays(tmp_path: Path, agent: str) -> None:
    lines: list[str] = []
    files = TrainingFiles(tmp_path)
    state = train(plan(agent), files, say=lines.append)
    assert state.steps >= 48
    assert len(lines) == len(state.history) >= 3
    assert state.best in state.history
    assert list(files.tensorboard.iterdir())
    scheduler = load_agent(files.best, SCENARIO)
    assert isinstance(scheduler, Scheduler)
    assert scheduler.name == agent.split()[0].upper()
    first = actions(files.best)
    assert first.shape == (3, 18)
    assert np.abs(first).max() <= 1.0
    assert np.array_equal(first, actions(files.best))


def test_validation_of_the_saved_agent_is_the_recorded_one(trained: TrainingFiles) -> None:
    state, _ = read_training(trained)
    saved = read_agent_file(trained.best).record
    again = Validator(SCENARIO, 2)(
        load_agent(trained.best, SCENARIO)._policy, state.best.steps, state.best.seconds
    )
    assert again == state.best
    assert saved.steps == state.best.steps


def test_same_seed_trains_the_same_agent_and_another_does_not(tmp_path: Path, trained: TrainingFiles) -> None:
    for name, seed in (("same", 3), ("other", 4)):
        train(plan(seed=seed), TrainingFiles(tmp_path / name), say=lambda _: None)
    expected = read_agent_file(trained.latest).tensors
    same = read_agent_file(TrainingFiles(tmp_path / "same").latest).tensors
    other = read_agent_file(TrainingFiles(tmp_path / "other").latest).tensors
    assert all(np.array_equal(same[name], expected[name]) for name in expected)
    assert not all(np.array_equal(other[name], expected[name]) for name in expected)


@pytest.mark.parametrize("agent", AGENTS)
def test_interrupted_training_is_saved_and_goes_on(tmp_path: Path, agent: str) -> None:
    files, lines = TrainingFiles(tmp_path), []

    def interrupt(line: str) -> None:
        lines.append(line)
        if len(lines) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(plan(agent, steps=96), files, say=interrupt)
    stopped, _ = read_training(files)
    assert 16 <= stopped.steps < 96
    resumed = train(plan(agent, steps=96), files, say=lines.append)
    assert resumed.steps >= 96
    assert resumed.history[: len(stopped.history)] == stopped.history
    assert resumed.history[len(stopped.history)].steps > stopped.steps
    assert resumed.seconds > stopped.seconds
    # Nothing is left to do.
    before = files.latest.read_bytes()
    assert train(plan(agent, steps=96), files, say=lines.append).steps == resumed.steps
    assert files.latest.read_bytes() == before


def test_the_best_version_only_plays(trained: TrainingFiles, tmp_path: Path) -> None:
    found = read_agent_file(trained.best).tensors.keys()
    assert found == read_agent_file(trained.latest).playing.tensors.keys()
    files = TrainingFiles(tmp_path)
    write_agent_file(files.latest, *read_agent_file(trained.best))
    with pytest.raises(
        CheckpointError, match=r"latest\.safetensors: .* need other weights: training\.critic"
    ):
        train(plan(steps=96), files, say=lambda _: None)


@pytest.mark.parametrize("odd", [{"seconds": "x"}, {"steps": None}, {"lengthened_from": ["x"]}])
def test_a_damaged_record_of_the_training_is_named(trained: TrainingFiles, tmp_path: Path, odd: dict) -> None:
    record, tensors = read_agent_file(trained.latest)
    files = TrainingFiles(tmp_path)
    odd_record = dataclasses.replace(record, training={**record.training, **odd})
    write_agent_file(files.latest, odd_record, tensors)
    with pytest.raises(CheckpointError, match=r"latest\.safetensors: the record of its training is damaged"):
        read_training(files)


@pytest.mark.parametrize("agent", AGENTS)
def test_what_training_needs_is_read_back_and_its_shapes_are_checked(tmp_path: Path, agent: str) -> None:
    files = TrainingFiles(tmp_path)
    train(plan(agent), files, say=lambda _: None)
    record, tensors = read_agent_file(files.latest)
    moments = [name for name in tensors if ".exp_avg_sq" in name]
    assert all(tensors[name].any() for name in moments)
    odd = {**tensors, moments[0]: np.zeros((3, 3, 3), np.float32)}
    write_agent_file(files.latest, record, odd)
    with pytest.raises(CheckpointError, match=f"need other weights: {moments[0]} is"):
        train(plan(agent, steps=96), files, say=lambda _: None)
    write_agent_file(files.latest, record, tensors)

    def stop(_: str) -> None:
        raise KeyboardInterrupt

    # Nothing is left to do but a validation, and a best version to write: all comes out as it went in.
    files.best.unlink()
    with pytest.raises(KeyboardInterrupt):
        train(plan(agent), files, say=stop)
    assert files.best.exists()
    again = read_agent_file(files.latest).tensors
    assert again.keys() == tensors.keys()
    assert all(np.array_equal(again[name], tensors[name]) for name in tensors)


def test_an_agent_of_other_sizes_names_both(trained: TrainingFiles) -> None:
    with pytest.raises(
        CheckpointError, match=r"42 numbers, actions of 18\); scenario 'medium' has 130 and 52"
    ):
        load_agent(trained.best, load_scenario("medium"))


@pytest.mark.parametrize(
    ("algorithm", "change", "message"),
    [
        ("ppo", {"learning_rate": 0.0}, r"--ppo\.learning-rate = 0\.0: it should be greater than 0"),
        ("ppo", {"gamma": 1.5}, r"--ppo\.gamma = 1\.5: it should be less than or equal to 1"),
        ("ppo", {"clip_range": float("nan")}, r"--ppo\.clip-range = nan: it should be"),
        ("ppo", {"target_kl": -1.0}, r"--ppo\.target-kl"),
        ("ppo", {"hidden_units": ()}, r"--ppo\.hidden-units = \(\)"),
        ("ppo", {"policy": "cnn"}, r"--ppo\.policy = 'cnn': it should be 'clusters' or 'mlp'"),
        ("ppo", {"credit": "node"}, r"--ppo\.credit = 'node': it should be 'clusters' or 'round'"),
        ("ppo", {"epochs": 0}, r"--ppo\.epochs = 0: it should be greater than or equal to 1"),
        ("sac", {"tau": -0.1}, r"--sac\.tau"),
        ("sac", {"learning_starts": -1}, r"--sac\.learning-starts"),
    ],
)
def test_hyperparameters_out_of_range(algorithm: str, change: dict, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        check_parameters(dataclasses.replace(usual(PARAMETERS[algorithm]), **change), f"--{algorithm}.")
    check_parameters(usual(PARAMETERS[algorithm]), f"--{algorithm}.")


def test_schedule_and_minibatch() -> None:
    mlp = usual(PPOParameters, policy="mlp")
    assert initial_learning_rate(mlp, 52, 4) == 1e-3
    assert initial_learning_rate(mlp, 304, 16) == pytest.approx(3e-4, rel=0.02)
    assert initial_learning_rate(usual(PPOParameters), 52, 4) == 3e-3
    assert initial_learning_rate(usual(PPOParameters), 304, 16) == pytest.approx(1e-3)
    assert initial_learning_rate(usual(PPOParameters, learning_rate=0.5), 304, 16) == 0.5
    rate = linear_schedule(1e-3, 1e-4)
    assert [rate(x) for x in (1.0, 0.5, 0.0, -0.1)] == pytest.approx([1e-3, 5.5e-4, 1e-4, 1e-4])
    assert [fitting_minibatch(*a) for a in ((512, 2048), (512, 96), (100, 96), (7, 12), (5, 7))] == [
        512,
        96,
        96,
        6,
        1,
    ]


def test_best_has_the_smallest_objective() -> None:
    def score(objective: float) -> Score:
        return Score(0, 0.0, objective, mean_delay=10.0, energy_ratio=1.0, backlog=0.0, objective=objective)

    assert score(12.0).better_than(None)
    assert score(11.0).better_than(score(12.0))
    assert not score(12.0).better_than(score(11.0))
    assert not score(9.0).better_than(score(9.0))


def test_versions_are_compared_by_priced_delay() -> None:
    budgets = {"cu_energy_j": 0.9, "device_energy_j": 8}
    scenario = load_scenario({"base": "small", "dynamics": {"rounds": 5}, "budgets": budgets})
    env = CollaPipeVectorEnv(
        num_envs=2, scenario=scenario, learner="surrogate", reward="lyapunov", autoreset_mode="Disabled"
    )

    class Still:
        """Always the middle of the action box."""

        def predict(self, observation, *, deterministic=True):  # noqa: ARG002
            return np.zeros((len(observation), env.single_action_space.shape[0]), dtype=np.float32), None

    found = Validator(scenario, 2)(Still(), 0, 0.0)
    observation, _ = env.reset(seed=VALIDATION_SEED)
    total = np.zeros(2)
    for _ in range(5):
        observation, *_ = env.step(Still().predict(observation)[0])
        total += env.last_round.costs.delay
    left = 0.5 * np.square(env.state.backlog).sum(axis=(-2, -1))
    assert found.backlog > 0.0
    assert found.objective == found.priced_delay
    expected = (total + left / scenario.budgets.tradeoff_v).mean() / 5
    assert found.priced_delay == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("kind", [*PARAMETERS.values(), GraphParameters])
def test_the_file_names_every_hyper_parameter_once(kind: type) -> None:
    values = VALUES[kind.algorithm]
    assert list(values) == [field.name for field in dataclasses.fields(kind)]
    assert json.loads(json.dumps(dataclasses.asdict(usual(kind)))) == values
