"""Fields that contradict each other, geometry that cannot be placed, and memory that is too small."""

import re
from typing import Any

import numpy as np
import pytest

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import ClusterSpec, block_bytes, layout, load_scenario
from collapipe_env.simulator.build import workload_costs


def refused(source: Any) -> str:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(source)
    return str(caught.value)


LLAMA = {"style": "llama", "width": 64, "heads": 8, "kv_heads": 2, "qkv_bias": True, "rope_theta": 5e5}
GPT2 = {"style": "gpt2", "learned_positions": 64}
SECTIONS = [
    ("workload", {"heads": 3}, r"heads = 3 does not divide width = 256"),
    ("workload", {"micro_batches": [1, 3]}, r"micro_batches holds 3.*batch_size = 64.*1, 2, 4, 8"),
    ("workload", {"micro_batches": [4, 2]}, r"micro_batches must be in ascending order.*4 .* 2"),
    ("workload", {"micro_batches": [2, 2]}, r"micro_batches must be .* without repeats"),
    ("workload", {"task": "translation", "decoder_blocks": 0}, r"'translation' needs decoder_blocks"),
    ("workload", {"style": "gpt2"}, "needs learned_positions of at least sequence_length = 64, not 0"),
    ("workload", {"style": "llama", "learned_positions": 64}, "= 64 needs style = 'bert' or 'gpt2'"),
    ("workload", {**GPT2, "token_types": 2}, "token_types = 2 needs style = 'bert', but style is 'gpt2'"),
    ("workload", {"kv_heads": 2}, "= 2 needs style = 'llama', but style is 'pre-ln'; set it to 0"),
    ("workload", {**GPT2, "qkv_bias": True}, "qkv_bias = True needs style = 'llama'"),
    ("workload", {"rope_theta": 5e5}, "rope_theta = 500000.0 needs style = 'llama'"),
    ("workload", {"norm_epsilon": 1e-6}, "norm_epsilon = 1e-06 needs style = 'gpt2' or 'llama'"),
    ("workload", {"tied_head": True}, "tied_head = True needs style = 'gpt2' or 'llama'"),
    ("workload", {**LLAMA, "kv_heads": 3}, "kv_heads = 3 does not divide heads = 8"),
    ("workload", {"style": "llama", "width": 72, "heads": 8}, "heads = 8 of width = 72 have 9 numbers each"),
    ("workload", {**LLAMA, "decoder_blocks": 1}, "style = 'llama' is a decoder itself"),
    ("workload", {**LLAMA, "tied_head": True, "update_compression": "top-k"}, "= True moves every row"),
    ("learning", {"proxy": {"style": "llama", "width": 30, "heads": 2}}, "width = 30 have 15 numbers each"),
    ("learning", {"proxy": {"style": "llama", "heads": 4, "kv_heads": 3}}, "3 does not divide heads = 4"),
    ("learning", {"proxy": {"kv_heads": 1}}, "kv_heads = 1 needs style = 'llama', but style is 'bert'"),
    ("learning", {"momentum": 0.9}, r"momentum = 0\.9 is for optimizer = 'sgd'.*set momentum to 0"),
    ("learning", {"schedule": "cosine", "schedule_steps": 10},
     r"schedule_steps = 10 ends schedule = 'cosine' within warmup_steps = 10.*raise"),
    ("radio", {"d2e_path_loss": b"umi"}, r"got b'umi', but the input should be a valid string"),
    ("radio", {"d2d_total_hz": 1e-300}, r"got 1e-300, .*unit Hz, range at least 1000"),
    ("devices", {"profiles": []}, r"profiles must hold at least one"),
    ("devices", {"power_min_w": 0.3}, r"power_min_w = 0\.3 is above power_max_w = 0\.1"),
    ("devices", {"profiles": [{"active_power_w": 1}] * 2}, r"profiles holds the name 'mobile' twice"),
    ("profile", {}, r"exactly one of switched.*found neither"),
    ("profile", {"switched_capacitance": 1e-27, "active_power_w": 1},
     r"exactly one of switched_capacitance and active_power_w.*found both"),
    ("profile", {"active_power_w": 1, "clock_min_hz": 3e9}, r"= 3e\+09 is above clock_max_hz = 2e\+09"),
    ("profile", {"active_power_w": 1, "memory_bytes": []}, r"memory_bytes must hold"),
    ("profile", {"active_power_w": 1, "memory_bytes": [2e9, 1e9]}, r"memory_bytes must be in ascending"),
    ("cluster", {"devices": [3, 3]}, r"devices lists 2 clusters but clusters = 4"),
    ("cluster", {"cu_distance_min_m": 500}, r"= 500 is above cu_distance_max_m = 300"),
    ("dynamics", {"load_levels": []}, r"load_levels must hold at least one"),
    ("dynamics", {"load_levels": [1.0, 0.5]}, r"load_levels must be in ascending order"),
    ("budgets", {"bandwidth_floor": 0.25}, r"0\.25 times cluster\.clusters = 4 is 1; it must stay below 1"),
    # Processes.
    ("heat", {"set_c": 20.0}, r"set_c: got 20\.0, .*at least 26"),
    ("heat", {"critical_c": 40.0}, r"critical_c is 40: give set_c = 43 or more"),
    ("heat", {"governor": "ipa", "on_c": 43.0}, r"on_c is 43: the governor ipa begins below set_c = 43"),
    ("heat", {"ambient_min_c": 30.0, "ambient_max_c": 20.0}, r"= 30 is above ambient_max_c = 20"),
    ("heat", {"levels": [1.0]}, r"levels are \[1\.0\]: give two or more"),
    ("heat", {"levels": [0.9, 0.5]}, r"levels are .*1 first"),
    ("heat", {"levels": [1.0, 0.5, 0.6]}, r"levels are .*descending"),
    ("heat", {"levels": [1.0, 0.0]}, r"levels are .*above 0"),
    ("heat", {"levels": [1.0, float("nan")]}, r"levels.1: got nan, but the input should be a finite number"),
    ("heat", {"governor": "pause", "levels": [1.0, 0.5, 0.2]}, r"the governor pause has two"),
    ("presence", {"hazard_factors": []}, "hazard_factors are .*: give one or more"),
    ("presence", {"hazard_factors": [0.0]}, "hazard_factors are .*0.01 to 100"),
    ("mobility", {"speed_min_m_s": 2.0}, r"speed_min_m_s = 2 is above speed_max_m_s = 1\.5"),
    ("channel_knowledge", {"modes": []}, "modes is empty"),
    ("channel_knowledge", {"modes": ["perfect", "noisy"]}, "perfect cannot be combined with others"),
    ("channel_knowledge", {"modes": ["noisy", "noisy"]}, "name each once"),
    ("channel_knowledge", {"modes": ["mean", "delayed"]}, "remove delayed"),
    ("channel_knowledge", {"modes": ["fuzzy"]}, "fuzzy"),
    *(("tenants", {"levels": levels}, "levels") for levels in ([], [0.2, 0.96], [0.5, 0.2], [-0.1])),
    # Ranges, which also stand in the fields' declarations.
    ("heat", {"resistance_k_per_w": -1.0}, r"got -1\.0, .*unit K/W, range at least 0 and"),
    ("heat", {"capacity_j_per_k": 0.0}, r"got 0\.0, .*at least 1e-06"),
    ("heat", {"period_s": 0.0}, r"got 0\.0, .*unit s, range at least 0\.001"),
    ("heat", {"ambient_sd_k": -1.0}, r"got -1\.0, .*at most 100"),
    ("heat", {"ambient_tau_s": 0.0}, r"got 0\.0, .*at least 1 "),
    ("budgets", {"device_energy_j": 0}, "got 0, .*unit J, range above 0"),
    ("presence", {"on_mean_s": 0.5}, r"got 0\.5, .*at least 1 "),
    ("presence", {"graceful": 1.5}, r"got 1\.5, .*unit 1, range at least 0 and at most 1"),
    ("mobility", {"roaming": 0.5}, r"got 0\.5, .*at least 1 and at most 10"),
    ("mobility", {"pause_s": 0.0}, r"got 0\.0, .*at least 0\.1"),
    ("mobility", {"speed_max_m_s": 1000.0}, r"got 1000\.0"),
    ("channel_knowledge", {"delay_rounds": 17}, "got 17, .*range 0 to 16"),
    ("channel_knowledge", {"noise_db": -1.0}, r"got -1\.0, .*at most 30"),
    ("channel_knowledge", {"noise_correlation": 1.0}, r"got 1\.0, .*below 1"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("section", "fields", "words"), SECTIONS, ids=[f"{row[0]}-{n}" for n, row in enumerate(SECTIONS)]
)
def test_contradictions_name_fields_and_values(section: str, fields: dict[str, Any], words: str) -> None:
    source, place = {section: fields}, section
    if section == "profile":
        source, place = {"devices": {"profiles": [fields]}}, r"devices\.profiles\.0"
    elif section in ("heat", "presence", "mobility", "channel_knowledge", "tenants"):
        place = rf"dynamics\.processes.*{section}"
        source = {"base": "small", "dynamics": {"processes": {section: fields}}}
    assert re.search(rf"{place}.*{words}", refused(source))


def test_bounds_are_exact() -> None:
    assert load_scenario(tiny([43200.0], 1, blocks=3)).blocks == 3
    assert re.search(r"room for 2 of 3 blocks.* 1 bytes are missing", refused(tiny([43199.0], 1, blocks=3)))


# Worked by hand, d = 8, d_ff = 16, a = 2, q = 4, B = 2:
#   w = 4*64 + 2*8*16 + 9*8 + 16 = 600 parameters, 16 w = 9600 bytes
#   alpha = 4*8*(66 + 9*2*4/8) = 32*75 = 2400 bytes at 32 bits, 32*(34 + 5) = 1248 at 16
#   block = 9600 + 2*2400 = 14400 bytes at 32 bits, 9600 + 2*1248 = 12096 at 16
WORKLOAD = {"width": 8, "feedforward": 16, "heads": 2, "sequence_length": 4, "batch_size": 2, "blocks": 5}


def tiny(memory: list[float], devices: Any, cluster: dict[str, Any] | None = None, **workload: Any) -> dict:
    return {
        "workload": WORKLOAD | workload,
        "devices": {"profiles": [{"active_power_w": 1.0, "memory_bytes": memory}]},
        "cluster": {"clusters": 2, "devices": devices, **(cluster or {})},
    }


def builds(mapping: dict[str, Any]) -> bool:
    try:
        load_scenario(mapping)
    except ScenarioError:
        return False
    return True


@pytest.mark.parametrize(("bits", "size"), [(32, 14400), (16, 12096)])
def test_too_little_memory_names_cluster_and_missing_bytes(bits: int, size: int) -> None:
    assert block_bytes(load_scenario(tiny([1e9], 2, stored_activation_bits=bits))) == size
    message = refused(tiny([30000.0], [3, 2], stored_activation_bits=bits))
    assert "cluster 1 cannot hold the encoder: its 2 devices have room for 4 of 5 blocks" in message
    # One device must grow from two blocks to three.
    assert f"{3 * size - 30000} bytes are missing" in message
    assert "cluster 0" not in message


def test_missing_bytes_over_several_devices_and_clusters() -> None:
    # Two devices of 10000 bytes: each lacks 4400 for its first block, the three others take 14400 each.
    assert f" {2 * 4400 + 3 * 14400} bytes are missing" in refused(tiny([10000.0], [6, 2]))
    with pytest.raises(ScenarioError, match="and 13 more clusters") as caught:
        load_scenario("large").with_overrides({"workload.blocks": 1000})
    assert re.findall(r"cluster (\d+) cannot", str(caught.value)) == ["0", "1", "2"]


def test_adapters_make_room_for_blocks_that_do_not_fit_otherwise() -> None:
    # Rank 2: w_a = 2 (8*8 + 2*16) = 192, so a block takes 4*600 + 16*192 + 2*2400 = 10272 bytes.
    adapted = {"update_compression": "lora", "lora_rank": 2}
    scenario = load_scenario(tiny([5 * 10272.0], 1, **adapted))
    assert block_bytes(scenario) == workload_costs(scenario).block_state_bytes + 2 * 2400 == 10272
    assert not builds(tiny([5 * 10272.0], 1))
    assert not builds(tiny([5 * 10272.0 - 1], 1, **adapted))


def test_a_fixed_layout_is_judged_by_its_own_draw_and_others_by_the_worst() -> None:
    outcomes = [builds(tiny([14400.0, 1e6], 2, {"layout_seed": seed})) for seed in range(60)]
    assert 0.3 < sum(outcomes) / len(outcomes) < 0.8  # each cluster has a large device 3 times in 4
    anew = {"layout_seed": outcomes.index(True), "layout": "per_episode"}
    message = refused(tiny([14400.0, 1e6], 2, anew))
    assert re.search(r"cluster 0.* room for 2 of 5 .*worst draw.* 43200 bytes", message)


def test_a_geometry_that_cannot_be_placed_is_given_up_after_bounded_tries(monkeypatch) -> None:
    for mode in ("fixed", "per_episode"):
        message = refused({"base": "large", "cluster": {"cluster_separation_min_m": 300.0, "layout": mode}})
        assert "could be placed cluster_separation_min_m = 300 m apart" in message
    cluster = ClusterSpec(
        clusters=100, cluster_separation_min_m=70.0, cu_distance_min_m=1.0, cu_distance_max_m=430.0, devices=2
    )
    rng, drawn = np.random.default_rng(0), 0
    monkeypatch.setattr(layout, "TRIES_AT_ALL", 2**16)

    class Counting:
        def random(self, size: int) -> np.ndarray:
            nonlocal drawn
            drawn += size
            return rng.random(size)

    with pytest.raises(ScenarioError, match="could be placed"):
        layout.place_clusters(cluster, Counting())  # type: ignore[arg-type]
    one_start = cluster.clusters * layout.TRIES_PER_CLUSTER
    assert drawn / 2 <= layout.TRIES_AT_ALL + one_start  # a distance and an angle each


def test_clusters_whose_hops_would_fill_the_memory() -> None:
    large = {"clusters": 1024, "devices": 512, "cluster_separation_min_m": 1.0}
    message = refused({"cluster": large, "budgets": {"bandwidth_floor": 1e-5}})
    assert "269,485,056 pairs of nodes" in message
