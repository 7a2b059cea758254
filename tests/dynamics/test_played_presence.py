"""Presence from a file of availability: who is there and when they fail, against the file itself."""

import copy
import itertools
import json
import math

import array_api_strict
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from state_ways_support import WAYS, assert_same
from trace_support import DATA

from collapipe_env.agents.dssra.plus import DSSRAPlus
from collapipe_env.backends import NUMPY
from collapipe_env.dynamics.availability_bank import NEVER_S, AvailabilityBank
from collapipe_env.dynamics.idle_fields import idle_fields
from collapipe_env.dynamics.played_presence import PlayedPresence, distinct
from collapipe_env.dynamics.presence import Presence
from collapipe_env.dynamics.process_registry import active_processes
from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.errors import DataError, ScenarioError, StateError
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.loading import scenario_digest, scenario_from_text, scenario_to_yaml
from collapipe_env.simulator.build import usual_round
from collapipe_env.trace_files import Availability, available, read_availability


def client(active, inactive, period, model="phone"):
    return {
        "duration": period,
        "active": list(active),
        "inactive": list(inactive),
        "finish_time": period,
        "model": model,
    }


def write(path, clients):
    path.write_text(json.dumps(clients))
    return str(path)


def random_clients(count, longest=80.0):
    rng = np.random.default_rng(3)
    found = {}
    for number in range(count):
        edges = np.cumsum(rng.uniform(5.0, longest, 10)).tolist()
        found[str(number)] = client(edges[::2], edges[1::2], edges[-1] + 20.0)
    return found


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write(tmp_path_factory.mktemp("clients") / "clients.json", random_clients(30))


def scenario_of(source, fields=None, devices=(3, 2), **dynamics):
    return load_scenario(
        {
            "base": "small",
            "name": "played",
            "cluster": {"devices": list(devices)},
            "budgets": {"device_energy_j": 60},
            "dynamics": {
                "rounds": 8,
                "processes": {"presence": {"availability": source, **(fields or {})}},
                **dynamics,
            },
        }
    )


def process_of(scenario):
    return next(p for p in active_processes(scenario) if p.name == "presence")


def numbers(process, rows, t):
    words = np.random.SeedSequence(11).generate_state(rows, np.uint64)
    return NUMPY.uniform(words, np.full(rows, t), process.numbers, process.factors)


def clients_in(source, part="train"):
    every = read_availability(source)
    return [
        c for i, c in enumerate(every) if part == "all" or {3: "dev", 4: "test"}.get(i % 5, "train") == part
    ]


def make_actions(env, count, lead=()):
    space = getattr(env, "single_action_space", env.action_space)
    drawn = np.random.default_rng(0).uniform(-1.0, 1.0, (count, *lead, *space.shape))
    return drawn.astype(np.float32)


@settings(max_examples=60, deadline=None)
@given(
    gaps=st.lists(st.integers(0, 9), min_size=2, max_size=12).filter(lambda g: len(g) % 2 == 0),
    rest=st.integers(0, 5),
    at=st.lists(st.integers(0, 400), min_size=1, max_size=20),
)
def test_the_bank_says_what_the_query_of_the_file_says(gaps, rest, at):
    """Windows may touch, also round the end, and have no length. Times lie between those of the windows."""
    edges = np.cumsum(gaps).astype(float)
    period = float(edges[-1] + rest)
    if period == 0.0:
        period = 1.0
    mine = Availability("x", edges[::2], edges[1::2], period, "phone")
    other = Availability("y", np.array([2.0]), np.array([3.0]), 7.0, "phone")
    bank = AvailabilityBank([other, mine, other])
    times = np.mod(np.array(at) + 0.5, period)
    on, left, since = bank.at(np.ones(len(times), dtype=np.int64), times)
    np.testing.assert_array_equal(on, available(mine, times))
    # By steps of half a second, forwards and backwards, as all edges are whole seconds.
    steps = np.arange(1, 2 * int(period) + 1) - 0.0
    for time, here, after, ago in zip(times, on, left, since, strict=True):
        ahead = available(mine, time + steps) != here
        behind = available(mine, time - steps) != here
        if not ahead.any():
            assert after == ago == NEVER_S
        else:
            assert abs(after - (steps[ahead.argmax()] - 0.5)) < 1e-9
            assert abs(ago - (steps[behind.argmax()] - 0.5)) < 1e-9


