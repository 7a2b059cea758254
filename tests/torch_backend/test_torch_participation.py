"""Rounds that clusters sit out, and local steps of their own, on tensors as in NumPy."""

import dataclasses

import numpy as np
import pytest

from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.even_split import even_split

OPENED = {
    "base": "small",
    "decisions": ["segments", "micro_batches", "bandwidth", "powers", "participation", "local_steps"],
    "radio": {"waterfall_threshold": 5.0},
    "learning": {"partition": "dirichlet", "schedule": "linear", "warmup_steps": 3},
}
VARIANTS = {
    "copies": OPENED,
    "common": {**OPENED, "workload": {"head": "common"}, "budgets": {"per": "second"}},
    "migrating": {**OPENED, "dynamics": {"processes": {"migration": {}}}},
}
ROUNDS = [
    (None, None),
    ([[1, 0], [0, 1]], [[4, 1], [2, 16]]),
    ([[1, 1], [1, 0]], None),
    (None, [[8, 2], [1, 1]]),
    ([[0, 1], [0, 1]], [[1, 1], [1, 4]]),
]


@pytest.mark.parametrize("observation", ["flat", "graph"])
@pytest.mark.parametrize("name", list(VARIANTS))
def test_rounds_on_tensors_are_those_in_numpy(name, observation):
    options = {"observation": observation}
    env = CollaPipeVectorEnv(2, VARIANTS[name], "surrogate", **options)
    tensors = CollaPipeTorchVectorEnv(2, VARIANTS[name], **options)
    env.reset(seed=4)
    tensors.reset(seed=4)
    plan = even_split(system_parameters(env.scenario), env.state)
    for plays, steps in ROUNDS:
        said = dataclasses.replace(
            plan,
            participates=None if plays is None else np.array(plays),
            local_steps=None if steps is None else np.array(steps),
        )
        one, two = env.step_allocation(said), tensors.step_allocation(said)
        costs, other = env.last_round.costs, tensors.last_round.costs
        for field in ("delay", "cluster_delay", "energy", "barrier", "survival", "memory", "local_step"):
            found = getattr(other, field).numpy()
            np.testing.assert_allclose(found, getattr(costs, field), rtol=1e-9, err_msg=field)
        for field in ("backlog", "absence"):
            found = getattr(tensors.last_round, field).numpy()
            np.testing.assert_allclose(found, getattr(env.last_round, field), rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(tensors.last_round.arrivals.counts, env.last_round.arrivals.counts)
        np.testing.assert_allclose(two[1].numpy(), one[1], rtol=1e-5)
        np.testing.assert_allclose(two[4]["loss"].numpy(), one[4]["loss"], rtol=1e-9)
        seen, there = (one[0], two[0]) if observation == "graph" else ({"": one[0]}, {"": two[0]})
        for part, values in seen.items():
            np.testing.assert_allclose(there[part].numpy(), values, rtol=1e-5, atol=1e-5)
    rows = np.ones(2, dtype=bool)
    mine, theirs = env._mdp.summaries(rows), tensors._mdp.summaries(tensors._place.array(rows))
    for key, values in mine.items():
        np.testing.assert_allclose(theirs[key].numpy(), values, rtol=1e-9, err_msg=key)
    state = tensors.get_state()
    tensors.set_state(state)
    granted = state["mdp"]["sums"]["total_granted"]
    np.testing.assert_allclose(granted, env.get_state()["mdp"]["sums"]["total_granted"], rtol=1e-12)
