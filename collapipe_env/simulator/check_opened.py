"""Feasibility of opened decisions: recomputation, participation, local steps, clocks and replicas."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import BoolArray
from collapipe_env.physics.allocation import SEQUENTIAL, Allocation
from collapipe_env.physics.participation import players, whole_steps
from collapipe_env.simulator.refusal import refuse, require_shape, require_whole
from collapipe_env.simulator.state import SystemParameters, SystemState, able_clusters


def check_recompute(parameters: SystemParameters, allocation: Allocation, clusters: tuple[int, ...]) -> None:
    """Recomputation: yes or no for every cluster, where the scenario leaves that open.

    Args:
        allocation: A plan that says where activations are recomputed.
        clusters: Shape (E, N).

    Raises:
        AllocationError: If the scenario does not open the decision, or a number is none of -1, 0 and 1.
    """
    require_shape("recompute", allocation.recompute, clusters)
    chosen = np.asarray(allocation.recompute)
    require_whole("recompute", chosen)
    if parameters.other_costs is None:
        refuse(
            chosen != -1,
            chosen,
            "recompute",
            "-1: this scenario's decisions do not list recompute, so workload.recompute settles it",
        )
    refuse(~np.isin(chosen, (-1, 0, 1)), chosen, "recompute", "0 or 1, or -1 for the workload's setting")


def check_participation(
    parameters: SystemParameters, state: SystemState, allocation: Allocation
) -> BoolArray:
    """Participation: yes or no for every cluster where that is open; at least one able cluster takes part.

    Args:
        state: The system (E, ...).
        allocation: The plan (E, ...).

    Returns:
        Clusters that take part (E, N), bool.

    Raises:
        AllocationError: If the scenario does not open the decision, a number is neither 0 nor 1, or nobody
            takes part although some cluster can hold the encoder.
    """
    shape = state.uplink_gain.shape
    if allocation.participates is None:
        # Clusters that cannot hold the encoder fail the memory check.
        return np.ones(shape, dtype=np.bool_)
    require_shape("participates", allocation.participates, shape)
    given = np.asarray(allocation.participates)
    require_whole("participates", given)
    able = able_clusters(parameters, state)
    if not parameters.chooses_players:
        forced = parameters.idle_round_s is not None
        refuse(
            given != (able.astype(np.int64) if forced else 1),
            given,
            "participates",
            "1, or 0 for a cluster that cannot hold the encoder: this scenario's decisions do not list "
            "participation, so all others take part"
            if forced
            else "1: this scenario's decisions do not list participation, so all clusters take part",
        )
    refuse(~np.isin(given, (0, 1)), given, "participates", "0 or 1")
    plays: BoolArray = np.asarray(players(allocation))
    refuse(
        ~plays.any(axis=-1) & able.any(axis=-1),
        given.sum(axis=-1),
        "participates (sum over clusters)",
        "at least 1, as some cluster can hold the encoder",
    )
    return plays


def check_local_steps(
    parameters: SystemParameters, allocation: Allocation, clusters: tuple[int, ...]
) -> None:
    """Local steps: a number that the scenario allows for every cluster, where it leaves that open.

    Args:
        allocation: A plan that gives local steps.
        clusters: Shape (E, N).

    Raises:
        AllocationError: If the scenario does not open the decision, or a number is not among the choices.
    """
    require_shape("local_steps", allocation.local_steps, clusters)
    given, own = np.asarray(allocation.local_steps), parameters.costs.local_steps
    require_whole("local_steps", given)
    choices = parameters.local_steps_choices
    if choices is None:
        refuse(
            given != -1,
            given,
            "local_steps",
            "-1: this scenario's decisions do not list local_steps, so workload.local_steps settles them",
        )
        return
    allowed = (-1, *choices)
    refuse(
        ~np.isin(given, allowed),
        given,
        "local_steps",
        f"one of {list(choices)}, or -1 for the workload's {own}",
    )
    if allocation.server_mode is not None:
        taken = np.asarray(whole_steps(allocation, own))
        refuse(
            (taken != own) & (np.asarray(allocation.server_mode) == SEQUENTIAL)[..., None],
            given,
            "local_steps",
            f"-1 or the workload's {own} under a sequential server",
        )


def check_clocks(
    parameters: SystemParameters, allocation: Allocation, devices: tuple[int, ...], slack: float
) -> None:
    """Caps on clocks: within the scenario's range for every device, where it leaves that open.

    Args:
        allocation: A plan that caps clocks.
        devices: Shape (E, N, K).
        slack: Share of the least cap by which rounding may fall below it.

    Raises:
        AllocationError: If the scenario does not open the decision, or a cap is out of its range.
    """
    require_shape("clock_cap", allocation.clock_cap, devices)
    given, least = np.asarray(allocation.clock_cap), parameters.clock_cap_min
    if least is None:
        refuse(
            given != 1.0,
            given,
            "clock_cap",
            "1: this scenario's decisions do not list clock_cap, so all clocks run free",
        )
        return
    refuse(
        ~((given >= least * (1.0 - slack)) & (given <= 1.0)),
        given,
        "clock_cap",
        f"a share of the full clock in [{least:g}, 1]",
    )
