"""What holds for every process: the same rounds in every environment and library, and from every state."""

import copy
import itertools

import array_api_strict
import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hook_processes import ALL, registered
from state_ways_support import WAYS, assert_same
from variants_support import mostly_slow

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.sb3 import CollaPipeVecEnv
from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import ScenarioError, StateError
from collapipe_env.ground.records import mapped
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator import costs as cost_module
from collapipe_env.simulator.own_results import require_carried
from collapipe_env.simulator.system import axis_sizes, walking_side

UNEVEN = {"cluster": {"devices": [3, 2], "layout": "per_episode"}, "budgets": {"device_energy_j": 40.0}}
SHADOWED = {**UNEVEN, "radio": {"d2d_shadowing_db": 4.0, "d2e_shadowing_db": 4.0}}
HOT = {"capacity_j_per_k": 5.0, "set_c": 27.0, "critical_c": 28.3, "ambient_max_c": 21.0}
IPA = {**HOT, "governor": "ipa", "on_c": 25.0, "sustainable_w": 1.5}
DIE = {"profile": "board", "capacity_j_per_k": 5.0, "set_c": 36.0, "critical_c": 38.5, "ambient_max_c": 21.0}
WARM = {
    # Links that take little of a round, devices that draw much in it.
    "radio": {f"{link}_bandwidth_hz": 1e9 for link in ("d2d", "uplink", "downlink")},
    "devices": {"profiles": [{"name": "c", "clock_max_hz": 1.5e9, "switched_capacitance": 4e-27}]},
    "budgets": {"device_energy_j": 1000, "cu_energy_j": 100},
}
BUSY = {"on_mean_s": 60.0, "off_mean_s": 40.0, "off_deviation": 0.5, "hazard_factors": [0.5, 2.0]}
ROWS = {
    "heat-step": ("heat", {**HOT, "period_s": 4.0}, WARM),
    "heat-ipa": ("heat", IPA, WARM),
    "heat-die": ("heat", {**DIE, "levels": [1.0, 0.8, 0.5]}, WARM),
    "heat-drifting": ("heat", {"ambient_sd_k": 2.0, "ambient_tau_s": 120.0}, {}),
    "presence": ("presence", BUSY, UNEVEN),
    "presence-weibull": ("presence", {**BUSY, "on_shape": 1.7}, UNEVEN),
    "mobility": ("mobility", {}, SHADOWED),
    "mobility-open": ("mobility", {"area": "open", "roaming": 1.6, "pause_s": 20.0}, UNEVEN),
    "knowledge": ("channel_knowledge", {}, {}),
    "knowledge-mean": ("channel_knowledge", {"modes": ["mean", "noisy"]}, {}),
    "knowledge-late": ("channel_knowledge", {"modes": ["delayed"], "delay_rounds": 3}, {}),
    "traces": ("traces", {}, {}),
    "traces-bus": ("traces", {"profile": "bus"}, {}),
    "traces-layout": ("traces", {"level": "layout", "profile": "subway"}, {}),
    "tenants": ("tenants", {"stay_probability": 0.5}, {"server": {"terms": "metered"}}),
    "migration": ("migration", {}, {}),
    "migration-reset": ("migration", {"moments": "reset"}, {}),
    "migration-over-cu": ("migration", {"route": "cu", "moment_bits": 16}, {}),
    "own-apply": ("slowing", {"size": 0.5}, {}),
    "own-limits": ("absence", {"size": 3e8}, {}),
    "own-events": ("outage", {"size": 0.5}, {}),
    "own-estimate": ("guess", {"size": 0.5}, {}),
    "own-observed": ("shown", {}, {}),
}
"""Name of each process, its fields, and other sections of a scenario; the last ones are a user's own."""
ALONE = [row for row, (name, *_) in ROWS.items() if name not in ("heat", "migration")]
"""Those that move without the costs of a round."""
QUICK = [place * len(WAYS) + place % len(WAYS) for place in range(len(ROWS))]
"""One way for each of them, every way for some."""