def test_clients_who_never_come_or_go():
    bank = AvailabilityBank(
        [
            Availability("never", np.array([4.0]), np.array([4.0]), 9.0, ""),
            Availability("always", np.array([0.0, 5.0]), np.array([5.0, 9.0]), 9.0, ""),
        ]
    )
    on, left, since = bank.at(np.array([0, 1]), np.array([4.0, 5.0]))
    assert on.tolist() == [False, True]
    assert (left == NEVER_S).all()
    assert (since == NEVER_S).all()


def test_distinct_numbers_are_distinct_and_all_rows_equally_likely():
    rng, rows = np.random.default_rng(0), 60_000
    drawn = distinct(4, rng.random((rows, 2)), rng.random((rows, 2)))
    counts = dict.fromkeys(itertools.permutations(range(4), 2), 0)
    for pair in drawn.tolist():
        counts[tuple(pair)] += 1  # a KeyError for a pair that is none
    expected = rows / len(counts)
    assert max(abs(n - expected) for n in counts.values()) < 5.0 * math.sqrt(expected)
    whole = distinct(7, rng.random((50, 7)), rng.random((50, 7)))
    np.testing.assert_array_equal(np.sort(whole, axis=-1), np.tile(np.arange(7), (50, 1)))
    assert distinct(100_000, rng.random((1000, 3)), rng.random((1000, 3))).mean() == pytest.approx(
        5e4, rel=0.05
    )


@pytest.mark.parametrize("part", ["train", "test", "all"])
def test_devices_are_there_when_their_clients_are(source, part):
    fields = {"availability_split": part, "share_clients": part == "test"}
    process = process_of(scenario_of(source, fields, (5, 2)))
    clients, rows = clients_in(source, part), 300
    assert isinstance(process, PlayedPresence)
    assert process.bank.names == tuple(c.client for c in clients)
    carried = process.begin(None, numbers(process, rows, 0))
    real = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]], dtype=bool)
    mine, start = carried["client"], carried["position_s"].copy()
    periods = np.array([c.period_s for c in clients])[mine]
    assert (start < periods).all()
    assert abs((start / periods)[:, real].mean() - 0.5) < 0.03
    assert set(np.unique(mine[:, real])) == set(range(len(clients)))
    for row in mine:
        assert len(set(row[real])) == min(7, len(clients))  # no two devices have the same one
    passed, rng = np.zeros(rows), np.random.default_rng(0)
    for t in range(6):
        np.testing.assert_array_equal(carried["client"], mine)
        assert not carried["present"][:, ~real].any()
        for number, one in enumerate(clients):
            is_one = (mine == number) & real
            times = (start + passed[:, None, None])[is_one]
            np.testing.assert_array_equal(carried["present"][is_one], available(one, times))
            # What is left: just before it nothing has changed, just after it all has.
            left = carried["residual_s"][is_one]
            np.testing.assert_array_equal(available(one, times + left - 1e-4), carried["present"][is_one])
            np.testing.assert_array_equal(available(one, times + left + 1e-4), ~carried["present"][is_one])
        seconds = rng.uniform(1.0, 60.0, rows)
        carried = process.advance(carried, None, None, numbers(process, rows, t + 1), seconds)
        passed = passed + seconds
    assert (carried["since_s"] <= passed[:, None, None] + 1e-9).all()


