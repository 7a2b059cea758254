"""Checkpoints of BERT without weights: all that names a tokeniser."""

import json


def bert_checkpoint(folder, pieces, width=8, **tokenizer):
    """Write a checkpoint with a vocabulary; returns its path."""
    folder.mkdir()
    sizes = {"hidden_size": width, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 2 * width, "vocab_size": len(pieces), "max_position_embeddings": 32}
    config = {"model_type": "bert", "type_vocab_size": 2, "hidden_act": "gelu", **sizes}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    return str(folder)
