"""The surrogate's dynamics against a scalar program, and how a scenario chooses its constants."""

import json
from dataclasses import replace

import numpy as np
import pytest

from collapipe_env.ground.errors import DataError, ScenarioError
from collapipe_env.learners import surrogate_fits
from collapipe_env.learners.surrogate import SurrogateLearner, skew, step_factors
from collapipe_env.learners.surrogate_fits import SurrogateConstants, fit_for, read_fits
from collapipe_env.learners.surrogate_progress import SurrogateOutcome, progress
from collapipe_env.physics.loss_curve import loss_at
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.learner import Arrivals, RoundOutcome

CONSTANTS = SurrogateConstants(
    initial_loss=0.7, floor_loss=0.3, exponent=2.5, head_share=0.1, head_speed=8.0, rate=0.02, noise=90.0,
    drift=0.05, participation=3.0, error=0.4, sitting_out=0.7,
    heterogeneity={"dirichlet": 0.3, "length": 0.1, "quantity": 0.2},
)  # fmt: skip
ZETA, B = 0.3, 64


def outcome(survived=48, **kwargs):
    """Four clusters, each with ``survived`` of its 64 micro-batches in one local step."""
    counts = np.full((1, 4), 64)
    arrived = np.broadcast_to(np.arange(64) < survived, (1, 4, 1, 64))
    given = Arrivals.of(arrived, counts)
    return RoundOutcome(np.full((1, 4, 3), 2), counts, given, np.full((1, 4), 0.75), **kwargs)


def learner_of(envs=1, **kwargs):
    learner = SurrogateLearner(CONSTANTS, envs, B, **kwargs)
    learner.reset([None] * envs)
    return learner


def test_equal_rounds_follow_the_closed_form():
    learner = learner_of(heterogeneity=0.25)
    losses = [float(learner.train_round(outcome()).loss[0]) for _ in range(60)]
    added = 90.0 / (4 * 48.0) + (0.05 * 90.0 / 48.0 + 0.25) + 0.4 * 0.25
    p = np.arange(1, 61) * 0.02 / (1.0 + added)
    expected = 0.3 + 0.4 * (0.1 * np.exp(-8.0 * p) + 0.9 * np.exp(-(p**2.5)))
    np.testing.assert_allclose(losses, expected, rtol=1e-12)


def drawn_round(rng, E=3, clusters=4):
    """Clusters sit out, take steps of their own number and lose micro-batches, each at random."""
    micro_batches = rng.choice([1, 2, 4, 8], (E, clusters))
    steps = rng.choice([1, 2, 4], (E, clusters))
    plays = rng.random((E, clusters)) < 0.6
    counts = rng.integers(0, micro_batches[..., None] + 1, (E, clusters, 4))
    given = Arrivals(counts, micro_batches, np.zeros(counts.shape, np.uint64), 8)
    return RoundOutcome(
        blocks=np.ones((E, clusters, 1), dtype=int),
        micro_batches=micro_batches,
        arrivals=given.within(steps).only(plays),
        survival=rng.uniform(0.2, 1.0, (E, clusters)),
        participates=plays,
        local_steps=steps,
    )


def scalar_progress(c, outcome, e, factor):
    """The surrogate's progress, cluster by cluster and step by step."""
    there = [n for n in range(outcome.micro_batches.shape[1]) if outcome.participates[e, n]]
    if not there:
        return 0.0, 0
    H = {n: int(outcome.local_steps[e, n]) for n in there}
    squared = sum(h * h for h in H.values()) / len(there)
    lost = sum(1.0 - outcome.survival[e, n] for n in there) / len(there)
    made = 0.0
    for h in range(max(H.values())):
        still = [n for n in there if H[n] > h]
        arrived = [
            int(outcome.arrivals.counts[e, n, h]) * B / int(outcome.micro_batches[e, n]) for n in still
        ]
        S = sum(arrived)
        if not S:
            continue
        imbalance = outcome.micro_batches.shape[1] * sum(s * s for s in arrived) / S**2 - 1.0
        u = c.noise / S + squared * (c.drift * c.noise * len(there) / S + ZETA)
        u += c.participation * ZETA * imbalance + c.error * lost
        u += c.sitting_out * (1.0 - len(there) / outcome.micro_batches.shape[1])
        made += factor(h) * len(still) / len(there) * c.rate / (1.0 + u)
    return made, max(H.values())


def test_every_round_is_that_of_a_scalar_program():
    """With step sizes of every local step; more rounds than the table of factors begins with."""

    def factor(step):
        return 0.99**step

    learner = learner_of(3, heterogeneity=ZETA, step_factor=factor, own_steps=True)
    rng = np.random.default_rng(3)
    total, steps, idle = np.zeros(3), np.zeros(3, dtype=int), 0
    for t in range(90):
        played = drawn_round(rng)
        if t == 5:
            played = replace(played, participates=0 * played.participates > 0)
            played = replace(played, arrivals=played.arrivals.only(played.participates))
        report = learner.train_round(played)
        for e in range(3):
            made, taken = scalar_progress(CONSTANTS, played, e, lambda h, before=steps[e]: factor(before + h))
            idle += taken == 0
            total[e] += made
            steps[e] += taken
        np.testing.assert_allclose(report.loss, loss_at(CONSTANTS, total), rtol=1e-10)
        np.testing.assert_array_equal(learner.get_state()["step"], steps)
        whole = progress(CONSTANTS, SurrogateOutcome.of(played, B), ZETA)
        expected = [scalar_progress(CONSTANTS, played, e, lambda _: 1.0)[0] for e in range(3)]
        np.testing.assert_allclose(whole, expected, rtol=1e-10)
    assert idle > 0
    assert (steps > 256).all()