def test_ends_are_announced_or_fail_when_the_client_leaves(source):
    scenario = scenario_of(source, {"graceful": 0.3})
    process, rows = process_of(scenario), 4_000
    horizon = usual_round(scenario)
    carried = process.begin(None, numbers(process, rows, 0))
    kinds = []
    for t in range(1, 5):
        ends = carried["present"] & (carried["residual_s"] <= horizon)
        np.testing.assert_array_equal(carried["announced"], ends & carried["graceful"])
        fails = process.failures(carried)
        np.testing.assert_array_equal(fails <= horizon, ends & ~carried["graceful"])
        np.testing.assert_array_equal(fails[fails <= horizon], carried["residual_s"][fails <= horizon])
        kinds.append(carried["graceful"][ends])
        after = process.advance(carried, None, None, numbers(process, rows, t), np.full(rows, horizon))
        # Windows and gaps of the file may be shorter than a round; else who leaves is away.
        gone = ends & (after["since_s"] < horizon) & ~after["present"]
        assert gone.sum() > 0.6 * ends.sum()
        # A stay that goes on ends as it was drawn to, and lasts as long as it had left.
        on = carried["present"] & ~ends
        np.testing.assert_array_equal(after["graceful"][on], carried["graceful"][on])
        np.testing.assert_allclose(after["residual_s"][on], carried["residual_s"][on] - horizon, atol=1e-6)
        carried = after
    share = np.concatenate(kinds)
    assert share.mean() == pytest.approx(0.3, abs=4.0 * math.sqrt(0.21 / len(share)))


def test_nothing_of_the_files_future_is_seen(tmp_path):
    """Two files with one past: what is shown is the same up to the round that announces the end."""
    periods = 10_000.0
    short = {str(i): client([0.0], [1000.0], periods) for i in range(12)}
    long = {str(i): client([0.0], [4000.0], periods) for i in range(12)}
    processes = [
        process_of(scenario_of(write(tmp_path / f"{name}.json", clients), {"graceful": 1.0}))
        for name, clients in (("short", short), ("long", long))
    ]
    horizon = usual_round(processes[0].scenario)
    a, b = (p.begin(None, numbers(p, 2_000, 0)) for p in processes)
    seen = tuple(o.carried for o in processes[0].observed)
    assert set(seen) == {"announced", "since_s"}
    differ = 0
    for t in range(1, 30):
        for process, carried in zip(processes, (a, b), strict=True):
            assert not set(process.realistic(carried)) - set(seen)
        position = a["position_s"]
        np.testing.assert_array_equal(position, b["position_s"])
        same = position + horizon < 1000.0
        same &= processes[0]._there.values
        assert same.any()
        for name in (*seen, "present"):
            np.testing.assert_array_equal(a[name][same], b[name][same], err_msg=name)
        differ += int((a["announced"] != b["announced"]).sum())
        a, b = (
            p.advance(c, None, None, numbers(p, 2_000, t), np.full(2_000, horizon))
            for p, c in zip(processes, (a, b), strict=True)
        )
    assert differ > 0


@pytest.mark.parametrize("library", ["torch", "strict"])
def test_other_array_libraries_give_the_same(source, library):
    convert = {"torch": torch.asarray, "strict": array_api_strict.asarray}[library]
    process = process_of(scenario_of(source))
    carried = process.begin(None, numbers(process, 50, 0))
    other = process.begin(None, convert(numbers(process, 50, 0)))
    for t in range(1, 5):
        for name, values in carried.items():
            np.testing.assert_allclose(np.asarray(other[name]), values, rtol=1e-12, err_msg=name)
        seconds = np.linspace(1.0, 90.0, 50)
        carried = process.advance(carried, None, None, numbers(process, 50, t), seconds)
        other = process.advance(other, None, None, convert(numbers(process, 50, t)), convert(seconds))


def test_a_device_fails_in_the_round_when_its_client_leaves(tmp_path):
    """The time of the failure comes from the file, through the whole environment."""
    clients = random_clients(40, longest=60.0)
    path = write(tmp_path / "clients.json", clients)
    fields = {"graceful": 0.0, "availability_split": "all"}
    env = CollaPipeVectorEnv(8, scenario_of(path, fields, time_base="real"), "surrogate")
    env.reset(seed=2)
    every, failed = clients_in(path, "all"), 0
    for action in make_actions(env, 8, (8,)):
        held = {k: v.copy() for k, v in env._mdp.world.system.carried["presence"].items()}
        env.step(action)
        found = env.last_round.interruption
        blocks = env.last_round.allocation.device_blocks > 0
        if found is None or found.failed is None:
            continue
        for row, n in zip(*np.nonzero(found.failed.device >= 0), strict=True):
            ends = {}
            for k in np.flatnonzero(blocks[row, n]):
                one, start = every[held["client"][row, n, k]], held["position_s"][row, n, k]
                assert available(one, start)
                ends[int(k)] = min(
                    e for e in (*(one.end_s - start), *(one.end_s - start + one.period_s)) if e > 0
                )
            first = min(ends, key=ends.get)
            assert found.failed.device[row, n] == first
            assert found.failed.at_s[row, n] == pytest.approx(ends[first], rel=1e-9)
            failed += 1
    assert failed > 5


