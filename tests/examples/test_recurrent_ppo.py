"""RecurrentPPO as a cluster policy: rows of clusters, and play with a state for each cluster."""

import json

import example_support
import numpy as np
import pytest
from recurrent_ppo import Args, ClusterMemory, ClusterRows, Rows, main
from sb3_contrib import RecurrentPPO

from collapipe_env import PolicyScheduler, load_scenario
from collapipe_env.agents.learned.validation import VALIDATION_SEED, Validator
from collapipe_env.envs.sb3 import make_sb3_vec_env

SCENARIO, WIPED = load_scenario("small-stale"), "RecurrentPPO, state wiped"
N = SCENARIO.clusters


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A tiny training with its folder."""
    folder = tmp_path_factory.mktemp("recurrent")
    tiny = {"envs": 4, "rollout": 8, "minibatch": 16, "hidden": 8, "episodes": 1, "validation_episodes": 1}
    return main(Args(steps=96, out=folder, against=("random",), **tiny)), folder


def test_rows_are_the_environments_cut_by_cluster() -> None:
    """Rewards are the clusters', an episode's end and last observation those of their environment."""
    options = {"num_envs": 2, "seed": 3, "learner": "surrogate", "max_episode_steps": 2}
    env, whole = ClusterRows(make_sb3_vec_env(SCENARIO, **options)), make_sb3_vec_env(SCENARIO, **options)
    seen, observation = env.reset(), whole.reset()
    cut, speeds = Rows(SCENARIO), whole.env.observation_layout["device_speed"].slice
    K = SCENARIO.cluster.devices
    rng = np.random.default_rng(0)
    for last in (False, True):
        assert seen.shape == (2 * N, *env.observation_space.shape)
        # A row has its features in the layout's order, energy queues of devices first; then their means.
        np.testing.assert_array_equal(seen[:, K : 2 * K], observation[:, speeds].reshape(2 * N, K))
        features, pool = np.split(seen.reshape(2, N, -1), 2, axis=-1)
        np.testing.assert_allclose(pool[:, 0], features.mean(axis=1), rtol=1e-5, atol=1e-6)
        actions = rng.uniform(-1, 1, (2, *whole.action_space.shape)).astype(np.float32)
        seen, rewards, done, infos = env.step(actions.reshape(2 * N, -1))
        observation, _, over, told = whole.step(actions)
        np.testing.assert_array_equal(rewards, whole.cluster_rewards().ravel())
        assert done.tolist() == [last] * (2 * N) == np.repeat(over, N).tolist()
    for number, info in enumerate(infos):
        expected = cut(told[number // N]["terminal_observation"][None])[number % N]
        np.testing.assert_array_equal(info["terminal_observation"], expected)
        assert info["TimeLimit.truncated"]


def test_the_table_holds_what_its_weights_do_with_their_states(run) -> None:
    result, folder = run
    assert [summary.title for summary in result.summaries] == ["Random", "RecurrentPPO", WIPED]
    model = RecurrentPPO.load(folder / "best.zip", device="cpu")
    states, rows = [None] * N, Rows(result.scenario)

    def decide(observation):
        actions = []
        for n, row in enumerate(rows(observation[None])):
            action, states[n] = model.predict(row, states[n], deterministic=True)
            actions.append(action)
        return np.concatenate(actions)

    delay, _ = example_support.played_by_hand(decide, scenario=result.scenario)
    assert result["RecurrentPPO"].delay_mean.mean == pytest.approx(delay, rel=1e-5)
    assert result[WIPED].delay_mean.mean != result["RecurrentPPO"].delay_mean.mean


def test_saved_runs_are_compared_without_training(run) -> None:
    result, folder = run
    before = (folder / "best.zip").stat().st_mtime_ns
    again = main(Args(runs=(folder,), episodes=1, against=("random",)))
    assert (folder / "best.zip").stat().st_mtime_ns == before
    title = f"RecurrentPPO {folder.name}"
    assert again[title].priced_delay == result["RecurrentPPO"].priced_delay


def test_the_best_version_is_kept(run) -> None:
    """It scores as the best validation did, with a state of its own for every episode and cluster."""
    _, folder = run
    history = [score["priced_delay"] for score in json.loads((folder / "validations.json").read_text())]
    assert len(set(history)) > 1
    model = RecurrentPPO.load(folder / "best.zip", device="cpu")
    env, rows = Validator(SCENARIO, 1).env, Rows(SCENARIO)
    observation, _ = env.reset(seed=VALIDATION_SEED)
    state, total = None, 0.0
    for _ in range(SCENARIO.dynamics.rounds):
        action, state = model.predict(rows(observation), state, deterministic=True)
        observation, reward, *_ = env.step(np.clip(action, -1, 1).reshape(1, -1))
        total += reward[0]
    priced = -total * env.reference_delay / SCENARIO.dynamics.rounds
    assert priced == pytest.approx(min(history), rel=1e-5)


def test_a_wiped_state_makes_every_round_the_first(run) -> None:
    _, folder = run
    model = RecurrentPPO.load(folder / "best.zip", device="cpu")
    remembering, forgetful = (
        PolicyScheduler(ClusterMemory(model, SCENARIO, forgetful=wiped)) for wiped in (False, True)
    )
    rng = np.random.default_rng(0)
    shape = remembering._policy.observation_space.shape
    first, second = rng.uniform(0, 1, (2, 3, *shape)).astype(np.float32)
    for scheduler in (remembering, forgetful):
        scheduler.reset(0)
    begun = remembering.act(first, None)
    assert begun == pytest.approx(forgetful.act(first, None))
    later = remembering.act(second, None)
    assert not np.allclose(later, forgetful.act(second, None), atol=1e-6)
    remembering.reset(0)
    assert remembering.act(second, None) == pytest.approx(forgetful.act(second, None))
