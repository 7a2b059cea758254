"""Calibration: the fit finds constants again, and the profile brings the simulator to them."""

import json
import sys
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collapipe_env.cli.main import main
from collapipe_env.execution.calibration_fit import Constants, fit
from collapipe_env.execution.calibration_profile import (
    calibrated,
    checked_plans,
    merged,
    predicted_steps,
    worst,
)
from collapipe_env.execution.calibration_rounds import (
    CalibrationError,
    CalibrationPlan,
    FixedPlans,
    Measured,
    calibration_plans,
    read_round,
    setting_of,
)
from collapipe_env.execution.planned_rounds import PlannedRounds
from collapipe_env.execution.round_reports import Recorded
from collapipe_env.execution.script_replay import replayed_step
from collapipe_env.ground.files import write_json
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters

BASE = load_scenario("small")
SETTING = setting_of(BASE, 2)
COSTS = system_parameters(SETTING).costs
KNOWN = Constants(
    flops=2e10,
    block_s=2e-3,
    rate=5e9,
    message_s=0.0,
    latency_s=1.5e-3,
    edge_rate=4e9,
    edge_latency_s=3e-3,
    server_flops=1e9,
    server_s=4e-4,
)
DIRECTIONS = {"forward": 0, "backward": 1}


def machine(constants):
    """The simulator's scenario of a machine with known constants."""
    return merged(BASE, calibrated(BASE, "known", SETTING, constants))


def simulated(scenario, plans, noise=0.0, seed=0, repeats=1):
    """Rounds as a machine would measure them whose law is the simulator's."""
    rng = np.random.default_rng(seed)
    rounds = []
    for plan in plans:
        script = PlannedRounds(scenario, FixedPlans(scenario, [plan]), 0).next().script.clusters[0]
        step, events = replayed_step(script)
        samples = SETTING.workload.batch_size // plan.micro_batches
        last = 2 * len(plan.blocks) + 1
        for _ in range(repeats):
            recorded, slow = [], float(np.exp(noise * rng.standard_normal()))
            for e in events:
                latency = script.edge_latency_s if e.element == last else script.latency_s
                message = e.element == last or (e.element % 2 == 0 and e.element < last)
                there = e.end_s + latency if message else 0.0
                times = [slow * t for t in (e.start_s, e.end_s, e.end_s, 0.0, e.start_s, there)]
                place = 0, 0, e.element, e.micro_batch, DIRECTIONS[e.direction], 0
                recorded.append(Recorded(*place, *times, samples=samples))
            rounds.append(Measured(plan, step, 0.0, tuple(recorded)))
    return rounds


def fitted_plans():
    return [plan for plan in calibration_plans(SETTING) if plan.fitted]


def test_plans_that_check_are_not_those_that_are_fitted_to():
    for devices in (2, 3, 4):
        plans = calibration_plans(setting_of(BASE, devices))
        fitted = {(p.blocks, p.schedule, p.micro_batches) for p in plans if p.fitted}
        checked = {(p.blocks, p.schedule, p.micro_batches) for p in plans if not p.fitted}
        assert len(fitted) >= 4
        assert len(checked) >= 4
        assert not fitted & checked
        assert all(sum(p.blocks) == 6 and min(p.blocks) > 0 and len(p.blocks) == devices for p in plans)
        assert {blocks for blocks, *_ in checked} - {blocks for blocks, *_ in fitted}


def test_the_fit_finds_the_constants_of_a_machine_again():
    found = fit(simulated(machine(KNOWN), fitted_plans()[::2]), COSTS)
    assert found.flops == pytest.approx(KNOWN.flops, rel=1e-6)
    assert found.block_s == pytest.approx(KNOWN.block_s, rel=1e-6)
    assert found.rate == pytest.approx(KNOWN.rate, rel=1e-6)
    assert found.message_s + found.latency_s == pytest.approx(KNOWN.latency_s, rel=1e-6)
    assert found.server_s == pytest.approx(KNOWN.server_s, rel=1e-6)
    assert found.server_flops == pytest.approx(KNOWN.server_flops, rel=1e-6)


@pytest.mark.parametrize("direction", DIRECTIONS.values(), ids=DIRECTIONS)
def test_either_way_to_the_server_tells_its_constants(direction):
    rounds = []
    for one in simulated(machine(KNOWN), fitted_plans()[:4:2]):
        edge = 2 * len(one.plan.blocks) + 1
        kept = tuple(e for e in one.events if e.element != edge or e.direction == direction)
        rounds.append(Measured(one.plan, one.step_s, 0.0, kept))
    found = fit(rounds, COSTS)
    assert found.edge_rate == pytest.approx(KNOWN.edge_rate, rel=1e-3)
    assert found.edge_latency_s == pytest.approx(KNOWN.edge_latency_s, rel=1e-3)


