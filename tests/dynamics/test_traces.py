"""Traces as a process: gains by hand, what schedulers know of them, and other processes."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from process_support import actions_of, carried_of, process_of
from trace_support import write_trace

from collapipe_env.dynamics.trace_bank import TraceBank
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.tuning_space import tunable
from collapipe_env.ground.backends import NUMPY
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import fixed_layout, load_scenario
from collapipe_env.schedulers import also_playing
from collapipe_env.simulator.build import system_parameters, usual_round
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split
from collapipe_env.simulator.system import laid_out
from collapipe_env.trace_files import Trace

EPRE = 10.0 * math.log10(1000.0 * 10.0**1.6 / 1200.0)
"""46 dBm on 1200 subcarriers [dBm]."""
ROUNDS = 6


def tracing(traces=None, base="small", processes=None, **sections):
    """A scenario on traces; without for ``None``."""
    on = dict(processes or {})
    if traces is not None:
        on["traces"] = traces
    dynamics = {"rounds": ROUNDS, **sections.pop("dynamics", {}), "processes": on}
    return load_scenario({"base": base, "name": "traced", **sections, "dynamics": dynamics})


def files(folder, *traces, **options):
    """A scenario's traces from files in a folder."""
    for number, values in enumerate(traces):
        write_trace(folder / f"t{number:02d}.csv", values)
    return {"source": str(folder), "mode": "rsrp", "split": "all", **options}


def vector(scenario, num_envs=3, seed=4):
    env = CollaPipeVectorEnv(num_envs, scenario, "surrogate")
    env.reset(seed=seed)
    return env


ANTENNA = 8.0
"""Gain of the scenarios' base station, which takes the place of the measured one [dBi]."""
NOISE = 10.0 ** (0.1 * (-174.0 - 30.0 + 5.0))
"""Noise of the base station, whose noise figure is 5 dB [W/Hz]."""


def gain_of(rsrp):
    return 10.0 ** ((rsrp - EPRE - 15.0 + ANTENNA) / 10.0)


def test_a_constant_trace_is_a_constant_link(tmp_path):
    """Gains are the closed form's, and rounds cost what they do on a channel with these gains."""
    levels = [-99.0, -85.5, -110.25]
    scenario = tracing(files(tmp_path, *(np.full(40, level) for level in levels)))
    env = vector(scenario)
    expected = gain_of(np.array(levels))[carried_of(env)["traces"]["trace"]]
    plain = vector(tracing())
    parameters = system_parameters(plain.scenario)
    for action in actions_of(env, 4):
        for state in (env.truth, env.state):
            np.testing.assert_allclose(state.uplink_gain, expected, rtol=1e-12)
        # Nothing but uplinks differs from the scenario without traces.
        np.testing.assert_array_equal(env.state.d2d_gain, plain.state.d2d_gain)
        plan = even_split(parameters, plain.state)
        channel = dataclasses.replace(plain.state, uplink_gain=expected)
        costs = round_costs(parameters, channel, plan)
        env_costs = round_costs(parameters, env.truth, plan)
        np.testing.assert_allclose(env_costs.delay, costs.delay, rtol=1e-12)
        np.testing.assert_allclose(env_costs.energy, costs.energy, rtol=1e-12)
        env.step(action)
        plain.step(action)


def test_more_power_than_was_sent_is_refused(tmp_path):
    sent = -10.0 + (EPRE - 46.0) + 15.0 - ANTENNA
    levels = np.append(np.full(39, -90.0), sent + 3.0)
    traces = files(tmp_path, np.full(40, -90.0), levels, bs_power_dbm=-10.0)
    pattern = r"t01.csv.* reaches -30\.\d+ dBm, a path gain of (1\.99|2), above 1: .*bs_power_dbm"
    with pytest.raises(ScenarioError, match=pattern):
        vector(tracing(traces))
    vector(tracing({"antenna_gain_db": 18.1, **traces}))
    vector(tracing({"level": "layout", **traces}))


def test_received_power_made_from_path_loss_is_the_path_loss_channel(tmp_path):
    scenario = load_scenario("small")
    path = fixed_layout(scenario).d2e_path_gain
    made = [np.full(30, 10.0 * math.log10(gain) + EPRE + 15.0 - ANTENNA) for gain in path]
    env = vector(tracing(files(tmp_path, *made)), 8)
    np.testing.assert_allclose(env.truth.uplink_gain, path[carried_of(env)["traces"]["trace"]], rtol=1e-12)
    antennas = {"radio.bs_antenna_dbi": ANTENNA + 8.0, "radio.device_antenna_dbi": 2.0}
    rich = vector(tracing(files(tmp_path, *made)).with_overrides(antennas), 8)
    np.testing.assert_allclose(rich.truth.uplink_gain, 10.0 * env.truth.uplink_gain, rtol=1e-12)
    plain = vector(tracing({"level": "layout", **files(tmp_path, *made)}))
    # Relative to its own mean a constant trace leaves the layout as it is.
    np.testing.assert_allclose(plain.truth.uplink_gain, np.broadcast_to(path, (3, len(path))), rtol=1e-12)


