"""``collapipe scenario``: what is shown is a scenario again, what is checked and compared is all said."""

from pathlib import Path

import pytest

from collapipe_env.cli.main import main
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.feasibility import energy_feasibility
from collapipe_env.scenario import load_scenario, scenario_names
from collapipe_env.scenario.plain_data import parse
from collapipe_env.simulator.build import node_budgets, reference_delay

HOPELESS = "name: hopeless\nbase: small\nbudgets: {cu_energy_j: 1.0e-9, device_energy_j: 1.0e-9}\n"


def run(*arguments: object) -> int:
    return main(["scenario", *map(str, arguments)])


@pytest.mark.parametrize("name", scenario_names())
def test_what_is_shown_is_the_same_scenario(name: str, tmp_path: Path, capsys) -> None:
    assert run("show", name) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    (tmp_path / "mine.yaml").write_text(captured.out)
    assert load_scenario(tmp_path / "mine.yaml") == load_scenario(name)


def test_a_file_is_shown_with_all_that_it_leaves_to_its_base(tmp_path: Path, capsys) -> None:
    file = tmp_path / "odd name.yaml"
    file.write_text("base: medium\nname: 'yes'\ncluster: {clusters: 3, devices: [4, 6, 5]}\n")
    assert run("show", file, "--task", "ner") == 0
    (tmp_path / "mine.yaml").write_text(capsys.readouterr().out)
    assert load_scenario(tmp_path / "mine.yaml") == load_scenario(file).with_task("ner")


def test_check_prints_the_sizes_of_the_environment(tmp_path: Path, capsys) -> None:
    file = tmp_path / "mine.yaml"
    text = "base: medium\ncluster: {clusters: 3, devices: [4, 6, 5]}\n"
    file.write_text(text + "dynamics: {processes: {migration: {}}}\n")  # which the observation shows
    assert run("check", file) == 0
    output = capsys.readouterr().out
    env = CollaPipeVectorEnv(1, load_scenario(file), "surrogate")
    lines = {" ".join(line.split()) for line in output.splitlines()}
    for expected in (
        "scenario 'mine' is valid",
        "clusters 3",
        "devices 15, 4 to 6 in a cluster",
        f"observation {env.single_observation_space.shape[0]} numbers",
        f"action {env.single_action_space.shape[0]} numbers",
        "energy budgets can be met in all 64 sampled episodes",
    ):
        assert expected in lines
    assert output.count("can be met") == 1


def rows_of(output: str) -> list[list[str]]:
    """Cells of the table of least energies; names of nodes as one cell."""
    lines = (line.replace("device ", "device-").split() for line in output.splitlines())
    return [cells for cells in lines if len(cells) == 8 and cells[0].isdecimal()]


def test_check_has_a_row_for_each_kind_of_node_of_a_cluster(tmp_path: Path, capsys) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("base: small\nname: mine\nbudgets: {device_energy_j: 4.0, cu_energy_j: 5.0}\n")
    assert run("check", file) == 1
    output = capsys.readouterr().out
    assert max(map(len, output.splitlines())) <= 80
    report = energy_feasibility(load_scenario(file))
    rows = rows_of(output)
    assert [(row[0], row[1].partition("-")[0]) for row in rows] == [
        (cluster, kind) for cluster in "01" for kind in ("CU", "device")
    ]
    for cells, (_, node, typical, worst, over) in zip(rows, report.of_kinds(), strict=True):
        budget = 4.0 if node else 5.0
        assert [float(cell) for cell in (*cells[2:5], cells[7])] == pytest.approx(
            [typical * budget, worst * budget, budget, over], rel=5e-3
        )
        assert float(cells[5]) == pytest.approx(100.0 * (1.0 - worst), abs=0.5)
    assert "device-" in rows[1][1]


def test_show_says_the_budgets_of_a_tightness(tmp_path: Path, capsys) -> None:
    file = tmp_path / "tight.yaml"
    file.write_text("base: small\nbudgets: {tightness: 0.4}\n")
    assert run("show", file) == 0
    text = capsys.readouterr().out
    device, cu = node_budgets(load_scenario(file))
    assert text.startswith(f"# budgets of tightness 0.4: device_energy_j: {device:g}, cu_energy_j: {cu:g}\n")
    file.write_text(text)
    assert load_scenario(file).budgets.tightness == 0.4


def test_suggest_prints_tables_and_budgets_to_paste(capsys) -> None:
    assert run("suggest", "small", "--tightness", "1", "--rounds", "4") == 0
    output = capsys.readouterr().out
    assert max(map(len, output.splitlines())) <= 80
    scenario = load_scenario("small")
    assert output.startswith(f"scenario 'small': T_ref = {reference_delay(scenario):.4g} s\n")
    lines = [" ".join(line.split()) for line in output.splitlines()]
    assert any(line.startswith("compute ") for line in lines)
    pasted = output[output.index("budgets:\n") :].partition("\n\n")[0]
    tight = scenario.with_overrides({"budgets.tightness": 1.0})
    assert node_budgets(load_scenario({"base": "small", **parse(pasted, "output")})) == node_budgets(tight)
    assert "warning: " in output or "no warnings: " in output


def test_check_tells_budgets_that_cannot_be_met_by_its_status(tmp_path: Path, capsys) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(HOPELESS)
    assert run("check", file) == 1
    captured = capsys.readouterr()
    assert "scenario 'hopeless' is valid" in captured.out
    assert "energy budgets cannot be met in 64 of 64 sampled episodes (100 %)" in captured.out
    assert captured.out.count("cannot be met") == 1


def test_differences_are_named_with_both_values(tmp_path: Path, capsys) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "base: small\nname: small\nradio: {diversity: 7}\ndynamics: {target_loss: 0.5}\n"
        "devices: {profiles: [{name: mobile, switched_capacitance: 1.0e-27, flops_per_cycle: 8}]}\n"
    )
    assert run("diff", "small", file) == 0
    header, *lines = (tuple(line.split()) for line in capsys.readouterr().out.splitlines())
    assert header == ("field", "small", str(file))
    # All other fields of the one profile are those that a profile has by default.
    assert sorted(lines) == [
        ("devices.profiles.0.flops_per_cycle", "16.0", "8.0"),
        ("dynamics.target_loss", "None", "0.5"),
        ("radio.diversity", "4", "7"),
    ]


def test_equal_scenarios_have_no_differences(capsys) -> None:
    assert run("diff", "medium", "medium") == 0
    assert capsys.readouterr().out == "no differences\n"
