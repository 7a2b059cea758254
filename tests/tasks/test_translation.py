"""Translation end to end: data, loss, searches and scores; and it learns."""

import math

import numpy as np
import pytest
import torch
from checkpoint_support import bert_checkpoint
from variants_support import mostly_slow

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.models.architecture import Architecture
from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.models.tokenization import BEGIN, END
from collapipe_env.tasks import Split, TaskData, TaskSpec
from collapipe_env.tasks.translation import Translation

TASK = Translation()
Q = 10
NOUNS = ("Hund", "Katze", "Maus", "Äpfel", "Kuh")
VERBS = ("sieht", "hört", "mag")


def sentences():
    """60 sentences, and as their translations the same words in reverse order."""
    made = [f"{a} {v} {b}!" for a in NOUNS for b in NOUNS if a != b for v in VERBS]
    return made, [" ".join(reversed(s[:-1].split())) + " ?" for s in made]


def folder(tmp_path, count=60):
    for language, texts in zip(("en", "de"), sentences(), strict=True):
        for name, these in (("train", texts[:count]), ("dev", texts[:5]), ("test", texts[:count])):
            (tmp_path / f"{name}.{language}").write_text("\n".join(these) + "\n", encoding="utf-8")
    return str(tmp_path)


def spec(dataset, style="pre-ln", beam_size=1, **other):
    architecture = Architecture(2, 32, 64, 2, Q, 120, style)
    return TaskSpec(**{"architecture": architecture, "outputs": 110, "decoder_blocks": 1,
                       "dataset": dataset, "beam_size": beam_size, **other})  # fmt: skip


def test_load_gives_ids_references_and_lengths(tmp_path):
    data = TASK.load(spec(folder(tmp_path)))
    sources, targets = sentences()
    assert [len(part) for part in (data.train, data.dev, data.test)] == [60, 5, 60]
    assert data.train.tokens.shape == (60, Q)
    assert data.train.targets.shape == (60, Q + 1)
    assert (data.train.targets[:, 0] == BEGIN).all()
    assert data.train.references == tuple(targets)
    assert data.decode(data.train.targets[:, 1:]) == targets
    assert data.lengths.tolist() == [(row > 0).sum() for row in data.train.tokens]
    assert ((data.train.tokens == END).sum(axis=1) == 1).all()
    assert data.train.tokens.max() < 120
    assert data.train.targets.max() < 110
    assert TASK.classes(spec(str(tmp_path))) == ()  # outputs are a vocabulary
    assert TASK.load(spec(str(tmp_path), beam_size=4)) is data
    again = TASK.load(spec(str(tmp_path), languages=("de", "en")))
    assert again.train.references == tuple(sources)


def test_strata_are_even_buckets_of_length(tmp_path):
    rng = np.random.default_rng(0)
    lines = [" ".join(["wort"] * n) for n in rng.integers(1, 9, 400)]
    (tmp_path / "pairs.tsv").write_text("".join(f"{line}\t{line}\n" for line in lines), encoding="utf-8")
    data = TASK.load(spec(str(tmp_path / "pairs.tsv")))
    counts = np.bincount(data.strata)
    assert len(counts) == 5
    assert counts.min() > 30
    for a in range(4):
        assert data.lengths[data.strata == a].max() < data.lengths[data.strata == a + 1].min()


def test_scores_without_those_of_padding_give_the_same_loss():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(7, Q, 50, generator=generator, dtype=torch.float64)
    targets = torch.randint(4, 50, (7, Q + 1), generator=generator)
    lengths = torch.tensor([2, 5, 10, 3, 7, 1, 8])
    targets[torch.arange(Q + 1) > lengths[:, None]] = 0
    targets[:, 0] = BEGIN
    asked = scores[torch.arange(Q) < lengths[:, None]]
    for smoothing in (0.0, 0.1):
        both = [TASK.loss(rows, targets, smoothing) for rows in (asked, scores.flatten(0, 1))]
        torch.testing.assert_close(*both)


def model_and_head(asked):
    generator = torch.Generator().manual_seed(0)
    return ClusterModel(asked.architecture, generator), TASK.build_head(asked, generator)


