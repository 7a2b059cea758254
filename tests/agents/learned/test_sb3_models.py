"""Agents of Stable-Baselines3 as files: what plays is told from what only training needs."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from zoo_support import COMMAND, SCENARIO, trained_agent

import collapipe_env
from collapipe_env.agents.learned.agent_file import read_agent_file, write_agent_file
from collapipe_env.agents.learned.agent_layout import decisions_of, features_of
from collapipe_env.agents.learned.agent_loading import load_agent
from collapipe_env.agents.learned.hyperparameters import SACParameters, usual
from collapipe_env.agents.learned.sb3_models import build_model
from collapipe_env.envs.sb3 import make_sb3_vec_env
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import CheckpointError
from collapipe_env.scenario import load_scenario


@pytest.fixture(scope="module", params=["ppo", "sac"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory) -> Path:
    return trained_agent(tmp_path_factory.mktemp(request.param), request.param).latest


def test_the_policy_is_a_plain_network_of_its_tensors(checkpoint: Path) -> None:
    """The actions, computed by hand from the file."""
    record, tensors = read_agent_file(checkpoint)
    names = {"ppo": ("", "mlp_extractor.policy_net.0", "action_net")}
    names["sac"] = ("actor.", "actor.latent_pi.0", "actor.mu")
    before, hidden, last = names[record.algorithm]
    seen = CollaPipeVectorEnv(num_envs=5, scenario=SCENARIO, learner="surrogate").reset(seed=1)[0]
    units = seen * tensors[f"{before}features_extractor.factor"]
    units = units @ tensors[f"{hidden}.weight"].T + tensors[f"{hidden}.bias"]
    units = np.tanh(units) if record.algorithm == "ppo" else np.maximum(units, 0.0)
    actions = units @ tensors[f"{last}.weight"].T + tensors[f"{last}.bias"]
    actions = np.clip(actions, -1.0, 1.0) if record.algorithm == "ppo" else np.tanh(actions)
    played = load_agent(str(checkpoint), SCENARIO.to_dict()).act(seen, None)  # type: ignore[arg-type]
    assert played == pytest.approx(actions, abs=1e-5)
    assert collapipe_env.load_agent is load_agent


def test_what_plays_is_told_from_what_only_training_needs(checkpoint: Path) -> None:
    saved = read_agent_file(checkpoint)
    record, tensors = saved.playing
    left_out = {name.split(".")[1] for name in saved.tensors.keys() - tensors.keys()}
    assert (
        left_out
        == {
            "ppo": {"value_net", "mlp_extractor", "policy"},
            "sac": {"critic", "critic_target", "actor", "ent_coef_optimizer", "log_ent_coef"},
        }[record.algorithm]
    )
    assert record.scenario == SCENARIO.to_dict()
    assert (record.training["command"], record.training["seed"]) == (COMMAND, 0)
    assert record.training["seconds"] > 0
    assert record.features["device_backlog"] == [2, 3]
    assert record.decisions["segments"] == [2, 3]


def test_sac_learns_from_rewards_that_end_at_the_lowest_and_from_the_others_as_they_are() -> None:
    env = make_sb3_vec_env(SCENARIO, 4, learner="surrogate")
    played, step_wait = [], env.step_wait

    def noted():
        step = step_wait()
        played.append(step[1].copy())
        return step

    env.step_wait = noted
    parameters = usual(SACParameters, buffer_size=400, lowest_reward=-6.0, hidden_units=(4,))
    model = build_model(parameters, env, seed=0).learn(80)
    stored, rewards = model.replay_buffer.rewards[: model.replay_buffer.size()], np.array(played)
    assert rewards.min() < -6.0 < rewards.max()  # at random, some plans are that bad
    np.testing.assert_array_equal(stored, np.maximum(rewards, -6.0))


MIXED = [{"switched_capacitance": 1e-27}, {"name": "board", "flops_per_cycle": 32, "active_power_w": 6.0}]
CLOCKS = load_scenario({"base": "small", "name": "clocks", "devices": {"profiles": MIXED}})
MOVES = load_scenario({"base": "small", "name": "moves", "dynamics": {"processes": {"migration": {}}}})
PARTS = decisions_of(SCENARIO)


def of(scenario) -> dict:
    """What a record says of a scenario that an agent was trained on."""
    return {"scenario": scenario.to_dict(), "features": features_of(scenario)}


@pytest.mark.parametrize(
    ("changes", "played", "message"),
    [
        (of(CLOCKS), SCENARIO, r"'clocks' .*feature device_clock is absent in this .*, \(2, 3\) in training"),
        ({}, CLOCKS, r"feature device_clock is \(2, 3\) in this scenario, absent in training: choose"),
        (of(CLOCKS), MOVES, r"device_clock is absent .* training; feature migration_blocks is \(2, 3\)"),
        (
            {},
            load_scenario("medium"),
            r"\(observations of 42 numbers, actions of 18\); scenario 'medium' has 130 and 52: "
            r"feature device_backlog is \(4, 5\) in this scenario, \(2, 3\) in training; .*; and \d+ more",
        ),
        ({"decisions": {**PARTS, "route": [2]}}, SCENARIO, r"route is absent in .*, \(2,\) in training"),
        ({"decisions": {**PARTS, "bandwidth": [3]}}, SCENARIO, r"bandwidth is \(2,\) in .*, \(3,\) in train"),
        ({"decisions": dict(list(PARTS.items())[:-1])}, SCENARIO, r"bandwidth is \(2,\) .*, absent in train"),
        ({"decisions": dict(reversed(PARTS.items()))}, SCENARIO, r"decisions are in another order"),
        ({"features": {}}, SCENARIO, r"observations of 0 numbers"),
        ({"algorithm": "pp0"}, SCENARIO, r"algorithm 'pp0' is not known: did you mean 'ppo'"),
        ({"hyperparameters": {"gama": 1}}, SCENARIO, r"hyper-parameter 'gama' is not known to this version"),
    ],
)
def test_a_scenario_or_a_record_that_does_not_fit_is_named(
    checkpoint: Path, tmp_path: Path, changes: dict, played, message: str
) -> None:
    record, tensors = read_agent_file(checkpoint).playing
    agent = tmp_path / "agent.safetensors"
    write_agent_file(agent, dataclasses.replace(record, **changes), tensors)
    with pytest.raises(CheckpointError, match=rf"^{agent}\b.*{message}"):
        load_agent(agent, played)


def test_weights_that_do_not_fit_the_record_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    record, tensors = read_agent_file(checkpoint).playing
    file = tmp_path / "agent.safetensors"
    for hidden, message in (([9], "need other weights"), ([8192] * 100, r"hidden_units of \[8192, 8192")):
        parameters = {**record.hyperparameters, "hidden_units": hidden}
        write_agent_file(file, dataclasses.replace(record, hyperparameters=parameters), tensors)
        with pytest.raises(CheckpointError, match=message):
            load_agent(file, SCENARIO)
