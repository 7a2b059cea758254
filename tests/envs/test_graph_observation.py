"""Graph observations: every feature against formulas for numbers, on every array library, within bounds."""

import dataclasses
import math
from types import MappingProxyType

import array_api_strict
import gymnasium as gym
import numpy as np
import pytest
import torch
from environments_support import assert_close, make_actions, on_tensors, row_of, shortened, single, vector
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import FlattenObservation
from gymnasium.wrappers.vector import FlattenObservation as FlattenObservations
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from oracles.graph_features import expected_graph
from scenario_fuzz import drawn_scenario
from state_ways_support import assert_same

from collapipe_env import register_process
from collapipe_env.dynamics import PROCESSES, CarriedArray, Process
from collapipe_env.envs.graph_layout import GraphLayout
from collapipe_env.envs.graph_observation import GraphArrays, GraphObservations, GraphObserver
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import fixed_layout, load_scenario
from collapipe_env.simulator.build import mean_state, reference_delay, system_parameters

SINGLE = {"rtol": 1e-6, "atol": 1e-6}
ID = "CollaPipeSurrogate-Small-v0"
SCENARIOS = ("small", "migrating", "uneven", "priced")
ROOMY = {"device_energy_j": 40, "cu_energy_j": 40}


def graph(scenario, rounds=5, **given):
    return single(scenario, rounds, observation="graph", **given)


def expected(env):
    return expected_graph(env, system_parameters(env.scenario).costs)


def played_state(name):
    """A state with queues and blocks held before, and its environment."""
    env = graph(name, 4)
    env.reset(seed=3)
    for action in make_actions(env, 3, seed=1):
        env.step(action)
    return env, env.state


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.filterwarnings("ignore::collapipe_env.feasibility.EnergyBudgetWarning")
def test_features_are_the_formulas_of_the_state(name):
    # Budgets so small that queues fill.
    env = graph(load_scenario(shortened(name, 5)).with_overrides({"budgets.device_energy_j": 2.0}))
    observation, _ = env.reset(seed=3)
    queues = held = 0.0
    for action in make_actions(env, 5, seed=1):
        numbers = expected(env)
        assert list(numbers) == list(env.observation_layout)
        for part, values in numbers.items():
            assert observation[part].dtype == np.float32
            np.testing.assert_allclose(observation[part], values, **SINGLE, err_msg=part)
        assert env.observation_space.contains(observation)
        queues += numbers["device"][..., 5].sum() + numbers["cu"][:, 5].sum()
        held += numbers["device"][..., 7].sum()
        observation = env.step(action)[0]
    assert queues > 0.0
    assert (held > 0.0) == (name in ("migrating", "priced"))


def test_shares_and_noise_of_one_link_by_hand():
    """An uplink in half of the band: numbers that a pocket calculator gives."""
    radio = {"uplink_bandwidth_hz": 20e6, "noise_dbm_per_hz": -174.0}
    env = graph({"base": "small", "radio": radio, "budgets": ROOMY})
    env.reset(seed=0)
    state = dataclasses.replace(env.state, uplink_gain=np.full((1, 2), 1e-12))
    cu = GraphObservations(env.scenario).build(state)["cu"][0]
    # 10 mW, 20 MHz at -174 dBm/Hz behind 5 dB: 2.518e-13 W of noise, a half of it in a half of the band.
    assert math.exp(cu[0, 3]) == pytest.approx(0.01 * 1e-12 / (0.5 * 2.518e-13), rel=1e-3)
    np.testing.assert_array_equal(cu[0, [0, 1, 2, 3]], cu[1, [0, 1, 2, 3]])


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("library", ["numpy", "torch", "strict"])
def test_the_compiled_loop_equals_the_general_form(name, library):
    convert = {"numpy": np.asarray, "torch": torch.asarray, "strict": array_api_strict.asarray}[library]
    env, state = played_state(name)
    observer = GraphObserver(system_parameters(env.scenario))
    compiled, general = observer.build(state), observer.build_generic(state.map(convert))
    assert isinstance(general, GraphArrays)
    for part, values in compiled._asdict().items():
        found = getattr(general, part)
        assert type(found) is type(convert(np.zeros(1))), part
        assert np.asarray(found).dtype == np.float64
        np.testing.assert_allclose(np.asarray(found), values, **SINGLE, err_msg=part)


def test_other_leading_axes_than_one():
    env, state = played_state("uneven")
    observer = GraphObserver(system_parameters(env.scenario))
    many = observer.build_generic(state.map(lambda a: np.stack([a, a])))
    for part, values in observer.build_generic(state)._asdict().items():
        found = getattr(many, part)
        assert found.shape == (2, *values.shape)
        np.testing.assert_array_equal(found[1], values)


