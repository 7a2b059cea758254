"""What holds for every process: the same rounds in every environment and library, and from every state."""

import copy
import itertools

import array_api_strict
import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from process_support import ALL, actions_of, carried_of, process_of, registered
from state_ways_support import WAYS, assert_same
from variants_support import mostly_slow

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.dynamics import PROCESSES
from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.sb3 import CollaPipeVecEnv
from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.backends import NUMPY
from collapipe_env.ground.errors import StateError
from collapipe_env.ground.records import mapped
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator import costs as cost_module
from collapipe_env.simulator.own_results import require_carried
from collapipe_env.simulator.system import axis_sizes, laid_out, walking_side

UNEVEN = {
    "cluster": {"devices": [3, 2], "layout": "per_episode"},
    "budgets": {"device_energy_j": 40.0, "cu_energy_j": 100.0},
}
SHADOWED = {**UNEVEN, "radio": {"d2d_shadowing_db": 4.0, "d2e_shadowing_db": 4.0}}
HOT = {"capacity_j_per_k": 5.0, "set_c": 27.0, "critical_c": 28.3, "ambient_max_c": 21.0}
IPA = {**HOT, "governor": "ipa", "on_c": 25.0, "sustainable_w": 1.5}
DIE = {"profile": "board", "capacity_j_per_k": 5.0, "set_c": 36.0, "critical_c": 38.5, "ambient_max_c": 21.0}
WARM = {
    # Links that take little of a round, devices that draw much in it.
    "radio": {"d2d_total_hz": 4e9, "uplink_bandwidth_hz": 1e9, "downlink_bandwidth_hz": 1e9},
    "devices": {"profiles": [{"name": "c", "clock_max_hz": 1.5e9, "switched_capacitance": 4e-27}]},
    "budgets": {"device_energy_j": 1000, "cu_energy_j": 100},
}
ROOMY = {"device_energy_j": 40.0}
BUSY = {"on_mean_s": 60.0, "off_mean_s": 40.0, "off_deviation": 0.5, "hazard_factors": [0.5, 2.0]}
ROWS = {
    "shadowing": (
        "shadowing",
        None,
        {"radio": {"d2d_shadowing_db": 4.0}, "budgets": {"device_energy_j": 40.0}},
    ),
    "fading": ("fading", None, {"radio": {"fading_correlation": 0.7}}),
    "load": ("load", None, {"dynamics": {"load_levels": [0.25, 1.0], "load_stay_probability": 0.5}}),
    "server": ("server", None, {"server": {"terms": "metered", "energy_budget_j": 0.01}}),
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
"""Name of each process, its fields (none where sections switch it on), sections; the last are a user's."""
ALONE = [row for row, (name, *_) in ROWS.items() if name not in ("heat", "migration", "server")]
"""Those that move without the costs of a round."""
QUICK = [place * len(WAYS) + place % len(WAYS) for place in range(len(ROWS))]
"""One way for each of them, every way for some."""


@pytest.fixture(autouse=True, scope="module")
def own_processes():
    with registered(*ALL):
        yield


def scenario_of(row, *, on=True, **dynamics):
    name, fields, sections = ROWS[row]
    sections = sections if on or fields is not None else {}
    processes = {name: fields} if on and fields is not None else {}
    dynamics = {"processes": processes, **dynamics, **sections.get("dynamics", {})}
    return load_scenario({"base": "small", **sections, "dynamics": dynamics})


def vector(row, num_envs=3, **options):
    return CollaPipeVectorEnv(num_envs, scenario_of(row), "surrogate", **options)


def process_in(row):
    return process_of(scenario_of(row), ROWS[row][0])


def test_every_process_has_a_row():
    assert {name for name, *_ in ROWS.values()} >= set(PROCESSES.shipped())


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
            found = carried_of(tensors["float64"])[ROWS[row][0]][name]
            np.testing.assert_allclose(found, values, rtol=1e-7, atol=1e-7, err_msg=name)
            moved |= not np.array_equal(before[name], values)
    assert moved or row in ("shadowing", "server")  # for an episode, and where no block is on the server
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
    env, rng, process = vector(row, 20), np.random.default_rng(0), process_in(row)
    env.reset(seed=4)

    def strict(array):
        return array_api_strict.asarray(np.array(array))

    system = laid_out(process.scenario, rng.integers(0, 2**63, 20, dtype=np.uint64), NUMPY)
    system = system._replace(small_scale=rng.gamma(4.0, 0.25, system.link_gain.shape))
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
    env, process = vector(row, 3), process_in(row)
    env.reset(seed=3)
    sizes = {"...": (3,), **axis_sizes(env.scenario)}
    for action in actions_of(env, 4):
        require_carried(process, "advance", carried_of(env)[process.name], sizes, {}, numbers=True)
        env.step(action)


@pytest.mark.parametrize("row", ROWS)
def test_it_moves_no_other_process(row):
    busy = {} if row == "load" else {"load_levels": [0.5, 1.0]}
    on, off = (CollaPipeEnv(scenario_of(row, on=on, **busy), "surrogate") for on in (True, False))
    for env in (on, off):
        env.reset(seed=3)
    for action in np.random.default_rng(0).uniform(-1.0, 1.0, (3, *on.action_space.shape)):
        for env in (on, off):
            env.step(action.astype(np.float32))
    others, own = carried_of(off), ROWS[row][0]
    assert own not in others or own in ("shadowing", "fading")  # which are always on
    for name in others.keys() - {own}:
        assert_same(carried_of(on)[name], others[name])


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
@pytest.mark.parametrize("row", sorted(set(ROWS) - {"tenants", "server", "own-observed", "migration-reset"}))
def test_both_observations_show_what_devices_carry_and_no_more_than_they_may(row, visibility):
    scenario, name = scenario_of(row, visibility=visibility), ROWS[row][0]
    flat = CollaPipeVectorEnv(20, scenario, "surrogate")
    graph = CollaPipeVectorEnv(20, scenario, "surrogate", observation="graph")
    off = CollaPipeVectorEnv(1, scenario_of(row, on=False), "surrogate", observation="graph")
    process = process_in(row)
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
    ("heat-step", "processes/heat/reading", lambda x: 0.0 * x + 30.0, "reading is not the temperature"),
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
    ("migration", "processes/migration/blocks", lambda x: x[..., ::-1], "do not agree with holders"),
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


NEUTRAL = {
    "perfect": {"processes": {"channel_knowledge": {"modes": ["perfect"]}}},
    "neither late nor wrong": {"processes": {"channel_knowledge": {"delay_rounds": 0, "noise_db": 0.0}}},
    "noise of nothing": {"processes": {"channel_knowledge": {"modes": ["noisy"], "noise_db": 0.0}}},
    "one level": {"load_levels": [1.0]},
    "one's own": {"processes": {"idle_process": {}}},
    "nothing to hide": {"visibility": "realistic"},
}


@pytest.mark.parametrize("dynamics", NEUTRAL.values(), ids=NEUTRAL)
def test_what_changes_nothing_is_bit_for_bit_as_without_it(dynamics):
    on, off = (
        CollaPipeVectorEnv(3, load_scenario({"base": "small", "dynamics": more}), "surrogate")
        for more in (dynamics, {})
    )
    assert_same(on.reset(seed=4)[0], off.reset(seed=4)[0])
    assert on.state.processes == off.state.processes == {}
    dssra = [DSSRA(env.scenario, threads=1) for env in (on, off)]
    for action in actions_of(off, 3):
        for field in ("uplink_gain", "d2d_gain", "cross_gain", "speed"):
            np.testing.assert_array_equal(getattr(on.state, field), getattr(off.state, field))
        plans = [one.act(None, env.state) for one, env in zip(dssra, (on, off), strict=True)]
        assert_same(vars(plans[0]), vars(plans[1]))
        assert_same(on.step_allocation(plans[0]), off.step_allocation(plans[1]))
        assert_same(on.step(action)[:4], off.step(action)[:4])
