"""Tokenisers of checkpoints split texts as those of transformers do, and damaged ones are refused."""

import json
import logging
import os
import random

import pytest
from damage_support import damaged
from hf_support import edit_config, transformers, write_checkpoint
from tokenizers import Tokenizer, models

from collapipe_env.ground.errors import CheckpointError
from collapipe_env.models import hf_tokenizer
from collapipe_env.models.hf_tokenizer import checkpoint_tokenizer, language_tokenizer, special_ids
from collapipe_env.models.tokenization import encode, train_tokenizer
from collapipe_env.tasks.language_tokens import LanguageTokens

# So Transformers reads a vocabulary, of which tokenizers before 0.23 warns.
pytestmark = pytest.mark.filterwarnings("ignore:Deprecated in 0.9.0:DeprecationWarning")

VOCABULARY = (
    *["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
    *["the", "rate", "##s", "fell", "ham", "##burg", "caf", "##e", "##é", "The", ".", ",", "!", "东", "京"],
    "\u2028",  # a token that looks like the end of a line
)
TEXTS = (
    "The rates fell, the rate FELL!", "Hamburg. café CAFÉ", "the 东京 rates", "zebra", "", "the [MASK] fell",
    "the " * 30,
)  # fmt: skip
LETTERS = {"<|end|>": 0, "a": 1, "b": 2, "ab": 3, "Ġ": 4, "Ġab": 5}
MERGES = "#version: 0.2\na b\nĠ ab\n"


def write_vocabulary(folder, **options):
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    if options:
        (folder / "tokenizer_config.json").write_text(json.dumps(options))


@pytest.fixture
def bert(tmp_path):
    """A BERT with a vocabulary."""
    write_checkpoint(tmp_path)
    write_vocabulary(tmp_path)
    return tmp_path


@pytest.fixture
def gpt2(tmp_path):
    """A GPT-2 with the files of its first release."""
    write_checkpoint(tmp_path, "gpt2")
    edit_config(tmp_path, eos_token_id=0)
    (tmp_path / "vocab.json").write_text(json.dumps(LETTERS))
    (tmp_path / "merges.txt").write_text(MERGES)
    return tmp_path


@pytest.mark.parametrize(
    "options",
    [{}, {"do_lower_case": False}, {"strip_accents": False}, {"tokenize_chinese_chars": False}],
)
def test_vocabulary_equals_transformers(options, bert):
    write_vocabulary(bert, **options)
    tokenizer = checkpoint_tokenizer(bert)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    expected = transformers().BertTokenizerFast(str(bert / "vocab.txt"), **options)
    for text in TEXTS:
        assert tokenizer.encode(text).ids == expected(text)["input_ids"], text
    assert tokenizer.decode(tokenizer.encode("hamburg rates.").ids) == expected.decode(
        expected("hamburg rates.")["input_ids"], skip_special_tokens=True
    )


def test_ready_tokenizer_equals_transformers(bert):
    """tokenizer.json wins over vocab.txt, and its own padding and cutting are switched off."""
    expected = transformers().BertTokenizerFast(str(bert / "vocab.txt"), do_lower_case=False)
    expected.backend_tokenizer.enable_padding(length=50)
    expected.backend_tokenizer.enable_truncation(5)
    expected.save_pretrained(bert)
    assert (bert / "tokenizer.json").is_file()
    tokenizer = checkpoint_tokenizer(bert)
    for text in TEXTS:
        assert tokenizer.encode(text).ids == expected(text)["input_ids"], text


def test_rows_keep_their_end_when_cut(bert):
    tokenizer = checkpoint_tokenizer(bert)
    tokenizer.enable_truncation(6)
    rows = encode(tokenizer, ["the rate", "the rates fell, the rate", ""], 6)
    assert rows.tolist() == [[3, 6, 7, 4, 0, 0], [3, 6, 7, 8, 9, 4], [3, 4, 0, 0, 0, 0]]


def test_special_ids(bert):
    ids = special_ids(checkpoint_tokenizer(bert))
    assert ids == (2, 5, 3, 4)
    own = special_ids(train_tokenizer(["some words"], 30))
    assert own == (1, 1, None, None)


@pytest.mark.parametrize("ready", [True, False])
def test_bytes_of_a_language_model(ready, gpt2):
    if ready:
        language_tokenizer(gpt2)[0].save(str(gpt2 / "tokenizer.json"))
        (gpt2 / "vocab.json").unlink()
    tokenizer, end = language_tokenizer(gpt2)
    assert end == 0
    assert tokenizer.encode("ab aab").ids == [3, 4, 1, 3]
    assert tokenizer.encode("ab ab").ids == [3, 5]
    assert tokenizer.decode(tokenizer.encode("ab aba").ids) == "ab aba"
    if not ready:
        theirs = transformers().GPT2Tokenizer.from_pretrained(gpt2)
        assert theirs("ab ab")["input_ids"] == tokenizer.encode("ab ab").ids


def test_tokenizer_of_another_kind(gpt2):
    Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).save(str(gpt2 / "tokenizer.json"))
    edit_config(gpt2, eos_token_id=[3, 4])
    assert language_tokenizer(gpt2)[1] == 3


