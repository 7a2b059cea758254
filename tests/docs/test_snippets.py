"""Code of the tutorials and how-to pages runs as it stands there, only shorter."""

import pages_support as support
import pytest

from collapipe_env.cli import train
from collapipe_env.dynamics import PROCESSES
from collapipe_env.envs.rewards import REWARDS
from collapipe_env.learners.factory import LEARNERS
from collapipe_env.scenario import task_registry
from collapipe_env.scenario.names import SCENARIOS

EPISODES = ("seeds=3", "seeds=1, rounds=2")
FIVE_EPISODES = ("seeds=5", "seeds=1, rounds=2")
FEWER_EPISODES = ("seeds=2", "seeds=1, rounds=2")
SHORTER = {
    "first_minutes": (FIVE_EPISODES,),
    "tutorial_environment": (("num_envs=64", "num_envs=4"),),
    "tutorial_scheduler": (EPISODES,),
    "tutorial_training": (
        ("100_000", "1"),
        ("num_envs=64", "num_envs=2"),
        ("n_steps=16, batch_size=256", "n_steps=4, batch_size=8"),
        EPISODES,
    ),
    "tutorial_target": (FEWER_EPISODES,),
    "tutorial_failures": (FEWER_EPISODES,),
    "how_to_scenario": (),
    "how_to_reward": (),
    "how_to_task": (("rounds=60", "rounds=2"),),
    "how_to_process": (),
    "how_to_learner": (),
    "dynamics": (),
    "channel_knowledge": (),
    "traces": (),
    "reference": (),
    "rl_libraries": (
        ("200_000", "1"),
        ("num_envs=64", "num_envs=2"),
        ("n_steps=32", "n_steps=4"),
        ("512", "8"),
        ("seeds=5", "seeds=1, rounds=3"),
    ),
}
"""Pages whose code runs, and what stands in place of texts of theirs."""

EXPECTED = {
    "first_minutes": ("mean_delay", "PipeLine"),
    "tutorial_environment": ("2 clusters, 3 devices each, 100 rounds", "best of sixteen", "(4,)"),
    "tutorial_scheduler": ("by speed and queue",),
    "tutorial_training": ("my PPO", "PipeLine"),
    "tutorial_target": ("participation", "local_steps"),
    "tutorial_failures": ("device that failed", "\ndrop-round "),
    "how_to_scenario": ("three_clusters 3",),
    "how_to_reward": ("(8,)",),
    "how_to_task": ("small_majority: 1 held-out episode of 2 rounds, real learner", "50.0 %"),
    "how_to_process": ("delay",),
    "dynamics": ("['heat', 'mobility']",),
    "traces": ("driving-0 dBm 1800.0 -",),
    "reference": ("PolicyScheduler",),
    "rl_libraries": ("small: 1 held-out episode of 3 rounds", "my PPO"),
}
"""What the page's code prints, among other things."""


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch, tmp_path):
    """Names that pages register, and files that they write, are theirs alone; nobody is trained."""
    for registry in (REWARDS, LEARNERS, PROCESSES, SCENARIOS, task_registry.TASKS):
        monkeypatch.setattr(registry, "_added", {})
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(train.Job, "run", lambda job: print("would train", job._scenario.name))


@pytest.mark.parametrize("name", SHORTER)
def test_the_code_of_a_page_runs(name, tmp_path, capsys):
    support.run_page(support.DOCS / f"{name}.md", tmp_path, SHORTER[name], without={"execute"})
    printed = capsys.readouterr().out
    for text in EXPECTED.get(name, ()):
        assert text in printed


@pytest.mark.slow
def test_the_execution_of_the_failure_tutorial(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(support.ROOT))  # for the processes, which start in another folder
    (command,) = support.run_page(
        support.DOCS / "tutorial_failures.md", tmp_path, SHORTER["tutorial_failures"]
    )
    assert command[0] == "execute"
    assert "c0d1" in capsys.readouterr().out
