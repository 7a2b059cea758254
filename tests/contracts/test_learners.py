"""What holds for every learner and every option of training: states, copies, resets, and what is refused.

A run that was written down goes on to the bit as the one that was not.
"""

import copy
import pickle

import numpy as np
import pytest
import torch
from learner_support import BLOCKS, B, N, new_learner, outcome_of
from state_damage_support import changed, damaged
from state_ways_support import assert_same

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import StateError
from collapipe_env.learners.factory import LEARNERS, make_learner
from collapipe_env.learners.surrogate import SurrogateLearner
from collapipe_env.learners.surrogate_fits import fit_for
from collapipe_env.physics.allocation import COPIES, SEQUENTIAL
from collapipe_env.physics.moves import LOST, STAY, TRAVEL
from collapipe_env.physics.payload import UpdateFormat
from collapipe_env.physics.training_memory import TrainingMemory
from collapipe_env.scenario import load_scenario

SCENARIO = load_scenario("small").with_overrides(
    {
        "cluster.clusters": N, "workload.blocks": BLOCKS, "workload.batch_size": B,
        "learning.evaluation_samples": 20, "learning.schedule": "linear", "dynamics.rounds": 9,
    }
)  # fmt: skip
FEW_BITS = {"memory": TrainingMemory(16, 8, recompute=True)}
LAGS = {"staleness": [(2, 1, 0), (1, 0, 0), (0, 0, 0)]}
COPIED, SERVED = ({"server_blocks": (2,) * N, "mode": mode} for mode in (COPIES, SEQUENTIAL))
HEADS = {"server_blocks": (0,) * N, "mode": COPIES}
MOVED = {"moments": np.array([[LOST, STAY, TRAVEL, STAY]] * N)}
OWN = {"steps": (2, 0, 1)}
WAITING = {"evaluation": "background", "evaluate_every": 2, "metric_every": 4}
OPTIONS = {
    # Options of a real learner, local steps, rounds before its state is taken, and rounds after it.
    "adamw": ({}, 1, [{}, {}], [{}]),
    "momentum and a schedule": (
        {"optimizer": "sgd", "momentum": 0.9, "schedule": "cosine", "warmup_steps": 2}, 1, [{}, {}], [{}]
    ),
    "a schedule within rounds": (
        {"schedule": "linear", "warmup_steps": 4, "schedule_steps": 20}, 3, [{}], [{}]
    ),
    "plain SGD": ({"optimizer": "sgd"}, 1, [{}], [{}]),
    "server momentum": ({"aggregation": "fedavgm"}, 1, [{}, {}], [{}]),
    "fedyogi, proximal": ({"aggregation": "fedyogi", "proximal": 0.1}, 1, [{}, {}], [{}]),
    "hidden tokens": ({"token_dropout": 0.3}, 1, [{}], [{}]),
    "top-k in 8 bits": ({"update_format": UpdateFormat(8, "top-k")}, 1, [{}, {}], [{}]),
    "adapters": ({"update_format": UpdateFormat(32, "lora", lora_rank=2)}, 1, [{}], [{}]),
    "predicted weights": ({}, 3, [LAGS], [LAGS]),
    "few bits": (FEW_BITS, 1, [{}], [{}]),
    "few bits, stale weights": (FEW_BITS, 2, [LAGS], [LAGS]),
    "few bits, sequential": (FEW_BITS, 1, [SERVED], [{}, SERVED]),
    "one head for all": ({"head": "common"}, 2, [{}], [{}]),
    "dropout": ({"dropout": 0.2}, 1, [{}], [{}]),
    "moved moments": ({"moment_bits": 16}, 1, [{}, MOVED], [MOVED]),
    "own steps": ({"most_local_steps": 2, "schedule": "inverse-sqrt"}, 1, [OWN], [OWN]),
    "heads apart": ({}, 1, [{}, HEADS], [{}, HEADS]),
    # Other kinds of rounds between, whose servers know nothing yet.
    "copies": ({}, 1, [COPIED], [{}, COPIED, SERVED]),
    "sequential": ({}, 1, [SERVED], [{}, SERVED, COPIED]),
    "in the background": (WAITING, 1, [{}], [{}, {}, {}]),
    "background, waiting": (WAITING, 1, [{}, {}], [{}, {}]),
}  # fmt: skip


def rngs(*seeds):
    return [np.random.default_rng(seed) for seed in seeds]


