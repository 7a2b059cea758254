"""Scenarios that cannot hold their encoder are refused with the cluster and the missing bytes."""

import re
from typing import Any

import pytest

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import block_bytes, load_scenario
from collapipe_env.simulator.build import workload_costs

# Worked by hand, d = 8, d_ff = 16, a = 2, q = 4, B = 2:
#   w = 4*64 + 2*8*16 + 9*8 + 16 = 600 parameters, 16 w = 9600 bytes
#   alpha = 4*8*(66 + 9*2*4/8) = 32*75 = 2400 bytes at 32 bits, 32*(34 + 5) = 1248 at 16
#   block = 9600 + 2*2400 = 14400 bytes at 32 bits, 9600 + 2*1248 = 12096 at 16
WORKLOAD = {"width": 8, "feedforward": 16, "heads": 2, "sequence_length": 4, "batch_size": 2, "blocks": 5}


def tiny(memory: list[float], devices: Any, **workload: Any) -> dict[str, Any]:
    return {
        "workload": WORKLOAD | workload,
        "devices": {"profiles": [{"active_power_w": 1.0, "memory_bytes": memory}]},
        "cluster": {"clusters": 2, "devices": devices},
    }


@pytest.mark.parametrize(("bits", "size"), [(32, 14400.0), (16, 12096.0)])
def test_bytes_of_a_block(bits: int, size: float) -> None:
    scenario = load_scenario(tiny([1e9], 2, stored_activation_bits=bits))
    assert block_bytes(scenario) == size


def test_adapters_make_room_for_blocks_that_do_not_fit_otherwise() -> None:
    # Rank 2: w_a = 2 (8*8 + 2*16) = 192, so a block takes 4*600 + 16*192 + 2*2400 = 10272 bytes.
    adapted = {"update_compression": "lora", "lora_rank": 2}
    scenario = load_scenario(tiny([5 * 10272.0], 1, **adapted))
    assert block_bytes(scenario) == 10272
    assert workload_costs(scenario).block_state_bytes + 2 * 2400 == 10272
    assert not _builds(tiny([5 * 10272.0], 1))
    assert not _builds(tiny([5 * 10272.0 - 1], 1, **adapted))


@pytest.mark.parametrize(
    ("bits", "missing"),
    [(32, 3 * 14400 - 30000), (16, 3 * 12096 - 30000)],  # one device must grow from two blocks to three
)
def test_refusal_names_cluster_and_missing_bytes(bits: int, missing: int) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(tiny([30000.0], [3, 2], stored_activation_bits=bits))
    message = str(caught.value)
    assert "cluster 1 cannot hold the encoder: its 2 devices have room for 4 of 5 blocks" in message
    assert f"{missing} bytes are missing" in message
    assert "cluster 0" not in message


def test_missing_bytes_over_several_devices() -> None:
    # Two devices of 10000 bytes: each lacks 4400 for its first block, the three others take 14400 each.
    with pytest.raises(ScenarioError, match=rf" {2 * 4400 + 3 * 14400} bytes are missing"):
        load_scenario(tiny([10000.0], [6, 2]))


@pytest.mark.parametrize(("memory", "fits"), [(43200.0, True), (43199.0, False)])
def test_the_boundary_is_exact(memory: float, fits: bool) -> None:
    mapping = tiny([memory], 1, blocks=3)
    if fits:
        assert load_scenario(mapping).blocks == 3
    else:
        with pytest.raises(ScenarioError, match=r"room for 2 of 3 blocks.* 1 bytes are missing"):
            load_scenario(mapping)


def test_layouts_drawn_anew_are_judged_by_the_worst_draw() -> None:
    mapping = tiny([14400.0, 1e6], 2)
    fixed = next(
        seed
        for seed in range(100)
        if _builds(mapping | {"cluster": {"clusters": 2, "devices": 2, "layout_seed": seed}})
    )
    mapping["cluster"] = {"clusters": 2, "devices": 2, "layout_seed": fixed, "layout": "per_episode"}
    with pytest.raises(ScenarioError, match=r"cluster 0.* room for 2 of 5 .*worst draw.* 43200 bytes"):
        load_scenario(mapping)


def test_a_fixed_layout_is_judged_by_its_own_draw() -> None:
    clusters = [{"clusters": 2, "devices": 2, "layout_seed": seed} for seed in range(60)]
    outcomes = [_builds(tiny([14400.0, 1e6], 2) | {"cluster": cluster}) for cluster in clusters]
    assert 0.3 < sum(outcomes) / len(outcomes) < 0.8  # each cluster has a large device 3 times in 4


def test_overrides_are_checked_and_many_clusters_are_counted() -> None:
    with pytest.raises(ScenarioError) as caught:
        load_scenario("large").with_overrides({"workload.blocks": 1000})
    assert re.findall(r"cluster (\d+) cannot", str(caught.value)) == ["0", "1", "2"]
    assert "and 13 more clusters" in str(caught.value)


def _builds(mapping: dict[str, Any]) -> bool:
    try:
        load_scenario(mapping)
    except ScenarioError:
        return False
    return True
