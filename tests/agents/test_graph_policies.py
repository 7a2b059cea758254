"""Policies and schedulers that read graph observations, as evaluations play them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from stable_baselines3 import PPO

from collapipe_env import PolicyScheduler, evaluate
from collapipe_env.envs.graph_layout import GraphLayout
from collapipe_env.envs.graph_observation import GraphObservations
from collapipe_env.envs.sb3 import make_sb3_vec_env
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import SchedulerError
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import action_codec

SMALL = {"base": "small", "dynamics": {"rounds": 3}}
SCENARIO = load_scenario(SMALL)
CODEC = action_codec(SCENARIO)
PARTS = {"cu", "device", "hop", "between", "present", "context"}


def fastest(observation):
    """Blocks in proportion to speed: a plan from the graph alone."""
    block = GraphLayout(2, 3, 4)["device"].place("log_block_s")
    speed = np.exp(-observation["device"][..., block]) * observation["present"]
    lead = speed.shape[:-2]
    ones = np.zeros((*lead, 2))
    return CODEC.join(
        {
            "segments": 2.0 * speed / speed.max(axis=-1, keepdims=True) - 1.0,
            "device_power": np.zeros_like(speed),
            "cu_power": ones,
            "micro_batches": ones,
            "bandwidth": ones,
        }
    )


def delays(scheduler):
    (episodes,) = evaluate(scheduler, SMALL, seeds=1).episodes.values()
    return episodes[0].delay


class FromState:
    """The same plan from the state, as a check of what the policy was given."""

    name = "from the state"

    def __init__(self, scenario):
        self.observations = GraphObservations(scenario)

    def reset(self, seed=None):
        pass

    def act(self, observation, state):
        assert observation.ndim == 2  # it has not asked for graphs
        return fastest(self.observations.build(state))


def test_a_function_of_graphs_is_played():
    assert delays(PolicyScheduler(fastest, "fastest", observation="graph")) == delays(FromState)


class Asking(FromState):
    """A scheduler that asks for graphs by its attribute."""

    observation = "graph"

    def act(self, observation, state):
        for name, array in self.observations.build(state).items():
            np.testing.assert_array_equal(observation[name], array)
        return fastest(observation)


def test_a_scheduler_asks_for_graphs_by_its_attribute():
    assert delays(Asking) == delays(FromState)


class Remembering(FromState):
    """Keeps its last observation under the very name: that asks for nothing."""

    def __init__(self, scenario):
        super().__init__(scenario)
        self.observation = np.zeros(3)

    def act(self, observation, state):
        self.observation = observation
        return super().act(observation, state)


def test_another_attribute_of_that_name_asks_for_nothing():
    assert delays(Remembering) == delays(FromState)


class Wrong(FromState):
    observation = "grahp"


def test_unknown_kinds_are_refused():
    with pytest.raises(SchedulerError, match=r"observation = 'grahp' is not known: did you mean 'graph'"):
        delays(Wrong)
    with pytest.raises(SchedulerError, match=r"observation = 'dict' is not known: .*flat, graph"):
        PolicyScheduler(fastest, observation="dict")
    with pytest.raises(SchedulerError, match="observation = 3 "):
        PolicyScheduler(fastest, observation=3)


@pytest.fixture(scope="module")
def model() -> PPO:
    env = make_sb3_vec_env(SCENARIO, num_envs=2, seed=0, learner="surrogate", observation="graph")
    options = {"n_steps": 4, "batch_size": 8, "n_epochs": 1, "seed": 0, "device": "cpu"}
    return PPO("MultiInputPolicy", env, policy_kwargs={"net_arch": [8]}, **options).learn(8)


def test_a_model_says_itself_that_it_reads_graphs(model: PPO, tmp_path: Path):
    model.save(tmp_path / "ppo.zip")
    again = PPO.load(tmp_path / "ppo.zip", device="cpu")
    scheduler = PolicyScheduler(again, "PPO")
    assert scheduler.observation == "graph"
    assert len(scheduler.fingerprint()) == 64
    env = CollaPipeVectorEnv(3, SCENARIO, "surrogate", observation="graph")
    observation, _ = env.reset(seed=0)
    scheduler.reset(0)
    actions = scheduler.act(observation, env.state)
    for row in range(3):
        one, _ = model.predict({k: v[row] for k, v in observation.items()}, deterministic=True)
        np.testing.assert_allclose(actions[row], one, atol=1e-6)
    assert delays(scheduler) == delays(PolicyScheduler(model, "PPO", observation="graph"))


class Net(torch.nn.Module):
    """Reads a dictionary of tensors."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, CODEC.action_size)

    def forward(self, observation):
        assert set(observation) == PARTS
        assert all(part.dtype == self.layer.weight.dtype for part in observation.values())
        return torch.tanh(self.layer(observation["cu"].mean(dim=-2)))


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_a_module_is_given_a_dictionary_of_tensors(kind):
    torch.manual_seed(0)
    net = Net().to(kind)
    env = CollaPipeVectorEnv(2, SCENARIO, "surrogate", observation="graph")
    observation, _ = env.reset(seed=0)
    actions = PolicyScheduler(net, observation="graph").act(observation, env.state)
    weight, bias = (p.detach().numpy() for p in net.parameters())
    expected = np.tanh(observation["cu"].mean(axis=-2) @ weight.T + bias)
    np.testing.assert_allclose(actions, expected, atol=1e-5)


def test_recurrent_policies_are_told_how_many_begin():
    class Recurrent:
        def __init__(self):
            self.starts = []

        def predict(self, observation, state=None, episode_start=None):
            self.starts.append(episode_start.tolist())
            return np.zeros((len(observation["cu"]), CODEC.action_size)), (state or 0) + 1

    policy = Recurrent()
    scheduler = PolicyScheduler(policy, observation="graph")
    env = CollaPipeVectorEnv(2, SCENARIO, "surrogate", observation="graph")
    observation, _ = env.reset(seed=0)
    for _ in range(2):
        assert scheduler.act(observation, env.state).shape == (2, CODEC.action_size)
    assert policy.starts == [[True] * 2, [False] * 2]


def test_observations_of_the_other_kind_and_other_sizes_are_refused(model: PPO):
    env = CollaPipeVectorEnv(2, SCENARIO, "surrogate")
    observation, _ = env.reset(seed=0)
    message = r"policy 'PPO' reads graph observations and was given flat ones: .*observation='graph'"
    with pytest.raises(SchedulerError, match=message):
        PolicyScheduler(model).act(observation, env.state)
    graphs = CollaPipeVectorEnv(2, SCENARIO, "surrogate", observation="graph").reset(seed=0)[0]
    with pytest.raises(SchedulerError, match="reads flat observations and was given graph ones"):
        PolicyScheduler(fastest).act(graphs, env.state)
    larger = r"trained on between observations of shape \(2, 2, 1\), those of .* have \(4, 4, 1\): give one"
    with pytest.raises(SchedulerError, match=larger):
        evaluate(PolicyScheduler(model, "PPO"), "medium", seeds=1, rounds=1)
    with pytest.raises(SchedulerError, match=r"shape \(3,\) for 2 observations"):
        PolicyScheduler(lambda _: np.zeros(3), observation="graph").act(graphs, env.state)