def surrogate(_, own_steps=True):
    constants = fit_for(load_scenario("small")).constants
    return SurrogateLearner(constants, 1, B, 0.3, halving, own_steps=own_steps)


def halving(step):
    return 0.5**step


def rows_of(name, num_envs=1):
    """A learner before its first reset, its local steps, and rounds before and after its state is taken."""
    if name in LEARNERS.names():
        return make_learner(name, SCENARIO, num_envs), 1, [{}, {}], [{}]
    if name == "surrogate, own steps":
        return surrogate(num_envs), 2, [OWN], [{}, OWN]
    options, local_steps, *rounds = OPTIONS[name]
    return new_learner(local_steps, num_envs, **options), local_steps, *rounds


def outcome(local_steps=1, num_envs=1, **played):
    """A round; the blocks of split training are those that the server leaves."""
    if "server_blocks" in played:
        played["blocks"] = [(BLOCKS - count,) for count in played["server_blocks"]]
    steps = max(played.get("steps", (local_steps,)))
    one = outcome_of(**{"local_steps": max(steps, local_steps), **played})
    if num_envs == 1:
        return one
    return type(one)(
        *(np.repeat(part, num_envs, axis=0) for part in (one.blocks, one.micro_batches)),
        arrivals=type(one.arrivals).of(
            np.repeat(one.arrivals.survived, num_envs, axis=0), np.repeat(one.micro_batches, num_envs, axis=0)
        ),
        survival=np.repeat(one.survival, num_envs, axis=0),
    )


@pytest.mark.parametrize("name", [*LEARNERS.names(), "surrogate, own steps", *OPTIONS])
def test_a_learner_goes_on_to_the_bit_wherever_its_state_comes_to(name):
    learner, local_steps, before, after = rows_of(name)
    learner.reset(rngs(11))
    for played in before:
        learner.train_round(outcome(local_steps, **played))
    state = learner.get_state()
    other = rows_of(name)[0]
    other.set_state(state)
    everyone = [learner, other, pickle.loads(pickle.dumps(learner)), copy.deepcopy(learner)]
    random_state = torch.get_rng_state()
    if hasattr(learner, "remember"):
        back = learner.remember()
        learner.train_round(outcome(local_steps))
        back()
    assert_same(learner.get_state(), state)
    for played, alive in zip([*after, after[-1]], [(True, False, True), *[None] * len(after)], strict=True):
        reports = [vars(one.train_round(outcome(local_steps, alive=alive, **played))) for one in everyone]
        for report in reports[1:]:
            assert_same(report, reports[0])
    for one in everyone[1:]:
        assert_same(one.get_state(), learner.get_state())
    assert torch.equal(torch.get_rng_state(), random_state)


@pytest.mark.parametrize("name", LEARNERS.names())
def test_an_environment_is_the_same_alone_and_in_a_batch_and_resets_alone(name):
    batch, alone, fresh = (make_learner(name, SCENARIO, count) for count in (2, 1, 1))
    batch.reset(rngs(1, 2))
    alone.reset(rngs(2))
    for _ in range(2):
        found, expected = batch.train_round(outcome(num_envs=2)), alone.train_round(outcome())
        assert found.loss[1] == expected.loss[0]
    again = batch.reset(rngs(3, 99), np.array([True, False]))
    assert again.loss.tolist() == [fresh.reset(rngs(3)).loss[0], found.loss[1]]
    np.testing.assert_array_equal(np.isnan(again.train_loss), [True, name == "surrogate"])
    found, first, third = (
        batch.train_round(outcome(num_envs=2)),
        *(one.train_round(outcome()) for one in (fresh, alone)),
    )
    assert found.loss.tolist() == [first.loss[0], third.loss[0]]
    np.testing.assert_array_equal(found.train_loss, [first.train_loss[0], third.train_loss[0]])


@pytest.mark.parametrize("name", LEARNERS.names())
def test_a_learner_before_its_first_reset_has_a_state(name):
    learner, other = (make_learner(name, SCENARIO, 1) for _ in range(2))
    other.reset(rngs(5))
    other.train_round(outcome())
    other.set_state(learner.get_state())
    learner.require_rounds(other.get_state(), np.array([-1]))
    assert_same(vars(learner.reset(rngs(3))), vars(other.reset(rngs(3))))