@pytest.mark.parametrize("others", [1, 3, 7])
def test_a_cluster_is_described_alike_among_any_number_of_others(others):
    """What a device is does not depend on sizes; what is shared is counted at a share of 1/N."""
    N = 1 + others

    def system(clusters, devices):
        """With sub-channels of 20 MHz and a V of 1."""
        band = {"d2d_total_hz": 20e6 * (1 + max(devices))}
        cluster = {"clusters": clusters, "devices": devices}
        scenario = load_scenario({"base": "small", "cluster": cluster, "radio": band})
        return scenario.with_overrides({"budgets.tradeoff": reference_delay(scenario)})

    alone, together = system(1, [3]), system(N, [3] + [5] * others)
    one, many = (mean_state(s, fixed_layout(s)).map(lambda a: a[None]) for s in (alone, together))

    def put(name, values):
        array = getattr(many, name).copy()
        index = (slice(0, 1), slice(0, 1), *(slice(0, size) for size in values.shape[2:]))
        array[index] = values
        return array

    rng = np.random.default_rng(0)
    queues = rng.exponential(size=one.backlog.shape)
    one = dataclasses.replace(one, backlog=queues)
    names = ("uplink_gain", "d2d_gain", "speed", "clock", "compute_power", "memory_cap", "budget", "backlog")
    many = dataclasses.replace(many, **{name: put(name, getattr(one, name)) for name in names})
    assert many.present[0, 0].tolist() == [True] * 3 + [False] * 2
    small, large = (GraphObservations(s).build(state) for s, state in ((alone, one), (together, many)))
    np.testing.assert_array_equal(large["device"][0, 0, :3], small["device"][0, 0])
    np.testing.assert_array_equal(large["hop"][0, 0, :4, :4], small["hop"][0, 0])
    layout = GraphLayout(N, 5, together.blocks)
    place = layout["cu"].place
    for name in ("log_radio_load", "log_backlog"):
        assert large["cu"][0, 0, place(name)] == small["cu"][0, 0, place(name)]
    # The whole power in less band: N times the SNR; the server's share is a part of N.
    snr, server = place("log_uplink_snr"), place("log_server_s")
    assert large["cu"][0, 0, snr] - small["cu"][0, 0, snr] == pytest.approx(math.log(N), abs=1e-6)
    seconds = [math.exp(o["cu"][0, 0, server]) - 1e-4 for o in (small, large)]
    assert seconds[1] == pytest.approx(N * seconds[0], rel=1e-2)
    assert small["cu"][0, 0, place("log_interference")] == 0.0 < large["cu"][0, 0, place("log_interference")]
    different = {"log_clusters", "floor"}
    for i, feature in enumerate(layout["context"].features):
        assert (small["context"][0, i] != large["context"][0, i]) == (feature.name in different), feature.name


def test_absent_devices_are_zero_wherever_they_stand():
    env, state = played_state("migrating")
    rng = np.random.default_rng(2)
    away = rng.random(state.present.shape) < 0.5
    state = dataclasses.replace(state, present=~away)
    observer = GraphObserver(system_parameters(env.scenario))
    for found in (observer.build(state), observer.build_generic(state)):
        np.testing.assert_array_equal(found.present, ~away)
        assert not found.device[away].any()
        assert (found.device[~away][:, 0] != 0.0).all()
        gone = np.concatenate([np.zeros((1, env.scenario.clusters, 1), bool), away], axis=-1)
        assert not found.hop[gone].any()
        assert not np.swapaxes(found.hop, 2, 3)[gone].any()
        assert not np.diagonal(found.hop, axis1=2, axis2=3).any()
    assert away.any()
    assert not away.all()


def test_dead_links_and_queues_beyond_all_bounds_stay_finite():
    # Without a most robust format, which bounds times.
    env, state = played_state({"base": "small", "radio": {"snr_floor_db": None}})
    state = dataclasses.replace(
        state,
        uplink_gain=state.uplink_gain * 0.0,
        d2d_gain=state.d2d_gain * 0.0,
        backlog=np.full_like(state.backlog, 1e300),
    )
    observer = GraphObserver(system_parameters(env.scenario))
    with np.errstate(divide="ignore"):
        general = observer.build_generic(state)._asdict()
    space = env.observation_space
    for observation in (observer.build(state)._asdict(), general):
        row = {name: array[0].astype(np.float32) for name, array in observation.items()}
        assert space.contains(row)
        np.testing.assert_array_equal(row["cu"][:, [0, 3, 5]], [[80.0, -80.0, 80.0]] * 2)


def test_a_weight_of_zero_of_the_delay_has_a_context():
    env = graph({"base": "small", "budgets": {"tradeoff": 0.0}}, reward=lambda *_: np.zeros(1))
    observation, _ = env.reset(seed=0)
    assert observation["context"][2] == -80.0
    assert env.observation_space.contains(observation)


@pytest.mark.filterwarnings("ignore")  # of budgets that nobody can meet, and fields without an effect
@pytest.mark.parametrize("seed", range(24))
def test_observations_of_any_scenario_are_within_their_bounds(seed):
    scenario, _ = drawn_scenario(seed)
    env, rng = graph(scenario), np.random.default_rng(seed)
    env.reset(seed=seed)
    state = dataclasses.replace(
        env.state,
        uplink_gain=env.state.uplink_gain * rng.exponential(size=env.state.uplink_gain.shape),
        backlog=rng.exponential(size=env.state.backlog.shape) * 10.0 ** rng.uniform(-12, 30),
    )
    observations = GraphObservations(scenario)
    observation, general = observations.build(state), observations.build_generic(state)
    for name, array in observation.items():
        for found in (array, general[name]):
            assert env.observation_space[name].contains(found[0]), name
        np.testing.assert_allclose(general[name], array, rtol=2e-6, atol=2e-6, err_msg=name)


