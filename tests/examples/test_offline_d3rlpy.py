"""Offline learning: what is read from a set, and a table of what its weights do, where d3rlpy is there."""

import sys

import example_support
import numpy as np
import pytest
from offline_d3rlpy import Args, load, main

sys.path.insert(0, str(example_support.ROOT / "tools"))
import make_minari_sets as tool

# What the libraries warn of is not ours to mend.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def minari():
    pytest.importorskip("jax", reason="Minari needs JAX to record")
    pytest.importorskip("h5py", reason="Minari needs h5py to store")
    return pytest.importorskip("minari", reason="Minari is not installed")


@pytest.fixture(scope="module")
def folder(minari, tmp_path_factory):
    """Two tiny sets with their card."""
    out = tmp_path_factory.mktemp("sets")
    options = tool.Options(out=out, scenarios=("small",), schedulers=("dssra", "random"), episodes=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", str(out))  # put back afterwards
        tool.run(options)
        yield out


def test_a_set_holds_what_its_scheduler_did(minari, folder):
    dataset = minari.load_dataset("collapipe/small/dssra-v0")
    env = dataset.recover_environment()
    for number, episode in enumerate(dataset.iterate_episodes()):
        observation, info = env.reset(seed=tool.FIRST_SEED + number)
        assert np.array_equal(observation, episode.observations[0])
        scheduler = tool.scheduler_of("dssra", "small", {})
        for round_, action in enumerate(episode.actions[:10]):
            plan = scheduler.allocate(env.unwrapped.state)
            observation, reward, _, _, info = env.step(action)
            played = env.unwrapped.last_round.allocation
            assert np.array_equal(played.blocks, plan.blocks)
            np.testing.assert_allclose(played.device_power, plan.device_power, rtol=1e-5)
            assert np.array_equal(observation, episode.observations[round_ + 1])
            assert reward == pytest.approx(episode.rewards[round_])
            assert info["delay"] == episode.infos["delay"][round_ + 1]
    assert dataset.total_steps == 200


def test_the_card_names_sets_and_checksums_and_a_rerun_keeps_them(minari, folder, capsys):
    text = (folder / "README.md").read_text()
    for name in ("dssra", "random"):
        dataset = minari.load_dataset(f"collapipe/small/{name}-v0")
        assert f"| `{dataset.id}` | 2 | 200 |" in text
        assert tool.digest(dataset) in text
    assert tool.digest(minari.load_dataset("collapipe/small/dssra-v0")) not in (
        tool.digest(minari.load_dataset("collapipe/small/random-v0")),
    )
    options = tool.Options(out=folder, scenarios=("small",), schedulers=("dssra", "random"), episodes=2)
    tool.run(options)
    assert capsys.readouterr().out.count("already exists") == 2
    assert (folder / "README.md").read_text() == text
    with pytest.raises(tool.ScenarioError, match="has 2 episodes, not 3"):
        tool.run(tool.Options(out=folder, scenarios=("small",), schedulers=("dssra",), episodes=3))


def test_ppo_needs_an_agent_of_the_scenario():
    assert tool.scheduler_of("ppo", "small-wild", {}) is None
    assert tool.scheduler_of("ppo", "small", {}).name == "small-ppo"
    with pytest.raises(tool.ScenarioError, match="give it as SCENARIO=FILE"):
        tool.given_agents(tool.Options(ppo=("best.zip",)))


@pytest.mark.parametrize("algorithm", ["bc", "iql", "td3_bc"])
def test_the_table_holds_what_was_learned(algorithm, folder, tmp_path, capsys):
    pytest.importorskip("d3rlpy", reason="d3rlpy is not installed")
    args = Args(
        algorithm, folder, sets=("dssra", "random"), steps=3, minibatch=8, hidden=8, episodes=1, rounds=3,
        against=("random",), out=tmp_path,
    )  # fmt: skip
    assert load(args).transition_count == 396  # the last of a cut episode has no successor
    result = main(args)
    assert [summary.title for summary in result.summaries][1:] == [
        f"{algorithm.upper()} from dssra and random"
    ]
    assert (tmp_path / f"{algorithm}.pt").exists()
    assert "weights: " in capsys.readouterr().out