def with_change(tree, place, change):
    part = tree
    for name in place.split("/"):
        part = part[name]
    return changed(tree, place, change(copy.deepcopy(part)))


NOTHING = np.zeros(0, dtype=np.int64)
DAMAGES = [
    ("data", lambda _: "0" * 16),
    ("runs", lambda _: {}),
    ("runs/0", lambda _: 5),
    ("runs/0/model", lambda model: dict(list(model.items())[1:])),
    ("runs/0/head", lambda head: {name: values[..., :-1] for name, values in head.items()}),
    ("runs/0/streams/0/waiting", lambda waiting: waiting + 10**6),
    ("runs/0/streams/0/rng", lambda _: None),
    ("runs/0/streams", lambda streams: {**streams, "3": streams["0"]}),
    ("runs/0/optimizers", lambda own: {**own, "3": own["0"]}),
    ("runs/0/optimizers/0/0", lambda memory: {"exp_avg_sq": memory["exp_avg_sq"]}),
    ("runs/0/optimizers/0/0", lambda memory: dict.fromkeys(memory, np.zeros(3))),
    ("runs/0/optimizers/0/0/step", lambda step: np.full_like(step, np.nan)),
    ("runs/0/optimizers/0/0/step", np.zeros_like),
    ("runs/0/servers", lambda _: {"7": {}}),
    ("runs/0/servers", lambda _: {"1": {"99": {}}}),
    ("runs/0/exchange/rounding", lambda state: state[:-1]),
    ("runs/0/round", lambda _: -1),
    ("runs/0/round", lambda played: played + 1),
    ("runs/0/step", lambda _: -1),
    ("runs/0/head_optimizer/0", lambda memory: {**memory, "momentum_buffer": memory["exp_avg"]}),
    ("runs/0/partition/1", lambda part: np.concatenate([part, part[:1]])),
    ("runs/0/partition/1", lambda part: part[1:]),
    ("runs/0/partition/1", lambda part: part.astype(float)),
    ("runs/0/partition", lambda all: {**all, "0": np.concatenate([all["0"], all["1"]]), "1": NOTHING}),
    ("desk/loss", lambda _: np.zeros(7)),
    ("desk/rounds", lambda rounds: rounds + 1),
    ("desk/waiting", lambda _: [1]),
    ("desk/waiting", lambda _: {}),
    ("desk/waiting", lambda _: {"0": {}}),
    ("desk/waiting", lambda found: {"0": {**found["0"], "loss": 1.0}}),
    ("desk/waiting", lambda found: {"0": {**found["0"], "metrics": [1]}}),
]  # fmt: skip


@pytest.fixture(scope="module")
def written():
    """A learner whose evaluation waits, and its state after a round."""
    learner = new_learner(evaluation="background", evaluate_every=1)
    learner.reset(rngs(11))
    learner.train_round(outcome())
    return learner, learner.get_state()


@pytest.mark.parametrize(("place", "change"), DAMAGES)
def test_a_damaged_state_is_refused_and_nothing_changes(place, change, written):
    learner, state = written
    with pytest.raises(StateError, match="learner/desk/waiting" if place == "desk/waiting" else "."):
        learner.set_state(with_change(state, place, change))
    assert_same(learner.get_state(), state)


@pytest.mark.parametrize(
    ("place", "value"),
    [("progress", -1.0), ("progress", np.nan), ("step", -1), ("step", 2**60), ("round", -1), ("round", 0.5)],
)
def test_a_surrogate_refuses_numbers_that_training_never_reaches(place, value):
    learner = make_learner("surrogate", SCENARIO, 1)
    learner.reset(rngs(0))
    learner.train_round(outcome())
    state = learner.get_state()
    with pytest.raises(StateError, match=f"learner/{place}"):
        learner.set_state({**state, place: np.array([value])})
    assert_same(learner.get_state(), state)


@pytest.mark.parametrize("count", [20, pytest.param(150, marks=pytest.mark.slow)])
def test_random_damages_are_refused_or_harmless(count, written):
    learner, good = written
    rng, told = np.random.default_rng(count), []
    for _ in range(count):
        tree, what = damaged(rng, good)
        try:
            learner.set_state(tree)
        except StateError as error:
            told.append(str(error))
            assert_same(learner.get_state(), good, what)
        else:
            with np.errstate(all="ignore"):
                learner.train_round(outcome())
            learner.set_state(good)
    assert count / 3 < len(told) < count
    assert max(map(len, told)) < 1500
    assert_same(learner.get_state(), good)


