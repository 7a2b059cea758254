"""Opened decisions in the action box: feasible, invertible, and the same in every environment."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from stable_baselines3.common.env_checker import check_env as stable_baselines_check

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import (
    ASYNC,
    COPIES,
    SEQUENTIAL,
    with_schedule,
)
from collapipe_env.scenario.decision_names import OPENED
from collapipe_env.simulator.build import action_codec, system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split
from collapipe_env.simulator.state import able_clusters
from tests.opened_support import (
    PLACED,
    SITTING_OUT,
    STATE,
    WARM,
    opened,
    same,
    small,
    with_cluster_memory,
    with_memory,
)

OPENINGS = [
    *(chosen for count in range(4) for chosen in combinations(PLACED, count)),
    ("clock_cap",),
    ("recompute", "schedule", "clock_cap"),
    *(SITTING_OUT[:1], SITTING_OUT[1:], SITTING_OUT),
    ("recompute", "participation"),
    ("schedule", "participation"),
    ("server_blocks", *SITTING_OUT),
    OPENED,
]
SCENARIOS = {
    "placed": small(*PLACED),
    "clocks": opened("clock_cap", **WARM),
    "sitting out": small(*SITTING_OUT),
    "all": small(*OPENED),
}
every_scenario = pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)


@settings(max_examples=300, deadline=None)
@given(names=st.sampled_from(OPENINGS), own=st.booleans(), data=st.data())
def test_every_action_decodes_to_a_plan_that_the_simulator_accepts(names, own, data):
    least = data.draw(st.sampled_from([0.01, 0.2, 1.0])) if "clock_cap" in names else 0.2
    scenario = opened(*names, **{"workload.recompute": own, "devices.clock_cap_min": least})
    parameters, codec = system_parameters(scenario), action_codec(scenario)
    if "participation" in names:
        sizes = st.sampled_from([0.0, 0.01, 0.05, 0.2, 0.5, 1.0])
        factors = data.draw(hnp.arrays(np.float64, (3, scenario.clusters), elements=sizes))
        state = with_cluster_memory(scenario, STATE, factors)
    else:
        factor = data.draw(st.sampled_from([0.05, 0.1, 0.2, 0.35, 0.6, 1.0, 3.0]))
        state = with_memory(scenario, STATE, factor)
    elements = st.floats(-1.5, 1.5, width=32) | st.sampled_from([-1.0, 1.0, 0.0])
    seed = data.draw(st.integers(0, 2**31))
    action = np.random.default_rng(seed).uniform(-1.2, 1.2, (3, codec.action_size))
    action[0] = data.draw(hnp.arrays(np.float32, codec.action_size, elements=elements))
    plan = codec.decode(action, state.memory_cap, state.memory_bytes)
    check_allocation(parameters, state, plan)
    assert np.isfinite(round_costs(parameters, state, plan).delay).all()
    # What is decoded comes back from its action, and a plan's action stands for itself.
    encoded = codec.encode(plan)
    assert encoded.dtype == np.float32
    assert (np.abs(encoded) <= 1.0).all()
    same(codec.decode(encoded, state.memory_cap, state.memory_bytes), plan)
    np.testing.assert_array_equal(codec.join(codec.split(action)), action)
    # The form for any array library says the same.
    same(codec.decode_finite(action, state.memory_cap, state.memory_bytes), plan, 1e-12)
    if "clock_cap" in names:
        # Geometric by hand, and not rounded at the ends.
        entries = np.clip(codec.split(action)["clock_cap"], -1.0, 1.0)
        np.testing.assert_allclose(plan.clock_cap, least ** (0.5 * (1.0 - entries)), rtol=1e-12)
        assert (plan.clock_cap[entries == 1.0] == 1.0).all()
        assert (plan.clock_cap >= least).all()
    if "local_steps" in names:
        assert np.isin(plan.local_steps, scenario.workload.local_steps_choices).all()
    if "participation" not in names:
        return
    asked = codec.split(action)["participation"] >= 0.0
    able = np.asarray(able_clusters(parameters, state))
    for e in range(3):
        plays = plan.participates[e] > 0
        # Whom memory lets play does as asked, and where none of those asked to, one of them does.
        if (asked[e] & able[e]).any():
            np.testing.assert_array_equal(plays[able[e]], asked[e][able[e]])
        elif able[e].any():
            assert plays.sum() >= 1
        assert not plays[(state.memory_bytes[e] == 0.0).all(axis=-1)].any()
        total = plan.bandwidth[e][plays].sum()
        assert total == pytest.approx(1.0) if plays.any() else total == 0.0
        assert (plan.bandwidth[e][~plays] == 0.0).all()


@pytest.mark.parametrize("names", [PLACED, SITTING_OUT, OPENED])
def test_neutral_decisions_cost_what_the_plain_plan_costs(names):
    scenario = opened(*names)
    codec, plan = action_codec(scenario), even_split(system_parameters(scenario), STATE)
    plan = replace(plan, micro_batches=np.full_like(plan.micro_batches, 4))
    decoded = codec.decode(codec.encode(plan), STATE.memory_cap, STATE.memory_bytes)
    assert decoded.is_plain == (names == SITTING_OUT)
    if "participation" in names:
        assert (decoded.participates == 1).all()
        assert (decoded.local_steps == scenario.workload.local_steps).all()
    # Powers and shares have gone through single precision: compare with those.
    through = {name: getattr(decoded, name) for name in ("bandwidth", "device_power", "cu_power")}
    silent = replace(plan, **through)
    expected = round_costs(system_parameters(opened()), STATE, silent)
    for said in (decoded, silent):  # what a plan does not say is neutral, too
        found = round_costs(system_parameters(scenario), STATE, said)
        for field in ("delay", "cluster_delay", "energy", "memory", "survival", "local_step", "upload"):
            one, two = getattr(found, field), getattr(expected, field)
            np.testing.assert_allclose(one, two, rtol=1e-12, err_msg=field)


def refused_plans():
    plain = even_split(system_parameters(opened()), STATE)[0]
    grouped = replace(plain, **plain.groups._asdict())
    scheduled = with_schedule(plain, "1f1b", 1)
    split = replace(plain, **plain.server._asdict())
    late = with_schedule(plain, "async", 1)
    yield (), grouped, "cannot express stages of several devices, and orders of devices: play"
    yield (), scheduled, "do not list schedule"
    yield (), split, "do not list server_blocks"
    yield (), replace(plain, recompute=np.ones_like(plain.micro_batches)), "do not list recompute"
    yield PLACED, grouped, "cannot express stages of several devices, and orders of devices: play"
    yield ("schedule",), late, rf"schedule = \[{ASYNC}\].*zb-h1"
    yield ("schedule",), replace(scheduled, chunks=2 * scheduled.chunks), r"chunks = \[2\]"
    yield ("schedule",), with_schedule(plain, "1f1b", 99), r"caps = \[99\].*number of micro-batches"
    yield ("schedule",), with_schedule(plain, "zb-h1", 0), r"caps = \[0\]"
    held = np.ones_like(split.server_blocks)
    copies = replace(split, server_blocks=held, server_mode=np.asarray(COPIES))
    yield ("server_blocks",), copies, r"blocks of environment 0, cluster 0 is.* L = 12, with the server's"
    yield ("server_blocks",), replace(split, server_blocks=split.server_blocks + 12), "0 to L - 1 = 11"
    yield (
        ("server_blocks",),
        replace(split, server_mode=np.asarray(SEQUENTIAL)),
        rf"server_mode = \[?{SEQUENTIAL}\]?.*copies",
    )
    ones = np.ones_like(plain.micro_batches)
    yield (), replace(plain, participates=0 * ones), "do not list participation"
    yield (), replace(plain, local_steps=ones), "do not list local_steps"
    yield (
        ("participation",),
        replace(plain, participates=2 * ones),
        "participates of .* is 2, expected 0 or 1",
    )
    yield (
        ("local_steps",),
        replace(plain, local_steps=3 * ones),
        r"local_steps of .* is 3, .*\[1, 2, 4, 8, 16\]",
    )
    half = replace(plain, participates=np.array([1, 0, 0, 0]))
    yield ("participation",), half, "bandwidth shares sum to 0.25"
    for names, cap, message in (
        ((), 0.5, "do not list clock_cap"),
        (("clock_cap",), 0.1, r"clock_cap of .* is 0\.1, .*\[0\.2, 1\]"),
        (("clock_cap",), 1.5, r"clock_cap of .* is 1\.5"),
    ):
        yield names, replace(plain, clock_cap=np.full_like(plain.device_power, cap)), message


@pytest.mark.parametrize(
    ("names", "plan", "message"),
    [pytest.param(*case, id=str(number)) for number, case in enumerate(refused_plans())],
)
def test_what_the_entries_cannot_say_is_refused(names, plan, message):
    with pytest.raises(AllocationError, match=message):
        action_codec(opened(*names)).encode(plan)


@every_scenario
def test_environments_pass_the_checkers(scenario):
    stable_baselines_check(CollaPipeEnv(scenario=scenario, learner="surrogate"))
    for observation in ("flat", "graph"):
        env = CollaPipeEnv(scenario=scenario, learner="surrogate", observation=observation)
        gymnasium_check(env, skip_render_check=True)
