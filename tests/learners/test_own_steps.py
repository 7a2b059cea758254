"""Clusters that sit out or take local steps of their own number, really trained and in the surrogate."""

from dataclasses import replace

import numpy as np
import pytest
from learner_support import B, N, PlainTraining, single_outcome, small_learner

from collapipe_env.learners.surrogate import SurrogateLearner
from collapipe_env.learners.surrogate_fits import fit_for
from collapipe_env.learners.surrogate_progress import SurrogateOutcome, progress
from collapipe_env.physics.loss_curve import loss_at
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.learner import Arrivals, RoundOutcome
from collapipe_env.training.step_sizes import step_factor

CUT = [(2, 2, 0), (1, 0, 3), (4, 0, 0)]
MOST = 4
MICRO_BATCHES = (2, 3, 1)


def own_outcome(steps, survived=None):
    """A round in which clusters take these local steps, 0 for those that sit out."""
    if survived is None:
        survived = np.ones((N, MOST, B), dtype=bool)
    steps = np.array(steps)
    taken = np.arange(MOST) < steps[:, None]
    outcome = single_outcome(CUT, survived & taken[..., None], MICRO_BATCHES)
    return replace(
        outcome, participates=(steps > 0)[None], local_steps=np.where(steps > 0, steps, MOST)[None]
    )


def own_learner(**options):
    return small_learner(1, most_local_steps=MOST, **options)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("head", ["copies", "common"])
@pytest.mark.parametrize("options", [{}, {"optimizer": "sgd"}], ids=["adamw", "sgd"])
def test_training_is_that_of_a_plain_program(head, options):
    learner, twin = own_learner(head=head, **options), own_learner(head=head, **options)
    plain = PlainTraining(twin)
    rng = np.random.default_rng(5)
    for steps in ([4, 1, 2], [0, 4, 1], [1, 1, 1], [0, 0, 3], [1, 0, 1], [0, 0, 0], [2, 2, 2]):
        survived = rng.random((N, MOST, B)) < 0.8
        report = learner.train_round(own_outcome(steps, survived))
        plain.assert_equals(learner, report, plain.round(survived, MICRO_BATCHES, steps=steps))
    assert learner._runs[0].rounds == 7


def test_schedules_count_local_steps_and_states_go_on():
    options = {"schedule": "linear", "warmup_steps": 2, "schedule_steps": 12}
    learner, other = own_learner(**options), own_learner(**options)
    rounds = ([2, 1, 0], [0, 0, 0], [1, 1, 1], [1, 4, 2])
    for steps in rounds[:3]:
        learner.train_round(own_outcome(steps))
    run = learner._runs[0]
    assert run.step_sizes.step == 3
    rate = learner.training.learning.learning_rate * step_factor("linear", 2, 2, 12)
    assert run.replicas[0].optimizer.param_groups[0]["lr"] == pytest.approx(rate)
    other.set_state(learner.get_state())
    for _ in range(2):
        first, second = (one.train_round(own_outcome(rounds[3])) for one in (learner, other))
        np.testing.assert_array_equal(first.train_loss, second.train_loss)
    assert other._runs[0].step_sizes.step == 11


SKEWED = load_scenario("small").with_overrides(
    {"learning.partition": "dirichlet", "radio.waterfall_threshold": 3.0}
)
CONSTANTS = replace(fit_for(SKEWED).constants, drift=0.02, sitting_out=0.7)
ZETA = 0.3


def surrogate_round(rng, E=3, clusters=4):
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


def scalar_progress(c, outcome, e, batch, factor):
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
            int(outcome.arrivals.counts[e, n, h]) * batch / int(outcome.micro_batches[e, n]) for n in still
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


def test_the_surrogate_follows_both_from_round_to_round():
    def factor(step):
        return step_factor("linear", step, 3, 40)

    learner = SurrogateLearner(CONSTANTS, 3, 16, ZETA, factor, own_steps=True)
    learner.reset([None] * 3)
    rng = np.random.default_rng(3)
    total, steps, idle = np.zeros(3), np.zeros(3, dtype=int), 0
    for t in range(8):
        outcome = surrogate_round(rng)
        if t == 5:
            outcome = replace(outcome, participates=0 * outcome.participates > 0)
            outcome = replace(outcome, arrivals=outcome.arrivals.only(outcome.participates))
        report = learner.train_round(outcome)
        for e in range(3):
            made, taken = scalar_progress(
                CONSTANTS, outcome, e, 16, lambda h, before=steps[e]: factor(before + h)
            )
            idle += taken == 0
            total[e] += made
            steps[e] += taken
        np.testing.assert_allclose(report.loss, loss_at(CONSTANTS, total), rtol=1e-10)
        np.testing.assert_array_equal(learner.get_state()["step"], steps)
        whole = progress(CONSTANTS, SurrogateOutcome.of(outcome, 16), ZETA)
        for e in range(3):
            expected = scalar_progress(CONSTANTS, outcome, e, 16, lambda _: 1.0)[0]
            assert whole[e] == pytest.approx(expected, rel=1e-10)
    assert idle > 0
    assert (steps > 8).any()


def test_states_of_the_surrogate_hold_its_local_steps():
    first, second = (
        SurrogateLearner(CONSTANTS, 3, 16, ZETA, lambda t: 1 / (1 + t), own_steps=True) for _ in range(2)
    )
    first.reset([None] * 3)
    rng = np.random.default_rng(6)
    first.train_round(surrogate_round(rng))
    second.set_state(first.get_state())
    back = first.remember()
    outcome = surrogate_round(rng)
    one, two = first.train_round(outcome), second.train_round(outcome)
    np.testing.assert_array_equal(one.loss, two.loss)
    back()
    np.testing.assert_array_equal(first.train_round(outcome).loss, one.loss)
