"""The process in one file: charges by hand, who stays out, all kinds of environments, the run at the end."""

import copy
from pathlib import Path
from types import SimpleNamespace

import example_support
import numpy as np
import pytest
import torch
from battery_process import Args, Battery, BatterySpec, low, main, scenario_of

from collapipe_env.cli.main import main as command
from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.backends import NUMPY
from collapipe_env.ground.errors import ScenarioError, StateError
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import usual_round
from collapipe_env.simulator.idle_fields import idle_fields
from collapipe_env.simulator.process_registry import active_processes

SMALL = {"base": "small", "cluster": {"devices": [3, 2]}, "budgets": {"device_energy_j": 60}}
QUICK = {"usable_j": 150.0, "idle_w": 0.2, "charger_on_s": 60.0, "charger_off_s": 120.0}


def scenario(fields=None):
    dynamics = {"rounds": 40, "processes": {"battery": {**QUICK, **(fields or {})}}}
    return load_scenario({**SMALL, "dynamics": dynamics})


def process_of(fields=None):
    return next(p for p in active_processes(scenario(fields)) if p.name == "battery")


def numbers(process, rows, t):
    words = np.random.SeedSequence(5).generate_state(rows, np.uint64)
    return NUMPY.uniform(words, np.full(rows, t), process.numbers)


def actions_for(env, count, lead=()):
    space = getattr(env, "single_action_space", env.action_space)
    drawn = np.random.default_rng(0).uniform(-1.0, 1.0, (count, *lead, *space.shape))
    return drawn.astype(np.float32)


def test_charges_levels_and_presence_by_hand():
    env = CollaPipeVectorEnv(3, scenario(), "surrogate")
    env.reset(seed=0)
    there = np.array([[True] * 3, [True, True, False]])
    out = missing = 0
    for action in actions_for(env, 30, (3,)):
        before = env.state.processes["battery"]
        env.step(action)
        after, costs = env.state.processes["battery"], env.last_round.costs
        for e, n, k in np.argwhere(np.broadcast_to(there, (3, 2, 3))):
            gained = 8.5 * costs.delay[e] if before["plugged"][e, n, k] else 0.0
            drawn = costs.energy[e, n, k + 1] + 0.2 * costs.delay[e]
            free = before["charge"][e, n, k] + gained - drawn
            assert after["charge"][e, n, k] == pytest.approx(min(max(free, 0.0), 150.0), abs=1e-9)
            more = after["missing_j"][e, n, k] - before["missing_j"][e, n, k]
            assert more == pytest.approx(max(-free, 0.0), abs=1e-9)
            level = after["charge"][e, n, k] / 150.0
            expected = level >= 0.15 if before["eligible"][e, n, k] else level > 0.3
            assert after["eligible"][e, n, k] == expected
            out += int(not after["eligible"][e, n, k])
            missing += more > 0.0
        np.testing.assert_array_equal(env.state.present, after["eligible"])
        for name, values in after.items():
            assert (values[:, ~there] == 0).all(), name
    assert out > 20
    assert missing > 0


def test_empty_batteries_leave_a_round_to_nobody():
    usual = {name: getattr(BatterySpec, name) for name in ("charger_on_s", "charger_off_s")}
    env = CollaPipeVectorEnv(2, scenario({**usual, "usable_j": 20.0, "charger_w": 0.0}), "surrogate")
    env.reset(seed=4)
    for action in actions_for(env, 39, (2,)):
        env.step(action)
    assert (env.last_round.costs.energy == 0.0).all()
    np.testing.assert_array_equal(env.last_round.costs.delay, usual_round(env.scenario))


def test_chargers_have_their_law_for_any_seconds():
    rows, process = 40_000, process_of()
    system = SimpleNamespace(present=np.ones((rows, 2, 3), dtype=bool))
    idle = SimpleNamespace(energy=np.zeros((rows, 2, 4)))
    first = carried = process.begin(system, numbers(process, rows, 0))
    for t, seconds in enumerate((10.0, 0.0, 25.0), 1):
        carried = process.advance(carried, None, idle, numbers(process, rows, t), np.full(rows, seconds))
        assert carried["plugged"].mean() == pytest.approx(1.0 / 3.0, abs=0.005)
    # Two states with rates 1/60 and 1/120: 35 s keep exp(-35/40) of what was known.
    stayed = carried["plugged"][first["plugged"]].mean()
    assert stayed == pytest.approx(1.0 / 3.0 + 2.0 / 3.0 * np.exp(-35.0 / 40.0), abs=0.01)


