"""Figures of played rounds by name, as the cells of generated tables show them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.envs.views.objectives import objectives
from collapipe_env.physics.memory import device_memory
from collapipe_env.physics.queues import budgets_used
from collapipe_env.physics.server import server_energy
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import node_budgets, system_parameters, usual_round, workload_costs
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.record import RoundRecord
from collapipe_env.simulator.state import SystemState
from collapipe_env.simulator.system import joined_links


class Seen(NamedTuple):
    """A round that was played.

    Attributes:
        env: The environments, after the round.
        scenario: What they play.
        record: The round.
        known: What the scheduler decided from.
        truth: The true system before the round.
        seconds: Time of the decision for all environments [s].
    """

    env: CollaPipeVectorEnv
    scenario: Scenario
    record: RoundRecord
    known: SystemState
    truth: SystemState
    seconds: float


def over_rounds(rows: list[Any]) -> Any:
    """Means over rounds."""
    return np.mean(rows, axis=0)


class Figure(NamedTuple):
    """A figure of a play.

    Attributes:
        each: What is taken from every round.
        over: What makes values of episodes of that, or one value in all.
        pooled: What makes one number of the episodes' values.
    """

    each: Callable[[Seen], Any]
    over: Callable[[list[Any]], Any] = over_rounds
    pooled: Callable[[Any], Any] = np.mean


def _energies(s: Seen) -> Any:
    return s.record.costs.energy_ratio


def _most(nodes: slice) -> Callable[[list[Any]], Any]:
    """Mean energy over budget of each episode's worst node among some."""
    return lambda rows: np.mean(rows, axis=0)[..., nodes].max(axis=(-2, -1))


def _used(rows: list[Any]) -> Any:
    """Energy of each episode's worst node over the budgets that it was granted."""
    used, granted = (sum(part) for part in zip(*rows, strict=True))
    return budgets_used(used, granted).max(axis=(-2, -1))


def _priced(rows: list[Any]) -> Any:
    """Mean delay plus the worth of the energy queues at the end."""
    delays, backlogs, weights = zip(*rows, strict=True)
    return np.mean(delays, axis=0) + 0.5 * (backlogs[-1] ** 2).sum(axis=(-2, -1)) / (weights[0] * len(rows))


def _server(s: Seen) -> tuple[Any, Any, float]:
    """Energy of the server for encoder blocks, in all, and its budget [J]."""
    p, c = system_parameters(s.scenario), s.record.costs
    seconds = (c.elements.downlink, c.broadcast, c.delay)
    used = server_energy(p.server, p.costs, p.bs_power_w, c.allocation, seconds)
    encoder = used.encoder.sum(axis=-1)
    return encoder, encoder + used.head.sum(axis=-1) + used.idle + used.radio, p.server.budget_j


def _recomputing(s: Seen) -> Any:
    chosen = s.record.allocation.recompute
    return float(s.scenario.workload.recompute) if chosen is None else np.mean(chosen)


def _capped(s: Seen) -> Any:
    caps = s.record.allocation.clock_cap
    return 0.0 if caps is None else (caps < 1.0).mean()


def _squares(known: Any, true: Any) -> Any:
    return np.mean((10.0 * np.log10(known / true)) ** 2)


def _link_errors(s: Seen) -> Any:
    known, true = (joined_links(x.uplink_gain, x.d2d_gain) for x in (s.known, s.truth))
    return _squares(known, true)


def _root(rows: list[Any]) -> Any:
    return np.sqrt(np.mean(rows))


def _of_the_last(s: Seen, what: str) -> Any:
    """A time of the cluster for which the round waits (E,) [s]."""
    costs = s.record.costs
    last = np.argmax(costs.cluster_delay, axis=-1)
    return np.take_along_axis(getattr(costs, what), last[:, None], axis=-1)[:, 0]


def _exchanging(s: Seen) -> Any:
    costs = s.record.costs
    return _of_the_last(s, "collect"), _of_the_last(s, "upload"), costs.broadcast, costs.delay


