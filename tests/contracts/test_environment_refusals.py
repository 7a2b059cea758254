"""Contract of every environment's refusals: one clear error for wrong actions, plans and seeds, no trace."""

import dataclasses

import environments_support as support
import numpy as np
import pytest
import torch
from environments_support import KINDS, Player, make_actions, on_host
from state_ways_support import assert_same

from collapipe_env.ground.errors import AllocationError, ScenarioError
from collapipe_env.physics.allocation import with_schedule
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.even_split import even_split

PLANNED = ("single", "vector", "on_tensors", "adapted")
"""Those that take plans."""


def ready(kind, scenario="small", **given):
    player = Player(KINDS[kind](scenario, **given))
    player.reset(0)
    return player


def refused(player, play, given, message, error=AllocationError):
    """The error says so, and nothing has changed."""
    before = player.inner.get_state()
    with pytest.raises(error, match=message) as told:
        play(given)
    assert "\n" not in str(told.value)
    assert_same(player.inner.get_state(), before)


class Broken:
    def __array__(self, *args, **kwargs):
        raise KeyError("data")


TYPES = {
    "text": ("<U1", lambda a: a.astype("<U1")),
    "objects": ("object", lambda a: a.astype(object)),
    "complex": ("complex(64|128)", lambda a: a + 1j),
    "dates": (r"datetime64\[D\]", lambda a: a.astype(np.int64).astype("datetime64[D]")),
    "durations": (r"timedelta64\[s\]", lambda a: a.astype(np.int64).astype("timedelta64[s]")),
    "a mask": ("bool", lambda a: a > 0),
    "one word": ("<U4", lambda _: "even"),
    "ragged": ("not an array", lambda a: [[0.0], [0.0, 1.0], *a[2:].tolist()]),
    "masked": ("masked array", lambda a: np.ma.masked_array(a, mask=True)),
    "broken": ("Broken.*KeyError", lambda _: Broken()),
}
"""What is no array of real numbers, and the word of the error."""


def spoilt(array, value):
    array = array.astype(np.float64)
    array[(*(0,) * (array.ndim - 1), 7)] = value
    return array


