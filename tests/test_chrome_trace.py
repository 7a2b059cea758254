"""Chrome traces: their form, and that their times are those of the rounds, under every schedule."""

import json
from itertools import pairwise

import numpy as np
import pytest

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.physics.allocation import SCHEDULES, with_schedule
from collapipe_env.rendering.chrome_trace import chrome_trace
from collapipe_env.rendering.round_view import played_timeline
from collapipe_env.schedulers import SCHEDULERS

FIELDS = {"name": str, "ph": str, "pid": int, "tid": int}
OF_KIND = {"M": {"args": dict}, "X": {"ts": float, "dur": float, "cat": str}}
"""Types of the fields that the Trace Event Format wants in every event, and in those of each kind."""


def require_trace(trace: dict) -> tuple[list[dict], dict[int, str], dict[int, str]]:
    """Check the form of a trace; returns its spans and the names of its processes and threads."""
    events = json.loads(json.dumps(trace, allow_nan=False))["traceEvents"]
    for event in events:
        wanted = FIELDS | OF_KIND[event["ph"]]
        assert {key: type(event[key]) for key in wanted} == wanted
    names = {
        kind: {event[number]: event["args"]["name"] for event in events if event["name"] == kind}
        for kind, number in (("process_name", "pid"), ("thread_name", "tid"))
    }
    spans = [event for event in events if event["ph"] == "X"]
    for span in spans:
        assert span["dur"] >= 0.0
        assert names["process_name"][span["pid"]]
        assert names["thread_name"][span["tid"]]
    by_thread: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for span in spans:  # in nanoseconds, to which viewers round
        begin, length = round(1e3 * span["ts"]), round(1e3 * span["dur"])
        by_thread.setdefault((span["pid"], span["tid"]), []).append((begin, begin + length))
    for thread in by_thread.values():
        assert all(end <= begin for (_, end), (begin, _) in pairwise(sorted(thread)))
    return spans, names["process_name"], names["thread_name"]


def last_end_s(spans: list[dict]) -> float:
    return max(span["ts"] + span["dur"] for span in spans) / 1e6


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
