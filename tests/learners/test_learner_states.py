"""States of real training: a run that was written down goes on as the one that was not, with every option."""

import copy
import pickle
import time

import numpy as np
import pytest
import torch
from federation_support import CUT, alive, make, plan_of
from learner_support import N, single_outcome, small_learner
from state_damage_support import damaged
from variants_support import mostly_slow

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import StateError
from collapipe_env.learners.surrogate import SurrogateLearner
from collapipe_env.physics.allocation import COMMON, COPIES, SEQUENTIAL
from collapipe_env.physics.payload import UpdateFormat
from collapipe_env.physics.training_memory import FULL_PRECISION, TrainingMemory
from collapipe_env.training.federation import Federation

FEW_BITS = TrainingMemory(16, 8, recompute=True)
OPTIONS = {
    "adamw": {},
    "momentum and a schedule": {
        "optimizer": "sgd",
        "momentum": 0.9,
        "schedule": "cosine",
        "warmup_steps": 2,
    },
    "a schedule within rounds": {
        "local_steps": 3,
        "schedule": "linear",
        "warmup_steps": 4,
        "schedule_steps": 20,
    },
    "plain SGD": {"optimizer": "sgd", "momentum": 0.0, "gradient_clip": 0.0},
    "server momentum": {"aggregation": "fedavgm", "aggregation_momentum": 0.9},
    "fedyogi, proximal": {"aggregation": "fedyogi", "proximal": 0.1},
    "hidden tokens": {"token_dropout": 0.3},
    "top-k in 8 bits": {"update_format": UpdateFormat(8, "top-k")},
    "adapters": {"update_format": UpdateFormat(32, "lora", lora_rank=2)},
    "predicted weights": {"local_steps": 3, "weight_prediction": True, "staleness": True},
    "few bits": {"local_steps": 2, "memory": FEW_BITS},
    "one head for all": {"local_steps": 2, "head": "common"},
    "dropout": {"dropout": 0.2},
    "few bits, stale weights": {"local_steps": 2, "memory": FEW_BITS, "staleness": True},
}
TOTAL = sum(CUT[0])


def ways(run):
    """The run by every way to write it down."""
    yield Federation.from_state(run._setup, run.get_state())
    yield pickle.loads(pickle.dumps(run))
    yield copy.deepcopy(run)


def round_of(run, mode=COMMON, server_blocks=0, staleness=False, lost=()):
    """Train one round in which all clusters run all blocks but those of the server."""
    survived = alive(run._setup.local_steps, tuple(n not in lost for n in range(N)))
    blocks = np.array(CUT) if not server_blocks else np.array([[TOTAL - server_blocks]] * N)
    gaps = np.tile(np.arange(blocks.shape[1])[::-1], (N, 1)) if staleness else None
    return run.train_round(plan_of(run, blocks, survived, on_server=server_blocks, mode=mode, staleness=gaps))


def assert_go_on(run, others, **options):
    before = torch.get_rng_state()
    for lost in ((), (1,), ()):
        losses = [round_of(one, lost=lost, **options) for one in (run, *others)]
        assert len(set(losses)) == 1, losses
    for other in others:
        for mine, its in zip(run.common_model, other.common_model, strict=True):
            for one, two in zip(mine.parameters(), its.parameters(), strict=True):
                assert torch.equal(one, two)
        assert torch.equal(run._parameters, other._parameters)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", OPTIONS)
def test_run_goes_on_bit_for_bit(name):
    options = dict(OPTIONS[name])
    staleness = options.pop("staleness", False)
    _, run = make(**{"local_steps": 1, **options})
    for _ in range(2):
        round_of(run, staleness=staleness)
    assert_go_on(run, list(ways(run)), staleness=staleness)


@pytest.mark.parametrize("memory", [FULL_PRECISION, FEW_BITS], ids=["full", "few bits"])
@pytest.mark.parametrize(
    ("mode", "blocks"), mostly_slow([(COPIES, 0), (COPIES, 2), (SEQUENTIAL, 0), (SEQUENTIAL, 2)], [1, 3])
)
def test_run_under_split_training_goes_on_bit_for_bit(mode, blocks, memory):
    _, run = make(memory=memory)
    round_of(run)
    round_of(run, mode, blocks)
    others = list(ways(run))
    assert_go_on(run, others)  # other kinds of rounds between, whose servers know nothing yet
    assert_go_on(run, others, mode=mode, server_blocks=blocks)
    assert_go_on(run, others, mode=COPIES + SEQUENTIAL - mode, server_blocks=1)


