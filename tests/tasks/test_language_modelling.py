"""The task: data for its learner, loss and metrics against their definitions, no look ahead."""

import math

import numpy as np
import pytest
import torch

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.models.architecture import Architecture
from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.scenario import load_scenario
from collapipe_env.tasks import TaskSpec, get_task
from collapipe_env.tasks.base import NO_TARGET, task_spec, trained_architecture
from collapipe_env.tasks.documents import load_documents
from collapipe_env.tasks.language_tokens import END
from collapipe_env.tasks.preparation import EMBEDDED

STORIES = EMBEDDED / "stories"
STYLES = ("pre-ln", "transformer", "bert")
LENGTH, VOCABULARY = 12, 300
TASK = get_task("language-modelling")


def spec(style="pre-ln", dataset="embedded", **more):
    positions, types = (LENGTH, 2) if style == "bert" else (0, 0)
    sizes = Architecture(2, 8, 12, 2, LENGTH, VOCABULARY, style, positions, types, causal=True)
    return TaskSpec(sizes, VOCABULARY, dataset=dataset, **more)


@pytest.fixture(scope="module")
def data():
    return TASK.load(spec())


def test_parts_are_the_packed_documents(data):
    for split, documents in zip((data.train, data.dev, data.test), load_documents(STORIES), strict=True):
        stream = split.targets[split.targets != NO_TARGET]
        assert (stream == END).sum() == len(documents)
        ends = np.flatnonzero(stream == END)
        assert data.decode([stream[: ends[0]], stream[ends[3] + 1 : ends[4]]]) == [
            documents.inputs[0],
            documents.inputs[4],
        ]
    assert TASK.load(spec()) is data
    assert TASK.classes(spec()) == data.classes == ()


def test_references_are_the_bytes_of_the_text(data):
    for split, documents in zip((data.dev, data.test), load_documents(STORIES)[1:], strict=True):
        assert len(split.references) == len(split)
        assert sum(split.references) == sum(len(text.encode()) for text in documents.inputs)
    row = data.test.targets[7]
    assert len("".join(data.decode([row])).encode()) == data.test.references[7]  # ASCII, no cut characters


def test_strata_are_the_kinds_else_the_lengths(data, tmp_path):
    kinds = load_documents(STORIES)[0].answers
    names = sorted(set(kinds))
    assert data.strata.tolist() == [names.index(kind) for kind in kinds]
    rng = np.random.default_rng(0)  # letters that no two lines have in common make no pairs
    lines = ["".join(rng.choice(list("abcdefghijklmnopqrstuvwxyz"), 1 + i)) for i in range(40)]
    for part in ("train", "dev", "test"):
        (tmp_path / f"{part}.txt").write_text("\n".join(lines))
    plain = TASK.load(spec(dataset=str(tmp_path)))
    assert len(set(plain.lengths)) > 10
    assert set(plain.strata) == {0, 1, 2, 3, 4}
    order = np.argsort(plain.lengths, kind="stable")
    assert (np.diff(plain.strata[order]) >= 0).all()


def test_documents_are_packed_for_those_who_hold_them(data):
    texts = load_documents(STORIES)[0].inputs
    packed = data.pack(np.array([3, 1]))
    stream = packed.targets[packed.targets != NO_TARGET]
    ends = np.flatnonzero(stream == END)
    assert data.decode([stream[: ends[0]], stream[ends[0] + 1 :]]) == [texts[3], texts[1]]
    whole = data.pack(np.arange(len(texts)))
    assert np.array_equal(whole.tokens, data.train.tokens)


