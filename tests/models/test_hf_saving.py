"""Saved language models: transformers reads them, what is copied beside the weights, what is refused."""

import json
import os

import pytest
import torch
from hf_support import (
    FAMILIES,
    architecture,
    from_transformers,
    loaded,
    logits,
    model_and_head,
    random_language_model,
    save,
    some_tokens,
)
from safetensors.torch import load_file

from collapipe_env.ground.errors import CheckpointError
from collapipe_env.models import hf_saving
from collapipe_env.models.hf_checkpoint import read_config
from collapipe_env.models.hf_saving import save_checkpoint
from collapipe_env.models.hf_tokenizer import LARGEST
from collapipe_env.models.lora import add_adapters


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("tied", "attention"), [(False, "eager"), (True, "sdpa")])
def test_logits_after_loading_and_after_saving_back(family, tied, attention, tmp_path):
    """Written by transformers, read and written by us, read by transformers."""
    sizes = architecture(family, tied)
    theirs = random_language_model(sizes, family, attention)
    save(theirs, tmp_path / "theirs")
    fields = read_config(tmp_path / "theirs")
    assert fields == {name: getattr(sizes, name) for name in fields}
    assert len(fields) > 8
    tokens = some_tokens()
    expected = logits(theirs, tokens)
    assert float(expected.std()) > 0.5  # so that the tolerance is a strict one
    made = loaded(sizes, tmp_path / "theirs")
    torch.testing.assert_close(logits(made, tokens), expected, rtol=0, atol=1e-5)
    save_checkpoint(tmp_path / "ours", *made, source=tmp_path / "theirs")
    torch.testing.assert_close(
        logits(from_transformers(tmp_path / "ours"), tokens), expected, rtol=0, atol=1e-5
    )
    before = json.loads((tmp_path / "theirs" / "config.json").read_text())
    after = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert after["model_type"] == before["model_type"]
    assert after["eos_token_id"] == before["eos_token_id"] == 1


@pytest.mark.parametrize("family", ["gpt2", "qwen2"])
def test_adapters_are_added_into_the_weights(family, tmp_path):
    sizes = architecture(family, tied=True)
    model, head = model_and_head(sizes)
    add_adapters(model, 3, 6.0, torch.Generator().manual_seed(1))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".adapters." in name:
                parameter.copy_(
                    torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)) * 0.2
                )
    tokens = some_tokens(padded=False)
    plain = logits(model_and_head(sizes), tokens)
    expected = logits((model, head), tokens)
    assert not torch.allclose(plain, expected, atol=1e-3)
    save_checkpoint(tmp_path / "ours", model, head)
    for made in (from_transformers(tmp_path / "ours"), loaded(sizes, tmp_path / "ours")):
        torch.testing.assert_close(logits(made, tokens), expected, rtol=0, atol=1e-5)


def test_shards(tmp_path, monkeypatch):
    sizes = architecture("llama", tied=False)
    theirs = random_language_model(sizes, "llama")
    save(theirs, tmp_path / "theirs", max_shard_size="20KB")
    assert len(list((tmp_path / "theirs").glob("*.safetensors"))) > 1
    tokens = some_tokens(padded=False)
    made = loaded(sizes, tmp_path / "theirs")
    torch.testing.assert_close(logits(made, tokens), logits(theirs, tokens), rtol=0, atol=1e-5)
    monkeypatch.setattr(hf_saving, "SHARD_BYTES", 20_000)
    save_checkpoint(tmp_path / "ours", *made)
    files = list((tmp_path / "ours").glob("*.safetensors"))
    assert len(files) > 1
    assert all(sum(tensor.nbytes for tensor in load_file(file).values()) <= 20_000 for file in files)
    for again in (from_transformers(tmp_path / "ours"), loaded(sizes, tmp_path / "ours", seed=2)):
        torch.testing.assert_close(logits(again, tokens), logits(theirs, tokens), rtol=0, atol=1e-5)


