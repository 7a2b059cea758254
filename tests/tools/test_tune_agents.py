"""The random search of hyper-parameters: what is drawn, kept, gone on with, and written."""

import csv
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import generated_parts
import tune_agents

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.agents.learned.hyperparameters import PARAMETERS, check_parameters
from collapipe_env.agents.learned.validation import VALIDATION_SEED, Score
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.scenario import load_scenario

DSSRA_SCORE = Score(0, 0.0, 8.5, mean_delay=8.0, energy_ratio=1.01, backlog=2.0, objective=8.5)


@pytest.fixture
def played(monkeypatch, tmp_path):
    """Trials whose scores follow from their values; returns the numbers of those that were trained."""
    trials = []

    def trained(options, scenario, trial):
        assert scenario.name == "small"
        trials.append(trial)
        rate = tune_agents.parameters_of(options, trial).learning_rate
        return 60.0, Score(40, 5.0, 10.0 - 100.0 * rate, 9.5, 1.02, 3.0, 10.0 - 100.0 * rate)

    page = tmp_path / "learned_agents.md"
    marks = [
        f"{generated_parts.BEGIN.format(part)}\nold\n{generated_parts.END.format(part)}"
        for part in ("tuning ppo", "tuning ppo command")
    ]
    page.write_text("\n".join(["Words before", *marks, ""]))
    monkeypatch.setattr(tune_agents, "trained", trained)
    monkeypatch.setattr(tune_agents, "reference", lambda _: DSSRA_SCORE)
    monkeypatch.setattr(tune_agents, "PAGE", page)
    return trials


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "trials.csv").open() as file:
        return list(csv.DictReader(file))


def test_every_trial_is_kept_and_none_is_repeated(played, tmp_path):
    arguments = ["--scenario", "small", "--work", str(tmp_path / "work")]
    folder = tmp_path / "work" / "small-ppo-0"
    assert tune_agents.main([*arguments, "--trials", "3"]) == 0
    first = rows(folder)
    assert tune_agents.main([*arguments, "--trials", "5"]) == 0
    assert played == [0, 1, 2, 3, 4]
    assert rows(folder)[:3] == first
    assert [row["trial"] for row in rows(folder)] == list("01234")
    text = tune_agents.PAGE.read_text()
    assert "python tools/tune_agents.py --scenario small" in text
    assert "--trials 5" in text
    # The best comes first, with its priced delay beside DSSRA's.
    table = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(table) == 5
    delays = [float(line[-4]) for line in table]
    assert delays == sorted(delays)
    assert float(table[0][-3]) == pytest.approx(100.0 * (delays[0] / 8.5 - 1.0), abs=0.01)


def test_a_folder_of_another_search_is_refused(played, tmp_path, capsys):
    arguments = ["--scenario", "small", "--work", str(tmp_path), "--trials", "1", "--no-page"]
    assert tune_agents.main(arguments) == 0
    assert tune_agents.main([*arguments, "--seed", "1"]) == 2
    assert "trial 0 has seed = 0, this search has 1: choose another --work" in capsys.readouterr().err
    path = tmp_path / "small-ppo-0" / "trials.csv"
    path.write_text("trial,priced_delay_s\n0,x\n")
    assert tune_agents.main(arguments) == 2
    assert "is not a table of trials" in capsys.readouterr().err
    assert played == [0]


@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_drawn_values_are_the_algorithms_and_in_range(algorithm):
    drawn = [tune_agents.drawn(algorithm, 0, trial) for trial in range(30)]
    assert drawn == [tune_agents.drawn(algorithm, 0, trial) for trial in range(30)]
    assert drawn[1:] != [tune_agents.drawn(algorithm, 1, trial) for trial in range(1, 30)]
    for values in drawn:
        check_parameters(PARAMETERS[algorithm](**values), "")
    for name, choices in tune_agents.SPACE[algorithm].items():
        assert {values[name] for values in drawn[1:]} == set(choices)


def test_a_trial_really_trains_and_goes_on_after_an_interruption(tmp_path, monkeypatch):
    options = tune_agents.Options(scenario="small", trials=1, steps=256, envs=2, work=tmp_path)
    scenario = load_scenario({"base": "small", "dynamics": {"rounds": 5}})
    saved = tune_agents.TrainingFiles(options.folder / "trial-0").latest
    real = tune_agents.train

    def interrupted(plan, files, say):
        lines = []

        def stop(line):
            say(line)
            lines.append(line)
            if len(lines) == 2:
                raise KeyboardInterrupt

        return real(plan, files, stop)

    monkeypatch.setattr(tune_agents, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tune_agents.trained(options, scenario, 0)
    assert saved.exists()
    monkeypatch.setattr(tune_agents, "train", real)
    seconds, score = tune_agents.trained(options, scenario, 0)
    assert seconds > 0.0
    assert 0 < score.steps <= 256


def test_reference_is_dssra_on_the_validation_episodes():
    scenario = load_scenario({"base": "small", "dynamics": {"rounds": 4}})
    env = CollaPipeVectorEnv(16, scenario, "surrogate", autoreset_mode="Disabled")
    env.reset(seed=VALIDATION_SEED)
    dssra, delay = DSSRA(scenario), 0.0
    for _ in range(4):
        env.step_allocation(dssra.allocate(env.state))
        delay += env.last_round.costs.delay.mean() / 4
    assert tune_agents.reference(scenario).mean_delay == pytest.approx(delay, rel=1e-5)
