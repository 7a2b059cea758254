"""The surrogate's dynamics: closed form, step sizes, and how a scenario chooses its constants."""

import numpy as np
import pytest

from collapipe_env.ground.errors import DataError, ScenarioError
from collapipe_env.learners import surrogate_fits
from collapipe_env.learners.surrogate import SurrogateLearner, skew, step_factors
from collapipe_env.learners.surrogate_fits import SurrogateConstants, fit_for, read_fits
from collapipe_env.learners.surrogate_progress import SurrogateOutcome
from collapipe_env.physics.loss_curve import loss_at
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.learner import Arrivals, RoundOutcome

CONSTANTS = SurrogateConstants(
    initial_loss=0.7,
    floor_loss=0.3,
    exponent=2.5,
    head_share=0.1,
    head_speed=8.0,
    rate=0.02,
    noise=90.0,
    drift=0.05,
    participation=3.0,
    error=0.4,
    heterogeneity={"dirichlet": 0.3, "length": 0.1, "quantity": 0.2},
)
B = 64


def outcome(survived=48, envs=1, clusters=4, local_steps=1, micro_batches=64, survival=0.75, **kwargs):
    """Every cluster gets ``survived`` of its micro-batches in every step."""
    arrived = np.zeros((envs, clusters, local_steps, 64), dtype=bool)
    arrived[..., :survived] = True
    return RoundOutcome(
        blocks=np.full((envs, clusters, 3), 2),
        micro_batches=np.full((envs, clusters), micro_batches),
        arrivals=Arrivals.of(arrived, np.full((envs, clusters), micro_batches)),
        survival=np.full((envs, clusters), survival),
        **kwargs,
    )


def learner_of(envs=1, constants=CONSTANTS, **kwargs):
    learner = SurrogateLearner(constants, envs, B, **kwargs)
    learner.reset([np.random.default_rng(i) for i in range(envs)])
    return learner


@pytest.mark.parametrize("local_steps", [1, 3])
def test_equal_rounds_follow_the_closed_form(local_steps):
    zeta, S, N, H, eps = 0.25, 48.0, 4, local_steps, 0.25
    learner = learner_of(heterogeneity=zeta)
    losses = [float(learner.train_round(outcome(local_steps=H)).loss[0]) for _ in range(60)]
    added = 90.0 / (N * S) + H**2 * (0.05 * 90.0 / S + zeta) + 0.4 * eps
    p = np.arange(1, 61) * H * 0.02 / (1.0 + added)
    expected = 0.3 + 0.4 * (0.1 * np.exp(-8.0 * p) + 0.9 * np.exp(-(p**2.5)))
    np.testing.assert_allclose(losses, expected, rtol=1e-12)


def test_outcome_counts_only_the_micro_batches_that_exist():
    survived = np.zeros((1, 2, 3, 8), dtype=bool)
    survived[0, 0, :, :2] = True  # both of the first cluster's two micro-batches, in all three steps
    survived[0, 1, 0, :] = True  # all four of the second's in one step; the slots beyond do not count
    reduced = SurrogateOutcome.of(
        RoundOutcome(
            blocks=np.array([[[1], [1]]]),
            micro_batches=np.array([[2, 4]]),
            arrivals=Arrivals.of(survived, np.array([[2, 4]])),
            survival=np.array([[0.9, 0.5]]),
        ),
        batch_size=64,
    )
    np.testing.assert_allclose(reduced.surviving_samples, [[[64.0, 64.0, 64.0], [64.0, 0.0, 0.0]]])
    np.testing.assert_allclose(reduced.imbalance, [[0.0, 1.0, 1.0]])
    np.testing.assert_allclose(reduced.error_probability, [0.3])


def test_reset_restarts_only_the_masked_rows():
    learner = learner_of(envs=2, step_factor=lambda t: (t + 1) / 50)
    rngs = [np.random.default_rng(i) for i in range(2)]
    first = learner.reset(rngs)
    trained = learner.train_round(outcome(envs=2))
    assert (trained.loss < first.loss).all()
    again = learner.reset(rngs, np.array([False, True]))
    assert again.loss[1] == first.loss[1]
    assert again.loss[0] == trained.loss[0]
    assert learner.train_round(outcome(envs=2)).loss[1] == trained.loss[1]


