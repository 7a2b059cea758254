"""PPO-Lagrangian: its parts against independent computations, its verdict, and that its limit acts."""

import math
from pathlib import Path

import example_support
import numpy as np
import pytest
import torch
from ppo_lagrangian import (
    NAME,
    VALIDATION_SEED,
    Args,
    Multipliers,
    Policy,
    Rollout,
    advantages,
    environment,
    main,
    node_costs,
    train,
    validate,
)
from torch.utils.tensorboard import SummaryWriter

OPTIONS = {
    "envs": 16,
    "rollout": 20,
    "minibatch": 160,
    "probe_envs": 2,
    "validation_episodes": 4,
    "against": ("random",),
    "episodes": 2,
}


def test_multipliers_without_the_proportional_part_are_dual_ascent() -> None:
    multipliers = Multipliers(2, integral=0.5, proportional=0.0)
    for excess, wanted in (((1.0, -1.0), (0.5, 0.0)), ((0.2, 0.4), (0.6, 0.2)), ((-2.0, 0.0), (0.0, 0.2))):
        multipliers.update(np.array(excess))
        assert multipliers.values == pytest.approx(wanted)


def test_the_proportional_part_answers_at_once_and_leaves_nothing_behind() -> None:
    multipliers = Multipliers(1, integral=0.1, proportional=2.0)
    multipliers.update(np.array([0.3]))
    assert multipliers.values == pytest.approx([0.03 + 0.6])
    multipliers.update(np.array([0.0]))
    assert multipliers.values == pytest.approx([0.03])


def test_advantages_are_those_of_the_definition() -> None:
    rng = np.random.default_rng(0)
    T, E, S, gamma, decay = 6, 3, 2, 0.8, 0.7
    signals, values = rng.normal(size=(2, T, E, S))
    last, ends = rng.normal(size=(E, S)), rng.random((T, E)) < 0.3
    assert ends.any()
    nothing = torch.zeros(T, E)
    rollout = Rollout(
        nothing,
        nothing,
        nothing,
        torch.from_numpy(signals),
        torch.from_numpy(values),
        torch.from_numpy(ends),
        torch.from_numpy(last),
    )
    found = advantages(rollout, gamma, decay).numpy()
    after = np.concatenate((values[1:], last[None]))
    for t in range(T):
        for row in range(E):
            wanted, weight = np.zeros(S), 1.0
            for later in range(t, T):
                goes_on = not ends[later, row]
                error = signals[later, row] + gamma * goes_on * after[later, row] - values[later, row]
                wanted += weight * error
                if not goes_on:
                    break
                weight *= gamma * decay
            assert found[t, row] == pytest.approx(wanted)


def test_costs_are_the_environments_own() -> None:
    env = environment("small", 3, "SameStep")
    env.reset(seed=0)
    *_, info = env.step(env.action_space.sample())
    costs = node_costs(env)
    assert costs.shape == (3, 2 * (3 + 1))
    # The cost that every environment reports is the sum of what lies above the budgets.
    assert np.maximum(costs, 0.0).sum(axis=-1) == pytest.approx(info["cost"])
    assert (costs > 0.0).any()
    assert (costs < 0.0).any()


def test_a_validation_is_the_mean_over_episodes_of_the_worst_node() -> None:
    torch.manual_seed(3)
    env = environment("small", 3, "Disabled")
    observations, actions = env.single_observation_space.shape[0], env.single_action_space.shape[0]
    policy = Policy(observations, actions, -1.0)
    score = validate(policy, env)
    seen = env.reset(seed=VALIDATION_SEED)[0]
    delays, ratios = [], []
    for _ in range(100):
        seen, *_ = env.step(policy(torch.from_numpy(seen)).detach().numpy())
        delays.append(env.last_round.costs.delay)
        ratios.append(env.last_round.costs.energy_ratio)
    assert score.delay == pytest.approx(np.mean(delays))
    assert score.cost.mean == pytest.approx(np.mean(ratios, axis=0).max(axis=(-2, -1)).mean() - 1.0)


@pytest.mark.parametrize(("limit", "held"), [(9.0, True), (-0.95, False)])
def test_the_verdict_is_that_of_the_held_out_episodes(limit: float, held: bool, tmp_path, capsys) -> None:
    quick = {"envs": 4, "minibatch": 40, "validation_episodes": 2}
    result = main(Args(steps=160, limit=limit, validations=1, out=tmp_path, **{**OPTIONS, **quick}))
    printed = capsys.readouterr().out
    assert f"the limit of {100 * limit:+.1f} % {'HELD' if held else 'did NOT hold'} on the held" in printed
    assert ("no version kept to the limit" in printed) == (not held)
    assert f"| {'2 of 2' if held else '0 of 2'} |" in printed.split(f"| {NAME} |")[1].splitlines()[0]
    assert str(tmp_path / "policy.pt") in printed.splitlines()[-1]
    weights = torch.load(tmp_path / "policy.pt")
    policy = Policy(weights["mean.0.weight"].shape[1], len(weights["log_std"]), 0.0)
    policy.load_state_dict(weights)
    with torch.no_grad():
        by_hand = [
            example_support.played_by_hand(
                lambda observation: policy(torch.from_numpy(observation[None]))[0].numpy(), episode
            )
            for episode in range(2)
        ]
    delays, ratios = np.transpose(by_hand)
    assert result[NAME].delay_mean.mean == pytest.approx(delays.mean())
    assert result[NAME].energy_excess.mean == pytest.approx(ratios.mean() - 1.0)
    assert result[NAME].energy_excess.high == pytest.approx(ratios.max() - 1.0)  # of two episodes


@pytest.mark.slow
def test_a_tighter_limit_makes_a_thriftier_and_slower_policy(tmp_path: Path) -> None:
    found = {}
    for limit in (9.0, -0.1):
        args = Args(steps=12_000, limit=limit, validations=2, integral=0.5, **OPTIONS)
        with SummaryWriter(str(tmp_path / str(limit))) as writer:
            policy, best = train(args, writer)
        found[limit] = validate(policy, environment("small", 4, "Disabled"))
        assert best is None or best.cost.high <= limit - args.margin
        assert not math.isnan(found[limit].cost.high)
    assert found[-0.1].cost.mean < found[9.0].cost.mean - 0.05
    assert found[-0.1].delay > found[9.0].delay
