"""Fields without effect: they change nothing, all others do, and whoever sets one is told."""

import warnings
from dataclasses import asdict

import numpy as np
import pytest
from process_support import registered

from collapipe_env import load_scenario
from collapipe_env.agents.dssra import DSSRA
from collapipe_env.cli.main import main
from collapipe_env.dynamics import Process
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.scenario.fields import OnlyIf, field, spec
from collapipe_env.simulator.idle_fields import IdleFieldWarning, idle_fields, warn_of_idle_fields


def scenario_with(process, fields):
    return load_scenario(
        {
            "base": "small-migration",
            "budgets": {"device_energy_j": 1e4, "cu_energy_j": 1e4},
            "radio": {"d2d_shadowing_db": 4.0},
            "dynamics": {"rounds": 8, "processes": {process: fields}},
        }
    )


def history(scenario):
    """All numbers of some rounds of DSSRA's."""
    env, numbers = CollaPipeVectorEnv(2, scenario, "surrogate"), []
    env.reset(seed=5)
    for _ in range(4):
        plan = DSSRA(scenario, threads=1).allocate(env.state)
        # Blocks change hands in every round, so that it shows how their moments travel.
        there = env.state.present
        plan.blocks[...] = 0
        for place in np.ndindex(there.shape[:2]):
            present = np.flatnonzero(there[place])
            plan.blocks[(*place, present[len(numbers) % len(present)])] = scenario.blocks
        env.step_allocation(plan)
        record = env.last_round
        parts = (env.state.d2d_gain, env.state.clock, record.costs.energy, record.costs.delay)
        numbers.append(np.concatenate([np.ravel(part) for part in parts]))
    return np.array(numbers)


# Process, its fields, and for each of them another value: of all that can be told within a few rounds.
WALKING = {"pause_s": 5.0, "speed_min_m_s": 1.0, "environment_time_s": 3.0, "roaming": 2.0}
KNOWN = {"delay_rounds": 3, "noise_db": 5.0, "noise_correlation": 0.5}
GOVERNED = {"on_c": 27.0, "sustainable_w": 0.2, "least_w": 0.1, "period_s": 40.0}
HOT = {"governor": "ipa", "capacity_j_per_k": 2.0, "on_c": 26.0, "set_c": 30.0, "critical_c": 200.0}
MOVED = {"moment_bits": 16, "route": "cu"}
CASES = {
    "closed": ("mobility", {"environment_sd_db": 0.0}, {**WALKING, "speed_max_m_s": 4.0}),
    "open": ("mobility", {"area": "open"}, WALKING),
    "mean": ("channel_knowledge", {"modes": ["mean"]}, KNOWN),
    "late": ("channel_knowledge", {"modes": ["delayed", "noisy"]}, KNOWN),
    "step": ("heat", {"governor": "step", "capacity_j_per_k": 2.0, "set_c": 30.0}, GOVERNED),
    "ipa": ("heat", HOT, GOVERNED),
    "reset": ("migration", {"moments": "reset"}, MOVED),
    "move": ("migration", {"moments": "move"}, MOVED),
}


@pytest.mark.parametrize("case", list(CASES))
@pytest.mark.filterwarnings("ignore::collapipe_env.simulator.idle_fields.IdleFieldWarning")
def test_idle_fields_and_no_others_change_nothing(case):
    process, fields, others = CASES[case]
    before = history(scenario_with(process, fields))
    for name, value in others.items():
        scenario = scenario_with(process, {**fields, name: value})
        idle = f"dynamics.processes.{process}.{name} = {value!r}" in idle_fields(scenario)
        after = history(scenario)
        assert (before.shape == after.shape and (before == after).all()) == idle, name