@pytest.mark.parametrize("evaluation", ["inline", "background"])
def test_learner_goes_on_bit_for_bit(evaluation):
    settings = {"evaluate_every": 2, "metric_every": 2, "evaluation": evaluation}
    learner = small_learner(1, **settings)
    outcome = single_outcome(CUT, alive())
    for _ in range(3):
        learner.train_round(outcome)
    other = small_learner(1, seeds=(99,), **settings)
    other.set_state(learner.get_state())
    others = [other, pickle.loads(pickle.dumps(learner)), copy.deepcopy(learner)]
    reports = [[one.train_round(outcome) for _ in range(4)] for one in (learner, *others)]
    for row in reports[1:]:
        for mine, its in zip(reports[0], row, strict=True):
            for name in ("loss", "metric", "train_loss"):
                np.testing.assert_array_equal(getattr(mine, name), getattr(its, name))


def learning_env(workload=None, **changes):
    learning = {"evaluation_samples": 20, "metric_samples": 20, "evaluate_every": 1, **changes}
    return {"base": "small", "dynamics": {"rounds": 3}, "learning": learning, "workload": workload or {}}


FEW_BITS_FIELDS = {
    "train_bits": 16, "stored_activation_bits": 16, "activation_bits": 16, "gradient_bits": 16,
    "moment_bits": 8, "recompute": True, "micro_batches": [2, 4],
}  # fmt: skip


@pytest.mark.parametrize(
    ("workload", "memory"), [({}, FULL_PRECISION), (FEW_BITS_FIELDS, FEW_BITS)], ids=["full", "few bits"]
)
def test_environment_that_trains_goes_on_and_simulates_bit_for_bit(workload, memory, tmp_path):
    env = CollaPipeEnv(learning_env(workload))
    env.reset(seed=0)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(4)]
    env.step(actions[0])
    env.save_state(tmp_path / "state.safetensors")
    (run,) = env.unwrapped._mdp.world.learner._runs
    assert run._setup.memory == memory
    fresh = CollaPipeEnv(learning_env(workload))
    fresh.load_state(tmp_path / "state.safetensors")
    others = [fresh, pickle.loads(pickle.dumps(env)), copy.deepcopy(env)]
    simulated = env.simulate(actions[1])
    for action in actions[1:]:
        steps = [one.step(action) for one in (env, *others)]
        for step in [*steps[1:], *([simulated] if action is actions[1] else [])]:
            np.testing.assert_array_equal(step[0], steps[0][0])
            assert step[1:] == steps[0][1:]
        if steps[0][3]:  # a new episode: new data orders and models, from the generator
            resets = [one.reset() for one in (env, *others)]
            for observation, info in resets[1:]:
                np.testing.assert_array_equal(observation, resets[0][0])
                assert info == resets[0][1]


def test_vector_environment_that_trains_simulates_over_an_end():
    env = CollaPipeVectorEnv(2, learning_env(), autoreset_mode="SameStep")
    env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(3):
        action = env.action_space.sample()
        simulated, step = env.simulate(action), env.step(action)
        for one, two in zip(simulated[:4], step[:4], strict=True):
            np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(simulated[4]["loss"], step[4]["loss"])
    assert step[3].all()


def test_learner_before_its_first_reset_has_a_state():
    env = CollaPipeEnv(learning_env())
    copy_of = pickle.loads(pickle.dumps(env))
    env.set_state(copy_of.get_state())
    first, second = env.reset(seed=3), copy_of.reset(seed=3)
    np.testing.assert_array_equal(first[0], second[0])


def changed(tree, place, change):
    *path, last = place.split("/")
    part = tree = copy.deepcopy(tree)
    for name in path:
        part = part[name]
    part[last] = change(part[last])
    return tree