ACTIONS = {
    **TYPES,
    "nothing": (r"is None: give an array of shape \(", lambda _: None),
    "short": (r"has shape \(.*8,?\), expected", lambda a: a[..., :8]),
    "one number": (r"have|has shape \(\)", lambda _: np.float64(0.0)),
    "another axis": ("shape", lambda a: a[None]),
    "not a number": (r"\[(0, )*7\] is nan.*finite", lambda a: spoilt(a, np.nan)),
    "endless": (r"\[(0, )*7\] is -?inf.*finite", lambda a: spoilt(a, -np.inf)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_actions(kind):
    player = ready(kind)
    action = make_actions(player.env, 1)[0]
    names = getattr(player.env, "possible_agents", None)

    def step(given):
        if names is None:
            return player.env.step(given)
        return player.env.step({**dict(zip(names, np.split(action, 2), strict=True)), names[0]: given})

    for message, spoil in ACTIONS.values():
        refused(player, step, spoil(action if names is None else action[:9]), f"action.*({message})")
    if kind in ("single", "on_tensors"):
        for message, spoil in list(ACTIONS.values())[-2:]:
            refused(player, player.env.simulate, spoil(action), f"action.*({message})")
    player.step(action)


@pytest.mark.parametrize("kind", PLANNED)
def test_every_type_of_real_numbers_is_played(kind):
    first, second = ready(kind), ready(kind)
    actions = np.ones_like(make_actions(first.env, 1)[0])
    for dtype in (np.int8, np.uint16, np.int64, np.float16, np.longdouble, ">f8"):
        mine, its = first.env.step(actions), second.env.step(actions.astype(dtype))
        np.testing.assert_array_equal(np.asarray(mine[1]), np.asarray(its[1]))


def test_tensors():
    player = ready("on_tensors")
    zeros = torch.zeros(player.env.action_space.shape)
    for given, message in (
        (zeros.to(torch.complex64), "complex64"),
        (zeros > 0, "torch.bool"),
        (zeros.to("meta"), "actions: a meta tensor"),
        (zeros.to_sparse(), "actions: a sparse_coo tensor"),
    ):
        refused(player, player.env.step, given, message)
    single = ready("single")
    nowhere = torch.zeros(single.env.action_space.shape, device="meta")
    refused(single, single.env.step, nowhere, "action: a Tensor that is not an array")


def test_rows_that_wait_for_their_reset_do_not_hide_a_wrong_type():
    player = ready("vector", max_episode_steps=1)
    actions = make_actions(player.env, 1)[0]
    player.step(actions)
    refused(player, player.env.step, actions.astype(np.complex64), "complex64")


# Plans


def put(index, value):
    def change(array):
        array = array.astype(np.float64 if isinstance(value, float) else array.dtype)
        array[index] = value
        return array

    return change


HUGE = 2**64 - 1
PLANS = {
    "too few blocks": ("blocks", put((0, 1, 0), 0), "blocks.*cluster 1.*summing to L"),
    "negative blocks": ("blocks", lambda b: b + np.array([[-9, 9, 0]] * 2), "blocks.*non-negative"),
    "broken blocks": ("blocks", lambda b: b + np.array([[-0.5, 0.5, 0.0]] * 2), "blocks.*whole"),
    "too much memory": ("blocks", lambda b: b * 0 + [[6, 0, 0]] * 2, "bytes for its 6 blocks"),
    "odd micro-batches": ("micro_batches", put((0, 0), 3), r"micro_batches.*cluster 0 is 3.*\[1, 2, 4"),
    "no power": ("cu_power", put((0, 0), 0.0), r"cu_power.*is 0.0.*\[0.001, 0.1\] W"),
    "strong device": ("device_power", put((0, 1, 2), 0.3), "device_power of .*cluster 1, device 2 is 0.3"),
    "nan power": ("device_power", put((0, 0, 0), np.nan), "device_power.*nan"),
    "nan bandwidth": ("bandwidth", put((0, 0), np.nan), "bandwidth.*nan"),
    "too much bandwidth": ("bandwidth", put((0, 0), 0.9), "bandwidth.*sum.*at most 1"),
    "wrong shape": ("bandwidth", lambda b: b[:, :1], r"bandwidth has shape \(\d, 1\), expected \(\d, 2\)"),
    "wrapped bandwidth": ("bandwidth", lambda b: np.full(b.shape, 2**62), "bandwidth.*at most 1"),
    "wrapped blocks": (  # sum to L with wrapped integers
        "blocks", lambda b: b * 0 + [[2**63 - 1, 2**63 - 1, 8]] * 2, "blocks.*non-negative",
    ),
    **{f"share {share}": ("bandwidth", put((0, 1), share), "bandwidth of .* 0, cluster 1.*at least 1e-09")
       for share in (5e-324, 1e-300, 1e-150, 9e-10, 0.0, -1.0)},
    **{f"huge {name}": (name, lambda a: np.full(a.shape, HUGE, np.uint64), rf"{name}\[0.*{HUGE}")
       for name in ("caps", "chunks", "schedule", "blocks", "micro_batches")},
    **{f"no {name}": (name, lambda _: None, f"{name} is None")
       for name in ("blocks", "micro_batches", "bandwidth", "device_power", "cu_power")},
    **{f"{name} of {field}": (field, TYPES[name][1], f"{field}.*{TYPES[name][0]}")
       for field in ("blocks", "micro_batches", "bandwidth", "device_power")
       for name in ("complex", "dates", "text", "objects", "a mask", "masked", "broken", "ragged")},
}  # fmt: skip


@pytest.mark.parametrize("kind", PLANNED)
def test_wrong_plans(kind):
    player = ready(kind)
    env, state = player.env, player.inner.state.map(on_host)
    # Some memory must be too small for the whole encoder, or the fault of that name would be none.
    assert state.memory_cap.min() < env.get_attr("scenario")[0].blocks if kind == "adapted" else True
    plan = even_split(system_parameters(player.inner.scenario), state).map(np.copy)
    for name, (field, spoil, message) in PLANS.items():
        one = with_schedule(plan, "zb-h1", 4) if name.startswith("huge") else plan
        wrong = dataclasses.replace(one, **{field: spoil(getattr(one, field))})
        refused(player, env.step_allocation, wrong, message)
        if kind != "adapted":
            refused(player, env.simulate, wrong, message)
    for wrong in (None, {"blocks": 1}, make_actions(env, 1)[0]):
        message = f"a {type(wrong).__name__} was given, expected an Allocation"
        refused(player, env.step_allocation, wrong, message)
    refused(player, env.step, plan, r"an Allocation was given.*step_allocation\(allocation\)")
    env.step_allocation(plan)


# Seeds and numbers of rows


SEEDS = {
    r"-1": -1,
    r"3\.5": 3.5,
    r"3\.0": 3.0,
    r"\(3\.0": np.float64(3.0),
    "True": True,
    "True\\)?": np.True_,
    "'12'": "12",
    "b'12'": b"12",
    r"array\(3\)": np.array(3),
    r"tensor\(3\)": torch.tensor(3),
    r"\{3, 4\}": {3, 4},
    "nan": float("nan"),
    "bits": 2**2000,
}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "adapted"])
def test_wrong_seeds(kind):
    player = ready(kind)
    for word, seed in SEEDS.items():
        listed = [("seed", seed), *([(r"seed\[1\]", [5, seed, 3])] if player.batched else ())]
        for place, given in listed:
            message = f"^{place} = .*{word}.*: use a whole number of at least 0"
            refused(player, lambda one: player.env.reset(seed=one), given, message, ScenarioError)


@pytest.mark.parametrize("value", [None, 0, -1, 2.0, True, "4", support.VARIANTS["small"]])
def test_numbers_of_environments_are_whole(value):
    with pytest.raises(ScenarioError, match=r"num_envs = .*: use a whole number of at least 1"):
        support.vector(num_envs=value)