@settings(max_examples=3, deadline=None)
@given(
    flops=st.floats(1e9, 1e12),
    block_s=st.floats(1e-5, 2e-2),
    rate=st.floats(1e8, 1e11),
    latency_s=st.floats(1e-4, 2e-2),
)
def test_any_constants_are_found_again(flops, block_s, rate, latency_s):
    known = replace(KNOWN, flops=flops, block_s=block_s, rate=rate, latency_s=latency_s)
    found = fit(simulated(machine(known), fitted_plans()[:3]), COSTS)
    assert found.flops == pytest.approx(flops, rel=1e-4)
    assert found.block_s == pytest.approx(block_s, rel=1e-3)
    assert found.rate == pytest.approx(rate, rel=1e-3)
    assert found.message_s + found.latency_s == pytest.approx(latency_s, rel=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_rounds_that_are_a_tenth_off_move_the_constants_little(seed):
    rounds = simulated(machine(KNOWN), fitted_plans(), noise=0.1, seed=seed, repeats=3)
    found = fit(rounds, COSTS)
    assert found.flops == pytest.approx(KNOWN.flops, rel=0.05)
    assert found.block_s == pytest.approx(KNOWN.block_s, rel=0.5)
    predicted = predicted_steps(machine(found), [one.plan for one in rounds[:3]])
    assert predicted == pytest.approx([one.step_s for one in rounds[:3]], rel=0.05)


def test_the_profile_brings_the_simulator_to_the_machine():
    plans = calibration_plans(SETTING)
    rounds = simulated(machine(KNOWN), plans)
    found = fit([one for one in rounds if one.plan.fitted], COSTS)
    sections = calibrated(BASE, "again", SETTING, found)
    again = load_scenario({"base": "small", **sections})
    assert again.name == "again"
    assert again.devices.profiles[0].flops_per_cycle == pytest.approx(KNOWN.flops / 1e9, rel=1e-6)
    checked = checked_plans(rounds, again)
    assert len(checked) == len(plans)
    # All but the queue at the uplink, which is taken for a part of its messages, is the law itself.
    assert abs(worst(checked, fitted=True)) < 0.02
    assert abs(worst(checked, fitted=False)) < 0.02


def test_edge_rates_of_the_profile_are_those_of_the_fit():
    script = PlannedRounds(machine(KNOWN), FixedPlans(SETTING, fitted_plans()), 0).next().script.clusters[0]
    bits = COSTS.activation_bits * SETTING.workload.batch_size
    assert script.uplink_s == pytest.approx(bits / KNOWN.edge_rate, rel=1e-3)
    assert script.downlink_s == pytest.approx(bits / KNOWN.edge_rate, rel=1e-3)
    assert script.hop_forward_s[0] == pytest.approx(bits / KNOWN.rate, rel=1e-6)


def test_too_little_is_one_clear_error():
    rounds = simulated(machine(KNOWN), [CalibrationPlan((3, 3), "gpipe", 4, fitted=True)])
    with pytest.raises(CalibrationError, match="passes over 16 samples only: the law needs two sizes"):
        fit(rounds, COSTS)
    with pytest.raises(CalibrationError, match="passes over no samples only"):
        fit([], COSTS)
    with pytest.raises(CalibrationError, match="--devices 7: small has 6 blocks"):
        setting_of(BASE, 7)
    few = SETTING.with_overrides({"workload.micro_batches": [4]})
    with pytest.raises(CalibrationError, match="allows 4 micro-batches: a fit needs two of 1, 4, 16"):
        calibration_plans(few)


def test_passes_that_do_not_grow_are_refused():
    rounds = []
    for one in simulated(machine(KNOWN), fitted_plans()):
        flat = [e._replace(measured_end_s=e.began_s + 0.01) for e in one.events if e.element in (1, 3)]
        # One after the other, so that no pass waits in another's time.
        flat = [e._replace(began_s=float(i), measured_end_s=i + 0.01) for i, e in enumerate(flat)]
        rounds.append(replace(one, events=tuple(flat)))
    rounds = [replace(one, plan=replace(one.plan, blocks=(1, 1))) for one in rounds]
    with pytest.raises(CalibrationError, match="did not take longer"):
        fit(rounds, COSTS)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"plan": {"blocks": [3, 0]}}, r"plan.blocks\[1\] is 0"),
        ({"step_s": "soon"}, "step_s is 'soon'"),
        ({"events": [[1, 2]]}, r"events\[0\] lacks the field (2|.?element)"),
        ({"events": [["x"] * len(Recorded._fields)]}, r"events\[0\]\[0\] is 'x'"),
        ({"load": None}, "load is None: it should be a valid number; delete it"),
    ],
)
def test_damaged_rounds_are_refused(change, words, tmp_path):
    (one,) = simulated(machine(KNOWN), fitted_plans()[:1])
    whole = asdict(one)
    path = tmp_path / "round.json"
    write_json(path, whole)
    assert read_round(path) == one
    write_json(path, {**whole, **change})
    with pytest.raises(CalibrationError, match=words):
        read_round(path)