@pytest.mark.parametrize(
    ("place", "change"),
    [
        ("data", lambda _: "0" * 16),
        ("runs", lambda _: {}),
        ("runs/0", lambda _: 5),
        ("runs/0/model", lambda model: dict(list(model.items())[1:])),
        ("runs/0/head", lambda head: {name: values[..., :-1] for name, values in head.items()}),
        ("runs/0/streams", lambda _: {}),
        ("runs/0/streams/0/waiting", lambda waiting: waiting + 10**6),
        ("runs/0/streams/0/rng", lambda _: None),
        ("runs/0/optimizers/0/0", lambda memory: dict.fromkeys(memory, np.zeros(3))),
        ("runs/0/servers", lambda _: {"7": {}}),
        ("runs/0/servers", lambda _: {"1": {"99": {}}}),
        ("runs/0/exchange/rounding", lambda state: state[:-1]),
        ("runs/0/round", lambda _: -1),
        ("desk/loss", lambda _: np.zeros(7)),
        ("runs/0/round", lambda played: played + 1),
        ("runs/0/streams", lambda streams: {**streams, "3": streams["0"]}),
        ("runs/0/optimizers", lambda own: {**own, "3": own["0"]}),
        ("runs/0/optimizers/0/0", lambda memory: {"exp_avg_sq": memory["exp_avg_sq"]}),
        ("runs/0/optimizers/0/0/step", lambda step: np.full_like(step, np.nan)),
        ("runs/0/step", lambda _: -1),
        ("runs/0/head_optimizer/0", lambda memory: {**memory, "momentum_buffer": memory["exp_avg"]}),
        ("desk/rounds", lambda rounds: rounds + 1),
        ("desk/waiting", lambda _: [1]),
        ("desk/waiting", lambda _: {}),
        ("desk/waiting", lambda _: {"0": {}}),
        ("desk/waiting", lambda found: {"0": {**found["0"], "loss": 1.0}}),
        ("desk/waiting", lambda found: {"0": {**found["0"], "metrics": [1]}}),
    ],
)
def test_damaged_state_is_refused_and_nothing_changes(place, change):
    settings = {"evaluation": "background", "evaluate_every": 1}
    learner, expected = small_learner(1, **settings), small_learner(1, **settings)
    outcome = single_outcome(CUT, alive())
    learner.train_round(outcome)
    state = learner.get_state()
    expected.set_state(state)
    with pytest.raises(StateError, match="learner/desk/waiting" if place == "desk/waiting" else "."):
        learner.set_state(changed(state, place, change))
    assert learner.train_round(outcome).train_loss == expected.train_round(outcome).train_loss


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
def test_state_whose_rounds_disagree_is_refused(place, change):
    env = CollaPipeEnv(learning_env())
    env.reset(seed=0)
    env.step(env.action_space.sample())
    state = env.get_state()
    with pytest.raises(StateError):
        env.set_state(changed(state, f"mdp/simulator/{place}", change))
    env.set_state(state)
    env.step(env.action_space.sample())


def test_state_of_training_that_diverged_is_one_too():
    learner = small_learner(1)
    outcome = single_outcome(CUT, alive())
    learner.train_round(outcome)
    state = changed(
        learner.get_state(),
        "runs/0/model",
        lambda model: {n: v * np.float32("nan") for n, v in model.items()},
    )
    learner.set_state(state)
    learner.train_round(outcome)
    diverged = learner.get_state()
    assert np.isnan(diverged["runs"]["0"]["optimizers"]["0"]["0"]["exp_avg"]).any()
    learner.set_state(diverged)
    assert np.isnan(learner.train_round(outcome).train_loss).all()


def numbers_of(tree):
    """The same tree with the type, shape and bytes of every array."""
    if isinstance(tree, dict):
        return [(name, numbers_of(part)) for name, part in tree.items()]
    return (tree.dtype.str, tree.shape, tree.tobytes()) if isinstance(tree, np.ndarray) else tree


@pytest.mark.parametrize("count", [30, pytest.param(150, marks=pytest.mark.slow)])
def test_random_damages_are_refused_or_harmless(count):
    env = CollaPipeEnv(learning_env(evaluation="background"))
    twin = CollaPipeEnv(learning_env(evaluation="background"))
    env.reset(seed=0)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(3)]
    env.step(actions[0])
    good = env.get_state()
    twin.set_state(good)
    expected = numbers_of(twin.get_state())
    rng = np.random.default_rng(count)
    refused = 0
    for _ in range(count):
        tree, what = damaged(rng, good)
        try:
            env.set_state(tree)
        except StateError as error:
            refused += 1
            size = len(str(error))
            assert size < 1500, what
            assert numbers_of(env.get_state()) == expected, what
        else:
            start = time.perf_counter()
            with np.errstate(all="ignore"):
                for action in actions[1:]:
                    env.step(action)
            assert time.perf_counter() - start < 20.0, what
            env.set_state(good)
    assert count / 3 < refused < count
    for action in actions[1:]:
        one, two = env.step(action), twin.step(action)
        np.testing.assert_array_equal(one[0], two[0])
        assert one[1:] == two[1:]


def test_state_of_another_learner_is_refused():
    env = CollaPipeEnv(learning_env())
    surrogate = CollaPipeEnv(learning_env(), "surrogate")
    env.reset(seed=0)
    surrogate.reset(seed=0)
    with pytest.raises(StateError, match="'SurrogateLearner', this environment 'TorchLearner'"):
        env.set_state(surrogate.get_state())
    learner = SurrogateLearner.from_scenario(env.scenario, 1)
    with pytest.raises(StateError, match="learner/progress is missing"):
        learner.set_state(small_learner(1).get_state())
