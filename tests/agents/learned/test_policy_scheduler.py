"""Policies from elsewhere as schedulers: of Stable-Baselines3, of PyTorch, and plain functions."""

from pathlib import Path

import numpy as np
import pytest
import torch
from stable_baselines3 import PPO

from collapipe_env import PolicyScheduler, evaluate
from collapipe_env.agents.learned.sb3_models import LearnedScheduler
from collapipe_env.cli.main import main
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
SIZE = CODEC.action_size
PARTS = {"cu", "device", "hop", "between", "present", "context"}
FILE = """
from stable_baselines3 import PPO
from collapipe_env import PolicyScheduler

def trained(scenario):
    return PolicyScheduler(PPO.load({path!r}, device="cpu"), name="my PPO")
"""


def ppo(policy: str, observation: str) -> PPO:
    env = make_sb3_vec_env(SCENARIO, num_envs=2, seed=0, learner="surrogate", observation=observation)
    options = {"n_steps": 4, "batch_size": 8, "n_epochs": 1, "seed": 0, "device": "cpu"}
    return PPO(policy, env, policy_kwargs={"net_arch": [8]}, **options).learn(8)


@pytest.fixture(scope="module")
def model() -> PPO:
    return ppo("MlpPolicy", "flat")


@pytest.fixture(scope="module")
def graph_model() -> PPO:
    return ppo("MultiInputPolicy", "graph")


def seen(observation: str, rows: int = 2):
    """Observations of environments at their begin, and their states."""
    env = CollaPipeVectorEnv(rows, SCENARIO, "surrogate", observation=observation)
    return env.reset(seed=0)[0], env.state


def delays(scheduler):
    (episodes,) = evaluate(scheduler, SMALL, seeds=1).episodes.values()
    return episodes[0].delay