@pytest.fixture(autouse=True, scope="module")
def own_processes():
    with registered(*ALL):
        yield


def scenario_of(row, *, on=True, **dynamics):
    name, fields, sections = ROWS[row]
    processes = {name: fields} if on else {}
    return load_scenario({"base": "small", **sections, "dynamics": {"processes": processes, **dynamics}})


def vector(row, num_envs=3, **options):
    return CollaPipeVectorEnv(num_envs, scenario_of(row), "surrogate", **options)


def actions_of(env, count):
    shape = (count, env.num_envs, *env.single_action_space.shape)
    return np.random.default_rng(0).uniform(-1.0, 1.0, shape).astype(np.float32)


def carried_of(env):
    return env._mdp.world.system.carried


@pytest.mark.parametrize("row", ROWS)
def test_every_environment_plays_the_same(row, monkeypatch):
    def never(*_):
        raise AssertionError("the compiled loop was left")

    rows, single, tensors = vector(row), CollaPipeEnv(scenario_of(row), "surrogate"), {}
    for kind in ("float64", "float32"):
        tensors[kind] = CollaPipeTorchVectorEnv(3, scenario_of(row), dtype=kind)
        tensors[kind].reset(seed=[4, 5, 6])
    kinds = {name: values.dtype for name, values in carried_of(tensors["float32"])[ROWS[row][0]].items()}
    moved = False
    adapter = CollaPipeVecEnv(vector(row, autoreset_mode="SameStep"))
    adapter.seed(4)
    first = rows.reset(seed=[4, 5, 6])[0]
    np.testing.assert_array_equal(adapter.reset(), first)
    np.testing.assert_array_equal(single.reset(seed=5)[0], first[1])
    for action in actions_of(rows, 6):
        before = carried_of(rows)[ROWS[row][0]]
        with monkeypatch.context() as patch:
            patch.setattr(cost_module, "general_round_costs", never)
            expected, alone, adapted = rows.step(action), single.step(action[1]), adapter.step(action)
        there = tensors["float64"].step(action)
        tensors["float32"].step(action)
        np.testing.assert_array_equal(adapted[0], expected[0])
        np.testing.assert_array_equal(alone[0], expected[0][1])
        assert alone[1] == expected[1][1]
        for field in ("uplink_gain", "d2d_gain", "speed", "present", "backlog"):
            here = getattr(rows.truth, field)[1]
            np.testing.assert_array_equal(getattr(single.truth, field)[0], here, err_msg=field)
        np.testing.assert_allclose(there[0].numpy(), expected[0], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(there[1].numpy(), expected[1], rtol=1e-5, atol=1e-6)
        assert type(tensors["float64"].state) is type(single.state) is type(rows.state)
        for name in ("truth", "state"):
            ours, theirs = (getattr(env, name) for env in (rows, tensors["float64"]))
            np.testing.assert_array_equal(theirs.present.numpy(), ours.present)
            for field in ("uplink_gain", "d2d_gain", "speed", "backlog"):
                found, wanted = getattr(theirs, field).numpy(), getattr(ours, field)
                np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-15, err_msg=field)
        for name, values in carried_of(rows)[ROWS[row][0]].items():
            found = carried_of(tensors["float64"])[ROWS[row][0]][name].numpy()
            np.testing.assert_allclose(found, values, rtol=1e-7, atol=1e-7, err_msg=name)
            moved |= not np.array_equal(before[name], values)
    assert moved
    after = {name: values.dtype for name, values in carried_of(tensors["float32"])[ROWS[row][0]].items()}
    assert after == kinds
    check_env(gym.make("CollaPipeSurrogate-v0", scenario=scenario_of(row)).unwrapped, skip_render_check=True)


