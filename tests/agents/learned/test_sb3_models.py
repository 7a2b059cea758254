"""Agents of Stable-Baselines3 as files: what plays is told from what only training needs."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from zoo_support import COMMAND, SCENARIO, trained_agent

import collapipe_env
from collapipe_env.agents.learned.agent_file import read_agent_file, write_agent_file
from collapipe_env.agents.learned.agent_loading import load_agent
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import CheckpointError
from collapipe_env.scenario import load_scenario


@pytest.fixture(scope="module", params=["ppo", "sac"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory) -> Path:
    return trained_agent(tmp_path_factory.mktemp(request.param), request.param).latest


@pytest.fixture
def file(checkpoint: Path, tmp_path: Path) -> Path:
    path = tmp_path / "agent.safetensors"
    write_agent_file(path, *read_agent_file(checkpoint).playing)
    return path


def observations() -> np.ndarray:
    env = CollaPipeVectorEnv(num_envs=5, scenario=SCENARIO, learner="surrogate")
    return env.reset(seed=1)[0]


def test_it_decides_as_its_checkpoint_does(checkpoint: Path, file: Path) -> None:
    seen = observations()
    expected = load_agent(checkpoint, SCENARIO).act(seen, None)  # type: ignore[arg-type]
    assert np.array_equal(load_agent(str(file), SCENARIO.to_dict()).act(seen, None), expected)
    assert collapipe_env.load_agent is load_agent


def test_the_policy_is_a_plain_network_of_its_tensors(checkpoint: Path, file: Path) -> None:
    """The actions, computed by hand from the file."""
    record, tensors = read_agent_file(file)
    names = {"ppo": ("", "mlp_extractor.policy_net.0", "action_net")}
    names["sac"] = ("actor.", "actor.latent_pi.0", "actor.mu")
    before, hidden, last = names[record.algorithm]
    seen = observations() * tensors[f"{before}features_extractor.factor"]
    units = seen @ tensors[f"{hidden}.weight"].T + tensors[f"{hidden}.bias"]
    units = np.tanh(units) if record.algorithm == "ppo" else np.maximum(units, 0.0)
    actions = units @ tensors[f"{last}.weight"].T + tensors[f"{last}.bias"]
    actions = np.clip(actions, -1.0, 1.0) if record.algorithm == "ppo" else np.tanh(actions)
    played = load_agent(file, SCENARIO).act(observations(), None)  # type: ignore[arg-type]
    assert played == pytest.approx(actions, abs=1e-5)


def test_the_file_holds_what_plays_and_no_more(checkpoint: Path, file: Path) -> None:
    saved, (record, tensors) = read_agent_file(checkpoint), read_agent_file(file)
    assert saved.record == record
    left_out = {name.split(".")[1] for name in saved.tensors.keys() - tensors.keys()}
    assert (
        left_out
        == {
            "ppo": {"value_net", "mlp_extractor", "policy"},
            "sac": {"critic", "critic_target", "actor", "ent_coef_optimizer", "log_ent_coef"},
        }[record.algorithm]
    )
    assert all(np.array_equal(tensors[name], saved.tensors[name]) for name in tensors)
    assert record.scenario == SCENARIO.to_dict()
    assert record.training["command"] == COMMAND
    assert record.training["seed"] == 0
    assert record.training["seconds"] > 0
    assert record.steps >= 32
    assert record.history
    assert record.features["device_backlog"] == [2, 3]
    assert record.decisions["segments"] == [2, 3]


MIXED = [{"switched_capacitance": 1e-27}, {"name": "board", "flops_per_cycle": 32, "active_power_w": 6.0}]
ADDING_CLOCKS = load_scenario({"base": "small", "name": "clocks", "devices": {"profiles": MIXED}})
ADDING_MOVES = load_scenario({"base": "small", "name": "moves", "dynamics": {"processes": {"migration": {}}}})


@pytest.mark.parametrize("only_plays", [False, True], ids=["checkpoint", "file"])
@pytest.mark.parametrize(
    ("trained_on", "played", "message"),
    [
        (
            ADDING_CLOCKS,
            SCENARIO,
            r"feature device_clock is absent in this .*, \(2, 3\) in training: choose",
        ),
        (
            SCENARIO,
            ADDING_CLOCKS,
            r"feature device_clock is \(2, 3\) in this scenario, absent in training",
        ),
        (
            ADDING_CLOCKS,
            ADDING_MOVES,
            r"feature device_clock is absent in this .* training; feature migration_blocks is \(2, 3\)",
        ),
        (
            SCENARIO,
            load_scenario("medium"),
            r"feature device_backlog is \(4, 5\) in this scenario, \(2, 3\) in training; .*; and \d+ more",
        ),
    ],
)
def test_a_mismatch_says_which_feature_differs(
    tmp_path: Path, trained_on, played, message: str, only_plays: bool
) -> None:
    agent = trained_agent(tmp_path / "run", "ppo", trained_on).best
    load_agent(agent, trained_on)
    if only_plays:
        write_agent_file(tmp_path / "agent.safetensors", *read_agent_file(agent).playing)
        agent = tmp_path / "agent.safetensors"
        load_agent(agent, trained_on)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_agent(agent, played)
    assert str(caught.value).startswith(f"{agent} was trained on '{trained_on.name}'")


def test_decisions_and_their_order_are_compared(checkpoint: Path, tmp_path: Path) -> None:
    record, tensors = read_agent_file(checkpoint).playing
    file = tmp_path / "agent.safetensors"
    parts = dict(record.decisions)
    for odd, message in (
        ({**parts, "route": [2]}, r"decision route is absent in this scenario, \(2,\) in training"),
        ({**parts, "bandwidth": [3]}, r"decision bandwidth is \(2,\) in this scenario, \(3,\) in training"),
        (dict(list(parts.items())[:-1]), r"decision bandwidth is \(2,\) in this scenario, absent"),
        (dict(reversed(parts.items())), r"decisions are in another order"),
    ):
        write_agent_file(file, dataclasses.replace(record, decisions=odd), tensors)
        with pytest.raises(CheckpointError, match=message):
            load_agent(file, SCENARIO)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"algorithm": "pp0"}, r"algorithm 'pp0' is not known: did you mean 'ppo'"),
        ({"hyperparameters": {"gama": 1}}, r"hyper-parameter 'gama' is not known to this version"),
        ({"features": {}}, r"observations of 0 numbers"),
    ],
)
def test_records_that_no_policy_fits_are_named(
    checkpoint: Path, tmp_path: Path, change: dict, message: str
) -> None:
    record, tensors = read_agent_file(checkpoint).playing
    file = tmp_path / "agent.safetensors"
    write_agent_file(file, dataclasses.replace(record, **change), tensors)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_agent(file, SCENARIO)
    assert str(file) in str(caught.value)


def test_weights_that_do_not_fit_the_record_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    record, tensors = read_agent_file(checkpoint).playing
    file = tmp_path / "agent.safetensors"

    def refusal(hidden: list[int], weights: dict[str, np.ndarray]) -> str:
        parameters = {**record.hyperparameters, "hidden_units": hidden}
        write_agent_file(file, dataclasses.replace(record, hyperparameters=parameters), weights)
        with pytest.raises(CheckpointError) as caught:
            load_agent(file, SCENARIO)
        return str(caught.value)

    name = next(name for name in tensors if name.endswith("weight"))
    assert "its hyper-parameters need other weights" in refusal([9], tensors)
    assert "more is none there" in refusal([8], {**tensors, "more": np.zeros(1, np.float32)})
    short = {key: value for key, value in tensors.items() if key != name}
    assert "none in the file" in refusal([8], short)
    assert "hidden_units of [8192, 8192" in refusal([8192] * 100, tensors)
    assert "float64 of shape" in refusal([8], {**tensors, name: tensors[name].astype(float)})
