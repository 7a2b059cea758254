"""Entity tagging: words, pieces and tags stay in step; scores are those of a span matcher written here."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoint_support import bert_checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_support import DATA
from variants_support import mostly_slow

from collapipe_env.ground.errors import DataError
from collapipe_env.models.architecture import Architecture
from collapipe_env.models.hf_tokenizer import checkpoint_tokenizer
from collapipe_env.models.tokenization import CASED, train_tokenizer
from collapipe_env.tasks import Split, TaskSpec, get_task
from collapipe_env.tasks.base import NO_TARGET
from collapipe_env.tasks.heads import TokenLinear
from collapipe_env.tasks.ner import encode_words, entity_scores, load_entities
from collapipe_env.tasks.preparation import EMBEDDED

sys.path.insert(0, str(Path(__file__).parents[2] / "tools" / "embedded"))
import make_embedded_entities

needs_data = pytest.mark.skipif(not (DATA / "ner").is_dir(), reason="no test data (set COLLAPIPE_DATA)")
ENTITIES = EMBEDDED / "entities"
TASK = get_task("ner")
KINDS = ("date", "location", "organisation", "person", "product")


def spec(**changes):
    sizes = {"blocks": 2, "width": 8, "feedforward": 16, "heads": 2, "sequence_length": 24, "vocabulary": 800}
    sizes |= {name: changes.pop(name) for name in sizes.keys() & changes.keys()}
    return TaskSpec(**{"architecture": Architecture(**sizes), "outputs": 11, **changes})


def folder_with(folder, train, held_out="Anna\tB-x\n"):
    folder.mkdir(exist_ok=True)
    for name, content in (("train", train), ("dev", held_out), ("test", held_out)):
        (folder / f"{name}.conll").write_text(content, encoding="utf-8")
    return str(folder)


def matched_spans(references, predictions):
    """Micro precision, recall and F1 of exact spans, by marking each word and walking over it."""

    def spans(tags):
        found, start = set(), None
        for i in range(len(tags) + 1):
            tag = tags[i] if i < len(tags) else "O"
            if start is not None and tag != f"I-{tags[start][2:]}":
                found.add((start, i, tags[start][2:]))
                start = None
            if start is None and tag != "O":
                start = i
        return found

    right = said = true = 0
    for reference, prediction in zip(references, predictions, strict=True):
        expected, guessed = spans(reference), spans(prediction)
        right, said, true = right + len(expected & guessed), said + len(guessed), true + len(expected)
    precision, recall = right / said if said else 0.0, right / true if true else 0.0
    return precision, recall, 2 * precision * recall / (precision + recall) if right else 0.0


tag_names = st.sampled_from(["O", "O", "B-x", "I-x", "B-long-name", "I-long-name"])
pairs = st.lists(st.tuples(tag_names, tag_names), min_size=1, max_size=10)


@settings(max_examples=60)
@given(data=st.lists(pairs, min_size=1, max_size=6))
def test_scores_are_those_of_a_span_matcher(data):
    references = [[right for right, _ in sentence] for sentence in data]
    predictions = [[said for _, said in sentence] for sentence in data]
    precision, recall, f1 = matched_spans(references, predictions)
    found = entity_scores(references, predictions)
    assert list(found) == list(TASK.metrics)
    assert found["entity_precision"] == pytest.approx(precision)
    assert found["entity_recall"] == pytest.approx(recall)
    assert found["entity_f1"] == pytest.approx(f1)
    flat = [right == said for sentence in data for right, said in sentence]
    assert found["token_accuracy"] == pytest.approx(sum(flat) / len(flat))


def test_an_entity_longer_than_a_hundred_words_counts_once():
    long = ["B-x", *["I-x"] * 149]
    assert entity_scores([long], [["B-x", *["O"] * 149]])["entity_f1"] == 0
    assert entity_scores([long], [long])["entity_f1"] == 1


def test_first_piece_carries_the_tag_and_words_beyond_the_cut_are_o(tmp_path):
    train = "\n".join(f"{w}\tB-x\nran\tO\n" for w in ("Anna", "Bert", "Carl")) + "\nO\u00a0\tI-x\n\u200b\tO\n"
    held_out = "Qxzwv\tB-x\nXqz\tI-x\nran\tO\nAnna\tB-x\n\nran\tO\n"
    data = TASK.load(spec(dataset=folder_with(tmp_path, train, held_out), outputs=3, sequence_length=10))
    assert data.classes == ("O", "B-x", "I-x")
    first = data.dev.targets[0]
    assert data.dev.references == (("B-x", "I-x", "O", "B-x"), ("O",))
    shown = first[first != NO_TARGET].tolist()
    assert shown == [1, 2, 0, 1][: len(shown)]
    assert first[0] == 1
    assert first[1] == NO_TARGET, "the unknown word has several pieces"
    assert 2 <= len(shown) < 4, "the row is too short for all words"

    perfect = np.where(data.dev.targets == NO_TARGET, 2, data.dev.targets)
    found = TASK.score(perfect, data.dev, data)
    # One of two entities lies beyond the cut: found precision 1, recall 1/2.
    assert (found["entity_precision"], found["entity_recall"]) == (1.0, 0.5)
    assert found["token_accuracy"] == pytest.approx(4 / 5)
    part = data.dev.subset(np.array([1]))
    assert TASK.score(perfect[[1]], part, data)["token_accuracy"] == 1.0


def test_every_word_has_a_first_piece_whatever_it_is():
    odd = ("", " ", "\u00a0", "\u200b", "\u200b\u200d", "\x07", "日本", "\U0001f600", "a b", "can't")
    tokenizer = train_tokenizer(["plain", "words"], 64, CASED)
    tokens, words = encode_words(tokenizer, [odd, ("plain",)], 64)
    assert words[0][words[0] >= 0].tolist() == list(range(len(odd)))
    assert (tokens[words >= 0] != 0).all()
    starts = np.flatnonzero(words[0] >= 0)
    assert tokens[0, starts[3]] == 1, "nothing is left of a zero-width space"


def test_zero_width_characters_do_not_make_another_word():
    tokenizer = train_tokenizer(["plain", "words"] * 3, 64, CASED)
    tokens, _ = encode_words(tokenizer, [("pl\u200bain",), ("plain",), ("Plain",)], 8)
    np.testing.assert_array_equal(tokens[0], tokens[1])
    assert (tokens[1] != tokens[2]).any(), "case is kept"


def test_rows_of_a_checkpoint_are_framed(tmp_path):
    pieces = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Anna", "ran", "Os", "##lo", "##ran"]
    checkpoint = bert_checkpoint(tmp_path / "bert", pieces, do_lower_case=False)
    tokenizer = checkpoint_tokenizer(checkpoint)
    tokens, words = encode_words(tokenizer, [("Anna", "ran", "Oslo"), ("Oslo", "Anna"), ("", "Bergen")], 5)
    assert tokens.tolist() == [[3, 6, 7, 8, 4], [3, 8, 9, 6, 4], [3, 2, 2, 4, 0]]
    assert words.tolist() == [[-1, 0, 1, 2, -1], [-1, 0, -1, 1, -1], [-1, 0, 1, -1, -1]]
    with pytest.raises(DataError, match="no room for a word"):
        encode_words(tokenizer, [("Anna",)], 2)
    dataset = folder_with(tmp_path / "data", "Anna\tB-x\nOslo\tI-x\nran\tO\n")
    data = TASK.load(spec(dataset=dataset, outputs=3, checkpoint=checkpoint, sequence_length=8))
    assert data.train.tokens.tolist() == [[3, 6, 8, 9, 7, 4, 0, 0]]
    assert data.train.targets.tolist() == [[-100, 1, 2, -100, 0, -100, -100, -100]]
    assert data.lengths.tolist() == [6]


def test_embedded_sentences():
    data = TASK.load(spec())
    assert [len(part) for part in (data.train, data.dev, data.test)] == [1800, 350, 350]
    assert data.classes == TASK.classes(spec()) == ("O", *(f"{p}-{kind}" for kind in KINDS for p in "BI"))
    assert data.train.tokens.max() < 800
    assert (data.lengths == (data.train.tokens != 0).sum(axis=1)).all()
    assert sorted(set(data.strata)) == [0, 1, 2, 3, 4, 5]
    for row in range(0, 1800, 97):
        counts = [data.train.references[row].count(f"B-{kind}") for kind in KINDS]
        expected = 1 + int(np.argmax(counts)) if any(counts) else 0
        assert data.strata[row] == expected


def test_embedded_sentences_are_what_the_script_makes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["make_embedded_entities.py", str(tmp_path)])
    make_embedded_entities.main()
    for part in ("train", "dev", "test"):
        assert (tmp_path / f"{part}.conll").read_bytes() == (ENTITIES / f"{part}.conll").read_bytes()


def test_embedded_names_cannot_be_looked_up():
    """A tagger that remembers each training word's most frequent tag finds few entities."""
    train, *held_out = load_entities(ENTITIES)
    counts = {}
    for words, tags in zip(train.inputs, train.answers, strict=True):
        for word, tag in zip(words, tags, strict=True):
            counts.setdefault(word, {}).setdefault(tag, 0)
            counts[word][tag] += 1
    known = {word: max(tags, key=tags.get) for word, tags in counts.items()}
    for part in held_out:
        remembered = [[known.get(word, "O") for word in words] for words in part.inputs]
        f1 = entity_scores([list(tags) for tags in part.answers], remembered)["entity_f1"]
        assert 0.1 < f1 < 0.25


