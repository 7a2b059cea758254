"""Chrome traces: their form, and that their times are those of the rounds, under every schedule."""

import numpy as np
import pytest
from chrome_trace_support import last_end_s, require_trace

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.physics.allocation import SCHEDULES, with_schedule
from collapipe_env.rendering.chrome_trace import chrome_trace
from collapipe_env.rendering.round_view import played_timeline
from collapipe_env.schedulers import SCHEDULERS


@pytest.mark.parametrize("duplex", ["full", "half"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_traces_hold_all_passes_of_a_round(schedule: str, duplex: str) -> None:
    M = 6  # interleaved schedules take them in groups of three, the number of stages
    workload = {"local_steps": 2, "batch_size": 60, "micro_batches": [M]}
    changes = {"workload": workload, "radio": {"d2d_duplex": duplex}}
    scenario = {"base": "small", "budgets": {"device_energy_j": 1e4, "cu_energy_j": 1e4}, **changes}
    env = CollaPipeVectorEnv(1, scenario, "surrogate")
    observation, _ = env.reset(seed=3)
    scheduler = SCHEDULERS.get("pipeline")(env.scenario)
    scheduler.reset(3)
    plan = scheduler.act(observation, env.state)
    chunks = 2 if schedule == "interleaved" else 1
    env.step_allocation(with_schedule(plan, schedule, np.full(plan.blocks.shape, 8), chunks))
    record = env.last_round
    rounds = [(f"c{n}", 10.0, played_timeline(record, 0, n, None)) for n in range(2)]
    spans, processes, threads = require_trace(chrome_trace(rounds))
    assert sorted(processes.values()) == ["c0", "c1"]
    assert {"round", "d0", "CU→d0", "CU←d0", "uplink", "downlink", "server"} <= set(threads.values())
    assert last_end_s(spans) == pytest.approx(10.0 + float(record.costs.delay[0]), abs=1e-8)
    # An asynchronous schedule does not end between local steps, and counts on.
    batches = [*range(2 * M)] if schedule == "async" else [*range(M)] * 2 * chunks
    for pid in processes:
        passes = [s["name"] for s in spans if s["pid"] == pid and threads[s["tid"]] == "d0"]
        wanted = [f"{letter} m{m}" for m in batches for letter in "FB"]
        assert sorted(name for name in passes if name[0] != "W") == sorted(wanted)
