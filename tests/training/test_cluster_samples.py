"""Orders of the clusters' samples: every sample once a pass, hidden tokens, and documents kept together."""

import numpy as np
import pytest
import torch
from learner_support import N, SmallRun, language_learner
from oracles.documents import documents_of

from collapipe_env.models.tokenization import PADDING, UNKNOWN
from collapipe_env.tasks import TaskSpec, get_task
from collapipe_env.tasks.partition import partition
from collapipe_env.training.cluster_samples import SampleStream
from collapipe_env.training.federation import Federation


def test_a_stream_shows_every_sample_once_per_pass():
    indices = np.array([3, 5, 8, 9, 11])
    stream = SampleStream(indices, np.random.default_rng(0))
    taken = np.concatenate([stream.take(7), stream.take(2), stream.take(6)])
    for start in (0, 5, 10):
        np.testing.assert_array_equal(np.sort(taken[start : start + 5]), indices)


def test_token_dropout_hides_its_share_of_real_tokens_only():
    def batches(probability):
        run = SmallRun(token_dropout=probability)
        samples, stream = run.federation.samples, run.federation.streams[0]
        return torch.cat([samples.next_batch(run.setup, stream)[0] for _ in range(40)])

    plain, hidden = batches(0.0), batches(0.4)
    real = plain != PADDING
    assert torch.equal(hidden == PADDING, ~real)
    changed = hidden != plain
    assert (hidden[changed] == UNKNOWN).all()
    assert float(changed[real].double().mean()) == pytest.approx(0.4, abs=0.04)


@pytest.mark.parametrize("name", ["iid", "dirichlet", "length", "quantity"])
def test_no_row_holds_documents_of_two_clusters(name):
    learner = language_learner(name)
    samples = Federation(learner.prepare()[0], np.random.default_rng(1)).samples
    data = get_task("language-modelling").load(TaskSpec(learner.training.architecture, 300))
    rng = np.random.default_rng(1).spawn(3 + N)[0]
    expected = partition(name, data.strata, data.lengths, N, 0.5, rng)
    every = data.decode(documents_of(data.train.targets))
    seen = []
    for part, rows in zip(expected, samples.parts, strict=True):
        texts = data.decode(documents_of(samples.targets.numpy()[rows]))
        assert texts == [every[i] for i in part]  # whole documents, in their order, and no others
        seen += texts
    assert sorted(seen) == sorted(every)
    assert samples.sizes.tolist() == [len(rows) for rows in samples.parts]