def test_trailing_padding_may_be_cut_off():
    targets = torch.tensor([[1, NO_TARGET, 2, NO_TARGET], [0, NO_TARGET, NO_TARGET, NO_TARGET]])
    outputs = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(TASK.loss(outputs[:, :3], targets), TASK.loss(outputs, targets))
    data = TASK.load(spec())
    width = int((data.dev.targets[:3] != NO_TARGET).nonzero()[1].max()) + 1
    said = np.where(data.dev.targets == NO_TARGET, 0, data.dev.targets)[:3]
    part = data.dev.subset(np.arange(3))
    assert TASK.score(said[:, :width], part, data) == TASK.score(said, part, data)


def test_head_is_drawn_from_its_generator_and_predicts_the_best_tag():
    heads = [TASK.build_head(spec(), torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    assert isinstance(heads[0], TokenLinear)
    assert torch.equal(heads[0].weight, heads[1].weight)
    assert not torch.equal(heads[0].weight, heads[2].weight)
    hidden, mask = torch.randn(3, 24, 8), torch.ones(3, 24, dtype=torch.bool)
    predicted = TASK.predict(heads[0], hidden, mask, spec())
    scores = heads[0](hidden, mask, None)
    assert scores.shape == (3, 24, 11)
    assert all(
        scores[s, i, predicted[s, i]] == max(scores[s, i].tolist()) for s in range(3) for i in range(24)
    )


def test_faults_are_named(tmp_path):
    good = "Anna\tB-x\nran\tO\n"
    dataset = folder_with(tmp_path / "unseen", good, "ran\tO\nOslo\tB-y\n")
    with pytest.raises(DataError, match=r"dev\.conll:1: type 'y' of the word 'Oslo' never occurs in"):
        TASK.load(spec(dataset=dataset, outputs=3))
    dataset = folder_with(tmp_path / "none", "Anna\tO\n", "ran\tO\n")
    with pytest.raises(DataError, match=r"none: no entities in the training part"):
        TASK.classes(spec(dataset=dataset))


def test_an_i_tag_that_training_never_shows_is_no_fault(tmp_path):
    dataset = folder_with(tmp_path, "Anna\tB-x\nran\tO\n", "Anna\tB-x\nBell\tI-x\n")
    assert TASK.load(spec(dataset=dataset, outputs=3)).dev.references == (("B-x", "I-x"),)


@needs_data
@pytest.mark.parametrize(
    ("name", "outputs", "sizes"),
    mostly_slow([("wikigold/wikigold.conll", 9, (1356, 170, 170)), ("wnut17", 13, (3394, 1009, 1287))]),
)
def test_real_sets(name, outputs, sizes):
    dataset = str(DATA / "ner" / name)
    real = spec(dataset=dataset, outputs=outputs, sequence_length=160, vocabulary=4000)
    data = TASK.load(real)
    assert tuple(len(part) for part in (data.train, data.dev, data.test)) == sizes
    for part in (data.dev, data.test):
        assert isinstance(part, Split)
        said = np.where(part.targets == NO_TARGET, 0, part.targets)
        found = TASK.score(said, part, data)
        assert found["entity_precision"] > 0.99  # less than 1 by entities that the cut shortens
        assert found["entity_recall"] > 0.99  # hardly a sentence is longer than 160 pieces
        nothing = TASK.score(np.zeros_like(said), part, data)
        assert (nothing["entity_f1"], nothing["entity_precision"]) == (0.0, 0.0)
        assert nothing["token_accuracy"] > 0.8
