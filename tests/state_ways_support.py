"""Ways to go on with an environment from elsewhere, and equality bit for bit, for tests of states."""

import copy
import pickle

import numpy as np
import torch


def by_state(env, build, path):
    other = build()
    other.set_state(env.get_state())
    return other


def by_file(env, build, path):
    env.save_state(path)
    other = build()
    other.load_state(path)
    return other


def by_pickle(env, build, path):
    return pickle.loads(pickle.dumps(env))


def by_deepcopy(env, build, path):
    return copy.deepcopy(env)


WAYS = [by_state, by_file, by_pickle, by_deepcopy]


def assert_same(first, second, place=""):
    """Deep equality of what steps and states are made of, bit for bit."""
    assert type(first) is type(second), place
    if isinstance(first, dict):
        assert first.keys() == second.keys(), place
        for name in first:
            assert_same(first[name], second[name], f"{place}/{name}")
    elif isinstance(first, tuple | list):
        assert len(first) == len(second), place
        for one, other in zip(first, second, strict=True):
            assert_same(one, other, place)
    elif isinstance(first, np.ndarray) and first.dtype == object:
        assert_same(list(first), list(second), place)
    elif isinstance(first, torch.Tensor):
        assert first.dtype == second.dtype, place
        torch.testing.assert_close(first, second, rtol=0.0, atol=0.0, equal_nan=True, msg=place or None)
    elif isinstance(first, np.ndarray):
        assert first.dtype == second.dtype, place
        np.testing.assert_array_equal(first, second, err_msg=place)
    else:
        assert first == second, place
