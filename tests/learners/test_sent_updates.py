"""Messages sent inside real runs, down to the simulated upload of a scenario."""

import numpy as np
import pytest
import torch
from federation_support import make, parts_of, train
from learner_support import BLOCKS, N

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.physics.allocation import COMMON, COPIES, SEQUENTIAL
from collapipe_env.physics.payload import UpdateFormat

KINDS = ("fedavg", "fedavgm", "fedadam", "fedyogi")
MODES = (COMMON, COPIES, SEQUENTIAL)
FORMATS = (UpdateFormat(8), UpdateFormat(16), UpdateFormat(16, "top-k", 0.05), UpdateFormat(8, "top-k", 0.05))


@pytest.mark.parametrize(
    ("kind", "mode", "update_format"),
    [
        # The fast run has a third of the cases: every pair of a kind, a mode and a format.
        pytest.param(kind, mode, form, marks=[] if (k + m + f) % 3 == 0 else [pytest.mark.slow])
        for k, kind in enumerate(KINDS)
        for m, mode in enumerate(MODES)
        for f, form in enumerate(FORMATS)
    ],
    ids=str,
)
def test_everybody_keeps_one_model_and_the_same_seed_gives_the_same(kind, mode, update_format):
    ends = []
    for _ in range(2):
        learner, run = make(2, update_format=update_format, aggregation=kind, aggregation_rate=0.1)
        servers = {} if mode == COMMON else {"server_blocks": (2,) * N, "mode": mode}
        train(learner, 1, **servers)
        train(learner, 1, clusters=(True, False, True), **servers)
        assert all(torch.equal(row, run._parameters[0]) for row in run._parameters)
        assert run._parameters.isfinite().all()
        ends.append(run._parameters[0].clone())
    assert torch.equal(*ends)
    exact_learner, exact = make(2, aggregation=kind, aggregation_rate=0.1)
    assert exact_learner is not learner
    assert not torch.equal(exact._parameters[0], ends[0])


@pytest.mark.parametrize("what", ["none", "lora"])
@pytest.mark.parametrize(("bits", "share"), [(16, 2**-11), (8, 1 / 127)])
def test_quantised_training_errs_by_the_rounding_of_two_messages(bits, share, what):
    """One up and one down, each off by at most a step of its largest number; of adapters, too."""
    learner, run = make(2, update_format=UpdateFormat(bits, what))
    before, seen = run._parameters[0].clone(), watch_uploads(run)
    train(learner, 1)
    ((trained, _, _),) = seen
    shares = torch.from_numpy(run._data_sizes / run._data_sizes.sum()).float()
    exact, moved = shares @ trained, run._parameters[0] - before
    difference = float((moved - exact).abs().max())
    assert 0 < difference < 2.001 * share * float(trained.abs().max())


def test_who_takes_no_part_keeps_its_memory():
    learner, run = make(2, update_format=UpdateFormat(16, "top-k", 0.05))
    train(learner, 1)
    before = run._exchange.compressor.residuals.clone()
    assert (before != 0).any(dim=-1).all()
    train(learner, 1, clusters=(True, False, True))
    after = run._exchange.compressor.residuals
    assert torch.equal(after[1], before[1])
    assert not torch.equal(after[0], before[0])
    assert not torch.equal(after[2], before[2])


def watch_uploads(run):
    """Record every upload: updates as trained, and as they arrived."""
    seen, upload = [], run._exchange.compressor.upload

    def watched(updates, sent):
        trained = updates.clone()
        upload(updates, sent)
        seen.append((trained, updates.clone(), sent.copy()))

    run._exchange.compressor.upload = watched
    return seen


