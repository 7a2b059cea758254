"""Fields of language models' blocks: what they may be, and scenarios that know nothing of them."""

import dataclasses

import pytest

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.models.style_fields import LANGUAGE_FIELDS
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import workload_costs
from collapipe_env.tasks.base import trained_architecture

LLAMA = {"style": "llama", "width": 64, "heads": 8, "kv_heads": 2, "qkv_bias": True, "rope_theta": 5e5}
GPT2 = {"style": "gpt2", "learned_positions": 64}


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ({"style": "gpt2"}, "style = 'gpt2' needs learned_positions of at least sequence_length = 64, not 0"),
        (
            {"style": "llama", "learned_positions": 64},
            "learned_positions = 64 needs style = 'bert' or 'gpt2'",
        ),
        ({**GPT2, "token_types": 2}, "token_types = 2 needs style = 'bert', but style is 'gpt2'"),
        ({"kv_heads": 2}, "kv_heads = 2 needs style = 'llama', but style is 'pre-ln'; set it to 0"),
        ({**GPT2, "qkv_bias": True}, "qkv_bias = True needs style = 'llama'"),
        ({"rope_theta": 5e5}, "rope_theta = 500000.0 needs style = 'llama'"),
        ({"norm_epsilon": 1e-6}, "norm_epsilon = 1e-06 needs style = 'gpt2' or 'llama'"),
        ({"tied_head": True}, "tied_head = True needs style = 'gpt2' or 'llama'"),
        ({**LLAMA, "kv_heads": 3}, "kv_heads = 3 does not divide heads = 8"),
        ({"style": "llama", "width": 72, "heads": 8}, "heads = 8 of width = 72 have 9 numbers each"),
        ({**LLAMA, "decoder_blocks": 1}, "style = 'llama' is a decoder itself"),
        ({**LLAMA, "tied_head": True, "update_compression": "top-k"}, "tied_head = True moves every row"),
    ],
)
def test_contradictions_are_refused(workload, message):
    with pytest.raises(ScenarioError, match=message):
        load_scenario({"workload": workload})


@pytest.mark.parametrize(
    ("proxy", "message"),
    [
        ({"style": "llama", "width": 30, "heads": 2}, "heads = 2 of width = 30 have 15 numbers each"),
        ({"style": "llama", "heads": 4, "kv_heads": 3}, "kv_heads = 3 does not divide heads = 4"),
        ({"kv_heads": 1}, "kv_heads = 1 needs style = 'llama', but style is 'bert'"),
    ],
)
def test_contradictions_of_the_proxy_are_refused(proxy, message):
    with pytest.raises(ScenarioError, match=message):
        load_scenario({"learning": {"proxy": proxy}})


def test_published_models_replace_each_other():
    """Nothing of a former model is left."""
    qwen = load_scenario("bert-base").with_overrides(
        {"workload.model": "qwen2.5-0.5b", "workload.update_compression": "lora", "workload.batch_size": 1,
         "devices.profiles": [{"switched_capacitance": 1e-27, "memory_bytes": [8e9]}]}
    )  # fmt: skip
    assert (qwen.workload.kv_heads, qwen.workload.tied_head, qwen.workload.learned_positions) == (2, True, 0)
    back = qwen.with_overrides({"workload.model": "bert-base"})
    assert back.workload == dataclasses.replace(
        load_scenario("bert-base").workload,
        update_compression="lora", batch_size=1, outputs=qwen.workload.outputs,
        micro_batches=qwen.workload.micro_batches,
    )  # fmt: skip


def test_the_trained_architecture():
    priced = load_scenario({"workload": {**LLAMA, "tied_head": True}, "learning": {"proxy": "off"}})
    sizes = trained_architecture(priced)
    assert {name: getattr(sizes, name) for name in LANGUAGE_FIELDS} == {
        name: getattr(priced.workload, name) for name in LANGUAGE_FIELDS
    }
    assert sizes.kv_width == priced.workload.kv_width == 16
    # A proxy shares heads in its own way, and takes everything else that its style reads.
    proxy = load_scenario(
        {"workload": LLAMA, "learning": {"proxy": {"style": None, "heads": 4, "kv_heads": 1}}}
    )
    sizes = trained_architecture(proxy)
    assert (sizes.style, sizes.kv_heads, sizes.qkv_bias, sizes.rope_theta) == ("llama", 1, True, 5e5)
    assert workload_costs(proxy) == workload_costs(load_scenario({"workload": LLAMA}))
    sizes = trained_architecture(load_scenario({"workload": LLAMA}))  # in BERT's style by default
    assert (sizes.style, sizes.learned_positions, sizes.token_types) == ("bert", 32, 2)
    neutral = {"kv_heads": 0, "qkv_bias": False, "tied_head": False, "norm_epsilon": 1e-5}
    neutral |= {"rope_theta": 10_000.0, "rope_factor": 1.0, "rope_original_length": 8192}
    assert {name: getattr(sizes, name) for name in LANGUAGE_FIELDS} == neutral
    gpt2 = trained_architecture(load_scenario({"learning": {"proxy": {"style": "gpt2"}}}))
    assert (gpt2.style, gpt2.learned_positions, gpt2.token_types) == ("gpt2", 32, 0)
