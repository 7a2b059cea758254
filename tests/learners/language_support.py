"""Language models to compare with: of transformers, with random weights, and of this package."""

import torch
from hf_support import private_seed, transformers

from collapipe_env.models.architecture import Architecture
from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.models.language_head import LanguageHead

LENGTH, VOCABULARY, WIDTH, FEEDFORWARD, HEADS, BLOCKS = 9, 61, 24, 40, 4, 3
FAMILIES = {
    "gpt2": {"style": "gpt2", "learned_positions": 12},
    "llama": {"style": "llama", "kv_heads": 2},
    "qwen2": {"style": "llama", "kv_heads": 1, "qkv_bias": True, "rope_theta": 1e6, "norm_epsilon": 1e-6},
    # Llama 3's stretched rotations; the original length is short, so that some pairs are stretched in part.
    "llama3": {
        "style": "llama", "kv_heads": 2, "rope_theta": 50.0, "rope_factor": 8.0, "rope_original_length": 32,
    },
}  # fmt: skip


def architecture(family, tied=False, length=LENGTH, **changes):
    sizes = {
        "blocks": BLOCKS, "width": WIDTH, "feedforward": FEEDFORWARD, "heads": HEADS,
        "sequence_length": length, "vocabulary": VOCABULARY, "tied_head": tied, **FAMILIES[family],
    }  # fmt: skip
    return Architecture(**{**sizes, **changes})


def model_and_head(sizes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    model, head = ClusterModel(sizes, generator), LanguageHead(sizes, sizes.vocabulary, generator)
    if sizes.tied_head:
        head.weight = model.embedding.weight
    return model, head


def some_tokens(samples=5, length=LENGTH, padded=True):
    """Rows of unequal length, padded by 0 behind."""
    tokens = torch.randint(1, VOCABULARY, (samples, length), generator=torch.Generator().manual_seed(2))
    if padded:
        for row in range(samples):
            tokens[row, 2 + row % length :] = 0
    return tokens


def config_of(sizes, family):
    """The configuration of transformers for an architecture of a family."""
    library = transformers()
    common = {"vocab_size": sizes.vocabulary, "tie_word_embeddings": sizes.tied_head}
    if family == "gpt2":
        return library.GPT2Config(
            n_layer=sizes.blocks, n_embd=sizes.width, n_inner=sizes.feedforward, n_head=sizes.heads,
            n_positions=sizes.learned_positions, layer_norm_epsilon=sizes.norm_epsilon,
            bos_token_id=1, eos_token_id=1, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **common,
        )  # fmt: skip
    common |= {
        "num_hidden_layers": sizes.blocks, "hidden_size": sizes.width, "intermediate_size": sizes.feedforward,
        "num_attention_heads": sizes.heads, "num_key_value_heads": sizes.kv_heads or sizes.heads,
        "rms_norm_eps": sizes.norm_epsilon, "max_position_embeddings": 4 * sizes.sequence_length,
        "bos_token_id": 1, "eos_token_id": 1,
    }  # fmt: skip
    rope = {"rope_theta": sizes.rope_theta, "rope_type": "default"}
    if family == "llama3":
        rope |= {
            "rope_type": "llama3", "factor": sizes.rope_factor, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": sizes.rope_original_length,
        }  # fmt: skip
    kind = library.Qwen2Config if family == "qwen2" else library.LlamaConfig
    return kind(rope_parameters=rope, **common)


def random_language_model(sizes, family, attention="eager"):
    """A model of transformers with weights large enough for every part to matter."""
    library = transformers()
    kind = {"gpt2": "GPT2LMHeadModel", "qwen2": "Qwen2ForCausalLM"}.get(family, "LlamaForCausalLM")
    config = config_of(sizes, family)
    config._attn_implementation = attention
    with private_seed():
        made = getattr(library, kind)(config).eval()
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.add_(torch.randn(parameter.shape) * 0.2)
    return made


@torch.no_grad()
def copy_weights(theirs, model, head):
    """Copy a model of transformers, tensor by tensor."""
    found = theirs.state_dict()

    def put(target, *sources, transposed=False):
        parts = [found[name].T if transposed else found[name] for name in sources]
        target.copy_(torch.cat(parts))

    if model.architecture.style == "gpt2":
        put(model.embedding.weight, "transformer.wte.weight")
        put(model.embedding.positions, "transformer.wpe.weight")
        maps = {"qkv": "attn.c_attn", "out": "attn.c_proj", "up": "mlp.c_fc", "down": "mlp.c_proj"}
        for i, block in enumerate(model.blocks):
            layer = f"transformer.h.{i}."
            for ours, name in maps.items():
                put(getattr(block, f"{ours}_weight"), f"{layer}{name}.weight", transposed=True)
                put(getattr(block, f"{ours}_bias"), f"{layer}{name}.bias")
            for number in (1, 2):
                put(getattr(block, f"norm{number}_gain"), f"{layer}ln_{number}.weight")
                put(getattr(block, f"norm{number}_bias"), f"{layer}ln_{number}.bias")
        put(head.norm_gain, "transformer.ln_f.weight")
        put(head.norm_bias, "transformer.ln_f.bias")
    else:
        put(model.embedding.weight, "model.embed_tokens.weight")
        for i, block in enumerate(model.blocks):
            layer = f"model.layers.{i}."
            attention = [f"{layer}self_attn.{part}_proj" for part in "qkv"]
            put(block.qkv_weight, *(f"{name}.weight" for name in attention))
            if block.qkv_bias is not None:
                put(block.qkv_bias, *(f"{name}.bias" for name in attention))
            put(block.out_weight, f"{layer}self_attn.o_proj.weight")
            put(block.up_weight, f"{layer}mlp.gate_proj.weight", f"{layer}mlp.up_proj.weight")
            put(block.down_weight, f"{layer}mlp.down_proj.weight")
            put(block.norm1_gain, f"{layer}input_layernorm.weight")
            put(block.norm2_gain, f"{layer}post_attention_layernorm.weight")
        put(head.norm_gain, "model.norm.weight")
    put(head.weight, "lm_head.weight")
