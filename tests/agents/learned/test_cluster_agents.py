"""Policies that share their weights over clusters, and PPO with credit for each cluster."""

import dataclasses
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from stable_baselines3 import A2C
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.vec_env import VecMonitor

from collapipe_env.agents.learned.cluster_ppo import (
    ClusterActorCritic,
    ClusterPPO,
    Rollout,
    clipped_gain,
    normalised,
)
from collapipe_env.agents.learned.hyperparameters import PPOParameters, SACParameters, usual
from collapipe_env.agents.learned.sb3_models import build_model, policy_options
from collapipe_env.agents.learned.validation import Validator
from collapipe_env.envs.sb3 import make_sb3_vec_env
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.decision_names import COLLAPIPE

SCENARIO = load_scenario({"base": "medium", "dynamics": {"rounds": 6, "processes": {"migration": {}}}})
N, K = 4, 5
PARAMETERS = {
    "ppo": usual(PPOParameters, rollout_steps=8, minibatch=16, epochs=2, hidden_units=(16, 16)),
    "sac": usual(SACParameters, buffer_size=500, learning_starts=8, minibatch=16, hidden_units=(16, 16)),
}


def make_model(algorithm: str = "ppo", scenario=SCENARIO, envs: int = 3, **changes):
    env = make_sb3_vec_env(scenario, envs, learner="surrogate", reward=changes.pop("reward", "lyapunov"))
    return build_model(dataclasses.replace(PARAMETERS[algorithm], **changes), env, seed=1)


def observations(model, count: int = 4) -> torch.Tensor:
    rng = np.random.default_rng(5)
    space = model.observation_space
    return torch.as_tensor(rng.uniform(space.low, space.high, (count, *space.shape)).astype(np.float32))


def shaken(model):
    """The model with weights far from those that it begins with."""
    with torch.no_grad():
        for parameter in model.policy.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def reordered(model, seen: torch.Tensor, order: list[int]) -> torch.Tensor:
    """Observations of the same systems with their clusters in another order."""
    moved = seen.clone()
    layout = model.env.env.observation_layout
    for name, values in layout.unpack(seen).items():
        if layout[name].shape[:1] == (N,):
            moved[:, layout[name].slice] = values[:, order].reshape(len(seen), -1)
    return moved


def decided(model, seen: torch.Tensor) -> np.ndarray:
    """Most likely actions of each cluster (E, N, 2K + 3)."""
    return model.predict(seen.numpy(), deterministic=True)[0].reshape(len(seen), N, -1)


@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_clusters_in_another_order_get_the_same_plans(algorithm: str) -> None:
    model = shaken(make_model(algorithm))
    seen, order = observations(model), [2, 0, 3, 1]
    moved = reordered(model, seen, order)
    assert not torch.equal(seen, moved)
    plans, other = decided(model, seen), decided(model, moved)
    assert other == pytest.approx(plans[:, order], abs=1e-5)
    assert np.abs(plans[:, 0] - plans[:, 1]).max() > 0.01
    # Each heeds the others.
    changed = seen.clone()
    changed[:, model.env.env.observation_layout["uplink_gain"].slice.start] -= 1.0
    assert (np.abs(decided(model, changed) - plans).max(axis=-1) > 1e-4).all()
    actions = torch.rand(4, N * (2 * K + 3)) * 2.0 - 1.0
    turned = actions.reshape(4, N, -1)[:, order].reshape(4, -1)
    if algorithm == "sac":
        for value, same in zip(model.critic(seen, actions), model.critic(moved, turned), strict=True):
            assert value.shape == (4, 1)
            assert same.detach() == pytest.approx(value.detach(), abs=1e-5)
        return
    values, likelihoods, _ = (x.detach() for x in model.policy.evaluate_clusters(seen, actions))
    other_values, other_likelihoods, _ = (x.detach() for x in model.policy.evaluate_clusters(moved, turned))
    assert other_values[:, :N] == pytest.approx(values[:, order], abs=1e-5)
    assert other_values[:, N] == pytest.approx(values[:, N], abs=1e-5)
    assert other_likelihoods[:, :N] == pytest.approx(likelihoods[:, order], rel=1e-4)
    assert other_likelihoods[:, N:] == pytest.approx(likelihoods[:, N:][:, order], rel=1e-4)


