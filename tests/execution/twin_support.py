"""Executions beside the in-process learner, and their processes, for tests."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from executed_support import Changed

from collapipe_env.execution.edge_server import EdgeServer
from collapipe_env.physics.moves import LOST
from collapipe_env.training.outcome_checks import trained_round


class WithSpare(Changed):
    """A scheduler of even splits that leaves the last device of the last cluster without blocks."""

    def act(self, observation, state):
        plan = super().act(observation, state)
        blocks = plan.blocks.copy()
        blocks[:, -1, -2] += blocks[:, -1, -1]
        blocks[:, -1, -1] = 0
        return replace(plan, blocks=blocks)


class Twin:
    """The learner in this process, which is told of the same losses.

    Args:
        scenario: The scenario.
        rounds: Planned rounds of the execution, for the generator that training begins with.
    """

    def __init__(self, scenario, rounds):
        self._server = EdgeServer(scenario, rounds.new_generator)
        self.run = self._server.federation

    def play(self, planned, result):
        """Train a round of the execution.

        Args:
            planned: What was planned.
            result: The server's report, with its recoveries.
        """
        plan = trained_round(planned.outcome, self._server.setup, 1)[0]
        moments, survived = plan.moments.copy(), plan.survived.copy()
        for n, recoveries in enumerate(result["recoveries"]):
            for one in recoveries:
                moments[n, one["reset"]] = LOST
                if one["dropped"]:
                    survived[n] = False
        self.run.train_round(replace(plan, moments=moments, survived=survived))

    def weights(self):
        """Weights by the names that the execution has for them."""
        return {
            f"{part}/{name}": parameter.detach().numpy()
            for part, module in zip(("model", "head"), self.run.common_model, strict=True)
            for name, parameter in module.named_parameters()
        }


def differing(execution, twin):
    """Names of the parameters that are not equal to the bit."""
    found, expected = execution.weights(), twin.weights()
    assert found.keys() == expected.keys()
    return [name for name in found if not np.array_equal(found[name], expected[name])]


def lost(result):
    """Devices that a round has lost, of each cluster."""
    return [[one["device"] for one in recoveries] for recoveries in result["recoveries"]]


def descendants(parent):
    """Processes whose ancestor is another one, as Linux lists them: name by number."""
    parents, names = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                before, _, after = (entry / "stat").read_text().rpartition(")")
            except OSError:
                continue
            parents[int(entry.name)] = int(after.split()[1])
            names[int(entry.name)] = before.partition("(")[2]
    found, wave = set(), {parent}
    while wave:
        wave = {pid for pid, above in parents.items() if above in wave} - found
        found |= wave
    return {pid: names[pid] for pid in found}


def alive(pid):
    """Whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until_gone(pids, seconds=120.0):
    """Wait until processes have ended."""
    deadline = time.monotonic() + seconds
    while left := [pid for pid in pids if alive(pid)]:
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.05)