@pytest.mark.parametrize(("row", "way"), mostly_slow(itertools.product(ROWS, WAYS), QUICK))
def test_states_go_on_bit_for_bit(row, way, tmp_path):
    env = vector(row)
    env.reset(seed=5)
    actions = actions_of(env, 6)
    for action in actions[:2]:
        env.step(action)
    other = way(env, lambda: vector(row), tmp_path / "state.npz")
    assert type(other.state) is type(env.state)
    assert_same(other.last_round.costs.delay, env.last_round.costs.delay)
    for action in actions[2:]:
        tried, step = env.simulate(action), env.step(action)
        assert_same(tried, step)
        assert_same(other.step(action), step)
    assert_same(carried_of(other), carried_of(env))
    for field in ("uplink_gain", "d2d_gain", "server_share"):
        assert_same(getattr(other.state, field), getattr(env.state, field))


@pytest.mark.parametrize("row", ALONE)
def test_every_array_library_moves_and_applies_it_alike(row):
    env, rng = vector(row, 20), np.random.default_rng(0)
    env.reset(seed=4)
    world = env._mdp.world
    process = next(p for p in world.system.processes if p.name == ROWS[row][0])

    def strict(array):
        return array_api_strict.asarray(np.array(array))

    system = world.system._base._replace(small_scale=rng.gamma(4.0, 0.25, world.system._base.link_gain.shape))
    there, state = mapped(system, strict), env.truth
    u = rng.uniform(size=(20, process.numbers))
    carried, other = process.begin(system, u), process.begin(there, strict(u))
    for t in range(1, 5):
        assert carried.keys() == other.keys()
        found = {**other, **process.apply(there, other)._asdict()}
        ours = {**carried, **process.apply(system, carried)._asdict()}
        for name, values in ours.items():
            assert (found[name] is None) is (values is None), name
            if values is not None:
                assert type(found[name]) is type(strict(0.0)), name
                found_here = np.asarray(found[name])
                np.testing.assert_allclose(found_here, values, rtol=1e-9, atol=1e-9, err_msg=name)
        u, seconds = rng.uniform(size=u.shape), np.linspace(0.0, 90.0 * t, 20)
        carried = process.advance(carried, state, None, u, seconds)
        other = process.advance(other, state.map(strict), None, strict(u), strict(seconds))


@pytest.mark.parametrize("row", ROWS)
def test_it_carries_what_it_declares(row):
    env = vector(row, 3)
    env.reset(seed=3)
    system = env._mdp.world.system
    sizes = {"...": (3,), **axis_sizes(system._scenario)}
    for action in actions_of(env, 4):
        for process in system.processes:
            carried = system.carried[process.name]
            require_carried(process, "advance", carried, sizes, {}, numbers=True)
        env.step(action)


@pytest.mark.parametrize("row", ROWS)
def test_it_moves_no_other_process(row):
    busy = {"load_levels": [0.5, 1.0]}
    on, off = (CollaPipeEnv(scenario_of(row, on=on, **busy), "surrogate") for on in (True, False))
    for env in (on, off):
        env.reset(seed=3)
    for action in np.random.default_rng(0).uniform(-1.0, 1.0, (3, *on.action_space.shape)):
        for env in (on, off):
            env.step(action.astype(np.float32))
    assert ROWS[row][0] not in carried_of(off)
    for name, carried in carried_of(off).items():
        assert_same(carried_of(on)[name], carried)


DRAWN = {
    ("heat", "headroom"): ("heat", "headroom"),
    ("heat", "share"): ("heat", "clock_share"),
    ("mobility", "x"): ("motion", "east_m"),
    ("mobility", "y"): ("motion", "north_m"),
    ("mobility", "speed"): ("motion", "speed_m_s"),
    ("mobility", "leaves_s"): ("departure", "leaves_s"),
    ("presence", "announced"): ("stay", "announced"),
    ("presence", "since_s"): ("stay", "since_s"),
    ("migration", "blocks"): ("device", "previous_blocks"),
}
"""Where graph observations show what devices carry; a plan before it only where changes have a price."""
SECRET = {"residual_s", "graceful", "factor"}