def test_rows_of_features() -> None:
    model = make_model()
    seen = observations(model)
    rows = model.policy.features_extractor(seen).numpy()
    parts = model.env.env.observation_layout.unpack(seen.numpy())
    budgets = SCENARIO.budgets
    assert "migration_blocks" in parts
    for e in range(len(seen)):
        for n in range(N):
            expected, queues = [], []
            for name, values in parts.items():
                own = values[e, n] if values.shape[1:2] == (N,) else values[e]
                numbers = np.asarray(own, dtype=np.float64).reshape(-1)
                if name in ("device_backlog", "cu_backlog"):
                    queues += list(np.log(1.0 + numbers * budgets.backlog_cap * N / budgets.tradeoff))
                    numbers = numbers * budgets.backlog_cap / 4.0
                expected += list(numbers)
            assert rows[e, n] == pytest.approx(expected + queues, rel=1e-5)


@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_an_untrained_policy_splits_evenly(algorithm: str) -> None:
    model = make_model(algorithm)
    assert np.abs(decided(model, observations(model))).max() < (0.05 if algorithm == "ppo" else 0.7)


def test_likelihoods_of_clusters_make_up_the_whole() -> None:
    model = shaken(make_model())
    seen = observations(model)
    actions = torch.randn(4, N * (2 * K + 3))
    _, parts, entropy = model.policy.evaluate_clusters(seen, actions)
    values, whole, same = model.policy.evaluate_actions(seen, actions)
    means = model.policy.get_distribution(seen).mode().detach().numpy()
    spread = np.tile(model.policy.log_std.detach().exp().numpy(), N)
    entries = -0.5 * ((actions.numpy() - means) / spread) ** 2 - np.log(spread) - 0.5 * math.log(2 * math.pi)
    entries = entries.reshape(4, N, -1)
    assert parts.detach()[:, :N] == pytest.approx(entries[..., :-1].sum(axis=-1), rel=1e-4)
    assert parts.detach()[:, N:] == pytest.approx(entries[..., -1], rel=1e-4, abs=1e-5)
    assert whole.detach() == pytest.approx(entries.sum(axis=(-2, -1)), rel=1e-4)
    assert values.shape == (4, 1)
    assert torch.equal(entropy, same)
    assert entropy.detach() == pytest.approx(model.policy.get_distribution(seen).entropy().detach(), rel=1e-5)


def test_clipped_gain_is_the_mean_of_scalars() -> None:
    rng = np.random.default_rng(2)
    B, clip = 7, 0.2
    new, old = rng.normal(size=(B, 2 * N)) * 0.3, rng.normal(size=(B, 2 * N)) * 0.3
    advantages = rng.normal(size=(B, N + 1))
    total, distance, clipped = 0.0, 0.0, 0
    for b in range(B):
        for n in range(N):
            for place, advantage in ((n, advantages[b, n]), (N + n, advantages[b, N])):
                ratio = math.exp(new[b, place] - old[b, place])
                total += min(ratio * advantage, min(max(ratio, 1 - clip), 1 + clip) * advantage)
                distance += ratio - 1 - math.log(ratio)
                clipped += abs(ratio - 1) > clip
    found = clipped_gain(*(torch.as_tensor(x) for x in (new, old, advantages)), clip)
    count = 2 * B * N
    assert [float(x) for x in found] == pytest.approx([total / (B * N), distance / count, clipped / count])


def test_advantages_are_scaled_apart() -> None:
    rng = np.random.default_rng(3)
    advantages = (rng.normal(size=(5, 6, N + 1)) * 3.0 + 1.0).astype(np.float32)
    advantages[..., N] *= 100.0
    found = normalised(advantages)
    for part in (found[..., :N], found[..., N]):
        assert part.mean() == pytest.approx(0.0, abs=1e-5)
        assert part.std() == pytest.approx(1.0, rel=1e-4)
    own = advantages[..., :N]  # one scale for all clusters: they share their weights
    assert np.ptp(found[..., :N] - (own - own.mean()) / own.std()) < 1e-5


def test_advantages_of_every_cluster_are_those_of_a_buffer_of_its_own() -> None:
    model = make_model()
    T, E = 9, 3
    spaces = (model.observation_space, model.action_space)
    options = {"device": "cpu", "gae_lambda": 0.8, "gamma": 0.7, "n_envs": E}
    theirs = [RolloutBuffer(T, *spaces, **options) for _ in range(N + 1)]
    rng = np.random.default_rng(4)
    rewards, values = rng.normal(size=(2, T, E, N + 1)).astype(np.float32)
    starts = rng.random((T, E)) < 0.3
    obs, action = (np.zeros((E, space.shape[0]), np.float32) for space in spaces)
    for t in range(T):
        for column, one in enumerate(theirs):
            value = torch.as_tensor(values[t, :, column])
            one.add(obs, action, rewards[t, :, column], starts[t], value, torch.zeros(E))
    last, dones = rng.normal(size=(E, N + 1)).astype(np.float32), np.array([True, False, False])
    rollout = Rollout(obs, action, obs, rewards, values, starts)
    found = rollout.advantages(last, dones, gamma=0.7, lam=0.8)
    for column, one in enumerate(theirs):
        one.compute_returns_and_advantage(torch.as_tensor(last[:, column]), dones)
        assert found[..., column] == pytest.approx(one.advantages, rel=1e-4, abs=1e-5)