def test_a_constant_rate_has_the_closed_form_gain(tmp_path):
    numbers = {"bandwidth_hz": 10e6, "efficiency": 0.5, "power_dbm": 20.0, "unit": "kbit/s"}
    traces = files(tmp_path, np.full(20, 4000.0), np.full(20, 1e-6), **numbers)
    env = vector(tracing({**traces, "mode": "rate"}))
    noise = NOISE * 10e6
    # 4 Mbit/s of 5 MHz; the least rate of 0.1 Mbit/s in place of nearly none.
    expected = (2.0 ** np.array([0.8, 0.02]) - 1.0) * noise / 0.1
    np.testing.assert_allclose(
        env.truth.uplink_gain, expected[carried_of(env)["traces"]["trace"]], rtol=1e-12
    )


def played_mean(values, begin, seconds):
    """Mean of a window of a trace of one-second samples, there and back, summed in small pieces."""
    there_and_back = np.concatenate((values, values[::-1]))
    edges = np.union1d(np.arange(np.floor(begin), begin + seconds + 2.0), [begin, begin + seconds])
    edges = edges[(edges >= begin) & (edges <= begin + seconds)]
    middle = 0.5 * (edges[1:] + edges[:-1])
    each = there_and_back[np.floor(middle).astype(int) % len(there_and_back)]
    return float(np.dot(np.diff(edges), each) / seconds)


@pytest.mark.parametrize("mode", ["rsrp", "rate"])
def test_a_round_gets_the_mean_of_its_seconds_and_schedulers_that_of_the_last_one(tmp_path, mode):
    rng = np.random.default_rng(1)
    made = [rng.normal(-90.0, 8.0, 25) if mode == "rsrp" else rng.uniform(0.5, 9.0, 25) for _ in range(3)]
    scenario = tracing({**files(tmp_path, *made), "mode": mode})
    env, round_s = vector(scenario), usual_round(scenario)
    if mode == "rsrp":
        law = gain_of
    else:
        noise = NOISE * 20e6
        scale = noise / (1e-3 * 10.0**2.3)

        def law(mean):
            return (2.0 ** (mean / 12.0) - 1.0) * scale

    first = {name: values.copy() for name, values in carried_of(env)["traces"].items()}
    for t, action in enumerate(actions_of(env, ROUNDS - 1)):
        for e in range(3):
            for n in range(scenario.clusters):
                values = made[first["trace"][e, n]]
                now = first["position_s"][e, n] + t * round_s
                truth = law(played_mean(values, now, round_s))
                known = law(played_mean(values, now - 1.0, 1.0))
                assert env.truth.uplink_gain[e, n] == pytest.approx(truth, rel=1e-9)
                assert env.state.uplink_gain[e, n] == pytest.approx(known, rel=1e-9)
        env.step(action)
        np.testing.assert_array_equal(carried_of(env)["traces"]["trace"], first["trace"])


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.0, 1.0))
def test_what_is_known_does_not_depend_on_what_is_to_come(seed, share):
    """Samples later than the round's begin are changed: what is known stays, the round's gain does not."""
    rng = np.random.default_rng(seed)
    values = rng.normal(-90.0, 8.0, 60)
    now = 1.0 + share * 40.0
    other = values.copy()
    other[int(now) + 1 :] += 30.0
    scenario = tracing({})
    process = process_of(scenario, "traces")
    system = laid_out(scenario, np.zeros(1, dtype=np.uint64), NUMPY)
    N = scenario.clusters
    carried = {"trace": np.zeros((1, N), dtype=np.int64), "position_s": np.full((1, N), now)}
    seen = []
    for one in (values, other):
        process.bank = bank_of_values(one)
        seen.append(process.apply(system, carried))
    # But for the last bits, as sums are kept around the mean of the whole trace.
    np.testing.assert_allclose(seen[0].known_gain, seen[1].known_gain, rtol=1e-11)
    assert (seen[0].link_gain[:, :N] < seen[1].link_gain[:, :N]).all()


def bank_of_values(values):
    return TraceBank([Trace("t", np.arange(float(len(values))), values, "dBm", float(len(values)))])


