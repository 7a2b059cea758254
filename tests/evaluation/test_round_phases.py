"""Phases of rounds: they sum to the delay, and each changes with what it is made of alone."""

import numpy as np
import pytest

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.round_phases import PARTS, REST, phase_seconds
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.even_split import even_split


def of_even_split(scenario: Scenario) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Phases of a round under the even split, and its delay, whatever energy it takes."""
    scenario = scenario.with_overrides({"budgets.device_energy_j": 1e9, "budgets.cu_energy_j": 1e9})
    env = CollaPipeVectorEnv(3, scenario, IdleLearner(3))
    env.reset(seed=5)
    env.step_allocation(even_split(system_parameters(scenario), env.state))
    costs = env.last_round.costs
    return phase_seconds(costs, scenario.workload.local_steps), costs.delay


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"workload.local_steps": 3, "workload.head": "common"},
        {"workload.distribution": "relay"},
        {"dynamics.processes.migration": {}},
        {"radio.link_errors": "arq", "cluster.clusters": 1},
    ],
    ids=str,
)
def test_they_sum_to_the_delay(changes):
    found, delay = of_even_split(load_scenario("small").with_overrides(changes))
    assert set(PARTS) < set(found)
    assert REST not in found
    assert all((seconds >= 0.0).all() for seconds in found.values())
    np.testing.assert_allclose(sum(found.values()), delay, rtol=1e-9)


@pytest.mark.parametrize(
    ("field", "of", "phase"),
    [
        ("cluster.server_flops", lambda s: s.cluster.server_flops, "server"),
        ("devices.profiles.0.flops_per_cycle", lambda s: s.devices.profiles[0].flops_per_cycle, "compute"),
    ],
    ids=["server", "compute"],
)
@pytest.mark.parametrize("micro_batches", [1, 4])
def test_twice_the_speed_halves_one_phase_alone(field, of, phase, micro_batches):
    """Without overheads, and where computing remains the longest element."""
    times = ("block_s", "update_s", "message_s", "latency_s", "edge_message_s", "edge_latency_s", "server_s")
    one = {"cluster.clusters": 1, "workload.micro_batches": [micro_batches]}
    scenario = load_scenario("small").with_overrides(
        {**one, **{f"overheads.{name}": 0.0 for name in times}, "devices.profiles.0.flops_per_cycle": 0.1}
    )
    before, _ = of_even_split(scenario)
    after, _ = of_even_split(scenario.with_overrides({field: 2.0 * of(scenario)}))
    assert before[phase].min() > 0.0
    for name, seconds in before.items():
        np.testing.assert_allclose(after[name], seconds / (2.0 if name == phase else 1.0), rtol=1e-9)


def test_the_longest_element_takes_the_time_of_all_further_micro_batches():
    """Every further micro-batch costs one pass of it; the others take as long in all as the batch does."""
    scenario = load_scenario("small").with_overrides({"radio.uplink_bandwidth_hz": 1e4})
    found = [
        of_even_split(scenario.with_overrides({"workload.micro_batches": [number]}))[0] for number in (1, 8)
    ]
    hops = found[1]["hops"] / found[0]["hops"]
    assert (hops < 0.3).all()
    assert (found[1]["uplink and downlink"] > 0.9 * found[0]["uplink and downlink"]).all()