@dataclasses.dataclass(frozen=True)
class Fields:
    share: float = 0.5


class Deaf(Process):
    """Schedulers believe that uplinks are a share as good as they are."""

    name = "deaf"
    Spec = Fields
    carries = MappingProxyType({"seen": CarriedArray("")})

    def begin(self, system, u):  # noqa: ARG002
        return {"seen": u.sum(axis=-1)}

    def known(self, carried, truth, u):  # noqa: ARG002
        return dataclasses.replace(truth, uplink_gain=self.spec.share * truth.uplink_gain)


@pytest.fixture
def deaf():
    yield register_process(Deaf)
    del PROCESSES._added["deaf"]


@pytest.mark.usefixtures("deaf")
def test_what_is_observed_is_the_estimate():
    dynamics = {"rounds": 3, "processes": {"deaf": {"share": 0.25}}}
    scenario = {"base": "small", "dynamics": dynamics, "budgets": ROOMY}
    env = graph(scenario)
    observation, _ = env.reset(seed=0)
    for _ in range(2):
        truth = env.truth.uplink_gain[0]
        np.testing.assert_array_equal(env.state.uplink_gain[0], 0.25 * truth)
        np.testing.assert_allclose(observation["cu"], expected(env)["cu"], **SINGLE)
        observation = env.step(env.action_space.sample())[0]


# Environments that observe graphs


@pytest.mark.parametrize("name", SCENARIOS)
def test_they_play_what_flat_ones_play(name):
    ours, flat = graph(name, 3), single(name, 3)
    assert ours.action_space == flat.action_space
    found, expected = ours.reset(seed=5), flat.reset(seed=5)
    assert found[1] == expected[1]
    for action in make_actions(ours, 3, seed=2):
        assert_close(found[0], row_of(GraphObservations(ours.scenario).build(ours.state), 0))
        found, expected = ours.step(action), flat.step(action)
        assert found[1:] == expected[1:]
    assert ours.summary() == flat.summary()


@pytest.mark.parametrize("build", [single, vector, on_tensors])
def test_states_fit_either_observation(build):
    one, two = (build(observation=kind) for kind in ("graph", "flat"))
    one.reset(seed=1)
    actions = make_actions(one, 3)
    one.step(actions[0])
    two.set_state(one.get_state())
    for action in actions[1:]:
        assert_same(two.step(action)[1:], one.step(action)[1:])


def test_wrappers_of_gymnasium_take_them():
    env, flat = graph("small", 9), FlattenObservation(graph("small", 9))
    env.reset(seed=0)
    observation, _ = flat.reset(seed=0)
    assert flat.observation_space.contains(observation)
    action = make_actions(env, 1)[0]
    seen = gym.spaces.flatten(env.observation_space, env.step(action)[0])
    np.testing.assert_array_equal(flat.step(action)[0], seen)
    batch = FlattenObservations(RecordEpisodeStatistics(vector("small", 2, observation="graph")))
    observations, _ = batch.reset(seed=0)
    np.testing.assert_array_equal(observations[0], observation)
    for actions in make_actions(batch, 2):
        info = batch.step(actions)[-1]
    assert info["episode"]["l"].tolist() == [2] * 3


def test_ids_and_their_specifications():
    env = gym.make(ID, observation="graph")
    again = gym.make(EnvSpec.from_json(env.spec.to_json()))
    assert again.observation_space == env.observation_space
    assert_close(again.reset(seed=3)[0], env.reset(seed=3)[0])
    batch = gym.make_vec(ID, num_envs=2, observation="graph")
    assert batch.observation_layout["device"].shape == batch.single_observation_space["device"].shape
    sync = gym.make_vec(ID, num_envs=2, vectorization_mode="sync", observation="graph")
    assert_close(batch.reset(seed=0)[0], dict(sync.reset(seed=0)[0]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gym.make(ID, observation="grahp"), "observation = 'grahp' .*did you mean 'graph'"),
        (lambda: gym.make_vec(ID, 2, observation="dict"), "observation = 'dict' .*valid names: flat, graph"),
        (lambda: gym.make_vec(ID, 2, backend="torch", observation=None), "observation = None is not known"),
        (lambda: gym.make(ID, observations="graph"), "'observations' = 'graph': did you mean 'observation'"),
        (lambda: gym.make_vec(ID, 2, observations="graph"), "did you mean 'observation'"),
        (lambda: gym.make_vec(ID, 2, backend="torch", observations="flat"), "did you mean 'observation'"),
    ],
)
def test_other_kinds_and_misspelt_arguments_are_refused(make, message):
    with pytest.raises(ScenarioError, match=message):
        make()
