"""The table of trainings: each one's mean over episodes, relative to DSSRA in the same episode."""

import numpy as np
from studies import trainings as study

from collapipe_env import evaluate


def test_single_trainings_are_compared_episode_by_episode(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "KEPT", tmp_path)
    files = ["zoo:graph", "zoo:graph-llm"]
    entry = {"episodes": 2, "rounds": 3, "trainings": {"small graph": files}}
    *_, row = study.table(entry, quick=False).splitlines()
    alone = evaluate(["dssra", *files], "small", seeds=2, rounds=3)
    delays = {name: np.array([one.priced_delay for one in each]) for name, each in alone.episodes.items()}
    each = [100.0 * np.mean(delays[name] / delays["dssra"] - 1.0) for name in files]
    assert f"| `small` | graph | 30,000 | 2 | {np.mean(each):+.1f} (" in row
    assert f"| {min(each):+.1f} to {max(each):+.1f} |" in row