def test_outcome_counts_only_the_micro_batches_that_exist():
    survived = np.zeros((1, 2, 3, 8), dtype=bool)
    survived[0, 0, :, :2] = True  # both of the first cluster's two micro-batches, in all three steps
    survived[0, 1, 0, :] = True  # all four of the second's in one step; the slots beyond do not count
    counts = np.array([[2, 4]])
    given = RoundOutcome(
        np.array([[[1], [1]]]), counts, Arrivals.of(survived, counts), np.array([[0.9, 0.5]])
    )
    reduced = SurrogateOutcome.of(given, batch_size=64)
    np.testing.assert_allclose(reduced.surviving_samples, [[[64.0, 64.0, 64.0], [64.0, 0.0, 0.0]]])
    np.testing.assert_allclose(reduced.imbalance, [[0.0, 1.0, 1.0]])
    np.testing.assert_allclose(reduced.error_probability, [0.3])


def test_scenario_decides_step_sizes_and_skew():
    plain = load_scenario("small").with_overrides(
        {"learning.schedule": "constant", "learning.warmup_steps": 0}
    )
    assert step_factors(plain) is None
    linear = {"learning.schedule": "linear", "learning.warmup_steps": 4, "learning.schedule_steps": 24}
    factor = step_factors(plain.with_overrides(linear))
    assert [factor(t) for t in (0, 4, 14, 24)] == pytest.approx([0.2, 1.0, 0.5, 0.0])
    # An episode of 10 rounds of 4 local steps has 40 of them.
    changes = {"learning.schedule": "linear", "workload.local_steps": 4, "dynamics.rounds": 10}
    factor = step_factors(plain.with_overrides(changes))
    assert [factor(t) for t in (0, 10, 39, 40)] == pytest.approx([1.0, 0.75, 0.025, 0.0])
    for kind, share in (("iid", 0.0), ("length", 0.5), ("dirichlet", 0.5 / 1.6), ("quantity", 0.5 / 1.6)):
        scenario = plain.with_overrides({"learning.partition": kind, "learning.dirichlet_alpha": 0.3})
        zeta = fit_for(scenario).constants.heterogeneity.get(kind, 0.0)
        assert SurrogateLearner.from_scenario(scenario, 1).heterogeneity == pytest.approx(zeta * share)
    assert skew(scenario.learning, 1) == 0.0
    assert skew(scenario.learning, 4) == pytest.approx(0.75 / 2.2)


def test_split_training_and_staleness_are_ignored():
    extended = outcome(
        server_blocks=np.full((1, 4), 2), server_mode=np.array([1]), staleness=np.ones((1, 4, 3), dtype=int)
    )
    assert learner_of().train_round(outcome()).loss == learner_of().train_round(extended).loss


def entry(blocks=6, clusters=2, task="classification", **changes):
    constants = {**{name: getattr(CONSTANTS, name) for name in CONSTANTS.__dataclass_fields__}, **changes}
    return {"task": task, "blocks": blocks, "clusters": clusters, "constants": constants}


@pytest.fixture
def use_fits(monkeypatch, tmp_path):
    def use(entries):
        path = tmp_path / "fits.json"
        path.write_text(json.dumps({"fits": entries}))
        monkeypatch.setattr(surrogate_fits, "load_fits", lambda: read_fits(path))
        return path

    return use


def test_nearest_system_with_the_same_task_is_taken(use_fits):
    small, large = "small/classification", "large/classification"
    use_fits({small: entry(6, 2), large: entry(12, 16), "medium/ner": entry(12, 4, "ner")})
    chosen = {name: fit_for(load_scenario(name)).key for name in ("small", "medium", "large", "xlarge")}
    # ln(12 / 6) + ln(4 / 2) on one side, ln(16 / 4) on the other: the smaller of the two equals.
    assert chosen == {"small": small, "medium": small, "large": large, "xlarge": large}


def test_task_without_a_fit_is_refused_by_name(use_fits):
    use_fits({"small/ner": entry(task="ner")})
    with pytest.raises(ScenarioError, match=r"task = 'classification' has no surrogate fit .*: small/ner"):
        SurrogateLearner.from_scenario(load_scenario("small"), 1)


@pytest.mark.parametrize(
    ("entries", "named"),
    [
        ([], "holds no fits"),
        ({"a/b": {}}, "lacks the field"),
        ({"a/b": entry(rate=0.0)}, "rate is 0.0: it should be greater than 0"),
        ({"a/b": entry(drift=-1.0)}, "drift is -1.0: it should be greater than or equal to 0"),
        ({"a/b": entry(head_share=1.5)}, "head_share is 1.5: it should be less than or equal to 1"),
        ({"a/b": entry(floor_loss=0.7)}, "initial_loss = 0.7 is not above"),
        ({"a/b": entry(noise="many")}, "noise is 'many'"),
        ({"a/b": entry(heterogeneity={"dirichlet": 1.0})}, "expected a number for each of"),
        ({"a/b": entry(surprise=1.0)}, "surprise is 1.0: "),
        ({"a/b": entry(blocks=0)}, "blocks is 0: it should be greater than or equal to 1"),
        ({"a/b": entry(task=None)}, "task is None"),
    ],
)
def test_damaged_fits_are_refused(use_fits, entries, named):
    with pytest.raises(DataError, match=named):
        read_fits(use_fits(entries))