@pytest.mark.parametrize("way", WAYS)
def test_states_go_on_bit_for_bit(way, tmp_path, source):
    def build():
        return CollaPipeEnv(scenario_of(source), "surrogate")

    env = build()
    env.reset(seed=5)
    actions = make_actions(env, 6)
    env.step(actions[0])
    env.step(actions[1])
    other = way(env, build, tmp_path / "state.npz")
    assert_same([other.step(a) for a in actions[2:]], [env.step(a) for a in actions[2:]])


def test_single_and_vector_environments_agree_and_so_does_torch(source):
    scenario = scenario_of(source)
    vector, tensors = CollaPipeVectorEnv(3, scenario, "surrogate"), CollaPipeTorchVectorEnv(3, scenario)
    singles = [CollaPipeEnv(scenario, "surrogate") for _ in range(3)]
    vector.reset(seed=[4, 5, 6])
    tensors.reset(seed=[4, 5, 6])
    for i, env in enumerate(singles):
        env.reset(seed=4 + i)
    for action in make_actions(vector, 5, (3,)):
        reward = vector.step(action)[1]
        alone = [env.step(a)[1] for env, a in zip(singles, action, strict=True)]
        np.testing.assert_array_equal(reward, alone)
        there = tensors.step(torch.as_tensor(action))[1]
        np.testing.assert_allclose(there.cpu().numpy(), reward, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("client", lambda x: x + 1000, "client holds"),
        ("position_s", lambda x: x + 1e6, "position_s lies outside of its client's period"),
        ("residual_s", lambda x: x + 1.0, "residual_s does not agree with the file"),
        ("present", lambda x: ~x, "present is not what the file|does not agree"),
        ("since_s", lambda x: x - 1e6, "since_s holds -"),
    ],
)
def test_damaged_states_are_refused(source, name, change, message):
    env = CollaPipeEnv(scenario_of(source), "surrogate")
    env.reset(seed=1)
    env.step(env.action_space.sample())
    state = env.get_state()
    wrong = copy.deepcopy(state)
    part = wrong["mdp"]["simulator"]
    for inner in (part["processes"]["presence"], part["system"]["processes"]["presence"]):
        if name in inner:
            inner[name] = change(inner[name])
    with pytest.raises(StateError, match=message):
        env.set_state(wrong)
    env.set_state(state)


def test_nobody_sees_clients_or_ends(source):
    env = CollaPipeVectorEnv(3, scenario_of(source, visibility="full"), "surrogate")
    env.reset(seed=0)
    for state in (env.state, env._mdp.world.state):
        assert set(state.processes["presence"]) == {"present", "announced", "since_s"}


def test_dssra_plus_charges_failures_by_what_is_believed(source):
    scenario = scenario_of(source, {"on_mean_s": 60.0, "hazard_factors": [0.5, 2.0], "graceful": 0.0})
    env = CollaPipeVectorEnv(3, scenario, "surrogate", reward="delay")
    observation, _ = env.reset(seed=0)
    policy = DSSRAPlus(scenario, failure_price=10.0)
    for _ in range(4):
        observation, reward, *_ = env.step_allocation(policy.act(observation, env.state))
        assert np.isfinite(reward).all()