def test_a_state_of_training_that_diverged_is_one_too(written):
    learner, state = written
    learner.set_state(
        with_change(
            state, "runs/0/model", lambda model: {n: v * np.float32("nan") for n, v in model.items()}
        )
    )  # fmt: skip
    learner.train_round(outcome())
    diverged = learner.get_state()
    assert np.isnan(diverged["runs"]["0"]["optimizers"]["0"]["0"]["exp_avg"]).any()
    learner.set_state(diverged)
    assert np.isnan(learner.train_round(outcome()).train_loss).all()
    learner.set_state(state)


def learning_env(workload=None, **changes):
    proxy = {"width": 8, "feedforward": 8, "heads": 2, "sequence_length": 8, "vocabulary": 200}
    learning = {
        "evaluation_samples": 20,
        "metric_samples": 20,
        "evaluate_every": 1,
        "proxy": proxy,
        **changes,
    }
    return {
        "base": "small",
        "cluster": {"clusters": 2, "devices": 2},
        "workload": {"blocks": 2, "batch_size": 8, **(workload or {})},
        "dynamics": {"rounds": 3},
        "learning": learning,
    }


def test_a_state_of_another_learner_is_refused(written):
    real, other = CollaPipeEnv(learning_env()), CollaPipeEnv(learning_env(), "surrogate")
    real.reset(seed=0)
    other.reset(seed=0)
    with pytest.raises(StateError, match="'SurrogateLearner', this environment 'TorchLearner'"):
        real.set_state(other.get_state())
    with pytest.raises(StateError, match="learner/progress is missing"):
        SurrogateLearner.from_scenario(SCENARIO, 1).set_state(written[1])


@pytest.fixture(scope="module")
def env():
    """An environment that trains, after a round."""
    env = CollaPipeEnv(learning_env())
    env.reset(seed=0)
    env.action_space.seed(0)
    env.step(env.action_space.sample())
    return env


@pytest.mark.parametrize(
    ("place", "change"),
    [
        ("learner", lambda _: {"prepared": False}),
        ("learner/runs", lambda _: {"0": None}),
        ("learner/runs/0/round", lambda played: played + 1),
        ("learner/prepared", lambda _: np.zeros(2)),
        ("system/round_index", lambda played: played + 1),
    ],
)
def test_a_state_whose_rounds_disagree_is_refused(place, change, env):
    state = env.get_state()
    with pytest.raises(StateError):
        env.set_state(with_change(state, f"mdp/simulator/{place}", change))
    assert_same(env.get_state(), state)


def test_an_environment_that_trains_goes_on_and_simulates_to_the_bit(tmp_path):
    bits = ("train_bits", "stored_activation_bits", "activation_bits", "gradient_bits")
    few = {**dict.fromkeys(bits, 16), "moment_bits": 8, "recompute": True, "micro_batches": [2, 4]}
    env, fresh = (CollaPipeEnv(learning_env(few)) for _ in range(2))
    env.reset(seed=0)
    env.action_space.seed(0)
    first, *actions = [env.action_space.sample() for _ in range(3)]
    env.step(first)
    env.save_state(tmp_path / "state.safetensors")
    fresh.load_state(tmp_path / "state.safetensors")
    others = [fresh, pickle.loads(pickle.dumps(env)), copy.deepcopy(env)]
    simulated = env.simulate(actions[0])
    for action in actions:
        steps = [one.step(action) for one in (env, *others)]
        for step in [*steps[1:], *([simulated] if action is actions[0] else [])]:
            assert_same(step[:4], steps[0][:4])
            assert step[4] == steps[0][4]
    # A new episode: new data orders and models, from the generator.
    assert steps[0][3]
    resets = [one.reset() for one in (env, *others)]
    assert_same(resets, resets[:1] * 4)


def test_a_vector_environment_that_trains_simulates_over_an_end():
    env = CollaPipeVectorEnv(2, learning_env(), autoreset_mode="SameStep")
    env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(3):
        action = env.action_space.sample()
        simulated, step = env.simulate(action), env.step(action)
        assert_same(simulated[:4], step[:4])
        np.testing.assert_array_equal(simulated[4]["loss"], step[4]["loss"])
    assert step[3].all()