def played(model) -> np.ndarray:
    """Rewards (T, E, N + 1) of a rollout."""
    model.learn(model.n_steps * model.n_envs)
    return model.rollout.rewards


def test_rollouts_hold_each_clusters_reward() -> None:
    model = make_model()
    rewards = []
    step = model.env.step_wait

    def watched():
        answer = step()
        rewards.append(np.concatenate((model.env.cluster_rewards(), answer[1][:, None]), axis=-1))
        return answer

    model.env.step_wait = watched
    assert played(model) == pytest.approx(np.stack(rewards))
    assert np.stack(rewards)[..., :N].std() > 0.0


@pytest.mark.parametrize("own", [{"credit": "round"}, {"reward": lambda _b, costs, _a: -costs.delay}])
def test_the_rounds_reward_in_place_of_the_clusters(own: dict) -> None:
    rewards = played(make_model(**own))
    assert (rewards == rewards[..., -1:]).all()
    assert rewards.std() > 0.0


def test_episodes_that_are_cut_off_go_on_in_the_values() -> None:
    first = played(make_model(gamma=0.0))
    second = played(make_model(gamma=0.5))
    # Both draw the same; rounds 0 to 5 make an episode, so that the sixth step is the last.
    assert np.array_equal(first[:5], second[:5])
    assert (first[5] != second[5]).all()
    assert np.array_equal(first[6:], second[6:])


def test_an_update_stops_when_the_policy_has_moved_far() -> None:
    model = make_model(target_kl=1e-6, epochs=50, learning_rate=1e-2, final_learning_rate=1e-2)
    played(model)
    assert 1 <= model._n_updates < 50


def test_what_cannot_be_credited_is_refused() -> None:
    env = make_sb3_vec_env(SCENARIO, 2, learner="surrogate")
    options = {"policy_kwargs": policy_options(PARAMETERS["ppo"], SCENARIO), "device": "cpu"}
    with pytest.raises(ScenarioError, match="which VecMonitor does not have"):
        ClusterPPO(ClusterActorCritic, VecMonitor(env), **options)
    with pytest.raises(ScenarioError, match="not a policy of ActorCriticPolicy"):
        ClusterPPO("MlpPolicy", env, device="cpu")


def test_another_algorithm_of_stable_baselines_trains_the_policy() -> None:
    env = make_sb3_vec_env(SCENARIO, 2, learner="surrogate")
    options = policy_options(PARAMETERS["ppo"], SCENARIO)
    model = A2C(ClusterActorCritic, env, policy_kwargs=options, device="cpu", seed=0)
    before = model.policy.actor.own[0].weight.clone()
    model.learn(20)
    assert not torch.equal(before, model.policy.actor.own[0].weight)


def test_the_example_of_the_docs_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[3] / "docs" / "learned_agents.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert "learn(100_000)" in code  # tests/docs looks at what the whole training gains
    exec(code.replace("100_000", "256"), {})
    assert capsys.readouterr().out == "(64, 2)\n"


def test_a_short_training_beats_the_even_split() -> None:
    scenario = load_scenario({"base": "small", "dynamics": {"rounds": 20}})
    model = make_model(scenario=scenario, envs=32, epochs=4, minibatch=64, learning_rate=1e-2)
    validator = Validator(scenario, 4)
    before = validator(model.policy, 0, 0.0)
    model.learn(1024)
    after = validator(model.policy, 0, 0.0)
    assert isinstance(model, ClusterPPO)
    assert after.objective < 0.8 * before.objective


@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_opened_decisions_are_learned_as_entries_of_their_clusters(algorithm: str) -> None:
    decisions = [*COLLAPIPE, "recompute", "schedule", "server_blocks"]
    scenario = load_scenario(
        {"base": "medium", "name": "opened", "decisions": decisions, "dynamics": {"rounds": 6}}
    )
    model = make_model(algorithm, scenario)
    before = [parameter.detach().clone() for parameter in model.policy.parameters()]
    model.learn(48 if algorithm == "ppo" else 24)
    assert any(not torch.equal(a, b) for a, b in zip(before, model.policy.parameters(), strict=True))
    assert decided(model, observations(model)).shape[-1] == 2 * K + 3 + 1 + (1 + K) + 1