def test_digests_tell_files_apart_and_written_scenarios_say_which_one(tmp_path, source):
    first = scenario_of(source)
    text = scenario_to_yaml(first)
    assert scenario_from_text(text, "there", "there") == first
    spec = dict(first.dynamics.processes)["presence"]
    assert len(spec.availability_checksum) == 64
    path = write(tmp_path / "clients.json", random_clients(20))
    one = scenario_of(path)
    digest, written = scenario_digest(one), scenario_to_yaml(one)
    write(tmp_path / "clients.json", {**random_clients(20), "0": client([1.0], [2.0], 1000.0)})
    assert scenario_digest(scenario_of(path)) != digest
    with pytest.raises(ScenarioError, match=r"has the checksum .*is not the file of this scenario"):
        scenario_from_text(written, "there", "there")
    with pytest.raises((DataError, ScenarioError), match="is not the file of this scenario"):
        CollaPipeEnv(one, "surrogate")
    (tmp_path / "clients.json").unlink()
    with pytest.raises(DataError, match="no such file"):
        CollaPipeEnv(scenario_from_text(written, "there", "there"), "surrogate")


def test_a_file_chooses_the_kind_of_presence(source):
    plain = load_scenario({"base": "small", "dynamics": {"processes": {"presence": {}}}})
    assert type(Presence.of(plain)) is Presence
    assert type(Presence.of(scenario_of(source))) is PlayedPresence


def test_relative_files_are_found_below_the_folder_of_data(tmp_path, monkeypatch):
    write(tmp_path / "clients.json", random_clients(20))
    monkeypatch.setenv("COLLAPIPE_DATA", str(tmp_path))
    assert len(process_of(scenario_of("clients.json")).bank) == 12


FAULTS = [
    ({"availability_checksum": "00"}, r"availability_checksum is given without a file"),
    ({"availability": "no/such.json"}, r"presence: availability: no/such.json.*: no such file"),
    ({"availability": "."}, r"is a folder: name the JSON file"),
    ({"availability_split": "tset"}, r"availability_split: got 'tset'"),
]


@pytest.mark.parametrize(("fields", "message"), FAULTS)
def test_faults_are_named(fields, message):
    with pytest.raises(ScenarioError, match=message):
        load_scenario({"base": "small", "dynamics": {"processes": {"presence": fields}}})


def test_files_may_have_the_bytes_that_their_reader_takes(tmp_path, monkeypatch):
    path = write(tmp_path / "clients.json", random_clients(20))
    monkeypatch.setattr("collapipe_env.trace_files.availability_files.MOST_BYTES", 100)
    with pytest.raises(ScenarioError, match=r"clients.json: cannot be read .*100"):
        scenario_of(path)


def test_files_that_do_not_do_are_refused(tmp_path):
    few = write(tmp_path / "few.json", random_clients(4))
    with pytest.raises(ScenarioError, match=r"3 clients in the part 'train' .* for 5 devices.*share_clients"):
        process_of(scenario_of(few))
    assert len(process_of(scenario_of(few, {"share_clients": True})).bank) == 3
    with pytest.raises(DataError, match=r"the part 'test' holds none of its 4 clients"):
        process_of(scenario_of(few, {"availability_split": "test"}))
    bad = write(tmp_path / "bad.json", {"0": {**client([5.0], [3.0], 9.0)}})
    with pytest.raises(DataError, match=r"client '0': window 0 from 5 to 3 s"):
        process_of(scenario_of(bad))


def test_fields_without_effect_are_named(source):
    fields = {"off_mean_s": 5.0, "on_shape": 2.0}
    assert len(idle_fields(scenario_of(source, fields))) == 2
    plain = {"base": "small", "dynamics": {"processes": {"presence": {"share_clients": True}}}}
    assert list(idle_fields(load_scenario(plain))) == ["dynamics.processes.presence.share_clients = True"]


def test_a_real_file_plays():
    found = sorted(DATA.rglob("*availab*.json")) + sorted(DATA.rglob("*behave_trace*.json"))
    if not found:
        pytest.skip("no file of clients' availability below COLLAPIPE_DATA")
    env = CollaPipeVectorEnv(2, scenario_of(str(found[0])), "surrogate")
    env.reset(seed=0)
    for action in make_actions(env, 3, (2,)):
        env.step(action)