def test_every_kind_of_environment_plays_the_same():
    vector, tensors = CollaPipeVectorEnv(3, scenario(), "surrogate"), CollaPipeTorchVectorEnv(3, scenario())
    singles = [CollaPipeEnv(scenario(), "surrogate") for _ in range(3)]
    vector.reset(seed=[4, 5, 6])
    tensors.reset(seed=[4, 5, 6])
    for i, env in enumerate(singles):
        env.reset(seed=4 + i)
    for action in actions_for(vector, 6, (3,)):
        reward = vector.step(action)[1]
        np.testing.assert_array_equal([e.step(a)[1] for e, a in zip(singles, action, strict=True)], reward)
        there = tensors.step(torch.as_tensor(action))[1]
        np.testing.assert_allclose(there.cpu().numpy(), reward, rtol=1e-4, atol=1e-5)


def test_the_observation_shows_charges():
    env = CollaPipeVectorEnv(4, scenario(), "surrogate")
    rows, _ = env.reset(seed=1)
    seen, battery = env.observation_layout.unpack(rows), env.state.processes["battery"]
    np.testing.assert_allclose(seen["battery_charge"], battery["charge"] / 150.0, atol=1e-6)
    for name in ("eligible", "plugged"):
        np.testing.assert_array_equal(seen[f"battery_{name}"], battery[name])


def test_states_go_on_and_damaged_ones_are_refused():
    env, other = (CollaPipeEnv(scenario(), "surrogate") for _ in range(2))
    env.reset(seed=1)
    other.reset(seed=2)
    actions = actions_for(env, 4)
    env.step(actions[0])
    state = env.get_state()
    other.set_state(state)
    for action in actions[1:]:
        assert other.step(action)[1] == env.step(action)[1]
    wrong = copy.deepcopy(state)
    wrong["mdp"]["simulator"]["processes"]["battery"]["charge"] += 1e3
    with pytest.raises(StateError, match=r"battery/charge holds .*, expected 0 to 150"):
        env.set_state(wrong)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"usable_j": 0.0}, r"usable_j: got 0\.0, .*at least 0\.001"),
        ({"charger_w": -1.0}, r"charger_w: got -1\.0, .*unit W, range at least 0"),
        ({"off_below": 0.5}, r"off_below = 0\.5 is above on_above = 0\.3"),
    ],
)
def test_faults_are_named(fields, message):
    with pytest.raises(ScenarioError, match=message):
        scenario(fields)


def test_fields_of_chargers_without_power_are_named():
    found = idle_fields(scenario({"charger_w": 0.0}))
    assert {place.split(" = ")[0].rpartition(".")[2] for place in found} == {"charger_on_s", "charger_off_s"}
    assert not idle_fields(scenario())


def test_it_is_on_where_a_scenario_names_it():
    assert Battery.of(load_scenario("small")) is None
    assert dict(load_scenario(low).dynamics.processes)["battery"] == BatterySpec(usable_j=300.0)
    assert scenario_of("small", 300.0) == low


def test_commands_take_the_file_and_a_name_in_it(capsys):
    file = example_support.EXAMPLES / "battery_process.py"
    assert command(["scenario", "show", f"{file}:low"]) in (0, None)
    assert "usable_j: 300" in capsys.readouterr().out


def test_it_ends_with_a_table(tmp_path, capsys):
    result = main(Args(schedulers=("pipeline", "random"), episodes=1, rounds=12, out=tmp_path))
    printed = capsys.readouterr().out
    assert list(result) == ["pipeline", "random"]
    assert printed.count("1 held-out episode of 12 rounds") == 2
    page = printed.splitlines()[-1].removeprefix("page: ")
    assert str(tmp_path) in page
    assert "random" in Path(page).read_text(encoding="utf-8")