@pytest.mark.parametrize("visibility", ["full", "realistic"])
@pytest.mark.parametrize("row", sorted(set(ROWS) - {"tenants", "own-observed", "migration-reset"}))
def test_both_observations_show_what_devices_carry_and_no_more_than_they_may(row, visibility):
    scenario, name = scenario_of(row, visibility=visibility), ROWS[row][0]
    flat = CollaPipeVectorEnv(20, scenario, "surrogate")
    graph = CollaPipeVectorEnv(20, scenario, "surrogate", observation="graph")
    off = CollaPipeVectorEnv(1, scenario_of(row, on=False), "surrogate", observation="graph")
    process = next(p for p in flat._mdp.world.system.processes if p.name == name)
    said = {
        f"{name}_{key}"
        for key, array in process.carries.items()
        if array.shown and (visibility == "full" or array.seen == "always")
    }
    assert {feature for feature in flat.observation_layout if feature.startswith(f"{name}_")} == said
    seen, nodes, half = flat.reset(seed=2)[0], graph.reset(seed=2)[0], 0.5 * walking_side(scenario)
    moved = set()
    for action in actions_of(flat, 5):
        there, carried = flat.state.present, flat.state.processes.get(name, {})
        assert not SECRET & (set(carried) | set(flat.truth.processes.get(name, {})))
        physical, drawn = flat.observation_layout.physical(seen), graph.observation_layout.physical(nodes)
        assert graph.observation_space.contains(nodes)
        for feature in said:
            values = carried[feature.removeprefix(f"{name}_")]
            within = there & (values <= flat.observation_layout[feature].scale)
            np.testing.assert_allclose(physical[feature][within], values[within], rtol=1e-5, atol=1e-3)
        for (owner, key), (part, entry) in DRAWN.items():
            hidden = visibility == "realistic" and part == "motion"
            if owner != name or key not in {**carried, **flat.truth.processes[name]}:
                continue
            assert (part in drawn) is not hidden
            assert part == "device" or part not in off.observation_layout
            if not hidden:
                expected = carried[key] - half if key in ("x", "y") else carried[key]
                np.testing.assert_allclose(drawn[part][entry][there], expected[there], rtol=1e-5, atol=1e-3)
                assert (nodes[part][~there] == 0.0).all()
                moved |= {key} if len(np.unique(expected[there])) > 1 else set()
        seen, nodes = flat.step(action)[0], graph.step(action)[0]
    assert moved or not any(owner == name for owner, _ in DRAWN) or name == "mobility"


DAMAGED = [
    ("heat-step", "processes/heat/temperature", lambda x: 0.0 * x - 300.0, "processes/heat"),
    ("heat-step", "processes/heat/ambient", lambda x: 0.0 * x + 60.0, "processes/heat"),
    ("heat-step", "processes/heat/headroom", lambda x: 0.0 * x + 0.77, "processes/heat"),
    ("heat-step", "processes/heat/share", lambda x: 0.0 * x + 0.123, "processes/heat"),
    ("heat-step", "processes/heat/level", lambda x: 0 * x + 7, "processes/heat"),
    ("heat-step", "processes/heat/remainder", lambda x: 0.0 * x - 1.0, "processes/heat"),
    ("heat-step", "processes/heat/reading", lambda x: 0.0 * x + 30.0, "processes/heat"),
    ("heat-ipa", "processes/heat/full_power", lambda x: 0.0 * x - 1.0, "processes/heat"),
    ("heat-ipa", "processes/heat/share", lambda x: 0.0 * x + 0.123, "processes/heat"),
    ("heat-die", "processes/heat/share", lambda x: 0.0 * x + 0.123, "processes/heat"),
    ("heat-drifting", "processes/heat/ambient", lambda x: 0.0 * x + 80.0, "processes/heat/ambient"),
    ("heat-drifting", "processes/heat/ambient_mean", lambda x: 0.0 * x + 36.0, "processes/heat/ambient_mean"),
    ("presence", "processes/presence/residual_s", lambda x: x - 1e9, "residual_s holds -"),
    ("presence", "processes/presence/factor", lambda x: x + 0.7, "factor is not one of"),
    ("presence", "processes/presence/announced", lambda x: ~x, "announced does not agree"),
    ("mobility", "processes/mobility/x", lambda x: x + 100.0, "mobility/x holds 1"),
    ("mobility", "processes/mobility/target_y", lambda y: y - 100.0, "target_y holds -"),
    ("mobility", "processes/mobility/speed", lambda v: v + 0.3, "speed does not agree with pause"),
    ("mobility", "processes/mobility/pause", lambda t: -t - 1.0, "pause holds -"),
    ("mobility", "layout/device_offset", lambda x: x * np.nan, "device_offset holds nan"),
    (
        "mobility-open",
        "processes/mobility/leaves_s",
        lambda x: 0.5 * x,
        "leaves_s does not agree with the walk",
    ),
    ("knowledge", "processes/channel_knowledge/past_1", lambda x: 0.0 * x - 1.0, "past_1"),
    ("knowledge", "processes/channel_knowledge/error_db", lambda x: 0.0 * x + 1e4, "error_db"),
    ("traces", "processes/traces/trace", lambda x: 0 * x + 99, "traces/trace holds 99"),
    ("traces", "processes/traces/trace", lambda x: 0 * x - 1, "traces/trace holds -1"),
    ("traces", "processes/traces/position_s", lambda x: 0.0 * x + 0.5, "traces/position_s holds 0.5"),
    ("traces", "processes/traces/position_s", lambda x: x * np.nan, "traces/position_s"),
    ("migration", "processes/migration/blocks", lambda x: 0 * x + 7, "migration"),
    ("tenants", "processes/tenants/level", lambda x: 0 * x + 3, "processes/tenants/level"),
    ("tenants", "processes/tenants/share", lambda x: 0.0 * x + 0.3, "processes/tenants/share"),
    ("tenants", "processes/server/backlog", lambda x: 0.0 * x - 1.0, "processes/server/backlog"),
]


