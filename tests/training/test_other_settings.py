"""Real training inside other programs: what these have set in PyTorch changes no bit."""

import copy
import pickle
from contextlib import nullcontext
from functools import cache

import numpy as np
import pytest
import torch
from learner_support import outcome_of
from settings_support import SETTINGS, default_type
from variants_support import mostly_slow

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.ground.torch_settings import own_settings
from collapipe_env.scenario import load_scenario
from collapipe_env.training.real_learner import TorchLearner

N, BLOCKS, STEPS = 2, 2, 2
SMALL = {
    "evaluation_samples": 20, "metric_samples": 4, "evaluate_every": 1, "warmup_steps": 0,
    "token_dropout": 0.2, "dropout": 0.1,
    "proxy": {
        "style": None, "width": 8, "feedforward": 8, "heads": 2, "sequence_length": 8, "vocabulary": 300,
    },
}  # fmt: skip
KINDS = {
    "single precision": {},
    "matrix products in bfloat16": {"precision": "bfloat16"},
    "evaluated in the background": {"evaluation": "background"},
}
ENTRIES = {name for name in vars(TorchLearner) if not name.startswith("_")}


def bits(value):
    """All numbers of a result, exactly."""
    if isinstance(value, dict):
        return {str(name): bits(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [bits(one) for one in value]
    return value.tobytes() if hasattr(value, "tobytes") else repr(value)


def scenario_of(kind):
    workload = {"task": "language-modelling", "blocks": BLOCKS, "batch_size": 8, "local_steps": STEPS}
    workload |= {"style": "gpt2", "learned_positions": 128, "tied_head": True}
    clusters, learning = {"clusters": N, "devices": 2}, {**SMALL, **KINDS[kind]}
    return load_scenario({"base": "small", "workload": workload, "cluster": clusters, "learning": learning})


def everything(kind, folder, inside=lambda _: nullcontext()):
    """Every entry of the learner once: its results, and what ``inside`` was asked for."""
    called = set()

    def call(name, entry, *arguments):
        called.add(name)
        with inside(name):
            return entry(*arguments)

    def trained(learner):
        return bits(vars(call("train_round", learner.train_round, outcome)))

    survived = np.ones((N, STEPS, 8), dtype=bool)
    outcome = outcome_of([(1, 1)] * N, survived, micro_batches=(2,) * N)
    first, second = (
        call("from_scenario", TorchLearner.from_scenario, scenario_of(kind), 1) for _ in range(2)
    )
    seen = [call("prepare", first.prepare)[0].data_digest]
    seen += [bits(vars(call("reset", first.reset, [np.random.default_rng(3)]))), trained(first)]
    state = call("get_state", first.get_state)
    call("require_rounds", second.require_rounds, state, np.array([1]))
    call("set_state", second.set_state, state)
    seen += [trained(one) for one in (first, second)]
    seen.append(call("written_samples", second.written_samples, 1))
    call("save_checkpoint", second.save_checkpoint, folder)
    seen += [(path.name, path.read_bytes()) for path in sorted(folder.iterdir())]
    seen += [bits(call("get_state", one.get_state)) for one in (first, second)]
    return seen, called


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """What every entry gives outside other programs, for each kind of training."""
    return cache(lambda kind: everything(kind, tmp_path_factory.mktemp("plain") / "model"))


@pytest.fixture(autouse=True)
def _program_stays_as_it_was():
    before = torch.get_rng_state()
    yield
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_default_dtype() == torch.float32
    assert torch.get_default_device() == torch.device("cpu")
    assert torch.is_grad_enabled()


def test_every_public_entry_is_played(plain):
    assert plain("single precision")[1] == ENTRIES


CASES = [(kind, name) for kind in KINDS for name in SETTINGS]


@pytest.mark.parametrize(
    ("kind", "name"),
    # By default the first kind in all settings, and the others in all settings at once.
    mostly_slow(
        CASES, [place for place, (_, name) in enumerate(CASES) if place < 11 or name == "all at once"]
    ),
)
def test_settings_around_the_whole_training_change_nothing(kind, name, tmp_path, plain):
    found = everything(kind, tmp_path / "model", lambda _: SETTINGS[name]())[0]
    assert found == plain(kind)[0]


@pytest.mark.parametrize("entry", sorted(ENTRIES))
def test_settings_around_one_entry_change_nothing(entry, tmp_path, plain):
    def inside(name):
        return SETTINGS["all at once"]() if name == entry else nullcontext()

    found = everything("single precision", tmp_path / "model", inside)[0]
    assert found == plain("single precision")[0]


def episode(folder, inside):
    """Everything that an environment does with its learner."""
    workload, cluster = {"blocks": BLOCKS, "batch_size": 8}, {"clusters": N, "devices": 2}
    scenario = {"base": "small", "workload": workload, "cluster": cluster, "learning": SMALL}
    with inside():
        env, loaded = CollaPipeEnv(scenario), CollaPipeEnv(scenario)
        env.reset(seed=0)
        env.action_space.seed(0)
        actions = [env.action_space.sample() for _ in range(3)]
        env.step(actions[0])
        env.save_state(folder / "state.safetensors")
        loaded.load_state(folder / "state.safetensors")
        everyone = [env, loaded, copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
        seen = [bits([one.simulate(actions[2]), one.step(actions[1]), one.get_state()]) for one in everyone]
    # Outside again: nothing that was made inside breaks later.
    return seen, [bits(one.step(actions[2])) for one in everyone]


@pytest.mark.parametrize("name", mostly_slow(SETTINGS, [len(SETTINGS) - 1]))
def test_environment_is_the_same_inside_other_programs(name, tmp_path):
    assert episode(tmp_path, SETTINGS[name]) == episode(tmp_path, nullcontext)


def test_of_two_trainings_at_a_time_the_last_to_end_restores_the_default_type():
    with default_type(torch.float64):
        first, second = own_settings(), own_settings()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert torch.get_default_dtype() == torch.float32
        second.__exit__(None, None, None)
        assert torch.get_default_dtype() == torch.float64