def test_metrics_by_their_definitions(data):
    rows = slice(len(data.test) - 3, len(data.test))  # the last one is padded
    split = data.test.subset(np.arange(len(data.test))[rows])
    targets = torch.from_numpy(split.targets)
    assert (targets == NO_TARGET).any()
    scores = torch.randn(*targets.shape, VOCABULARY, generator=torch.Generator().manual_seed(0))
    nats, count = [], 0
    for row in range(3):
        total = 0.0
        for place, token in enumerate(split.targets[row].tolist()):
            if token != NO_TARGET:
                logits = scores[row, place].double()
                total += float(torch.log(torch.exp(logits).sum()) - logits[token])
                count += 1
        nats.append(total)
    measured = TASK.measure(scores, targets)
    assert measured.tolist() == pytest.approx(nats)
    found = TASK.score(measured.numpy(), split, data)
    assert tuple(found) == TASK.metrics
    assert found["perplexity"] == pytest.approx(math.exp(sum(nats) / count))
    assert found["bits_per_byte"] == pytest.approx(sum(nats) / math.log(2) / sum(split.references))
    # A model that gives every token the same probability has the perplexity of its vocabulary.
    even = TASK.measure(torch.zeros_like(scores), targets).numpy()
    assert TASK.score(even, split, data)["perplexity"] == pytest.approx(VOCABULARY)
    hopeless = TASK.measure(scores * 1e4, targets).numpy()
    assert TASK.score(hopeless, split, data)["perplexity"] == math.inf


@pytest.mark.parametrize("style", STYLES)
def test_no_position_sees_a_later_one(style):
    sizes = spec(style).architecture
    model, head = (
        ClusterModel(sizes, torch.Generator()),
        TASK.build_head(TaskSpec(sizes, 0), torch.Generator()),
    )
    tokens = torch.randint(3, VOCABULARY, (1, LENGTH), generator=torch.Generator().manual_seed(1))
    before = head(model(tokens), tokens != 0)
    for place in (3, LENGTH - 1):
        changed = tokens.clone()
        changed[0, place] = 3 + (changed[0, place] - 2) % (VOCABULARY - 3)
        after = head(model(changed), tokens != 0)
        torch.testing.assert_close(after[:, :place], before[:, :place])
        assert not torch.allclose(after[:, place], before[:, place])
    # Nor do real tokens see the padding behind them, and a shorter row scores the same.
    padded = tokens.clone()
    padded[0, 5:] = 0
    short = head(model(tokens[:, :5]), tokens[:, :5] != 0)
    torch.testing.assert_close(head(model(padded), padded != 0)[:, :5], short)
    torch.testing.assert_close(short, before[:, :5])


def test_scenarios_of_the_task():
    scenario = load_scenario("small").with_task("language-modelling")
    assert scenario.name == "small-language-modelling"
    assert trained_architecture(scenario).causal
    assert task_spec(scenario).decoder_blocks == 0
    assert scenario.workload.outputs == scenario.workload.vocabulary
    assert not trained_architecture(load_scenario("small")).causal
    assert scenario.with_overrides({"workload.vocabulary": 900}).workload.outputs == 900
    assert load_scenario("bert-small").with_task("language-modelling").workload.outputs == 30522
    whole = {"base": "small", "workload": {"task": "language-modelling", "vocabulary": 700}}
    assert load_scenario(whole).workload.outputs == 700
    assert load_scenario({"workload": {"task": "language-modelling"}}).workload.outputs == 8000
    with pytest.raises(ScenarioError, match="predicts its own tokens, but outputs = 7 differs from vocab"):
        scenario.with_overrides({"workload.outputs": 7})


def test_the_head_is_priced_at_every_position():
    from torch.utils.flop_counter import FlopCounterMode

    from collapipe_env.simulator.build import workload_costs

    scenario = load_scenario("small").with_task("language-modelling")
    work = scenario.workload
    sizes = Architecture(
        1, work.width, work.feedforward, work.heads, work.sequence_length, work.vocabulary, causal=True
    )
    head = TASK.build_head(TaskSpec(sizes, 0), torch.Generator())
    with FlopCounterMode(display=False) as counter:
        head(torch.ones(3, work.sequence_length, work.width), None)
    assert counter.get_total_flops() == 3 * workload_costs(scenario).decoder_forward_flops
