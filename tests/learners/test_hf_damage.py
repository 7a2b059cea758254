"""Damaged or harmful checkpoints in Hugging Face format give one CheckpointError each."""

import io
import json
import os
import random
import warnings
import zipfile

import pytest
import torch
from damage_support import damaged
from hf_support import (
    EMBEDDING,
    assert_same,
    edit_config,
    edit_tensors,
    model_of,
    weights,
    write_checkpoint,
)
from safetensors.torch import load_file
from tokenizers import Tokenizer, models

from collapipe_env.ground.archives import MEMBERS, PICKLE_BYTES
from collapipe_env.ground.errors import CheckpointError
from collapipe_env.models import hf_tokenizer
from collapipe_env.models.hf_checkpoint import checkpoint_tokenizer, load_into, read_config
from collapipe_env.models.hf_config import checkpoint_folder

TOKENS = ("[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "rate", "##s", "fell")


@pytest.fixture
def checkpoint(tmp_path):
    """A checkpoint with weights in both kinds of file and a tokeniser in both kinds of file."""
    write_checkpoint(tmp_path)
    torch.save(load_file(tmp_path / "model.safetensors"), tmp_path / "pytorch_model.bin")
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS) + "\n", encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    tokenizer = Tokenizer(models.WordPiece({t: i for i, t in enumerate(TOKENS)}, unk_token="[UNK]"))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def damaged_archive(content, chance):
    """Damage the description within a file of PyTorch, and pack it again with right check sums."""
    with zipfile.ZipFile(io.BytesIO(content)) as old:
        members = {name: old.read(name) for name in old.namelist()}
    pickled = next(name for name in members if name.endswith("data.pkl"))
    members[pickled] = damaged(members[pickled], chance)
    new = io.BytesIO()
    with zipfile.ZipFile(new, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return new.getvalue()


def refusals(cases, load):
    """Load as often as there are cases; nothing but a CheckpointError may come. Returns the messages."""
    messages = []
    for _ in cases:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of PyTorch, at descriptions of odd tensors
                load()
        except CheckpointError as error:
            messages.append(str(error))
    assert max(map(len, messages)) < 2000
    return messages


@pytest.mark.parametrize(
    ("name", "damage", "least"),
    [
        ("model.safetensors", damaged, 60),
        ("pytorch_model.bin", damaged, 60),
        ("pytorch_model.bin", damaged_archive, 120),
        ("config.json", damaged, 60),
    ],
)
def test_damaged_weights_and_descriptions(name, damage, least, checkpoint):
    if name == "pytorch_model.bin":
        (checkpoint / "model.safetensors").unlink()
    whole, chance, model = (checkpoint / name).read_bytes(), random.Random(3), model_of()

    def cases():
        for _ in range(150):
            (checkpoint / name).write_bytes(damage(whole, chance))
            yield

    assert len(refusals(cases(), lambda: load_into(model, checkpoint))) > least


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.txt", "tokenizer_config.json"])
def test_damaged_tokenisers(name, checkpoint):
    if name != "tokenizer.json":
        (checkpoint / "tokenizer.json").unlink()
    whole, chance = (checkpoint / name).read_bytes(), random.Random(4)

    def cases():
        for _ in range(200):
            (checkpoint / name).write_bytes(damaged(whole, chance))
            yield

    found = refusals(cases(), lambda: checkpoint_tokenizer(checkpoint).encode("the rates fell"))
    assert len(found) > 60


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a": ' * 500 + "1" + "}" * 500, "9" * 5000], ids=["lists", "objects", "digits"]
)
def test_deep_and_huge_json(name, text, checkpoint):
    if name == "tokenizer_config.json":
        (checkpoint / "tokenizer.json").unlink()
    (checkpoint / name).write_text(text)
    with pytest.raises(CheckpointError) as refusal:
        checkpoint_tokenizer(checkpoint)
    assert str(checkpoint / name) in str(refusal.value)


@pytest.mark.parametrize("key", ["hidden_size", "vocab_size", "layer_norm_eps", "pad_token_id", "model_type"])
def test_integers_beyond_all_numbers(key, checkpoint):
    edit_config(checkpoint, **{key: 10**400})
    with pytest.raises(CheckpointError, match="an integer of 1,329 bits"):
        read_config(checkpoint)
    edit_config(checkpoint, **{key: "x" * 1_000_000})
    with pytest.raises(CheckpointError) as refusal:
        read_config(checkpoint)
    assert len(str(refusal.value)) < 1000


