"""Systems whose devices may fail inside a round, and rounds of them in which nothing has failed yet."""

import dataclasses
from functools import cache

import numpy as np

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.physics.recovery import RecoveryTerms
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split
from collapipe_env.simulator.failed_rounds import Failures


def fragile(kind="light", replication="none", steps=1, workload=None, **presence):
    """Two clusters of four devices with ample energy."""
    law = {"on_mean_s": 200.0, "graceful": 0.0, "recovery": kind, "replication": replication, **presence}
    return load_scenario(
        {
            "base": "small",
            "cluster": {"clusters": 2, "devices": 4},
            "workload": {"local_steps": steps, **(workload or {})},
            "budgets": {"device_energy_j": 1e4, "cu_energy_j": 1e4},
            "dynamics": {"processes": {"presence": law}},
        }
    )


@cache
def whole_system(seed=5):
    """Two environments in which all devices are there."""
    env = CollaPipeVectorEnv(2, fragile(off_mean_s=1.0), "surrogate")
    env.reset(seed=seed)
    while not env.state.present.all():
        env.step(np.zeros((2, env.single_action_space.shape[0]), np.float32))
    return env.state


def a_round(kind="light", replication="none", steps=1, **changes):
    """Parameters, the system, the even split with other values of some fields, and its round."""
    parameters, state = system_parameters(fragile(kind, replication, steps)), whole_system()
    # The energy of idle radios goes with the delay of all, not with what a cluster does.
    radio = parameters.radio_power._replace(edge_receive_w=0.6, idle_w=0.0)
    parameters = dataclasses.replace(parameters, radio_power=radio)
    plan = dataclasses.replace(even_split(parameters, state), **changes)
    return parameters, state, plan, round_costs(parameters, state, plan)


def with_failure(parameters, state, costs, place, at_s, kind="light"):
    """The round in which one device fails, at (row, cluster, device)."""
    failing = np.full(costs.allocation.blocks.shape, np.inf)
    failing[place] = at_s
    return Failures(parameters, RecoveryTerms(kind, 0.5, 4)).replayed(state, costs, failing)
