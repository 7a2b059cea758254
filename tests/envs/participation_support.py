"""What tests of budgets that break and of clusters that sit out share."""

import dataclasses

import numpy as np
from environments_support import VARIANTS

from collapipe_env.simulator.build import reference_delay, system_parameters
from collapipe_env.simulator.even_split import even_split

TIGHT = {
    "base": "medium",
    "cluster": {"clusters": 3, "devices": [4, 3, 5]},
    "workload": {"local_steps": 2},
    "budgets": {"device_energy_j": 6, "cu_energy_j": 1, "bandwidth_floor": 0.02},
    "dynamics": {"rounds": 12},
}
"""Budgets that break, and clusters of other sizes, so that devices are absent."""
OPENED = {
    **TIGHT,
    "decisions": ["segments", "micro_batches", "bandwidth", "powers", "participation", "local_steps"],
    "workload": {},
    "budgets": {"device_energy_j": 6, "cu_energy_j": 1, "participation_min": 0.7},
    "radio": {"link_errors": "drop", "waterfall_threshold": 0.5},
}
SCENARIOS = {
    "medium": VARIANTS["medium"],
    "uneven": VARIANTS["uneven"],
    "second": {**TIGHT, "budgets": {**TIGHT["budgets"], "per": "second"}},
    "absent": {**OPENED, "budgets": {**OPENED["budgets"], "backlog_cap": 0.6}},  # the caps bind
    "absent by second": {**OPENED, "budgets": {**OPENED["budgets"], "per": "second"}},
}
PLAYED = [
    ([1, 0, 1], [4, 1, 1]),
    ([0, 0, 1], [1, 1, 16]),
    ([1, 1, 0], [2, 2, 2]),
    ([0, 1, 0], [1, 8, 1]),
    ([1, 1, 1], [1, 1, 1]),
    ([0, 0, 1], [1, 1, 1]),
    ([0, 0, 1], [1, 1, 1]),
]
"""Clusters that take part, and their local steps, in each round."""


def plans(env):
    """The rounds' plans on the even split."""
    plan = even_split(system_parameters(env.scenario), env.state)
    for rows in PLAYED:
        shape = (*plan.micro_batches.shape[:-1], 3)
        plays, steps = (np.broadcast_to(row, shape) for row in rows)
        yield dataclasses.replace(plan, participates=plays, local_steps=steps)


def period_of(scenario):
    """Delay of the even split at one local step, where budgets are per round [s]."""
    changes = {"workload.local_steps": 1, "budgets.per": "round", "decisions": list(scenario.decisions[:4])}
    return reference_delay(scenario.with_overrides(changes))
