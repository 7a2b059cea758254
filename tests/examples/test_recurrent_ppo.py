"""RecurrentPPO: played with its state through the scheduler's interface, on the scenario with a memory."""

import example_support
import numpy as np
import pytest
from recurrent_ppo import Args, Forgetful, main
from sb3_contrib import RecurrentPPO

from collapipe_env import PolicyScheduler

WIPED = "RecurrentPPO, state wiped"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A tiny training with its folder."""
    folder = tmp_path_factory.mktemp("recurrent")
    options = {"envs": 4, "rollout": 8, "minibatch": 16, "hidden": 8, "episodes": 1, "against": ("random",)}
    return main(Args(steps=64, out=folder, **options)), folder


def test_the_table_holds_what_its_weights_do_with_their_state(run) -> None:
    result, folder = run
    assert [summary.title for summary in result.summaries] == ["Random", "PPO", "RecurrentPPO", WIPED]
    assert result.scenario.radio.fading_correlation == 0.9
    model = RecurrentPPO.load(folder / "RecurrentPPO.zip", device="cpu")
    memory = {"state": None, "start": True}

    def decide(observation):
        starts = np.array([memory["start"]])
        action, memory["state"] = model.predict(
            observation[None], memory["state"], starts, deterministic=True
        )
        memory["start"] = False
        return action[0]

    delay, worst = example_support.played_by_hand(decide, scenario=result.scenario)
    assert result["RecurrentPPO"].delay_mean.mean == pytest.approx(delay)
    assert result["RecurrentPPO"].energy_excess.mean == pytest.approx(worst - 1.0)
    assert result[WIPED].delay_mean.mean != result["RecurrentPPO"].delay_mean.mean


def test_a_wiped_state_makes_every_round_the_first(run) -> None:
    _, folder = run
    model = RecurrentPPO.load(folder / "RecurrentPPO.zip", device="cpu")
    remembering, forgetful = PolicyScheduler(model), PolicyScheduler(Forgetful(model))
    rng = np.random.default_rng(0)
    first, second = rng.uniform(-1, 1, (2, 3, *model.observation_space.shape)).astype(np.float32)
    for scheduler in (remembering, forgetful):
        scheduler.reset(0)
    begun = remembering.act(first, None)
    assert begun == pytest.approx(forgetful.act(first, None))
    later = remembering.act(second, None)
    assert not np.allclose(later, forgetful.act(second, None), atol=1e-6)
    remembering.reset(0)
    assert remembering.act(second, None) == pytest.approx(forgetful.act(second, None))
