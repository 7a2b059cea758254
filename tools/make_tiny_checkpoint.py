"""A tiny Qwen2 in Hugging Face format, and text to fine-tune it on, without any download.

    python tools/make_tiny_checkpoint.py   # writes tiny-qwen2/ and my_texts.txt here

It stands in for a checkpoint of your own if there is none at hand (``docs/language_models.md``). Its
vocabulary and weights are learned in half a minute from the package's stories set on the coast and in town;
the text to fine-tune on is the stories set in the mountains. Needs transformers, which is in the extra
``dev``.
"""

import argparse
import json
from importlib.resources import files
from pathlib import Path

import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

END = "<|endoftext|>"
VOCABULARY, ROW, BATCH = 600, 64, 16
"""Tokens of the vocabulary and of a row, and rows of a step."""


def stories() -> tuple[list[str], list[str]]:
    """Return the texts that the checkpoint learns from, and those to fine-tune it on."""
    lines = (files("collapipe_env") / "data" / "stories" / "train.jsonl").read_text("utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    own = [story["text"] for story in found if story["source"] == "mountain"]
    return [story["text"] for story in found if story["source"] != "mountain"], own


def main(arguments: list[str] | None = None) -> None:
    """Write the folder and the text."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300, help="steps of training (default: %(default)s)")
    steps = parser.parse_args(arguments).steps
    known, own = stories()
    Path("my_texts.txt").write_text("\n\n".join(own), "utf-8")  # documents between blank lines

    pairs = ByteLevelBPETokenizer()
    pairs.train_from_iterator(known, vocab_size=VOCABULARY, special_tokens=[END], show_progress=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=pairs._tokenizer, eos_token=END)
    tokenizer.save_pretrained("tiny-qwen2")

    torch.manual_seed(0)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=6,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=256,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    tokens = torch.tensor([token for text in known for token in tokenizer(text + END)["input_ids"]])
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=steps + 1)
    for step in range(steps):
        starts = torch.randint(len(tokens) - ROW, (BATCH, 1))
        rows = tokens[starts + torch.arange(ROW)]
        loss = model(input_ids=rows, labels=rows).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if (step + 1) % 100 == 0:
            print(f"step {step + 1}: loss {loss.item():.2f} nat a token")
    model.save_pretrained("tiny-qwen2")
    print(f"wrote tiny-qwen2/ and my_texts.txt ({len(own)} stories)")


if __name__ == "__main__":
    main()
