"""Named parts of actions: what each entry does to the allocation, and the way back."""

import array_api_strict
import numpy as np
import pytest
import torch

from collapipe_env.ground.errors import AllocationError
from collapipe_env.simulator.codec import ActionCodec

CODEC = ActionCodec(
    clusters=2,
    devices=3,
    blocks=12,
    micro_batch_choices=(1, 2, 4, 8),
    power_min_w=0.01,
    power_max_w=1.0,
    bandwidth_floor=0.1,
)
CAPS = np.full((2, 3), 12)


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


def test_order_of_the_entries():
    parts = CODEC.split(np.arange(18.0))
    assert parts["segments"].tolist() == [[0, 1, 2], [9, 10, 11]]
    assert parts["device_power"].tolist() == [[3, 4, 5], [12, 13, 14]]
    assert parts["cu_power"].tolist() == [6, 15]
    assert parts["micro_batches"].tolist() == [7, 16]
    assert parts["bandwidth"].tolist() == [8, 17]


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


def test_descriptions_say_the_numbers():
    said = {name: part.description for name, part in CODEC.parts.items()}
    assert "12 blocks" in said["segments"]
    assert "-1 for 0.01 W, 1 for 1 W, 0 for 0.1 W" in said["device_power"] == said["cu_power"]
    assert "nearest of 1, 2, 4, 8" in said["micro_batches"]
    assert "floor of 0.1" in said["bandwidth"]


def test_bad_parts_are_refused():
    parts = CODEC.split(np.zeros(18))
    with pytest.raises(AllocationError, match=r"action has shape \(17,\), expected"):
        CODEC.split(np.zeros(17))
    with pytest.raises(AllocationError, match="'bandwith' is not part of an action: did you mean 'bandw"):
        CODEC.join({**parts, "bandwith": parts["bandwidth"]})
    with pytest.raises(AllocationError, match="part 'segments' is missing"):
        CODEC.join({name: values for name, values in parts.items() if name != "segments"})
    with pytest.raises(AllocationError, match=r"part 'segments' has shape \(3, 2\), expected \(2, 3\)"):
        CODEC.join({**parts, "segments": np.zeros((3, 2))})
    with pytest.raises(AllocationError, match=r"part 'cu_power' has shape \(3,\), expected \(2,\)"):
        CODEC.join({**parts, "cu_power": np.zeros(3)})
