"""Actions decode to feasible allocations, always, and encoding is the inverse."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import Allocation, stack_allocations, with_explicit_groups
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import action_codec, mean_state, system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.codec import ActionCodec

CHOICES = ((1,), (1, 2, 4, 8), (2, 3, 6), (1, 2, 4, 8, 16, 32, 64))


@st.composite
def codecs(draw, max_blocks=200):
    clusters = draw(st.integers(1, 4))
    low = draw(st.sampled_from([0.002, 0.01, 0.2]))
    return ActionCodec(
        clusters=clusters,
        devices=draw(st.integers(1, 7)),
        blocks=draw(st.integers(1, max_blocks)),
        micro_batch_choices=draw(st.sampled_from(CHOICES)),
        power_min_w=low,
        power_max_w=0.2,
        bandwidth_floor=draw(st.sampled_from([0.0, 0.01, 0.24])) if clusters < 5 else 0.0,
    )


def random_caps(rng, codec, lead=()):
    """Caps (..., N, K), some zero for absent devices, each cluster just or amply able to hold L."""
    shape = (*lead, codec.clusters, codec.devices)
    caps = rng.integers(0, codec.blocks + 2, shape) * (rng.random(shape) > 0.3)
    missing = np.maximum(codec.blocks - caps.sum(axis=-1), 0)
    where = rng.integers(0, codec.devices, shape[:-1])
    np.put_along_axis(
        caps, where[..., None], np.take_along_axis(caps, where[..., None], -1) + missing[..., None], -1
    )
    return caps


def random_allocation(rng, codec, caps):
    blocks = np.zeros_like(caps)
    for place in np.ndindex(caps.shape[:-1]):
        for _ in range(codec.blocks):
            open_ = np.flatnonzero(blocks[place] < caps[place])
            blocks[place][rng.choice(open_)] += 1
    lead = caps.shape[:-1]
    span = np.log(codec.power_max_w / codec.power_min_w)
    unit = rng.choice([0.0, 1.0, 0.5, rng.random()], (*caps.shape[:-1], codec.devices + 1))
    power = np.clip(codec.power_min_w * np.exp(span * unit), codec.power_min_w, codec.power_max_w)
    shares = rng.dirichlet(np.full(codec.clusters, 0.5), lead[:-1])
    return Allocation(
        blocks=blocks,
        micro_batches=rng.choice(codec.micro_batch_choices, lead),
        bandwidth=codec.bandwidth_floor + (1.0 - codec.clusters * codec.bandwidth_floor) * shares,
        device_power=power[..., 1:],
        cu_power=power[..., 0],
    )


def check(codec, caps, allocation):
    """The simulator's own check, with memories that hold just the caps."""
    scenario = load_scenario({"base": "small"})
    parameters = system_parameters(scenario)
    costs = dataclasses.replace(parameters.costs, blocks=codec.blocks)
    parameters = dataclasses.replace(
        parameters,
        costs=costs,
        clusters=codec.clusters,
        power_min_w=codec.power_min_w,
        power_max_w=codec.power_max_w,
        micro_batch_choices=codec.micro_batch_choices,
        bandwidth_floor=codec.bandwidth_floor,
    )
    per_block = costs.block_state_bytes + costs.batch_size * costs.stored_activation_bytes
    ones = np.ones(caps.shape)
    from collapipe_env.scenario import fixed_layout

    state = dataclasses.replace(
        mean_state(scenario, fixed_layout(scenario)),
        uplink_gain=ones[..., 0],
        memory_bytes=caps * per_block,
        memory_cap=caps,
        present=caps > 0,
        speed=ones,
    )
    check_allocation(parameters, state, allocation)


@settings(max_examples=60, deadline=None)
@given(codec=codecs(), seed=st.integers(0, 2**32 - 1))
def test_decoding_inverts_encoding(codec, seed):
    rng = np.random.default_rng(seed)
    caps = random_caps(rng, codec, lead=(2,))
    allocation = random_allocation(rng, codec, caps)
    action = codec.encode(allocation)
    assert action.dtype == np.float32
    assert action.shape == (2, codec.action_size)
    assert (np.abs(action) <= 1.0).all()
    back = codec.decode(action, caps)
    np.testing.assert_array_equal(back.blocks, allocation.blocks)
    np.testing.assert_array_equal(back.micro_batches, allocation.micro_batches)
    np.testing.assert_allclose(back.device_power, allocation.device_power, rtol=1e-6)
    np.testing.assert_allclose(back.cu_power, allocation.cu_power, rtol=1e-6)
    np.testing.assert_allclose(back.bandwidth, allocation.bandwidth, atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), codec=codecs(max_blocks=20), seed=st.integers(0, 2**32 - 1))
def test_every_action_is_feasible(data, codec, seed):
    elements = st.floats(-1.0, 1.0, width=32) | st.sampled_from([-1.0, 1.0, 0.0, -5.0, 5.0])
    action = data.draw(hnp.arrays(np.float32, codec.action_size, elements=elements))
    caps = random_caps(np.random.default_rng(seed), codec)
    allocation = codec.decode(action, caps)
    if codec.bandwidth_floor > 0.0:  # else a share may be zero, which a round cannot be played with
        check(codec, caps, allocation)
        assert (allocation.bandwidth >= codec.bandwidth_floor * (1 - 1e-12)).all()
    assert allocation.bandwidth.sum() == pytest.approx(1.0)
    assert (allocation.blocks <= caps).all()
    scores = action.reshape(codec.clusters, -1)[:, : codec.devices]
    for n in range(codec.clusters):
        willing = scores[n] > -1.0
        if willing.any() and caps[n][willing].sum() >= codec.blocks:
            assert not allocation.blocks[n][~willing].any()