@pytest.fixture
def checkpoint(tmp_path):
    """A Qwen2 with a free head, written by us."""
    folder = tmp_path / "checkpoint"
    save_checkpoint(folder, *model_and_head(architecture("qwen2")))
    return folder


def test_texts_are_copied_beside_a_saved_model(tmp_path):
    """Everything but weights, hidden files, folders and what lies elsewhere."""
    first, made = tmp_path / "first", model_and_head(architecture("qwen2"))
    save_checkpoint(first, *made)
    copied = {
        "tokenizer.model": b"\n\x0b\x00\xff", "added_tokens.json": b"{}", "generation_config.json": b"{}",
        "chat_template.jinja": b"{{ messages }}", "README.md": "é <b>".encode(), "LICENSE": b"free",
        "additional_chat_templates/tool.jinja": b"{{ tools }}", "special_tokens_map.json": b"{}",
    }  # fmt: skip
    left = {
        "pytorch_model.bin": b"version https://git-lfs", "model.gguf": b"text", "model.onnx": b"text",
        "model.safetensors.index.json": b"{}", "MODEL.PT": b"text", "weights.unknown": b"\x00\x01",
        "modeling.py": b"exit()", ".env": b"SECRET=1", "runs/log.txt": b"",
    }  # fmt: skip
    for name, content in {**copied, **left}.items():
        (first / name).parent.mkdir(exist_ok=True)
        (first / name).write_bytes(content)
    with (first / "large.txt").open("wb") as large:
        large.truncate(LARGEST + 1)
    os.mkfifo(first / "pipe")
    (first / "notes.md").symlink_to("README.md")
    (first / "circle.md").symlink_to("circle.md")
    (tmp_path / "secret.txt").write_text("secret")
    (first / "secret.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.warns(UserWarning, match=r"links that lead out .*: 'secret.txt'; copy"):
        save_checkpoint(tmp_path / "ours", *made, source=first)
    found = {
        str(file.relative_to(tmp_path / "ours")): file.read_bytes()
        for file in (tmp_path / "ours").rglob("*")
        if file.is_file() and file.name not in ("config.json", "model.safetensors")
    }
    assert found == {**copied, "notes.md": copied["README.md"]}


def test_texts_of_a_snapshot_of_the_hub_are_copied(tmp_path):
    """Its files are links into the folder of blobs beside the snapshots."""
    save_checkpoint(tmp_path / "blobs", *model_and_head(architecture("qwen2")))
    (tmp_path / "blobs" / "0123").write_text("template")
    snapshot = tmp_path / "snapshots" / "abcd"
    snapshot.mkdir(parents=True)
    for name, blob in (("config.json", "config.json"), ("chat_template.jinja", "0123")):
        (snapshot / name).symlink_to(f"../../blobs/{blob}")
    save_checkpoint(tmp_path / "ours", *model_and_head(architecture("qwen2")), source=snapshot)
    assert (tmp_path / "ours" / "chat_template.jinja").read_text() == "template"


def test_a_save_that_fails_leaves_nothing(tmp_path):
    """With no room for the weights, in a new folder and in an empty one."""
    resource = pytest.importorskip("resource", reason="Windows has no limits of processes")
    (tmp_path / "empty").mkdir()
    made = model_and_head(architecture("qwen2"))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for name in ("new", "empty"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        try:
            with pytest.raises(CheckpointError, match=r"cannot write the checkpoint .*free some space"):
                save_checkpoint(tmp_path / name, *made)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [file.name for file in tmp_path.rglob("*")] == ["empty"]


def test_what_cannot_be_saved(checkpoint):
    model, head = model_and_head(architecture("qwen2"))
    with pytest.raises(CheckpointError, match="is not empty; name a new folder"):
        save_checkpoint(checkpoint, model, head)
    with pytest.raises(CheckpointError, match="with a Identity cannot be saved"):
        save_checkpoint(checkpoint.parent / "other", model, torch.nn.Identity())
    (checkpoint.parent / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write the checkpoint"):
        save_checkpoint(checkpoint.parent / "file", model, head)