def test_each_cluster_plays_another_file_from_a_uniform_time_on(tmp_path):
    lengths = [20, 40, 60, 80, 100, 120]
    scenario = tracing(files(tmp_path, *(np.linspace(-90.0, -80.0, n) for n in lengths)), base="medium")
    env = vector(scenario, 1500)
    trace, position = carried_of(env)["traces"]["trace"], carried_of(env)["traces"]["position_s"]
    assert (np.diff(np.sort(trace, axis=1), axis=1) > 0).all()
    counts = np.bincount(trace.ravel(), minlength=6) / len(trace)
    np.testing.assert_allclose(counts, 4.0 / 6.0, atol=4.0 * math.sqrt(2.0 / 9.0 / len(trace)))
    first = np.bincount(trace[:, 0], minlength=6) / len(trace)
    np.testing.assert_allclose(first, 1.0 / 6.0, atol=4.0 * math.sqrt(5.0 / 36.0 / len(trace)))
    share = np.sort(((position - 1.0) / (np.array(lengths)[trace] - 1.0)).ravel())
    uniform = (np.arange(len(share)) + 0.5) / len(share)
    # Kolmogorov's bound at 1e-4.
    assert np.abs(share - uniform).max() < 2.2 / math.sqrt(len(share))


def test_fewer_files_than_clusters_are_shared_where_the_scenario_says_so(tmp_path):
    traces = files(tmp_path, *(np.linspace(-90.0, -80.0, 500) for _ in range(3)), share_files=True)
    env = vector(tracing(traces, base="medium"), 50)
    trace, position = carried_of(env)["traces"]["trace"], carried_of(env)["traces"]["position_s"]
    # Four clusters on three files: one file twice, at its own times.
    assert (np.sort(trace, axis=1)[:, [0, -1]] == [0, 2]).all()
    assert (np.diff(np.sort(position, axis=1), axis=1) > 0.0).all()


def test_mobility_moves_pairs_and_traces_move_uplinks():
    walking = {"mobility": {"environment_sd_db": 3.0}}
    both, alone = vector(tracing({}, processes=walking)), vector(tracing({}))
    walks = vector(tracing(processes=walking))
    for action in actions_of(both, 3):
        np.testing.assert_array_equal(both.truth.uplink_gain, alone.truth.uplink_gain)
        np.testing.assert_array_equal(both.truth.d2d_gain, walks.truth.d2d_gain)
        for env in (both, alone, walks):
            env.step(action)


KNOWLEDGE = [
    {"modes": ["perfect"]},
    {"modes": ["mean"]},
    {"modes": ["noisy"], "noise_db": 2.0},
    {"modes": ["delayed"], "delay_rounds": 2},
    {"modes": ["delayed", "noisy"]},
]


@pytest.mark.parametrize("knowledge", KNOWLEDGE)
def test_channel_knowledge_starts_from_what_traces_let_see(tmp_path, knowledge):
    """Two sets of files that differ in the future only are known alike in the first round, in every mode."""
    rng = np.random.default_rng(2)
    base = [rng.normal(-90.0, 6.0, 400) for _ in range(2)]
    seen = []
    for folder, change in (("a", 0.0), ("b", 25.0)):
        probe = vector(tracing(files(tmp_path / folder, *base)), 1)
        trace, now = carried_of(probe)["traces"]["trace"][0], carried_of(probe)["traces"]["position_s"][0]
        changed = [values.copy() for values in base]
        for index, position in zip(trace, now, strict=True):
            changed[index][int(position) + 1 : int(position) + 30] += change
        traces = files(tmp_path / folder / "changed", *changed)
        on = {"channel_knowledge": knowledge}
        env = vector(tracing(traces, processes=on), 1)
        np.testing.assert_array_equal(carried_of(env)["traces"]["position_s"][0], now)
        seen.append(env)
    first, second = seen
    assert (np.abs(np.log10(second.truth.uplink_gain / first.truth.uplink_gain)) > 0.1).all()
    np.testing.assert_allclose(second.state.uplink_gain, first.state.uplink_gain, rtol=1e-10)
    np.testing.assert_array_equal(second.state.d2d_gain, first.state.d2d_gain)


def test_a_scenario_on_traces_has_its_oracle_and_its_scalar():
    scenario = tracing({})
    assert also_playing(scenario) == ("dssra-truth",)
    assert tunable(scenario) == ("channel_weight",)


@pytest.mark.parametrize("seconds", [1e10, 1e17, 1e200])
def test_after_ages_the_play_goes_on(seconds):
    """Rounds under strong interference may take so long that a second is lost in the time played."""
    env = vector(tracing({"level": "layout"}), 1)
    process, carried = process_of(env.scenario, "traces"), carried_of(env)["traces"]
    u = np.zeros((1, 1))
    later = process.advance(carried, None, None, u, np.array([seconds]))
    length = process.bank.lengths_s.values[carried["trace"]]
    passed = np.mod(carried["position_s"] + seconds, 2.0 * length)
    np.testing.assert_array_equal(np.mod(later["position_s"], 2.0 * length), passed)
    assert (later["position_s"] < 1e9).all()
    process.check(later)
    again = process.advance(later, None, None, u, np.array([1.0]))
    np.testing.assert_allclose(again["position_s"] - later["position_s"], 1.0)