@pytest.mark.parametrize("mode", [COPIES, SEQUENTIAL])
def test_blocks_on_the_server_are_not_compressed(mode):
    learner, run = make(2, update_format=UpdateFormat(8, "top-k", 0.05))
    seen = watch_uploads(run)
    server_blocks = (1, 2, 0) if mode == COPIES else (2, 2, 2)
    train(learner, 1, server_blocks=server_blocks, mode=mode)
    ((trained, arrived, sent),) = seen
    places = parts_of(run)
    residuals = run._exchange.compressor.residuals
    for n, count in enumerate(server_blocks):
        assert sent[n].tolist() == [True] * (1 + BLOCKS - count) + [False] * count
        for part, on_air in zip(places, sent[n], strict=True):
            for place in part:
                assert torch.equal(trained[n, place], arrived[n, place]) != on_air
                assert bool(residuals[n, place].any()) == on_air
    if mode == SEQUENTIAL:
        # Those clusters' copies were idle, and the server's own blocks are everybody's.
        assert not trained[:, places[-1][0]].any()


def test_what_the_server_trains_for_everybody_is_not_broadcast_either():
    """Blocks of which all clusters' copies are on the server: their mean is exact, the others' is not."""
    learner, run = make(2, update_format=UpdateFormat(8))
    before, seen = run._parameters[0].clone(), watch_uploads(run)
    train(learner, 1, server_blocks=(2, 1, 3), mode=COPIES)
    ((_, arrived, _),) = seen
    shares = torch.from_numpy(run._data_sizes / run._data_sizes.sum()).float()
    error = (run._parameters[0] - (before + shares @ arrived)).abs()
    places = parts_of(run)
    largest = [max(float(error[place].max()) for place in part) for part in places]
    assert [value > 1e-6 for value in largest] == [True] * BLOCKS + [False]


def test_a_sequential_servers_blocks_are_moved_by_the_server_alone():
    """Also under server momentum that remembers rounds in which the clusters trained them."""
    learner, run = make(2, aggregation="fedavgm", update_format=UpdateFormat(8))
    train(learner, 2)
    train(learner, 1, server_blocks=(2,) * N, mode=SEQUENTIAL)
    server = run._servers[SEQUENTIAL]
    for index in (BLOCKS - 2, BLOCKS - 1):
        for mine, served in zip(
            run.replicas[1].module.blocks[index].parameters(),
            server._known[index].module.parameters(),
            strict=True,
        ):
            assert torch.equal(mine, served)


def test_dropout_in_a_run_has_its_own_randomness():
    ends = set()
    for seed, dropout in ((1, 0.4), (2, 0.4), (1, 0.0)):
        learner, run = make(2, seed=seed, dropout=dropout)
        train(learner)
        ends.add(run._parameters[0].sum().item())
    assert len(ends) == 3


def played(rounds=2, **workload):
    scenario = {
        "base": "small", "workload": workload,
        "learning": {"evaluation_samples": 20, "evaluate_every": 100, "proxy": {"vocabulary": 300}},
    }  # fmt: skip
    env = CollaPipeEnv(scenario=scenario)
    env.reset(seed=4)
    run = env.unwrapped._mdp.world.learner._runs[0]
    moved = []
    for t in range(rounds):
        before = run._parameters[0].clone()
        action = np.random.default_rng(t).uniform(-1, 1, env.action_space.shape).astype(np.float32)
        env.step(action)
        moved.append(run._parameters[0] - before)
    return env, run, moved


def test_top_k_shortens_the_simulated_upload_and_thins_the_trained_update():
    share = 0.02
    plain, _, _ = played(weight_bits=16)
    env, run, moved = played(weight_bits=16, update_compression="top-k", top_k_share=share)
    scenario = env.unwrapped._mdp.scenario.workload
    w = 4 * scenario.width**2 + 2 * scenario.width * scenario.feedforward + 9 * scenario.width
    w += scenario.feedforward
    e = scenario.vocabulary * scenario.width

    def sparse(size):
        return int(np.ceil(share * size)) * (16 + int(np.ceil(np.log2(size))))

    ratio = (scenario.blocks * sparse(w) + sparse(e)) / (16 * (scenario.blocks * w + e))
    np.testing.assert_allclose(
        env.unwrapped.last_round.costs.upload, plain.unwrapped.last_round.costs.upload * ratio, rtol=1e-9
    )
    clusters = len(run.replicas)
    for update in moved:
        for places in parts_of(run):
            part = torch.cat([update[place] for place in places])
            entries = int(np.ceil(share * len(part)))
            assert 0 < int(part.count_nonzero()) <= clusters * entries
