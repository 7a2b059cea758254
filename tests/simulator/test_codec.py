"""Actions: what each entry does to the allocation, the way back by encoding, and the names of the parts."""

import dataclasses

import array_api_strict
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import Allocation, stack_allocations
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.codec import ActionCodec

CHOICES = ((1,), (1, 2, 4, 8), (2, 3, 6), (1, 2, 4, 8, 16, 32, 64))


PARAMETERS = system_parameters(load_scenario("small"))


def codec_of(devices, blocks, **scalars):
    costs = dataclasses.replace(PARAMETERS.costs, blocks=blocks)
    return ActionCodec(dataclasses.replace(PARAMETERS, costs=costs, **scalars), devices)


@st.composite
def codecs(draw):
    return codec_of(
        draw(st.integers(1, 7)),
        draw(st.integers(1, 200)),
        clusters=draw(st.integers(1, 4)),
        micro_batch_choices=draw(st.sampled_from(CHOICES)),
        power_min_w=draw(st.sampled_from([0.002, 0.01, 0.2])),
        power_max_w=0.2,
        bandwidth_floor=draw(st.sampled_from([0.0, 0.01, 0.24])),
    )


def random_caps(rng, codec, lead):
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


@settings(max_examples=60, deadline=None)
@given(codec=codecs(), seed=st.integers(0, 2**32 - 1), lead=st.sampled_from([(), (2,), (2, 2)]))
def test_decoding_inverts_encoding(codec, seed, lead):
    rng = np.random.default_rng(seed)
    caps = random_caps(rng, codec, lead)
    allocation = random_allocation(rng, codec, caps)
    action = codec.encode(allocation)
    assert action.dtype == np.float32
    assert action.shape == (*lead, codec.action_size)
    assert (np.abs(action) <= 1.0).all()
    back = codec.decode(action, caps)
    np.testing.assert_array_equal(back.blocks, allocation.blocks)
    np.testing.assert_array_equal(back.micro_batches, allocation.micro_batches)
    np.testing.assert_allclose(back.device_power, allocation.device_power, rtol=1e-6)
    np.testing.assert_allclose(back.cu_power, allocation.cu_power, rtol=1e-6)
    np.testing.assert_allclose(back.bandwidth, allocation.bandwidth, atol=1e-6)


@pytest.mark.parametrize("convert", [torch.asarray, array_api_strict.asarray])
@settings(max_examples=10, deadline=None)
@given(codec=codecs(), seed=st.integers(0, 2**32 - 1))
def test_other_libraries_decode_alike(convert, codec, seed):
    rng = np.random.default_rng(seed)
    caps, action = random_caps(rng, codec, (2,)), rng.uniform(-1.2, 1.2, (2, codec.action_size))
    expected, found = codec.decode(action, caps), codec.decode(convert(action), convert(caps))
    for field in ("blocks", "micro_batches", "bandwidth", "device_power", "cu_power"):
        one, other = (np.asarray(getattr(plan, field)) for plan in (found, expected))
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-15)


SCALARS = {
    "micro_batch_choices": (1, 2, 4, 8),
    "power_min_w": 0.01,
    "power_max_w": 1.0,
    "bandwidth_floor": 0.1,
}
CODEC = codec_of(3, 12, clusters=2, **SCALARS)
CAPS = np.full((2, 3), 12)


@pytest.mark.parametrize("decode", [ActionCodec.decode, ActionCodec.decode_finite])
def test_layout_of_an_action(decode):
    codec = codec_of(3, 7, clusters=2, **SCALARS)
    action = -np.ones((2, 9))
    action[0, :3] = [1.0, 0.0, -1.0]  # segments 4.67 : 2.33 : 0
    action[0, 3:6] = [1.0, 0.0, -1.0]  # device powers
    action[0, 6] = 1.0  # the CU's
    action[1, 7] = 1 / 3  # third of four choices
    action[1, 8] = 1.0  # the second cluster takes all of the free band
    allocation = decode(codec, action.ravel(), CAPS)
    # Where all are left over alike, the first device has one more.
    np.testing.assert_array_equal(allocation.blocks, [[5, 2, 0], [3, 2, 2]])
    np.testing.assert_allclose(allocation.device_power, [[1.0, 0.1, 0.01], [0.01] * 3])
    np.testing.assert_allclose(allocation.cu_power, [1.0, 0.01])
    np.testing.assert_array_equal(allocation.micro_batches, [1, 4])
    np.testing.assert_allclose(allocation.bandwidth, [0.1, 0.9])


def test_a_device_at_the_bottom_works_only_if_it_must():
    codec = codec_of(3, 6, clusters=1, **SCALARS)
    action = np.zeros(codec.action_size)
    action[1] = -1.0
    assert codec.decode(action, np.array([[6, 6, 6]])).blocks.tolist() == [[3, 0, 3]]
    assert codec.decode(action, np.array([[2, 6, 2]])).blocks.tolist() == [[2, 2, 2]]