def test_tokenizers_that_lose_the_text():
    kept = LanguageTokens(Tokenizer(models.BPE(LETTERS, [], unk_token=None)), 0, 6)
    texts = ["ab" * 50, "zz" * 3]
    kept.require_text(kept.encode(texts), texts)
    texts = ["zz" * 50, "ab"]
    with pytest.raises(CheckpointError, match=r"keeps 2 of 102 bytes of the text"):
        kept.require_text(kept.encode(texts), texts)
    words = LanguageTokens(Tokenizer(models.WordLevel({"a": 0}, unk_token="q")), 0, 1)
    with pytest.raises(CheckpointError, match=r"cannot encode the text \(WordLevel error"):
        words.encode(["b"])


DEEP = ("[" * 100_000, '{"a": ' * 500 + "1" + "}" * 500, "9" * 5000)
FRAME = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n"
DAMAGES = {
    "bert": [
        ("vocab.txt", None, "no tokenizer.json or vocab.txt"),
        (
            "vocab.txt",
            "[PAD]\n[UNK]\n[CLS]\nword",
            r"vocab.txt lacks \[SEP\]; this is not a vocabulary of BERT",
        ),
        ("vocab.txt", "[UNK]\n[PAD]\n[CLS]\n[SEP]", r"vocab.txt: .*has \[PAD\] at 1 and \[UNK\] at 0"),
        ("vocab.txt", FRAME + "word\nword", "vocab.txt:6: token 'word' is already in line 5"),
        ("vocab.txt", FRAME + "\n".join(map(str, range(60))), "vocab.txt .*to 63, but .* 61"),
        ("vocab.txt", b"\xff\xfe", "cannot read .*vocab.txt"),
        (
            "tokenizer_config.json",
            '{"do_lower_case": "yes"}',
            "tokenizer_config.json: do_lower_case is 'yes'",
        ),
        ("tokenizer_config.json", "[]", "tokenizer_config.json.* holds a list"),
        ("tokenizer.json", '{"model": 3}', "cannot read .*tokenizer.json.*: it is damaged"),
        *((name, text, name) for name in ("tokenizer_config.json", "tokenizer.json") for text in DEEP),
    ],
    "gpt2": [
        ("merges.txt", None, r"merges.txt \(No such file"),
        ("vocab.json", "{", "vocab.json"),
        ("merges.txt", "x y\n", "is damaged"),
        ("vocab.json", json.dumps({**LETTERS, "z": 61}), "up to 61"),
        ("config.json", {"eos_token_id": ...}, "eos_token_id is None"),
        ("config.json", {"eos_token_id": 61}, "eos_token_id is 61"),
        ("adapter_config.json", "{}", "merge_and_unload"),
    ],
}


@pytest.mark.parametrize(
    ("family", "damage"), [(family, one) for family in DAMAGES for one in DAMAGES[family]]
)
def test_damaged_tokenizers(family, damage, request):
    folder, (name, content, message) = request.getfixturevalue(family), damage
    if content is None:
        (folder / name).unlink()
    elif isinstance(content, dict):
        edit_config(folder, **content)
    else:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(CheckpointError, match=message):
        (checkpoint_tokenizer if family == "bert" else language_tokenizer)(folder)


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.txt", "tokenizer_config.json"])
def test_whatever_the_bytes(name, bert):
    if name == "tokenizer.json":
        checkpoint_tokenizer(bert).save(str(bert / name))
    elif name == "tokenizer_config.json":
        write_vocabulary(bert, do_lower_case=False)
    whole, chance, refusals = (bert / name).read_bytes(), random.Random(4), []
    for _ in range(200):
        (bert / name).write_bytes(damaged(whole, chance))
        try:
            checkpoint_tokenizer(bert).encode("the rates fell")
        except CheckpointError as error:
            refusals.append(str(error))
    assert len(refusals) > 60
    assert max(map(len, refusals)) < 2000


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.txt"])
def test_large_files_and_pipes(name, bert, monkeypatch):
    """Were a pipe opened to be read, the test would wait forever; it is as if it were not there."""
    if name == "tokenizer.json":
        checkpoint_tokenizer(bert).save(str(bert / name))
    with monkeypatch.context() as patched:
        patched.setattr(hf_tokenizer, "LARGEST", 20)
        with pytest.raises(CheckpointError, match=rf"{name} .*above the limit of 20"):
            checkpoint_tokenizer(bert)
    (bert / name).unlink()
    if hasattr(os, "mkfifo"):
        os.mkfifo(bert / name)
    if name == "tokenizer.json":
        checkpoint_tokenizer(bert)
        return
    with pytest.raises(CheckpointError, match="holds no"):
        checkpoint_tokenizer(bert)
