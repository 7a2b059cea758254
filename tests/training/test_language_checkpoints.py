"""Fine-tuning of language models from folders in Hugging Face format: tokens, losses and what is saved."""

import json
import math

import numpy as np
import pytest
import torch
from hf_support import architecture, edit_config, random_language_model, save, transformers
from learner_support import learner_of
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from variants_support import mostly_slow

from collapipe_env.ground.errors import CheckpointError
from collapipe_env.models.hf_tokenizer import language_tokenizer
from collapipe_env.physics.payload import UpdateFormat
from collapipe_env.scenario.learning import LearningSpec
from collapipe_env.simulator.learner import Arrivals, RoundOutcome
from collapipe_env.tasks import TaskSpec, get_task
from collapipe_env.tasks.base import NO_TARGET
from collapipe_env.tasks.language_tokens import LanguageTokens, checkpoint_tokens

N, BLOCKS, LENGTH, SPARE = 2, 3, 12, 5
END = "<|endoftext|>"
TASK = get_task("language-modelling")
WORDS = ("ship", "wind", "harbour", "night", "Größe", "sea!", "!!", "old", "🚢", END, "storm", "home")
FAMILIES = {"gpt2": True, "llama3": False, "qwen2": True}
"""Whether the head is tied."""


def texts(count, seed):
    rng = np.random.default_rng(seed)
    return ["! " + " ".join(rng.choice(WORDS, rng.integers(3, 30))) for _ in range(count)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    for number, (part, count) in enumerate((("train", 60), ("dev", 4), ("test", 12))):
        rows = (json.dumps({"text": text}) for text in texts(count, number))
        (folder / f"{part}.jsonl").write_text("\n".join(rows))
    return folder


def held_out(corpus):
    """The held-out documents."""
    return [json.loads(row)["text"] for row in (corpus / "test.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module", params=FAMILIES)
def checkpoint(request, corpus, tmp_path_factory):
    """A folder with random weights, in whose vocabulary 0 is an exclamation mark, as in GPT-2's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    options = {"vocab_size": 300, "initial_alphabet": alphabet, "show_progress": False}
    tokenizer.train_from_iterator(texts(60, 0), trainers.BpeTrainer(**options))
    assert tokenizer.token_to_id("!") == 0  # with which every text begins
    tokenizer.add_special_tokens([END])
    end = tokenizer.token_to_id(END)
    family = request.param
    sizes = architecture(
        family, FAMILIES[family], LENGTH, vocabulary=tokenizer.get_vocab_size() + SPARE, causal=True
    )
    folder = tmp_path_factory.mktemp(family)
    save(random_language_model(sizes, family), folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    edit_config(folder, bos_token_id=end, eos_token_id=end)
    return sizes, folder


def checkpoint_learner(checkpoint, corpus, lora=False, **learning):
    sizes, folder = checkpoint
    fields = {"token_dropout": 0.0, "evaluate_every": 1, "metric_every": 1, "warmup_steps": 0, "proxy": None}
    learning = LearningSpec(dataset=str(corpus), checkpoint=str(folder), **{**fields, **learning})
    update_format = UpdateFormat(32, "lora", lora_rank=2) if lora else UpdateFormat()
    return learner_of(
        sizes, learning, "language-modelling", sizes.vocabulary, clusters=N, batch_size=16,
        update_format=update_format,
    )  # fmt: skip


def outcome():
    blocks, micro_batches = np.array([[[2, 1]] * N]), np.full((1, N), 2)
    arrived = Arrivals.of(np.ones((1, N, 1, 2), dtype=bool), micro_batches)
    return RoundOutcome(blocks, micro_batches, arrived, np.ones((1, N)))


@torch.no_grad()
def nats_of_transformers(folder, corpus):
    """Nats of the test documents and the tokens that they are for, with nothing of this package."""
    library = transformers()
    model = library.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = library.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    end = json.loads((folder / "config.json").read_text())["eos_token_id"]
    stream = [end]
    for text in held_out(corpus):
        # As plain text, whatever the text says.
        stream += tokenizer(text, split_special_tokens=True)["input_ids"] + [end]
    nats = 0.0
    for start in range(0, len(stream) - 1, LENGTH):
        row = torch.tensor([stream[start : start + LENGTH + 1]])
        scores = model(input_ids=row[:, :-1]).logits[0].double().log_softmax(dim=-1)
        nats -= float(scores[torch.arange(row.shape[1] - 1), row[0, 1:]].sum())
    assert stream.count(end) == 13
    return nats, len(stream) - 1


@pytest.mark.parametrize("lora", mostly_slow([False, True], [1]))
def test_losses_are_those_of_transformers_before_and_after_fine_tuning(lora, checkpoint, corpus, tmp_path):
    found = checkpoint_learner(checkpoint, corpus, lora, learning_rate=3e-3, server_learning_rate=3e-3)
    report = found.reset([np.random.default_rng(1)])
    nats, tokens = nats_of_transformers(checkpoint[1], corpus)
    assert report.loss[0] == pytest.approx(nats / tokens, abs=1e-4)
    assert report.metrics["perplexity"][0] == pytest.approx(math.exp(nats / tokens), rel=1e-4)
    size = sum(len(text.encode()) for text in held_out(corpus))
    assert report.metrics["bits_per_byte"][0] == pytest.approx(nats / math.log(2) / size, rel=1e-4)

    for _ in range(8):
        tuned = found.train_round(outcome())
    assert tuned.loss[0] < report.loss[0] - 0.2
    folder = tmp_path / "tuned"
    found.save_checkpoint(folder)
    nats, again = nats_of_transformers(folder, corpus)
    assert again == tokens
    assert tuned.loss[0] == pytest.approx(nats / tokens, abs=1e-4)
    before, after = (
        transformers().AutoTokenizer.from_pretrained(path)("storm! 🚢")["input_ids"]
        for path in (checkpoint[1], folder)
    )
    assert before == after

    # What was saved is a checkpoint like any other.
    further = checkpoint_learner((checkpoint[0], folder), corpus).reset([np.random.default_rng(2)])
    assert further.loss[0] == pytest.approx(tuned.loss[0], abs=1e-5)


def test_data_has_the_ids_of_the_checkpoint(checkpoint, corpus):
    sizes, folder = checkpoint
    spec = TaskSpec(sizes, sizes.vocabulary, dataset=str(corpus), checkpoint=str(folder))
    data = TASK.load(spec)
    assert TASK.load(spec) is data
    end = language_tokenizer(folder)[1]
    assert data.end == data.hidden == end
    stream = data.test.targets[data.test.targets != NO_TARGET]
    documents = np.split(stream, np.flatnonzero(stream == end) + 1)[:-1]
    expected = held_out(corpus)
    assert [data.decode([one[:-1]])[0] for one in documents] == expected
    assert any(END in text for text in expected)
    assert sum(data.test.references) == sum(len(text.encode()) for text in expected)
    assert set(data.unwritten) == set(range(end + 1, sizes.vocabulary))


def test_samples_of_a_checkpoint(checkpoint, corpus):
    """Greedy text is what transformers' own generation writes."""
    folder = checkpoint[1]
    found = checkpoint_learner(checkpoint, corpus)
    found.reset([np.random.default_rng(1)])
    sample = found.written_samples(1)[0]
    library = transformers()
    model = library.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer, end = language_tokenizer(folder)
    document = held_out(corpus)[0]
    assert document.startswith(sample["prompt"] + sample["document"])
    tokenizer.encode_special_tokens = True
    prompt = [end, *tokenizer.encode(document).ids[: LENGTH // 4]]
    text = list(prompt)
    for _ in range(LENGTH):
        with torch.no_grad():
            scores = model(input_ids=torch.tensor([text[-LENGTH:]])).logits[0, -1]
        scores[end + 1 :] = -math.inf
        text.append(int(scores.argmax()))
    written = text[len(prompt) :]
    written = written[: written.index(end)] if end in written else written
    assert sample["greedy"] == tokenizer.decode(written)


def test_sizes_and_kinds_that_do_not_fit(checkpoint, corpus, tmp_path):
    sizes, folder = checkpoint
    wider = architecture("gpt2", length=LENGTH, vocabulary=sizes.vocabulary + 1, causal=True)
    with pytest.raises(CheckpointError, match=r"workload.vocabulary is \d+ but vocab_size is"):
        checkpoint_learner((wider, folder), corpus).reset([np.random.default_rng(0)])
    with pytest.raises(CheckpointError, match="absent"):
        checkpoint_learner((sizes, tmp_path / "absent"), corpus).reset([np.random.default_rng(0)])


def test_bytes_of_pieces(tmp_path):
    """SentencePiece's spelling, as in the first Llamas: marks for spaces, single bytes as numbers."""
    vocabulary = {"<unk>": 0, "</s>": 1, "▁": 2, "a": 3, "ö": 4, "▁a": 5, "<0xF0>": 6, "aa": 7}
    tokenizer = Tokenizer(models.BPE(vocabulary, [("▁", "a"), ("a", "a")], unk_token="<unk>"))
    tokenizer.add_special_tokens(["<unk>", "</s>"])
    tokenizer.add_tokens(["zzz"])
    tokens = LanguageTokens(tokenizer, 1, 11)
    assert tokens.byte_counts.tolist() == [0, 0, 1, 1, 2, 2, 1, 2, 3, 0, 0]
    assert tokens.unwritten == (0, 9, 10)
    # An end that others would read as text.
    assert LanguageTokens(tokenizer, 3, 11).byte_counts.tolist() == [0, 0, 1, 0, 2, 2, 1, 2, 3, 0, 0]


@pytest.mark.parametrize("family", ["gpt2", "qwen2"])
def test_a_model_of_learned_tokens_is_saved_with_them(family, corpus, tmp_path):
    """Its folder is one that transformers reads, and a checkpoint to go on from."""
    sizes = architecture(family, tied=True, length=LENGTH, vocabulary=290, causal=True)
    fields = {"token_dropout": 0.0, "evaluate_every": 1, "metric_every": 1, "warmup_steps": 0}
    learning = LearningSpec(dataset=str(corpus), **fields)
    found = learner_of(sizes, learning, "language-modelling", 290, clusters=N, batch_size=16)
    found.reset([np.random.default_rng(1)])
    report = found.train_round(outcome())
    folder = tmp_path / "made"
    found.save_checkpoint(folder)
    nats, tokens = nats_of_transformers(folder, corpus)
    assert report.loss[0] == pytest.approx(nats / tokens, abs=1e-4)
    theirs, text = transformers().AutoTokenizer.from_pretrained(folder), WORDS[4] + " sea! \n x"
    assert theirs.decode(theirs(text)["input_ids"]) == text
    assert theirs.eos_token_id == checkpoint_tokens(str(folder)).end == 2
    again = checkpoint_learner((sizes, folder), corpus).reset([np.random.default_rng(2)])
    assert again.loss[0] == pytest.approx(report.loss[0], abs=1e-5)
    assert again.metrics["bits_per_byte"][0] == pytest.approx(report.metrics["bits_per_byte"][0], rel=1e-5)