def _exchange(rows: list[Any]) -> Any:
    """Share of the delay in which updates and new weights are on the air."""
    *parts, delay = np.mean(rows, axis=(0, 2))
    return sum(parts) / delay


def alone_bytes(scenario: Scenario, samples: int) -> float:
    """Bytes of a device that holds all blocks, no embedding or head, and keeps the activations of samples."""
    costs = workload_costs(scenario)
    working, blocks = samples * costs.working_bytes, np.asarray(costs.blocks)
    return float(
        device_memory(blocks, samples, costs.block_state_bytes, costs.stored_activation_bytes, working)
    )


def _memory(s: Seen, samples: int | None) -> Any:
    """Largest memory of a device over that of one that trains alone with passes of some samples."""
    alone = 1e6 if samples is None else alone_bytes(s.scenario, samples or s.scenario.workload.batch_size)
    return s.record.costs.memory.max() / alone


def _plays(costs: Any) -> Any:
    return np.ones(costs.cluster_delay.shape, dtype=bool) if costs.plays is None else costs.plays


def _struck(s: Seen) -> Any:
    """Which clusters a failure reached (E, N)."""
    failed = s.record.failed
    return np.zeros(_plays(s.record.costs).shape, bool) if failed is None else failed.device >= 0


def _expected_failures(s: Seen) -> Any:
    """Expected share of clusters that a failure reaches, from the hazard and the usual round (E, N)."""
    planned = round_costs(system_parameters(s.scenario), s.record.state, s.record.allocation)
    plays = _plays(planned)
    late = np.zeros(plays.shape)
    whole = planned.cluster_delay
    np.divide(whole - planned.upload, whole, out=late, where=plays)
    stay_s = dict(s.scenario.dynamics.processes)["presence"].on_mean_s
    working = (s.record.allocation.device_blocks > 0).sum(axis=-1)
    return np.where(plays, 1.0 - np.exp(-usual_round(s.scenario) / stay_s * late * working), 0.0)


def _added(s: Seen) -> tuple[int, float]:
    """Number of failures, and the time that they added [s]."""
    struck = _struck(s)
    return int(struck.sum()), float(
        s.record.interruption.cluster_delay[struck].sum()
    ) if struck.any() else 0.0


def _steps_around(s: Seen) -> tuple[float, float]:
    """Local steps of clusters that go on after a failure, before it and after it: sums [s]."""
    failed = s.record.failed
    if failed is None:
        return 0.0, 0.0
    goes_on = (failed.device >= 0) & ~failed.dropped
    left = s.scenario.workload.local_steps - failed.credited[goes_on]
    whole = left > 0
    planned = round_costs(system_parameters(s.scenario), s.record.state, s.record.allocation)
    after = (failed.replay_s[goes_on][whole] / left[whole]).sum()
    return float(planned.local_step[goes_on][whole].sum()), float(after)


def _ratio_of_sums(rows: list[Any], nothing: float) -> float:
    over, under = np.sum(rows, axis=0)
    return float(over / under) if under else nothing


def _replica_shares(s: Seen) -> list[float]:
    """Time of replicas over a local step, for each cluster that sends any."""
    costs = round_costs(system_parameters(s.scenario), s.record.state, s.record.allocation)
    seconds = costs.terms.step.get("replicas", np.zeros(costs.local_step.shape))
    sent = _plays(costs) & (seconds > 0.0)
    found: list[float] = (seconds[sent] / costs.local_step[sent]).tolist()
    return found


def _heat(s: Seen, what: str) -> Any:
    return s.env.state.processes["heat"][what]


def _objective(index: int) -> Callable[[Seen], Any]:
    return lambda s: objectives(s.record, s.env.reference_delay)[:, index]


def _sat_out(s: Seen) -> Any:
    plays = s.record.allocation.participates
    return np.zeros(s.env.num_envs) if plays is None else 1.0 - np.asarray(plays).mean(axis=-1)