def kept(folder, plans):
    """Folder of a calibration whose rounds a known machine has played."""
    measured = folder / "measured"
    measured.mkdir(parents=True)
    about = {"base": BASE.to_dict(), "base_name": "small", "devices": 2, "slow_down": 1.0}
    write_json(folder / "run.json", {"kind": "calibration", **about})
    for number, one in enumerate(simulated(machine(KNOWN), plans)):
        write_json(measured / f"01-{number:02d}.json", asdict(one))
    return folder


def test_the_command_fits_again_to_what_was_measured(tmp_path, capsys):
    checked = [plan for plan in calibration_plans(SETTING) if not plan.fitted and plan.blocks == (1, 5)]
    source, out = kept(tmp_path / "run", [*fitted_plans()[::2], *checked]), tmp_path / "again"
    assert main(["calibrate", "--from", str(source), "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert f"scenario:  {out / 'profile.yaml'}" in shown
    profile = load_scenario(str(out / "profile.yaml"))
    assert profile.cluster.devices_per_cluster == (2,)
    numbers = json.loads((out / "calibration.json").read_text())
    assert numbers["constants"]["flops"] == pytest.approx(KNOWN.flops, rel=1e-6)
    assert max(abs(plan["error"]) for plan in numbers["plans"]) < 0.02
    table = (out / "table.md").read_text()
    assert "| 1+5, 1f1b, M = 2 | check |" in table


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--devices", "0"], "--devices = 0: use a number from 1 to 64"),
        (["--devices", "9"], "--devices 9: small has 6 blocks"),
        (["--slow-down", "0.5"], "--slow-down = 0.5: use a number from 1 to 1,000"),
        (["--rounds", "0"], "--rounds = 0"),
        (["--from", "nowhere"], "--from needs --out"),
    ],
)
def test_bad_options_are_one_clear_error(given, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["calibrate", *given]) == 2
    assert words in " ".join(capsys.readouterr().err.split())


def test_without_ray_the_error_names_the_remedy(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["calibrate", "--out", str(tmp_path / "run")]) == 2
    assert "pip install 'collapipe-env[ray]'" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()


def test_folders_without_a_calibration_are_refused(tmp_path, capsys):
    empty = kept(tmp_path / "empty", [])
    assert main(["calibrate", "--from", str(empty), "--out", str(tmp_path / "out")]) == 2
    assert "holds no finished rounds" in " ".join(capsys.readouterr().err.split())
    write_json(empty / "run.json", {"kind": "execution"})
    assert main(["calibrate", "--from", str(empty), "--out", str(tmp_path / "out")]) == 2
    assert "holds no calibration" in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_a_machine_is_calibrated_and_finished_rounds_are_kept(tmp_path, capsys):
    pytest.importorskip("ray")
    scenario = tmp_path / "little.yaml"
    scenario.write_text(
        "base: small\nname: little\n"
        "workload: {width: 64, feedforward: 256, heads: 2, sequence_length: 32}\n"
        "learning: {evaluation_samples: 8, metric_samples: 8}\n"
    )
    given = ["calibrate", "--scenario", str(scenario), "--rounds", "1", "--out", str(tmp_path / "run")]
    assert main(given) == 0
    assert "15 still to measure" in capsys.readouterr().out
    numbers = json.loads((tmp_path / "run" / "calibration.json").read_text())
    assert numbers["constants"]["flops"] > 1e8
    assert len(numbers["plans"]) == 15
    for path in (tmp_path / "run" / "measured").iterdir():
        # Nothing is read by the clock of another round.
        events = read_round(path).events
        starts = [e.began_s for e in events if e.element == 1 and e.direction == 0]
        came = [e.there_s for e in events if e.element == 0 and e.direction == 0]
        assert min(came) <= min(starts)
    (tmp_path / "run" / "measured" / "01-03.json").unlink()
    assert main(given) == 0
    assert "1 still to measure" in capsys.readouterr().out
