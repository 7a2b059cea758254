"""The table and picture of trainings under uncertainty: pooled runs, validated schedulers, the page."""

import make_uncertain_table as tool
import numpy as np
import pytest
import recurrent_ppo

from collapipe_env import PolicyScheduler, evaluate, load_scenario
from collapipe_env.agents.learned.validation import VALIDATION_SEED
from collapipe_env.cli.main import main
from collapipe_env.envs.env import CollaPipeEnv

NAME = "small-stale"


def test_schedulers_are_validated_on_the_trainings_own_episodes(tmp_path) -> None:
    file = tmp_path / "short.yaml"
    file.write_text(f"base: {NAME}\nname: short\ndynamics: {{rounds: 3}}\n")
    scenario = load_scenario(file)
    env, scheduler = CollaPipeEnv(scenario, "surrogate"), tool.make_scheduler("pipeline", scenario)
    priced = []
    for episode in range(16):
        env.reset(seed=VALIDATION_SEED + episode)
        total = sum(env.step_allocation(scheduler.allocate(env.state))[1] for _ in range(3))
        priced.append(-total * env.reference_delay / 3)
    found = tool.validated(tool.Options(work=tmp_path), str(file), "pipeline")
    assert found == pytest.approx(np.mean(priced))


@pytest.mark.slow
def test_runs_share_a_row_and_the_picture_is_drawn(tmp_path, capsys) -> None:
    tiny = {"envs": 4, "rollout": 8, "minibatch": 16, "hidden": 8, "validation_episodes": 1, "episodes": 1}
    train = ["train", "--scenario", NAME, "--steps", "64", "--envs", "4", "--ppo.rollout-steps", "8"]
    short = ["--learner", "surrogate", "--schedulers", "agent", "--episodes", "1", "--rounds", "2"]
    for seed in range(2):
        out = tmp_path / f"{NAME}-recurrent-seed{seed}"
        recurrent_ppo.main(
            recurrent_ppo.Args(NAME, steps=64, seed=seed, out=out, against=("pipeline",), **tiny)
        )
        out = tmp_path / f"{NAME}-ppo-seed{seed}"
        given = [*train, "--seed", str(seed), *short, "--processes", "1", "--no-figures", "--out", str(out)]
        assert main(given) == 0
    sizes = ["--seeds", "2", "--episodes", "2", "--rounds", "4", "--steps", "64"]
    given = ["--scenarios", NAME, "--plain", NAME, "--work", str(tmp_path), *sizes, "--no-page"]
    capsys.readouterr()
    assert tool.main([*given, "--against", "pipeline", "dssra-plus"]) == 0
    shown = capsys.readouterr().out
    assert (tmp_path / "uncertain.png").stat().st_size > 10_000

    scenario, alone = load_scenario(NAME), []
    for seed in range(2):
        model = tool.RecurrentPPO.load(tmp_path / f"{NAME}-recurrent-seed{seed}" / "best.zip", device="cpu")
        player = PolicyScheduler(recurrent_ppo.ClusterMemory(model, scenario), name="own")
        result = evaluate(["dssra-plus", player], scenario, seeds=2, rounds=4)
        alone.append([result["own"].priced_delay.mean, 100.0 * result["own"].energy_excess.mean])
    delay, energy = np.mean(alone, axis=0)
    (row,) = [line for line in shown.splitlines() if "| RecurrentPPO, cluster policy |" in line]
    assert f"| 2 | {delay:.2f} (" in row
    assert row.endswith(f"| {energy:+.1f} |")


def test_the_page_holds_a_row_for_each_scheduler_and_the_commands_of_the_trainings() -> None:
    text = tool.PAGE.read_text(encoding="utf-8")
    part = text.partition("<!-- generated: uncertain -->")[2].partition("<!-- end of generated")[0]
    for scenario in tool.Options().scenarios:
        titles = [line.split("|")[2].strip() for line in part.splitlines() if f"| `{scenario}` |" in line]
        assert titles == [title for title in tool.TITLES.values() if title in titles]
        assert len(titles) >= len(tool.TITLES) - 1
    assert f"--steps {tool.Options().steps}" in text
    assert f"(images/{tool.PICTURE.name})" in text
    assert tool.PICTURE.is_file()