def test_a_model_saved_by_stable_baselines_is_played_from_the_users_file(
    model: PPO, tmp_path: Path, capsys
) -> None:
    archive, file = tmp_path / "ppo.zip", tmp_path / "mine.py"
    model.save(archive)
    file.write_text(FILE.format(path=str(archive)))
    scenario = tmp_path / "custom.yaml"
    scenario.write_text("name: custom\nbase: small\ndynamics: {rounds: 3}\n")
    quick = ["--scenario", str(scenario), "--episodes", "1", "--processes", "1", "--no-figures"]
    quick += ["--out", str(tmp_path / "out")]
    assert main(["evaluate", "--agent", str(archive), *quick]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "as Stable-Baselines3 writes it: its pickled part could run any code" in line
    assert "collapipe_env.PolicyScheduler: --schedulers file.py:Name" in line
    assert main(["evaluate", "--schedulers", "pipeline", f"{file}:trained", *quick]) == 0
    assert "my PPO" in capsys.readouterr().out
    # The same as what the model itself decides.
    found = evaluate([f"{file}:trained", lambda _: LearnedScheduler(model.policy, "PPO")], SMALL, seeds=1)
    (one,), (other,) = found.episodes.values()
    assert one.delay == other.delay
    assert one.title == "my PPO"


def test_other_weights_have_another_fingerprint(model: PPO, tmp_path: Path) -> None:
    model.save(tmp_path / "ppo.zip")
    again = PPO.load(tmp_path / "ppo.zip", device="cpu")
    before = PolicyScheduler(again).fingerprint()
    assert len(before) == 64
    assert before == PolicyScheduler(model).fingerprint()
    with torch.no_grad():
        again.policy.action_net.bias[0] += 1e-6
    assert PolicyScheduler(again).fingerprint() != before
    assert PolicyScheduler(np.tanh).fingerprint() == ""


class Recurrent:
    """Counts its rounds in its state, as Stable-Baselines3's recurrent policies keep theirs."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, list[bool], bool]] = []

    def predict(self, rows, state=None, episode_start=None, deterministic=False):
        self.calls.append((state, episode_start.tolist(), deterministic))
        number = len(rows["cu"] if isinstance(rows, dict) else rows)
        return np.full((number, SIZE), 2.0), 1 if state is None else state + 1


@pytest.mark.parametrize("observation", ["flat", "graph"])
def test_recurrent_policies_keep_their_state_until_reset(observation: str) -> None:
    policy = Recurrent()
    scheduler = PolicyScheduler(policy, deterministic=False, observation=observation)
    assert scheduler.name == "Recurrent"
    rows, state = seen(observation, 3)
    for _ in range(2):
        scheduler.reset(1)
        for _ in range(2):
            actions = scheduler.act(rows, state)
    assert [state for state, *_ in policy.calls] == [None, 1, None, 1]
    assert [starts for _, starts, _ in policy.calls] == [[True] * 3, [False] * 3] * 2
    assert not any(deterministic for *_, deterministic in policy.calls)
    assert actions.shape == (3, SIZE)
    assert actions.dtype == np.float32
    assert (actions == 1.0).all()  # clipped


class Wrapped:
    """Hands whatever it is asked to another policy."""

    def __init__(self, policy) -> None:
        self.policy = policy

    def predict(self, observation, **options):
        return self.policy.predict(observation, **options)


def test_a_wrapper_that_hands_options_on_is_given_all_of_them() -> None:
    policy = Recurrent()
    scheduler = PolicyScheduler(Wrapped(policy))
    scheduler.reset(1)
    for _ in range(2):
        scheduler.act(np.zeros((1, 5), dtype=np.float32), None)
    assert policy.calls == [(None, [True], True), (1, [False], True)]


class Bare:
    """A ``predict`` without any options, as scikit-learn has it."""

    def predict(self, rows):
        return rows[:, :2] * 3.0


def test_predict_without_options_and_plain_functions() -> None:
    observation = np.array([[0.1, -0.9, 5.0]], dtype=np.float32)
    for policy in (Bare(), lambda rows: rows[:, :2] * 3.0, lambda rows: (rows[:, :2] * 3.0).tolist()):
        scheduler = PolicyScheduler(policy, name="x")
        scheduler.reset()
        np.testing.assert_allclose(scheduler.act(observation, None), [[0.3, -1.0]], rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "apart"), [(torch.float32, 1e-5), (torch.float64, 1e-5), (torch.bfloat16, 0.03)]
)
def test_torch_modules_answer_in_evaluation_mode_in_their_own_type_without_gradients(kind, apart) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Dropout(0.5), torch.nn.Tanh()).to(kind)
    observation = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    scheduler = PolicyScheduler(module)
    actions = scheduler.act(observation, None)
    weight, bias = (p.detach().double().numpy() for p in module.parameters())
    assert actions.dtype == np.float32
    np.testing.assert_allclose(actions, np.tanh(observation @ weight.T + bias), rtol=1e-5, atol=apart - 1e-5)
    assert len(scheduler.fingerprint()) == 64
    own = PolicyScheduler(lambda rows: module(torch.from_numpy(rows).to(kind)))
    assert own.act(observation, None).shape == (2, 6)


class Net(torch.nn.Module):
    """Reads a dictionary of tensors."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, SIZE)

    def forward(self, observation):
        assert set(observation) == PARTS
        assert all(part.dtype == self.layer.weight.dtype for part in observation.values())
        return torch.tanh(self.layer(observation["cu"].mean(dim=-2)))


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_a_module_is_given_a_dictionary_of_tensors(kind) -> None:
    torch.manual_seed(0)
    net = Net().to(kind)
    observation, state = seen("graph")
    actions = PolicyScheduler(net, observation="graph").act(observation, state)
    weight, bias = (p.detach().numpy() for p in net.parameters())
    expected = np.tanh(observation["cu"].mean(axis=-2) @ weight.T + bias)
    np.testing.assert_allclose(actions, expected, atol=1e-5)


def test_observations_that_may_not_be_written_to_are_read() -> None:
    observation = np.full((1, 2), 0.5, dtype=np.float32)
    observation.flags.writeable = False
    actions = PolicyScheduler(torch.nn.Identity()).act(observation, None)
    np.testing.assert_array_equal(actions, observation)


def test_a_policy_that_draws_is_repeatable() -> None:
    def draws(rows):
        return torch.rand(len(rows), SIZE) * 2.0 - 1.0

    once, again, other = (
        delays(PolicyScheduler(draws, "draws", deterministic=certain)) for certain in (False, False, True)
    )
    assert once == again != other


def fastest(observation):
    """Blocks in proportion to speed: a plan from the graph alone."""
    block = GraphLayout(2, 3, 4)["device"].place("log_block_s")
    speed = np.exp(-observation["device"][..., block]) * observation["present"]
    ones = np.zeros((*speed.shape[:-2], 2))
    segments = 2.0 * speed / speed.max(axis=-1, keepdims=True) - 1.0
    return CODEC.join(
        {
            "segments": segments,
            "device_power": np.zeros_like(speed),
            "cu_power": ones,
            "micro_batches": ones,
            "bandwidth": ones,
        }
    )


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


class Asking(FromState):
    """A scheduler that asks for graphs by its attribute."""

    observation = "graph"

    def act(self, observation, state):
        for name, array in self.observations.build(state).items():
            np.testing.assert_array_equal(observation[name], array)
        return fastest(observation)


class Remembering(FromState):
    """Keeps its last observation under the very name: that asks for nothing."""

    def __init__(self, scenario):
        super().__init__(scenario)
        self.observation = np.zeros(3)

    def act(self, observation, state):
        self.observation = observation
        return super().act(observation, state)


class Wrong(FromState):
    observation = "grahp"


def test_graphs_are_given_to_those_who_ask_for_them() -> None:
    expected = delays(FromState)
    for scheduler in (PolicyScheduler(fastest, "fastest", observation="graph"), Asking, Remembering):
        assert delays(scheduler) == expected
    with pytest.raises(SchedulerError, match=r"observation = 'grahp' is not known: did you mean 'graph'"):
        delays(Wrong)
    for odd, message in (("dict", r"'dict' is not known: .*flat, graph"), (3, "3 ")):
        with pytest.raises(SchedulerError, match=f"observation = {message}"):
            PolicyScheduler(fastest, observation=odd)


def test_a_model_says_itself_that_it_reads_graphs(graph_model: PPO, tmp_path: Path) -> None:
    graph_model.save(tmp_path / "ppo.zip")
    scheduler = PolicyScheduler(PPO.load(tmp_path / "ppo.zip", device="cpu"), "PPO")
    assert scheduler.observation == "graph"
    assert len(scheduler.fingerprint()) == 64
    observation, state = seen("graph", 3)
    scheduler.reset(0)
    actions = scheduler.act(observation, state)
    for row in range(3):
        one, _ = graph_model.predict({k: v[row] for k, v in observation.items()}, deterministic=True)
        np.testing.assert_allclose(actions[row], one, atol=1e-6)


def test_wrong_policies_observations_and_answers_are_described(model: PPO, graph_model: PPO) -> None:
    with pytest.raises(SchedulerError, match="policy 3 is not callable and has no method predict"):
        PolicyScheduler(3)
    flat, graphs = seen("flat"), seen("graph")
    for scheduler, given, message in (
        (PolicyScheduler(graph_model), flat, r"'PPO' reads graph observations .* flat ones: .*'graph'"),
        (PolicyScheduler(fastest), graphs, "reads flat observations and was given graph ones"),
        (PolicyScheduler(lambda _: np.zeros((3, 18)), observation="graph"), graphs, r"\(3, 18\) for 2 obs"),
        (PolicyScheduler(lambda rows: rows[0], "x"), flat, r"policy 'x' returned shape \(42,\) for 2"),
    ):
        with pytest.raises(SchedulerError, match=message):
            scheduler.act(*given)
    size = model.observation_space.shape[0]
    for policy, scenario, message in (
        (lambda rows: rows, SMALL, r"ndarray of shape \(1, 42\), which cannot be played"),
        (torch.nn.Linear(3, 2), SMALL, "failed in act: RuntimeError: mat1 and mat2"),
        (model, "medium", rf"trained on flat observations of shape \({size},\), those of .* have \(\d+,\)"),
        (graph_model, "medium", r"between observations of shape \(2, 2, 1\), those of .* have \(4, 4, 1\)"),
    ):
        with pytest.raises(SchedulerError, match=message):
            evaluate(PolicyScheduler(policy, "x"), scenario, seeds=1, rounds=1)
