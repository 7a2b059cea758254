"""The tokeniser of a BERT checkpoint splits texts as that of transformers does."""

import json
import logging

import pytest
from hf_support import transformers, write_checkpoint

from collapipe_env.ground.errors import CheckpointError
from collapipe_env.models.hf_checkpoint import checkpoint_tokenizer
from collapipe_env.models.hf_tokenizer import special_ids
from collapipe_env.models.tokenization import encode, train_tokenizer

VOCABULARY = (
    *["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
    *["the", "rate", "##s", "fell", "ham", "##burg", "caf", "##e", "##é", "The", ".", ",", "!", "东", "京"],
    "\u2028",  # a token that looks like the end of a line
)
TEXTS = (
    "The rates fell, the rate FELL!", "Hamburg. café CAFÉ", "the 东京 rates", "zebra", "", "the [MASK] fell",
    "the " * 30,
)  # fmt: skip


def write_vocabulary(folder, **options):
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    if options:
        (folder / "tokenizer_config.json").write_text(json.dumps(options))


@pytest.fixture
def checkpoint(tmp_path):
    """A checkpoint written without transformers: config.json and model.safetensors."""
    write_checkpoint(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "options",
    [{}, {"do_lower_case": False}, {"strip_accents": False}, {"tokenize_chinese_chars": False}],
)
def test_vocabulary_equals_transformers(options, checkpoint):
    write_vocabulary(checkpoint, **options)
    tokenizer = checkpoint_tokenizer(checkpoint)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    expected = transformers().BertTokenizerFast(str(checkpoint / "vocab.txt"), **options)
    for text in TEXTS:
        assert tokenizer.encode(text).ids == expected(text)["input_ids"], text
    assert tokenizer.decode(tokenizer.encode("hamburg rates.").ids) == expected.decode(
        expected("hamburg rates.")["input_ids"], skip_special_tokens=True
    )


def test_ready_tokenizer_equals_transformers(checkpoint):
    """tokenizer.json wins over vocab.txt, and its own padding and cutting are switched off."""
    write_vocabulary(checkpoint)
    library = transformers()
    expected = library.BertTokenizerFast(str(checkpoint / "vocab.txt"), do_lower_case=False)
    expected.backend_tokenizer.enable_padding(length=50)
    expected.backend_tokenizer.enable_truncation(5)
    expected.save_pretrained(checkpoint)
    assert (checkpoint / "tokenizer.json").is_file()
    tokenizer = checkpoint_tokenizer(checkpoint)
    for text in TEXTS:
        assert tokenizer.encode(text).ids == expected(text)["input_ids"], text


def test_rows_keep_their_end_when_cut(checkpoint):
    write_vocabulary(checkpoint)
    rows = encode(checkpoint_tokenizer(checkpoint, 6), ["the rate", "the rates fell, the rate", ""], 6)
    assert rows.tolist() == [[3, 6, 7, 4, 0, 0], [3, 6, 7, 8, 9, 4], [3, 4, 0, 0, 0, 0]]


def test_special_ids(checkpoint):
    write_vocabulary(checkpoint)
    ids = special_ids(checkpoint_tokenizer(checkpoint))
    assert (ids.padding, ids.unknown, ids.hidden, ids.start, ids.end) == (0, 2, 5, 3, 4)
    own = special_ids(train_tokenizer(["some words"], 30))
    assert (own.padding, own.unknown, own.hidden, own.start, own.end) == (0, 1, 1, None, None)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[PAD]\n[UNK]\n[CLS]\nword", r"lacks \[SEP\]; this is not a vocabulary of BERT"),
        ("[UNK]\n[PAD]\n[CLS]\n[SEP]", r"has \[PAD\] at 1 and \[UNK\] at 0"),
        ("[PAD]\n[UNK]\n[CLS]\n[SEP]\nword\nword", "vocab.txt:6: token 'word' is already in line 5"),
        ("[PAD]\n[UNK]\n[CLS]\n[SEP]\n" + "\n".join(map(str, range(60))), "up to 63, but vocab_size .* 61"),
        (b"\xff\xfe", "cannot read"),
    ],
)  # fmt: skip
def test_damaged_vocabularies(content, message, checkpoint):
    (checkpoint / "vocab.txt").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(CheckpointError, match=message) as refusal:
        checkpoint_tokenizer(checkpoint)
    assert "vocab.txt" in str(refusal.value)


def test_damaged_tokenizers(checkpoint):
    with pytest.raises(CheckpointError, match=r"neither tokenizer.json nor vocab.txt"):
        checkpoint_tokenizer(checkpoint)
    write_vocabulary(checkpoint, do_lower_case="yes")
    with pytest.raises(CheckpointError, match=r"tokenizer_config.json: do_lower_case is 'yes'"):
        checkpoint_tokenizer(checkpoint)
    (checkpoint / "tokenizer_config.json").write_text("[]")
    with pytest.raises(CheckpointError, match=r"tokenizer_config.json holds a list"):
        checkpoint_tokenizer(checkpoint)
    (checkpoint / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(CheckpointError, match=r"tokenizer.json is damaged"):
        checkpoint_tokenizer(checkpoint)
