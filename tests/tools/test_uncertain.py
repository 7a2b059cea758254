"""The table of trainings under uncertainty: pooled runs, and the page."""

import numpy as np
import pytest
import recurrent_ppo
from studies import uncertain as tool

import docs
from collapipe_env import PolicyScheduler, evaluate, load_scenario
from collapipe_env.cli.main import main

NAME = "small-stale"


@pytest.mark.slow
def test_runs_share_a_row(tmp_path) -> None:
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
    entry = {"scenarios": [NAME], "against": ["pipeline", "dssra-plus"], "work": str(tmp_path)}
    sizes = {"seeds": 2, "episodes": 2, "rounds": 4, "steps": 64}
    shown = tool.study(entry | sizes, False)

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
    text = (docs.DOCS / "learned_agents.md").read_text(encoding="utf-8")
    part = text.partition("<!-- generated: uncertain -->")[2].partition("<!-- end of generated")[0]
    entry = docs.entries()["learned_agents/uncertain"]
    assert f"--steps {entry['steps']}" in text
    for scenario in entry["scenarios"]:
        titles = [line.split("|")[2].strip() for line in part.splitlines() if f"| `{scenario}` |" in line]
        assert titles == list(tool.TITLES.values())