def test_values_outside_the_box_are_clipped():
    rng = np.random.default_rng(0)
    action = rng.uniform(-3.0, 3.0, CODEC.action_size)
    a, b = CODEC.decode(action, CAPS), CODEC.decode(np.clip(action, -1, 1), CAPS)
    for field in dataclasses.fields(Allocation):
        np.testing.assert_array_equal(getattr(a, field.name), getattr(b, field.name))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"blocks": np.array([[12, 0, 0], [11, 0, 0]])}, r"blocks of environment 0, cluster 1 is.*L = 12"),
        ({"blocks": np.array([[13, -1, 0], [12, 0, 0]])}, "non-negative"),
        ({"blocks": np.array([[6, 0]])}, r"blocks has shape \(1, 2\)"),
        ({"micro_batches": np.array([1, 3])}, r"micro_batches of .*cluster 1 is 3, .*\[1, 2, 4, 8\]"),
        ({"cu_power": np.array([0.1, 1.3])}, r"cu_power of .*cluster 1 is 1.3, .*\[0.01, 1\] W"),
        ({"device_power": np.full((2, 3), np.nan)}, "device_power of .*device 0 is nan"),
        ({"bandwidth": np.array([0.5, 0.4])}, "sum to 0.9"),
        ({"bandwidth": np.array([0.95, 0.05])}, "least share of 0.05"),
    ],
)
def test_what_the_box_cannot_express_is_refused(changes, message):
    allocation = CODEC.decode(np.zeros(CODEC.action_size), CAPS)
    with pytest.raises(AllocationError, match=message):
        CODEC.encode(dataclasses.replace(allocation, **changes))


def test_stacked_allocations_keep_their_rows():
    rng = np.random.default_rng(0)
    plain = [CODEC.decode(rng.uniform(-1, 1, CODEC.action_size), CAPS) for _ in range(3)]
    batch = stack_allocations(plain)
    assert batch.stage is None
    np.testing.assert_array_equal(batch[1].bandwidth, plain[1].bandwidth)
    mixed = stack_allocations([plain[0], dataclasses.replace(plain[1], **plain[1].groups._asdict())])
    np.testing.assert_array_equal(mixed.device_blocks, [plain[0].blocks, plain[1].blocks])
    np.testing.assert_array_equal(mixed.sample_share, mixed.device_blocks > 0)


@pytest.mark.parametrize("lead", [(), (4,), (2, 5)])
@pytest.mark.parametrize(
    "convert", [np.asarray, torch.asarray, array_api_strict.asarray], ids=["numpy", "torch", "strict"]
)
def test_split_and_join_are_inverses(convert, lead):
    rng = np.random.default_rng(0)
    action = rng.uniform(-1.0, 1.0, (*lead, CODEC.action_size)).astype(np.float32)
    parts = CODEC.split(convert(action))
    assert list(parts) == list(CODEC.parts)
    for name, part in CODEC.parts.items():
        assert tuple(parts[name].shape) == (*lead, *part.shape)
    joined = CODEC.join(parts)
    assert type(joined) is type(convert(action))
    np.testing.assert_array_equal(np.asarray(joined), action)
    assert np.asarray(joined).dtype == np.float32
    # Joined from a mapping in another order, too.
    assert np.array_equal(np.asarray(CODEC.join(dict(reversed(parts.items())))), action)


def joined(**parts):
    middle = {name: np.zeros(part.shape) for name, part in CODEC.parts.items()}
    return CODEC.decode(CODEC.join({**middle, **parts}), CAPS)


def test_each_part_means_what_it_says():
    plan = joined(segments=np.array([[-1.0, 0.0, 1.0], [1.0, -1.0, -1.0]]))
    assert plan.blocks.tolist() == [[0, 4, 8], [12, 0, 0]]
    plan = joined(device_power=np.array([[-1.0, 0.0, 1.0]] * 2), cu_power=np.array([-1.0, 1.0]))
    np.testing.assert_allclose(plan.device_power, [[0.01, 0.1, 1.0]] * 2)
    np.testing.assert_allclose(plan.cu_power, [0.01, 1.0])
    for score, number in ((-1.0, 1), (-0.4, 2), (0.4, 4), (1.0, 8)):
        assert joined(micro_batches=np.array([score, -1.0])).micro_batches.tolist() == [number, 1]
    np.testing.assert_allclose(joined(bandwidth=np.array([1.0, -1.0])).bandwidth, [0.9, 0.1])
    np.testing.assert_allclose(
        joined(bandwidth=np.array([1.0, 0.0])).bandwidth, [0.1 + 0.8 * 2 / 3, 0.1 + 0.8 / 3]
    )


PARTS = CODEC.split(np.zeros(18))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bandwith": PARTS["bandwidth"]}, "'bandwith' is not part of an action: did you mean 'bandw"),
        ({"segments": ...}, "part 'segments' is missing"),
        ({"segments": np.zeros((3, 2))}, r"part 'segments' has shape \(3, 2\), expected \(2, 3\)"),
        ({"cu_power": np.zeros(3)}, r"part 'cu_power' has shape \(3,\), expected \(2,\)"),
    ],
)
def test_bad_parts_are_refused(given, message):
    parts = {name: values for name, values in {**PARTS, **given}.items() if values is not ...}
    with pytest.raises(AllocationError, match=message):
        CODEC.join(parts)
    with pytest.raises(AllocationError, match=r"action has shape \(17,\), expected"):
        CODEC.split(np.zeros(17))