def test_every_local_step_has_its_own_step_size():
    """Three local steps a round follow the closed form with the factors of their own places."""
    share, H, rounds = 0.97, 3, 70  # more rounds than the table of factors begins with
    learner = learner_of(step_factor=lambda t: share**t)
    losses = [float(learner.train_round(outcome(local_steps=H)).loss[0]) for _ in range(rounds)]
    u = 90.0 / (4 * 48.0) + H**2 * 0.05 * 90.0 / 48.0 + 0.4 * 0.25
    done = H * np.arange(1, rounds + 1)
    made = 0.02 / (1.0 + u) * (1.0 - share**done) / (1.0 - share)
    np.testing.assert_allclose(losses, loss_at(CONSTANTS, made), rtol=1e-12)


def test_scenario_decides_step_sizes_and_skew():
    plain = load_scenario("small").with_overrides(
        {"learning.schedule": "constant", "learning.warmup_steps": 0}
    )
    assert step_factors(plain) is None
    factor = step_factors(
        plain.with_overrides(
            {"learning.schedule": "linear", "learning.warmup_steps": 4, "learning.schedule_steps": 24}
        )
    )
    assert [factor(t) for t in (0, 4, 14, 24)] == pytest.approx([0.2, 1.0, 0.5, 0.0])
    # An episode of 10 rounds of 4 local steps has 40 of them.
    changes = {"learning.schedule": "linear", "workload.local_steps": 4, "dynamics.rounds": 10}
    factor = step_factors(plain.with_overrides(changes))
    assert [factor(t) for t in (0, 10, 39, 40)] == pytest.approx([1.0, 0.75, 0.025, 0.0])
    losses = {}
    for kind in ("iid", "dirichlet", "length", "quantity"):
        scenario = plain.with_overrides({"learning.partition": kind, "learning.dirichlet_alpha": 0.3})
        learner = SurrogateLearner.from_scenario(scenario, 1)
        zeta = fit_for(scenario).constants.heterogeneity.get(kind, 0.0)
        share = {"iid": 0.0, "length": 0.5}.get(kind, 0.5 / 1.6)
        assert learner.heterogeneity == pytest.approx(zeta * share)
        losses[kind] = learner
    assert losses["iid"].heterogeneity == 0.0
    assert skew(scenario.learning, 1) == 0.0
    assert skew(scenario.learning, 4) == pytest.approx(0.75 / 2.2)


def test_split_training_and_staleness_are_ignored():
    extended = outcome(
        server_blocks=np.full((1, 4), 2), server_mode=np.array([1]), staleness=np.ones((1, 4, 3), dtype=int)
    )
    np.testing.assert_array_equal(
        learner_of().train_round(outcome()).loss, learner_of().train_round(extended).loss
    )


def entry(blocks=6, clusters=2, task="classification", **changes):
    constants = {**{name: getattr(CONSTANTS, name) for name in CONSTANTS.__dataclass_fields__}, **changes}
    return {"task": task, "blocks": blocks, "clusters": clusters, "constants": constants}


def use_fits(monkeypatch, tmp_path, entries):
    path = write_fits(tmp_path, entries)
    monkeypatch.setattr(surrogate_fits, "load_fits", lambda: read_fits(path))


def write_fits(tmp_path, entries):
    import json

    path = tmp_path / "fits.json"
    path.write_text(json.dumps({"fits": entries}))
    return path


def test_nearest_system_with_the_same_task_is_taken(monkeypatch, tmp_path):
    use_fits(
        monkeypatch,
        tmp_path,
        {
            "small/classification": entry(6, 2),
            "large/classification": entry(12, 16),
            "medium/ner": entry(12, 4, "ner"),
        },
    )
    chosen = {name: fit_for(load_scenario(name)).key for name in ("small", "medium", "large", "xlarge")}
    assert chosen == {
        "small": "small/classification",
        # ln(12 / 6) + ln(4 / 2) on one side, ln(16 / 4) on the other: the smaller of the two equals.
        "medium": "small/classification",
        "large": "large/classification",
        "xlarge": "large/classification",
    }


def test_task_without_a_fit_is_refused_by_name(monkeypatch, tmp_path):
    use_fits(monkeypatch, tmp_path, {"small/ner": entry(task="ner")})
    with pytest.raises(
        ScenarioError, match=r"workload\.task = 'classification' has no surrogate fit \(fitted: small/ner\)"
    ):
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
def test_damaged_fits_are_refused(tmp_path, entries, named):
    with pytest.raises(DataError, match=named):
        read_fits(write_fits(tmp_path, entries))