def small_codec(**changes):
    values = {
        "clusters": 2,
        "devices": 3,
        "blocks": 6,
        "micro_batch_choices": (1, 2, 4, 8),
        "power_min_w": 0.002,
        "power_max_w": 0.2,
        "bandwidth_floor": 0.1,
    }
    return ActionCodec(**{**values, **changes})


CAPS = np.full((2, 3), 6)


@pytest.mark.parametrize(
    ("value", "micro_batches", "power"), [(-1.0, 1, 0.002), (1.0, 8, 0.2), (0.0, 4, 0.02)]
)
def test_extreme_actions(value, micro_batches, power):
    codec = small_codec()
    allocation = codec.decode(np.full(codec.action_size, value), CAPS)
    np.testing.assert_array_equal(allocation.blocks, 2)
    np.testing.assert_array_equal(allocation.micro_batches, micro_batches)
    np.testing.assert_allclose(allocation.node_power, power, rtol=1e-12)
    np.testing.assert_allclose(allocation.bandwidth, 0.5)


@pytest.mark.parametrize("decode", [ActionCodec.decode, ActionCodec.decode_finite])
def test_layout_of_an_action(decode):
    codec = small_codec(blocks=7)
    action = -np.ones((2, 9))
    action[0, :3] = [1.0, 0.0, -1.0]  # segments 4.67 : 2.33 : 0
    action[0, 3:6] = [1.0, 0.0, -1.0]  # device powers
    action[0, 6] = 1.0  # the CU's
    action[1, 7] = 1 / 3  # third of four choices
    action[1, 8] = 1.0  # the second cluster takes all of the free band
    allocation = decode(codec, action.ravel(), CAPS)
    # Where all are left over alike, the first device has one more.
    np.testing.assert_array_equal(allocation.blocks, [[5, 2, 0], [3, 2, 2]])
    np.testing.assert_allclose(allocation.device_power, [[0.2, 0.02, 0.002], [0.002] * 3])
    np.testing.assert_allclose(allocation.cu_power, [0.2, 0.002])
    np.testing.assert_array_equal(allocation.micro_batches, [1, 4])
    np.testing.assert_allclose(allocation.bandwidth, [0.1, 0.9])


def test_a_device_at_the_bottom_works_only_if_it_must():
    codec = small_codec(clusters=1)
    action = np.zeros(codec.action_size)
    action[1] = -1.0
    assert codec.decode(action, np.array([[6, 6, 6]])).blocks.tolist() == [[3, 0, 3]]
    assert codec.decode(action, np.array([[2, 6, 2]])).blocks.tolist() == [[2, 2, 2]]


def test_values_outside_the_box_are_clipped():
    codec = small_codec()
    rng = np.random.default_rng(0)
    action = rng.uniform(-3.0, 3.0, codec.action_size)
    a, b = codec.decode(action, CAPS), codec.decode(np.clip(action, -1, 1), CAPS)
    for field in dataclasses.fields(Allocation):
        np.testing.assert_array_equal(getattr(a, field.name), getattr(b, field.name))


@pytest.mark.parametrize("name", ["small", "medium", "large", "xlarge"])
def test_actions_have_the_documented_length(name):
    scenario = load_scenario(name)
    codec = action_codec(scenario)
    assert codec.action_size == scenario.clusters * (2 * scenario.max_devices + 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"blocks": np.array([[6, 0, 0], [5, 0, 0]])}, r"blocks.*\[5, 6\].*L = 6"),
        ({"blocks": np.array([[7, -1, 0], [6, 0, 0]])}, "non-negative"),
        ({"blocks": np.array([[6, 0]])}, r"blocks has shape \(1, 2\)"),
        ({"micro_batches": np.array([1, 3])}, r"micro_batches = \[3\].*\[1, 2, 4, 8\]"),
        ({"cu_power": np.array([0.1, 0.3])}, r"cu_power lies in \[0.1, 0.3\] W"),
        ({"device_power": np.full((2, 3), np.nan)}, "device_power lies in .nan"),
        ({"bandwidth": np.array([0.5, 0.4])}, "sum to 0.9"),
        ({"bandwidth": np.array([0.95, 0.05])}, "least share of 0.05"),
    ],
)
def test_what_the_box_cannot_express_is_refused(changes, message):
    codec = small_codec()
    allocation = codec.decode(np.zeros(codec.action_size), CAPS)
    with pytest.raises(AllocationError, match=message):
        codec.encode(dataclasses.replace(allocation, **changes))


def test_groups_are_refused_by_the_box():
    codec = small_codec()
    grouped = with_explicit_groups(codec.decode(np.zeros(codec.action_size), CAPS))
    with pytest.raises(AllocationError, match="step_allocation"):
        codec.encode(grouped)
    with pytest.raises(AllocationError, match="go together"):
        dataclasses.replace(grouped, sample_share=None)


def test_stacked_allocations_keep_their_rows():
    codec = small_codec()
    rng = np.random.default_rng(0)
    plain = [codec.decode(rng.uniform(-1, 1, codec.action_size), CAPS) for _ in range(3)]
    batch = stack_allocations(plain)
    assert batch.stage is None
    np.testing.assert_array_equal(batch[1].bandwidth, plain[1].bandwidth)
    mixed = stack_allocations([plain[0], with_explicit_groups(plain[1])])
    np.testing.assert_array_equal(mixed.device_blocks, [plain[0].blocks, plain[1].blocks])
    np.testing.assert_array_equal(mixed.sample_share, mixed.device_blocks > 0)