def train(asked, steps, rate):
    data = TASK.load(asked)
    model, head = model_and_head(asked)
    parameters = [*model.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, rate, betas=(0.9, 0.98), weight_decay=0.0)
    tokens, targets = torch.tensor(data.train.tokens), torch.tensor(data.train.targets)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (step + 1) / 20, 2 * (1 - step / steps))
        loss = TASK.loss(head(model(tokens), tokens != 0, targets), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model, head


@torch.no_grad()
def translate(model, head, asked, part):
    tokens = torch.tensor(part.tokens)
    return TASK.predict(head, model(tokens), tokens != 0, asked).numpy()


@pytest.mark.parametrize(
    ("style", "rate", "steps", "count"),
    mostly_slow(
        [
            ("pre-ln", 2e-2, 45, 8),
            ("pre-ln", 1e-2, 120, 60),
            ("transformer", 3e-3, 120, 60),
            ("bert", 3e-3, 120, 60),
        ]
    ),
)
def test_a_tiny_model_learns_to_turn_sentences_round(tmp_path, style, rate, steps, count):
    learned = {} if style != "bert" else {"learned_positions": Q, "token_types": 2}
    architecture = Architecture(2, 32, 64, 2, Q, 120, style, **learned)
    asked = spec(folder(tmp_path, count), architecture=architecture)
    data = TASK.load(asked)
    model, head = model_and_head(asked)
    untrained = TASK.score(translate(model, head, asked, data.test), data.test, data)
    assert untrained["bleu"] < 0.1
    model, head = train(asked, steps, rate)
    for beams in (1, 3):
        wider = spec(str(tmp_path), architecture=architecture, beam_size=beams)
        scores = TASK.score(translate(model, head, wider, data.test), data.test, data)
        assert scores["bleu"] > 0.8, beams
        assert scores["chrf"] > 0.8, beams


def test_scores_against_known_figures():
    texts = ["the cat sat on the mat", "a dog runs fast"]
    rows = np.array([[0], [1]])
    data = TaskData(
        *[Split(rows, rows)] * 3, rows[:, 0], rows[:, 0], (), lambda ids: [texts[i] for i in ids[:, 0]]
    )
    assert TASK.score(rows, Split(rows, rows, tuple(texts)), data) == pytest.approx({"bleu": 1, "chrf": 1})
    other = Split(rows, rows, ("the cat sat on a mat", "a dog runs fast"))
    # By hand: precisions 9/10, 6/8, 4/6, 2/4 (one word, and what contains it, differs), equal lengths.
    expected = (9 / 10 * 6 / 8 * 4 / 6 * 2 / 4) ** 0.25
    scores = TASK.score(rows, other, data)
    assert tuple(scores) == TASK.metrics
    assert scores["bleu"] == pytest.approx(expected)
    assert 0.5 < scores["chrf"] < 1


def test_workloads_that_do_not_fit_are_refused():
    with pytest.raises(ScenarioError, match="outputs is 2"):
        TASK.load(spec("embedded", outputs=2))


@pytest.mark.slow
def test_embedded_messages_fit_the_default_proxy():
    asked = spec("embedded", architecture=Architecture(2, 32, 64, 2, 32, 2000), outputs=2000)
    data = TASK.load(asked)
    assert len(data.train) > 5000
    for part in (data.train, data.dev, data.test):
        written = data.decode(part.targets[:, 1:])
        cut = ~(part.targets == END).any(axis=1)
        assert cut.mean() < 0.01
        kept = [(text, ref) for text, ref, c in zip(written, part.references, cut, strict=True) if not c]
        assert np.mean([text == ref for text, ref in kept]) > 0.99


def test_with_a_checkpoint_the_source_has_its_tokeniser(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "hund", "katze", "sieht", "!", "[MASK]"]
    checkpoint = bert_checkpoint(tmp_path / "bert", words, width=32)
    data = TASK.load(spec(folder(tmp_path), checkpoint=checkpoint))
    first = data.train.references.index("Katze sieht Hund ?")
    assert data.train.tokens[first].tolist() == [2, 4, 6, 5, 7, 3, 0, 0, 0, 0]
    assert data.decode(data.train.targets[first : first + 1, 1:]) == ["Katze sieht Hund ?"]
    assert data.hidden == 8  # the checkpoint's mask, not the row that is the unknown token elsewhere


@pytest.mark.parametrize("beams", [1, 3])
def test_a_diverged_model_still_writes_something(beams):
    asked = spec("embedded", beam_size=beams)
    _, head = model_and_head(asked)
    hidden = torch.full((2, Q, 32), math.nan)
    with torch.no_grad():
        written = TASK.predict(head, hidden, torch.ones(2, Q, dtype=torch.bool), asked)
    assert written.shape == (2, Q)
