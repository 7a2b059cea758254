"""Saved language models: what is copied beside the weights, and what is refused."""

import os

import pytest
import torch
from hf_support import architecture, model_and_head
from test_tied_head import run_of

from collapipe_env.ground.errors import CheckpointError
from collapipe_env.models.hf_saving import save_checkpoint
from collapipe_env.models.hf_tokenizer import LARGEST


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


def test_an_environment_without_a_run_is_not_saved(tmp_path):
    learner, _ = run_of("qwen2")
    learner._runs[0] = None
    with pytest.raises(RuntimeError, match="environment 0 has no training run"):
        learner.save_checkpoint(tmp_path / "tuned")


def test_what_cannot_be_saved(checkpoint):
    model, head = model_and_head(architecture("qwen2"))
    with pytest.raises(CheckpointError, match="is not empty; name a new folder"):
        save_checkpoint(checkpoint, model, head)
    with pytest.raises(CheckpointError, match="with a Identity cannot be saved"):
        save_checkpoint(checkpoint.parent / "other", model, torch.nn.Identity())
    (checkpoint.parent / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write the checkpoint"):
        save_checkpoint(checkpoint.parent / "file", model, head)