@pytest.mark.parametrize(
    "odd",
    [
        lambda value: value.to(torch.float8_e4m3fn),
        lambda value: value.to("meta"),
        lambda value: value.to_sparse(),
        lambda value: value.to(torch.complex64),
        lambda value: value > 0,
    ],
    ids=["float8", "meta", "sparse", "complex", "bool"],
)
def test_tensors_of_unusual_kinds(odd, checkpoint):
    tensors = load_file(checkpoint / "model.safetensors")
    tensors[f"bert.{EMBEDDING}"] = odd(tensors[f"bert.{EMBEDDING}"])
    torch.save(tensors, checkpoint / "pytorch_model.bin")
    (checkpoint / "model.safetensors").unlink()
    model = model_of()
    before = weights(model)
    with pytest.raises(CheckpointError, match="must hold finite floating-point numbers of 16, 32 or 64 bits"):
        load_into(model, checkpoint)
    assert_same(model, before)


def test_integer_keys_are_left_alone(checkpoint):
    torch.save(
        {**load_file(checkpoint / "model.safetensors"), 3: torch.ones(2)}, checkpoint / "pytorch_model.bin"
    )
    expected = model_of()
    load_into(expected, checkpoint)
    (checkpoint / "model.safetensors").unlink()
    model = model_of()
    load_into(model, checkpoint)
    assert_same(model, weights(expected))


def test_archives_made_to_fill_the_memory(checkpoint):
    (checkpoint / "model.safetensors").unlink()
    for name, size, kind in (
        ("archive/data/0", 1_000_000, zipfile.ZIP_DEFLATED),
        ("archive/data.pkl", PICKLE_BYTES + 1, zipfile.ZIP_STORED),
    ):
        with zipfile.ZipFile(checkpoint / "pytorch_model.bin", "w") as archive:
            archive.writestr(name, bytes(size), kind)
        with pytest.raises(
            CheckpointError, match=r"BadZipFile: its (tensors are compressed|description has)"
        ):
            load_into(model_of(), checkpoint)


def test_archives_of_more_members_than_tensors_need(checkpoint):
    (checkpoint / "model.safetensors").unlink()
    with zipfile.ZipFile(checkpoint / "pytorch_model.bin", "w") as archive:
        for i in range(MEMBERS + 1):
            archive.writestr(f"archive/data/{i}", b"")
    with pytest.raises(CheckpointError, match=f"it lists {MEMBERS + 1:,} members, above the limit"):
        load_into(model_of(), checkpoint)


def test_files_of_tokens_above_the_limit(checkpoint, monkeypatch):
    monkeypatch.setattr(hf_tokenizer, "LARGEST", 20)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json .*above the limit of 20"):
        checkpoint_tokenizer(checkpoint)
    (checkpoint / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"vocab\.txt .*above the limit of 20"):
        checkpoint_tokenizer(checkpoint)


def test_names_that_no_file_can_have(checkpoint):
    for name in ("x" * 5000, "~nobody-of-that-name/x", "a\0b"):
        with pytest.raises(CheckpointError) as refusal:
            checkpoint_folder(name)
        assert len(str(refusal.value)) < 1000
    index = {"weight_map": {"a": "x" * 5000 + ".bin"}}
    (checkpoint / "model.safetensors").unlink()
    (checkpoint / "pytorch_model.bin").unlink()
    (checkpoint / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="there is no such weight file"):
        load_into(model_of(), checkpoint)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "vocab.txt"])
def test_pipes_in_the_folder(name, checkpoint):
    """Were one opened to be read, the test would wait forever."""
    for file in {name, "tokenizer.json", "pytorch_model.bin"}:
        (checkpoint / file).unlink()
    os.mkfifo(checkpoint / name)

    def load():
        checkpoint_tokenizer(checkpoint)
        load_into(model_of(), checkpoint)

    if name == "tokenizer.json":  # as if it were not there
        load()
        return
    with pytest.raises(CheckpointError):
        load()


def test_a_float64_checkpoint_still_loads(checkpoint):
    edit_tensors(checkpoint, lambda tensors: tensors.update({k: v.double() for k, v in tensors.items()}))
    load_into(model_of(), checkpoint)
