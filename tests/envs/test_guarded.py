"""Records of arrays that cannot be written to, whole and array by array."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest
import torch
from env_support import make_actions, make_env

from collapipe_env.envs.guarded import copied, guarded, guarded_on_use, read_only
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.round import RoundCosts
from collapipe_env.simulator.state import SystemState


@pytest.fixture(scope="module")
def played():
    env = make_env("moving")
    env.reset(seed=0)
    env.step(make_actions(env, 1)[0])
    return env


def arrays(record, place=""):
    """Every array of a record, by its dotted name."""
    for field in dataclasses.fields(record):
        value, name = getattr(record, field.name), f"{place}{field.name}"
        if dataclasses.is_dataclass(value):
            yield from arrays(value, f"{name}.")
        elif hasattr(value, "dtype"):
            yield name, value


@pytest.mark.parametrize("show", [guarded, guarded_on_use])
@pytest.mark.parametrize("what", ["state", "costs"])
def test_arrays_are_read_only_views(played, show, what):
    record = played.last_round.state if what == "state" else played.last_round.costs
    seen = show(record, read_only)
    assert isinstance(seen, SystemState if what == "state" else RoundCosts)
    names = [name for name, _ in arrays(record)]
    assert len(names) > (11 if what == "state" else 20)
    for (name, mine), (other, theirs) in zip(arrays(seen), arrays(record), strict=True):
        assert name == other
        assert np.shares_memory(mine, theirs)
        assert theirs.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            mine[...] = 0
    if what == "costs":
        assert seen.allocation.stage is None
        np.testing.assert_array_equal(seen.graph.active, record.graph.active)


@pytest.mark.parametrize("show", [guarded, guarded_on_use])
def test_tensors_are_copies(played, show):
    state = played.state.map(torch.asarray)
    before = state.backlog.clone()
    seen = show(state, copied)
    seen.backlog.fill_(7.0)
    assert torch.equal(state.backlog, before)
    assert (seen.backlog == 7.0).all()  # one copy, not one for each look


def test_records_on_use_are_records(played):
    state = guarded_on_use(played.state, read_only)
    assert state.map(np.copy).backlog.flags.writeable
    assert state[0].speed.shape == played.state.speed.shape[1:]
    replaced = dataclasses.replace(state, backlog=state.backlog + 1.0)
    np.testing.assert_array_equal(replaced.backlog, played.state.backlog + 1.0)
    np.testing.assert_array_equal(replaced.speed, played.state.speed)
    for again in (copy.deepcopy(state), pickle.loads(pickle.dumps(state))):
        np.testing.assert_array_equal(again.uplink_gain, played.state.uplink_gain)
    with pytest.raises(dataclasses.FrozenInstanceError):
        state.backlog = 1.0
    with pytest.raises(AttributeError, match="'SystemState' object has no attribute 'backlok'"):
        _ = state.backlok


def test_costs_can_be_worked_out_from_what_is_shown(played):
    record, parameters = played.last_round, played._mdp.world.parameters
    state = guarded_on_use(record.state, read_only)
    plan = guarded_on_use(record.costs, read_only).allocation
    np.testing.assert_array_equal(round_costs(parameters, state, plan).delay, record.costs.delay)