FIGURES: Mapping[str, Figure] = {
    "delay": Figure(lambda s: np.asarray(s.record.costs.delay)),
    "priced": Figure(
        lambda s: (s.record.costs.delay, s.record.backlog, system_parameters(s.scenario).tradeoff_v), _priced
    ),
    "upload": Figure(lambda s: s.record.costs.upload.max(axis=-1)),
    "energy": Figure(_energies, _most(slice(None))),
    "excess": Figure(_energies, lambda rows: _most(slice(None))(rows) - 1.0),
    "worst_excess": Figure(_energies, lambda rows: _most(slice(None))(rows) - 1.0, np.max),
    "used": Figure(lambda s: (s.record.costs.energy_ratio, s.record.granted), _used),
    "over_budget": Figure(
        lambda s: (s.record.costs.energy_ratio, s.record.granted), lambda rows: _used(rows) - 1.0
    ),
    "devices": Figure(_energies, _most(slice(1, None)), np.max),
    "cus": Figure(_energies, _most(slice(0, 1)), np.max),
    "nodes": Figure(_energies, _most(slice(None)), np.max),
    "server": Figure(
        lambda s: np.nan if s.record.server_backlog is None else s.record.costs.server_ratio.mean()
    ),
    "decision_ms": Figure(lambda s: 1e3 * s.seconds / s.env.num_envs, np.median),
    "headroom": Figure(lambda s: _heat(s, "headroom").max(), np.max),
    "slowed": Figure(lambda s: (_heat(s, "share") < 1.0).mean(axis=(-2, -1))),
    "capped": Figure(_capped),
    "recomputing": Figure(_recomputing),
    "encoder_j": Figure(lambda s: _server(s)[0]),
    "server_j": Figure(lambda s: _server(s)[1]),
    "server_use": Figure(lambda s: _server(s)[0] / _server(s)[2]),
    "link_error_db": Figure(_link_errors, _root),
    "uplink_error_db": Figure(lambda s: _squares(s.known.uplink_gain, s.truth.uplink_gain), _root),
    "failed": Figure(lambda s: _struck(s).mean(axis=-1)),
    "sat_out": Figure(_sat_out),
    "failures_expected": Figure(lambda s: _expected_failures(s).mean(axis=-1)),
    "added_s": Figure(_added, lambda rows: _ratio_of_sums([row[::-1] for row in rows], 0.0)),
    "throughput": Figure(_steps_around, lambda rows: _ratio_of_sums(rows, np.nan)),
    "replica_share": Figure(
        _replica_shares, lambda rows: np.mean(np.concatenate(rows)) if any(rows) else np.nan
    ),
    "collect": Figure(lambda s: _of_the_last(s, "collect")),
    "upload_of_last": Figure(lambda s: _of_the_last(s, "upload")),
    "broadcast": Figure(lambda s: np.asarray(s.record.costs.broadcast)),
    "exchange": Figure(_exchanging, _exchange),
    "payload_mbit": Figure(lambda s: workload_costs(s.scenario).update_payload_bits / 1e6),
    "micro_batches": Figure(lambda s: s.record.allocation.micro_batches, np.median),
    "memory_mb": Figure(lambda s: _memory(s, None), np.max),
    "memory_of_alone": Figure(lambda s: _memory(s, 0), np.max),
    "memory_of_one": Figure(lambda s: _memory(s, 1), np.max),
    "alone_mb": Figure(lambda s: alone_bytes(s.scenario, s.scenario.workload.batch_size) / 1e6),
    "alone_one_mb": Figure(lambda s: alone_bytes(s.scenario, 1) / 1e6),
    "device_budget_j": Figure(lambda s: node_budgets(s.scenario).device_energy_j),
    "cu_budget_j": Figure(lambda s: node_budgets(s.scenario).cu_energy_j),
    "delay_refs": Figure(_objective(0), lambda rows: -np.mean(rows, axis=0)),
    "energy_budgets": Figure(_objective(1), lambda rows: -np.mean(rows, axis=0)),
    "fall": Figure(_objective(2), lambda rows: np.sum(rows, axis=0)),
}  # fmt: skip
"""All figures. Shares are 0 to 1; energies are over their budgets unless the name ends in ``_j``."""
