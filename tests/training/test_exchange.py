"""Messages sent inside real runs, down to the simulated upload of a scenario."""

import numpy as np
import pytest
import torch
from learner_support import BLOCKS, N, SmallRun

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.physics.allocation import COMMON, COPIES, SEQUENTIAL
from collapipe_env.physics.payload import UpdateFormat
from collapipe_env.training.update_compression import UpdateCompressor

KINDS = ("fedavg", "fedavgm", "fedadam", "fedyogi")
MODES = (COMMON, COPIES, SEQUENTIAL)
FORMATS = (UpdateFormat(8), UpdateFormat(16), UpdateFormat(16, "top-k", 0.05), UpdateFormat(8, "top-k", 0.05))
TOP_K = {"update_format": UpdateFormat(8, "top-k", 0.05)}


@pytest.fixture
def uploads(monkeypatch):
    """Every upload: updates as trained and as they arrived, and what was sent."""
    seen, upload = [], UpdateCompressor.upload

    def watched(self, updates, sent):
        trained = updates.clone()
        upload(self, updates, sent)
        seen.append((trained, updates.clone(), sent.copy()))

    monkeypatch.setattr(UpdateCompressor, "upload", watched)
    return seen


def residuals(run):
    return run.federation.get_state()["exchange"]["residuals"]


def shares(run):
    sizes = run.federation.samples.sizes
    return torch.from_numpy(sizes / sizes.sum()).float()


@pytest.mark.parametrize(
    ("kind", "mode", "update_format"),
    [
        # The fast run has a sixth of the cases, and the slow one all pairs of a kind, a mode and a format.
        pytest.param(kind, mode, form, marks=[] if (k + m + f) % 6 == 0 else [pytest.mark.slow])
        for k, kind in enumerate(KINDS)
        for m, mode in enumerate(MODES)
        for f, form in enumerate(FORMATS)
    ],
    ids=str,
)
def test_everybody_keeps_one_model_and_the_same_seed_gives_the_same(kind, mode, update_format):
    ends = []
    for form in (update_format, update_format, UpdateFormat()):
        run = SmallRun(2, update_format=form, aggregation=kind, aggregation_rate=0.1)
        server = {} if mode == COMMON else {"server_blocks": (2,) * N, "mode": mode}
        run.train(**server)
        run.train(alive=(True, False, True), **server)
        assert all(torch.equal(row, run.weights[0]) for row in run.weights)
        assert run.weights.isfinite().all()
        ends.append(run.weights[0])
    assert torch.equal(*ends[:2])
    assert not torch.equal(*ends[1:])


@pytest.mark.parametrize("what", ["none", "lora"])
@pytest.mark.parametrize(("bits", "share"), [(16, 2**-11), (8, 1 / 127)])
def test_quantised_training_errs_by_the_rounding_of_two_messages(bits, share, what, uploads):
    """One up and one down, each off by at most a step of its largest number; of adapters, too."""
    run = SmallRun(2, update_format=UpdateFormat(bits, what))
    before = run.weights[0]
    run.train()
    ((trained, _, _),) = uploads
    difference = float((run.weights[0] - before - shares(run) @ trained).abs().max())
    assert 0 < difference < 2.001 * share * float(trained.abs().max())


def test_who_takes_no_part_keeps_its_memory():
    run = SmallRun(2, update_format=UpdateFormat(16, "top-k", 0.05))
    run.train()
    before = residuals(run)
    assert (before != 0).any(axis=-1).all()
    run.train(alive=(True, False, True))
    assert (residuals(run) != before).any(axis=-1).tolist() == [True, False, True]


@pytest.mark.parametrize(("mode", "counts"), [(COPIES, (1, 2, 0)), (SEQUENTIAL, (2, 2, 2))])
def test_blocks_on_the_server_are_not_compressed(mode, counts, uploads):
    run = SmallRun(2, **TOP_K)
    run.train(server_blocks=counts, mode=mode)
    ((trained, arrived, sent),) = uploads
    remembered = residuals(run)
    for n, count in enumerate(counts):
        assert sent[n].tolist() == [True] * (1 + BLOCKS - count) + [False] * count
        for part, on_air in zip(run.places, sent[n], strict=True):
            for place in part:
                assert torch.equal(trained[n, place], arrived[n, place]) != on_air
                assert bool(remembered[n, place].any()) == on_air
    if mode == SEQUENTIAL:
        # Those clusters' copies were idle, and the server's own blocks are everybody's.
        assert not trained[:, run.places[-1][0]].any()


def test_what_the_server_trains_for_everybody_is_not_broadcast_either(uploads):
    """Blocks of which all clusters' copies are on the server: their mean is exact, the others' is not."""
    run = SmallRun(2, update_format=UpdateFormat(8))
    before = run.weights[0]
    run.train(server_blocks=(2, 1, 3), mode=COPIES)
    ((_, arrived, _),) = uploads
    error = (run.weights[0] - (before + shares(run) @ arrived)).abs()
    largest = [max(float(error[place].max()) for place in part) for part in run.places]
    assert [value > 1e-6 for value in largest] == [True] * BLOCKS + [False]


def test_dropout_in_a_run_has_its_own_randomness():
    ends = set()
    for seed, dropout in ((1, 0.4), (2, 0.4), (1, 0.0)):
        run = SmallRun(2, seed=seed, dropout=dropout)
        run.train(rounds=2)
        ends.add(run.weights[0].sum().item())
    assert len(ends) == 3


def test_top_k_shortens_the_simulated_upload_and_thins_the_trained_update():
    share, uploads = 0.02, []
    for workload in ({}, {"update_compression": "top-k", "top_k_share": share}):
        learning = {"evaluation_samples": 20, "evaluate_every": 100, "proxy": {"vocabulary": 300}}
        env = CollaPipeEnv(
            {"base": "small", "workload": {"weight_bits": 16, **workload}, "learning": learning}
        )
        env.reset(seed=4)
        states = [env.get_state()["mdp"]["simulator"]["learner"]["runs"]["0"]["model"]]
        env.step(np.random.default_rng(0).uniform(-1, 1, env.action_space.shape).astype(np.float32))
        states.append(env.get_state()["mdp"]["simulator"]["learner"]["runs"]["0"]["model"])
        uploads.append(env.unwrapped.last_round.costs.upload)
    scenario = env.unwrapped.scenario.workload
    w = 4 * scenario.width**2 + 2 * scenario.width * scenario.feedforward + 9 * scenario.width
    w += scenario.feedforward
    e = scenario.vocabulary * scenario.width

    def sparse(size):
        return int(np.ceil(share * size)) * (16 + int(np.ceil(np.log2(size))))

    ratio = (scenario.blocks * sparse(w) + sparse(e)) / (16 * (scenario.blocks * w + e))
    np.testing.assert_allclose(uploads[1], uploads[0] * ratio, rtol=1e-9)
    before, after = states
    for part in ("embedding.", *(f"blocks.{k}." for k in range(scenario.blocks))):
        moved = np.concatenate([(after[k] - before[k]).ravel() for k in before if k.startswith(part)])
        assert 0 < np.count_nonzero(moved) <= uploads[0].shape[-1] * np.ceil(share * len(moved))