RADIO = {
    "path_loss_exponent": (2.5, {"d2d_path_loss": "log-distance"}),
    "path_loss_reference_db": (50.0, {"d2e_path_loss": "log-distance"}),
    "bs_height_m": (9.0, {"d2e_path_loss": "umi"}),
    "device_height_m": (2.0, {"d2d_path_loss": "umi-los"}),
    "max_transmissions": (3, {"link_errors": "arq", "waterfall_threshold": 10.0}),
    "waterfall_threshold": (0.5, {"link_errors": "drop"}),
    "target_error_rate": (0.3, {}),
}
"""Fields of the radio: another value, and fields with which it has an effect."""
FLAT = {"d2e_path_loss": "itu-m1225-vehicular", "d2d_path_loss": "itu-m1225-pedestrian"}
SILENT = {
    "bs_height_m": {**FLAT, "d2d_path_loss": "umi-los"},
    "device_height_m": FLAT,
    "max_transmissions": {"link_errors": "drop"},
    "target_error_rate": {"link_errors": "arq"},
}
"""Fields with which one has none, where it has with the defaults."""


@pytest.mark.parametrize("field", RADIO)
@pytest.mark.filterwarnings("ignore::collapipe_env.simulator.idle_fields.IdleFieldWarning")
@pytest.mark.filterwarnings("ignore::collapipe_env.simulator.law_ranges.LawRangeWarning")
def test_idle_fields_of_the_radio_change_nothing_and_the_others_do(field):
    value, needed = RADIO[field]

    def round_with(radio):
        ample = {"device_energy_j": 1e4, "cu_energy_j": 1e4}
        scenario = load_scenario({"base": "small", "radio": radio, "budgets": ample})
        env = CollaPipeVectorEnv(1, scenario, "surrogate")
        env.reset(seed=3)
        env.step(np.zeros(env.action_space.shape, dtype=np.float32))
        costs = env.last_round.costs
        told = [place.partition(" = ")[0] for place in idle_fields(scenario)]
        return [float(costs.delay[0]), float(np.sum(costs.survival))], told

    for radio, idle in ((needed, False), (SILENT.get(field, {}), True)):
        (plain, _), (changed, told) = round_with(radio), round_with({**radio, field: value})
        assert (changed == plain, f"radio.{field}" in told) == (idle, idle), radio


def test_a_single_level_of_tenants_has_nowhere_to_go():
    only = {"levels": [0.5], "stay_probability": 0.5}
    assert list(idle_fields(scenario_with("tenants", only))) == [
        "dynamics.processes.tenants.stay_probability = 0.5"
    ]
    assert not idle_fields(scenario_with("tenants", {**only, "levels": [0.2, 0.5]}))


def test_whoever_sets_one_is_warned_once():
    scenario = scenario_with("mobility", {"area": "closed", "roaming": 2.5})
    pattern = r"mobility\.roaming = 2\.5 has no effect: it is used only with area: open"
    with pytest.warns(IdleFieldWarning, match=pattern):
        CollaPipeVectorEnv(1, scenario, "surrogate")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CollaPipeVectorEnv(1, scenario, "surrogate")
        # Every field is listed, at its default.
        spec = dict(scenario_with("mobility", {}).dynamics.processes)["mobility"]
        warn_of_idle_fields(scenario_with("mobility", asdict(spec)))


def test_the_check_of_a_scenario_says_it(tmp_path, capsys):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "base: small\ndynamics: {processes: {channel_knowledge: {modes: [mean], delay_rounds: 2}}}\n"
        "radio: {d2d_path_loss: umi-los, link_errors: arq, target_error_rate: 0.2}\n"
    )
    main(["scenario", "check", str(file)])
    printed = " ".join(capsys.readouterr().out.split())
    place = "dynamics.processes.channel_knowledge.delay_rounds = 2"
    assert f"{place} has no effect: it is used only if modes include delayed" in printed
    assert "radio.target_error_rate = 0.2 has no effect: it is used only with link_errors: harq" in printed
    assert "radio.d2d_path_loss = umi-los: its source gives it for 10 to 5000 m, links have 5 to" in printed


def test_fields_of_ones_own_process_may_have_conditions():
    @spec
    class Fields:
        names: tuple[str, ...] = field((), "names", OnlyIf("never", lambda _: False))

    class Calm(Process):
        name = "calm"
        Spec = Fields

    with registered(Calm):
        assert not idle_fields(scenario_with("calm", {}))
        given = scenario_with("calm", {"names": ["a"]})
        assert list(idle_fields(given)) == ["dynamics.processes.calm.names = ('a',)"]