@pytest.mark.parametrize(("row", "place", "change", "message"), DAMAGED)
def test_damaged_states_are_refused(row, place, change, message):
    env = vector(row, 2)
    env.reset(seed=1)
    env.step(actions_of(env, 1)[0])
    state = env.get_state()
    part = (wrong := copy.deepcopy(state))["mdp"]["simulator"]
    *above, name = place.split("/")
    for inner in above:
        part = part[inner]
    part[name] = change(part[name])
    with pytest.raises(StateError, match=message):
        env.set_state(wrong)
    env.set_state(state)


WRONG = [
    ("heat", {"profile": "tablet"}, r"heat\.profile: got 'tablet'.*'phone', 'board' or 'board_cased'"),
    ("heat", {"governor": "fan"}, r"heat\.governor: got 'fan'.*'step', 'pause' or 'ipa'"),
    (
        "heat",
        {"resistance_k_per_w": -1.0},
        r"resistance_k_per_w: got -1\.0, .*unit K/W, range at least 0 and",
    ),
    ("heat", {"capacity_j_per_k": 0.0}, r"capacity_j_per_k: got 0\.0, .*at least 1e-06"),
    ("heat", {"set_c": 20.0}, r"set_c: got 20\.0, .*at least 26"),
    ("heat", {"critical_c": 40.0}, r"critical_c is 40: give set_c = 43 or more"),
    ("heat", {"governor": "ipa", "on_c": 43.0}, r"on_c is 43: the governor ipa begins below set_c = 43"),
    (
        "heat",
        {"ambient_min_c": 30.0, "ambient_max_c": 20.0},
        r"ambient_min_c = 30 is above ambient_max_c = 20",
    ),
    ("heat", {"levels": [1.0]}, r"levels are \[1\.0\]: give two or more"),
    ("heat", {"levels": [0.9, 0.5]}, r"levels are .*1 first"),
    ("heat", {"levels": [1.0, 0.5, 0.6]}, r"levels are .*descending"),
    ("heat", {"levels": [1.0, 0.0]}, r"levels are .*above 0"),
    ("heat", {"levels": [1.0, float("nan")]}, r"levels.1: got nan, but the input should be a finite number"),
    ("heat", {"governor": "pause", "levels": [1.0, 0.5, 0.2]}, r"the governor pause has two"),
    ("heat", {"idle_w": float("nan")}, r"idle_w"),
    ("heat", {"period_s": 0.0}, r"period_s: got 0\.0, .*unit s, range at least 0\.001"),
    ("heat", {"warmth": 1.0}, r"heat\.warmth: got 1\.0, but there is no field 'warmth'"),
    ("presence", {"on_mean_s": 0.5}, r"on_mean_s: got 0\.5, .*at least 1 "),
    ("presence", {"on_shape": 0.0}, r"on_shape: got 0\.0"),
    ("presence", {"graceful": 1.5}, r"graceful: got 1\.5, .*unit 1, range at least 0 and at most 1"),
    ("presence", {"hazard_factors": []}, "hazard_factors are .*: give one or more"),
    ("presence", {"hazard_factors": [0.0]}, "hazard_factors are .*0.01 to 100"),
    ("presence", {"off_mean": 3.0}, "off_mean"),
    ("mobility", {"area": "round"}, "mobility.area: got 'round'"),
    ("mobility", {"area": "open", "roaming": 0.5}, r"roaming: got 0\.5, .*at least 1 and at most 10"),
    ("mobility", {"pause_s": 0.0}, r"pause_s: got 0\.0, .*at least 0\.1"),
    ("mobility", {"speed_min_m_s": 2.0}, r"speed_min_m_s = 2 is above speed_max_m_s = 1\.5"),
    ("mobility", {"speed_max_m_s": 1000.0}, r"speed_max_m_s: got 1000\.0"),
    ("mobility", {"decorrelation_m": 0.0}, r"decorrelation_m: got 0\.0"),
    ("mobility", {"environment_sd_db": -0.1}, r"environment_sd_db: got -0\.1, .*unit dB"),
    ("mobility", {"environment_time_s": 0.0}, r"environment_time_s: got 0\.0"),
    ("mobility", {"pause": 3.0}, "did you mean 'pause_s'"),
    ("mobility", {"pause_s": float("nan")}, "pause_s"),
    ("channel_knowledge", {"modes": []}, "modes is empty"),
    ("channel_knowledge", {"modes": ["perfect", "noisy"]}, "perfect cannot be combined with others"),
    ("channel_knowledge", {"modes": ["noisy", "noisy"]}, "name each once"),
    ("channel_knowledge", {"modes": ["mean", "delayed"]}, "remove delayed"),
    ("channel_knowledge", {"modes": ["fuzzy"]}, "fuzzy"),
    ("channel_knowledge", {"delay_rounds": 17}, "delay_rounds: got 17, .*range 0 to 16"),
    ("channel_knowledge", {"noise_db": -1.0}, r"noise_db: got -1\.0, .*at most 30"),
    ("channel_knowledge", {"noise_correlation": 1.0}, r"noise_correlation: got 1\.0, .*below 1"),
    ("channel_knowledge", {"sigma": 1.0}, "no field"),
    ("heat", {"ambient_sd_k": -1.0}, r"ambient_sd_k: got -1\.0, .*at most 100"),
    ("heat", {"ambient_tau_s": 0.0}, r"ambient_tau_s: got 0\.0, .*at least 1 "),
    ("migration", {"moments": "drop"}, "moments"),
    ("migration", {"rout": "cu"}, "rout"),
    ("tenants", {"levels": [0.2, 0.96]}, "levels"),
    ("tenants", {"levels": []}, "levels"),
    ("tenants", {"levels": [0.5, 0.2]}, "levels"),
    ("tenants", {"levels": [-0.1]}, "levels"),
    ("tenants", {"stay_probability": 2.0}, r"stay_probability: got 2\.0, .*at most 1"),
    ("tenants", {"stay_probability": float("nan")}, "stay_probability: got nan"),
]


@pytest.mark.parametrize(("name", "fields", "message"), WRONG)
def test_wrong_fields_are_refused(name, fields, message):
    with pytest.raises(ScenarioError, match=r"dynamics\.processes.*" + message):
        load_scenario({"base": "small", "dynamics": {"processes": {name: fields}}})
