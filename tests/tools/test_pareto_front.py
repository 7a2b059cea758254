"""The front of delay and energy: what is dominated, what a point holds, and its table and picture."""

import itertools

import make_pareto_front as tool
import numpy as np
import pytest

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.scenario import load_scenario


def test_the_front_is_what_nothing_dominates():
    rng = np.random.default_rng(0)
    vectors = rng.integers(0, 5, (40, 3)).astype(float)  # with ties and twins
    front = tool.on_the_front(vectors)
    for index, vector in enumerate(vectors.tolist()):
        beaten = any(
            all(a >= b for a, b in zip(other, vector, strict=True)) and other != vector
            for other in vectors.tolist()
        )
        assert front[index] == (not beaten)
    assert 0 < front.sum() < 40


def test_a_point_is_the_mean_of_single_episodes():
    scenario = load_scenario({"base": "small", "dynamics": {"rounds": 3}})
    env = tool.MultiObjectiveVectorEnv(2, scenario, learner="surrogate", autoreset_mode="Disabled")
    scheduler = DSSRA(scenario, tradeoff_v=30.0)
    point = tool.play(env, scheduler, "a name", 2.0)
    delays, excess = [], []
    for seed in range(2):
        single = CollaPipeEnv(scenario=scenario, learner="surrogate")
        single.reset(seed=seed)
        for _ in range(3):
            *_, info = single.step_allocation(scheduler.allocate(single.state))
            delays.append(info["delay"])
            excess.append(info["cost"])
    assert point.delay == pytest.approx(np.mean(delays))
    assert point.vector[0] == pytest.approx(-sum(delays) / 2 / single.reference_delay)
    assert point.vector[1] == pytest.approx(-sum(excess) / 2)
    assert (point.name, point.factor, point.rounds) == ("a name", 2.0, 3)


@pytest.mark.slow
def test_more_v_is_faster_and_takes_more_energy(tmp_path, monkeypatch, capsys):
    found, drawn = {}, tool.draw
    monkeypatch.setattr(tool, "draw", lambda points: found.update(points) or drawn(points))
    tool.main(tool.Options(("small",), (0.02, 1.0, 50.0), 1, tmp_path))
    assert str(tmp_path / "pareto.md") in capsys.readouterr().out
    assert (tmp_path / "pareto.png").read_bytes().startswith(b"\x89PNG")
    walked = [point for point in found["small"] if point.factor is not None]
    for slow, fast in itertools.pairwise(walked):
        assert fast.vector[0] > slow.vector[0]
        assert fast.vector[1] < slow.vector[1]
    rows = (tmp_path / "pareto.md").read_text().strip().splitlines()[4:]
    assert [row.split(" | ")[-1] for row in rows] == ["yes |"] * 4 + ["no |"]  # random plans
