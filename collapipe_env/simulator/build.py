"""Build the simulator's parameters, action box and initial state from a scenario."""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache
from pkgutil import resolve_name
from typing import NamedTuple

import numpy as np

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.physics.energy import RadioPower, compute_power
from collapipe_env.physics.memory import memory_caps
from collapipe_env.physics.moves import Migration
from collapipe_env.physics.overheads import Overheads
from collapipe_env.physics.radio import Sharing, db_to_linear
from collapipe_env.physics.rates import LinkLaw, fades_of
from collapipe_env.physics.replication import NO_REPLICATION, REPLICATION_KINDS, Replication
from collapipe_env.physics.server import ServerTerms
from collapipe_env.physics.training_memory import MOMENTS
from collapipe_env.physics.workload import WorkloadCosts, decoder_forward_flops, decoder_weight_flops
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.block_prices import block_prices, training_memory_of
from collapipe_env.scenario.decision_names import COLLAPIPE, opens
from collapipe_env.scenario.layout import Layout, fixed_layout
from collapipe_env.scenario.radio_section import RadioSpec
from collapipe_env.scenario.sections import REFERENCE_CLOCK_HZ
from collapipe_env.scenario.server_section import term_values
from collapipe_env.scenario.task_registry import task_traits
from collapipe_env.simulator.codec import ActionCodec
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split
from collapipe_env.simulator.process_registry import leaves_clusters_short
from collapipe_env.simulator.state import Parameters, SystemState


def workload_costs(scenario: Scenario, *, recompute: bool | None = None) -> WorkloadCosts:
    """Priced per-sample and per-block figures of a scenario (`system_model.md` section 2).

    Args:
        recompute: Whether devices recompute activations; the workload's own setting by default.

    Raises:
        ScenarioError: If the workload's registered task has no traits, or needs decoder blocks that the
            workload lacks.
    """
    w = scenario.workload
    if recompute is not None:
        w = dataclasses.replace(w, recompute=recompute)
    traits = task_traits(w.task)
    if traits.decoder and w.decoder_blocks == 0:
        raise ScenarioError(f"workload.task = {w.task!r} needs workload.decoder_blocks of at least 1, not 0")
    positions = traits.positions(w.sequence_length)
    boundary = w.sequence_length * w.width
    block = block_prices(w)
    decoder = (w.decoder_blocks, w.width, w.feedforward, w.sequence_length, w.outputs, positions)
    return WorkloadCosts(
        blocks=w.blocks,
        batch_size=w.batch_size,
        local_steps=w.local_steps,
        block_forward_flops=block.forward_flops,
        decoder_forward_flops=decoder_forward_flops(*decoder),
        block_weight_flops=block.weight_flops,
        decoder_weight_flops=decoder_weight_flops(*decoder),
        block_parameters=block.parameters,
        embedding_parameters=w.embedding_parameters,
        stored_activation_bytes=block.stored_bytes,
        activation_bits=float(boundary * w.activation_bits),
        gradient_bits=float(boundary * w.gradient_bits),
        weight_bits=w.weight_bits,
        compression=w.update_compression,
        top_k_share=w.top_k_share,
        adapter_parameters=block.adapter_parameters,
        training_memory=dataclasses.replace(training_memory_of(scenario), recompute=w.recompute),
        working_bytes=block.working_bytes,
        fewest_micro_batches=w.micro_batch_choices[0],
    )


@lru_cache(maxsize=64)
def system_parameters(scenario: Scenario) -> Parameters:
    """Scalars of the physics for a scenario."""
    tradeoff_v = scenario.budgets.tradeoff / reference_delay(scenario)
    return dataclasses.replace(_unweighted_parameters(scenario), tradeoff_v=tradeoff_v)


@lru_cache(maxsize=64)
def _unweighted_parameters(scenario: Scenario) -> Parameters:
    """Scalars of the physics at ``V = 0``: the reference delay needs them, and ``V`` the reference delay."""
    radio, chooses = scenario.radio, opens(scenario, "participation")
    nodes = scenario.max_devices + 1.0
    # A cluster that is left with too few devices for the encoder sits out.
    short = any(leaves_clusters_short(name) for name, _ in scenario.dynamics.processes)
    return Parameters(
        costs=workload_costs(scenario),
        other_costs=(
            workload_costs(scenario, recompute=not scenario.workload.recompute)
            if opens(scenario, "recompute")
            else None
        ),
        noise_density=radio.noise_w_per_hz,
        bs_noise_density=radio.bs_noise_w_per_hz,
        d2d_bandwidth_hz=radio.d2d_total_hz / nodes,
        uplink_bandwidth_hz=radio.uplink_bandwidth_hz,
        downlink_bandwidth_hz=radio.downlink_bandwidth_hz,
        bs_power_w=radio.bs_power_w,
        external_interference_w=radio.external_interference_w,
        lossy=radio.link_errors != "none",
        link=link_law(radio),
        server_flops=term_values(scenario.server).flops or scenario.cluster.server_flops,
        clusters=scenario.clusters,
        power_min_w=scenario.devices.power_min_w,
        power_max_w=scenario.devices.power_max_w,
        tradeoff_v=0.0,
        micro_batch_choices=scenario.workload.micro_batch_choices,
        bandwidth_floor=scenario.budgets.bandwidth_floor,
        half_duplex=radio.d2d_duplex == "half",
        sharing=Sharing(1.0 / (3.0 - radio.d2d_radios), nodes),
        overheads=overheads_of(scenario),
        radio_power=RadioPower(
            radio.d2d_circuit_w,
            radio.edge_circuit_w,
            radio.amplifier_efficiency,
            radio.receive_w,
            radio.edge_receive_w,
            radio.idle_w,
        ),
        migration=migration_of(scenario),
        distribution=scenario.workload.distribution,
        head=scenario.workload.head,
        budget_period_s=budget_period(scenario),
        server=server_terms(scenario),
        idle_round_s=usual_round(scenario) if chooses or short else 0.0,
        participation_min=scenario.budgets.participation_min if chooses else 0.0,
        local_steps_choices=scenario.workload.local_steps_choices if opens(scenario, "local_steps") else (),
        clock_cap_min=scenario.devices.clock_cap_min if opens(scenario, "clock_cap") else 1.0,
        replication=replication_of(scenario),
        processes=scenario.dynamics.processes,
        opened=tuple(name for name in scenario.decisions if name not in COLLAPIPE),
    )


def link_law(radio: RadioSpec) -> LinkLaw:
    """How a scenario's links turn SNR into rate and packet errors."""
    adapted = radio.link_errors == "harq"
    return LinkLaw(
        attenuation=radio.rate_attenuation,
        ceiling=math.inf if radio.rate_ceiling is None else radio.rate_ceiling,
        snr_floor=0.0 if radio.snr_floor_db is None else db_to_linear(radio.snr_floor_db),
        fades=fades_of(radio.packet_diversity),
        waterfall_threshold=radio.waterfall_threshold,
        adapted_exponent=-math.log1p(-radio.target_error_rate) if adapted else 0.0,
        transmissions=float(radio.max_transmissions) if adapted or radio.link_errors == "arq" else 1.0,
    )


def server_terms(scenario: Scenario) -> ServerTerms:
    """Terms on which a scenario's schedulers use the server."""
    values = term_values(scenario.server)
    # The server keeps all activations, even where devices recompute them.
    costs = workload_costs(scenario, recompute=False)
    return ServerTerms(
        tenants=values.tenants,
        memory_bytes=math.inf if values.memory_bytes is None else values.memory_bytes,
        joules_per_flop=values.joules_per_flop,
        pue=values.pue,
        idle_w=values.idle_w,
        amplifier_efficiency=values.amplifier_efficiency,
        budget_j=math.inf if values.energy_budget_j is None else values.energy_budget_j,
        block_state_bytes=costs.block_state_bytes,
        block_activation_bytes=costs.batch_size * costs.stored_activation_bytes,
    )


def migration_of(scenario: Scenario) -> Migration | None:
    """A scenario's rules for the moments of moved blocks; ``None`` where they cost nothing."""
    spec = dict(scenario.dynamics.processes).get("migration")
    if spec is None:
        return None
    costs = workload_costs(scenario)
    # Moments kept in fewer bits travel in those bits.
    bits = min(float(spec.moment_bits), costs.training_memory.kept_moment_bits)
    return Migration(
        MOMENTS * bits * costs.trained_block_parameters, spec.moments == "move", spec.route == "cu"
    )


def replication_of(scenario: Scenario) -> Replication:
    """A scenario's terms for replicas."""
    presence = dict(scenario.dynamics.processes).get("presence")
    if presence is None or presence.replication == "none":
        return NO_REPLICATION
    costs = workload_costs(scenario)
    memory = costs.training_memory
    each = 8.0 * memory.weight_bytes + MOMENTS * memory.kept_moment_bits
    return Replication(REPLICATION_KINDS.index(presence.replication), each * costs.trained_block_parameters)


def overheads_of(scenario: Scenario) -> Overheads:
    """A scenario's overheads of passes and messages."""
    o = scenario.overheads
    trained = workload_costs(scenario).trained_block_parameters
    return Overheads(
        block_cycles=o.block_s * REFERENCE_CLOCK_HZ,
        update_cycles=o.update_s * REFERENCE_CLOCK_HZ * trained / 1e6,
        message_s=o.message_s,
        header_bits=o.header_bits,
        latency_s=o.latency_s,
        edge_message_s=o.edge_message_s,
        edge_latency_s=o.edge_latency_s,
        server_s=o.server_s,
    )


@lru_cache(maxsize=64)
def action_codec(scenario: Scenario) -> ActionCodec:
    """The action box of a scenario."""
    return ActionCodec(system_parameters(scenario), scenario.max_devices)


def mean_state(scenario: Scenario, layout: Layout) -> SystemState:
    """The system at mean gains, full speed and empty queues, without a batch axis."""
    costs = workload_costs(scenario)
    speed = layout.max_clock_hz * layout.flops_per_cycle
    N, K = layout.present.shape
    return SystemState(
        uplink_gain=layout.d2e_path_gain,
        d2d_gain=layout.d2d_path_gain,
        cross_gain=layout.cross_gain,
        speed=speed,
        clock=layout.max_clock_hz,
        compute_power=compute_power(
            speed, layout.flops_per_cycle, layout.switched_capacitance, layout.active_power_w, speed
        ),
        memory_bytes=layout.memory_bytes,
        memory_cap=memory_caps(costs, layout.memory_bytes),
        present=layout.present,
        budget=energy_budgets(scenario),
        backlog=np.zeros((N, K + 1)),
        round_index=np.zeros((), dtype=np.int64),
        loss=np.zeros(()),
        server_share=np.ones(()),
        absence=np.zeros(N) if opens(scenario, "participation") else None,
        full_speed=speed,
        cubic_power=layout.switched_capacitance > 0.0,
    )


def energy_budgets(scenario: Scenario) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Energy budget of each node per round (N, K+1) [J]."""
    joules = node_budgets(scenario)
    budgets = np.full((scenario.clusters, scenario.max_devices + 1), joules.device_energy_j)
    budgets[:, 0] = joules.cu_energy_j
    return budgets


class Joules(NamedTuple):
    """Energy of a round [J]."""

    device_energy_j: float
    """Of each device."""
    cu_energy_j: float
    """Of each CU."""


def node_budgets(scenario: Scenario) -> Joules:
    """Energy budgets of a round: those that the scenario states, or those of its tightness.

    Raises:
        ScenarioError: If a tightness sets them, and some link hardly ever delivers.
    """
    budgets = scenario.budgets
    if budgets.device_energy_j is not None and budgets.cu_energy_j is not None:
        return Joules(budgets.device_energy_j, budgets.cu_energy_j)
    # By its name, because it plays sampled rounds of processes that build on this file.
    find = resolve_name("collapipe_env.feasibility.energy_range:energy_range")
    found: Joules = find(scenario).at(budgets.tightness)
    return found


def budget_period(scenario: Scenario) -> float | None:
    """Period of an energy budget [s]; ``None`` where a budget is per round.

    Budgets per second are ``Pbar = Ebar / T_ref``, with the reference delay of the same scenario at one local
    step: the budget of a round of the usual length, spread over its seconds [X].
    """
    return None if scenario.budgets.per == "round" else usual_round(scenario)


def usual_round(scenario: Scenario) -> float:
    """Seconds of a usual round, ``T_ref``: :func:`reference_delay` at one local step, whatever is open [X].

    Budgets per second are spread over it, and a round in which nobody takes part lasts as long.
    """
    closed = dataclasses.replace(
        scenario,
        decisions=tuple(name for name in scenario.decisions if name not in ("participation", "local_steps")),
        workload=dataclasses.replace(scenario.workload, local_steps=1),
        budgets=dataclasses.replace(scenario.budgets, per="round"),
        # These processes themselves depend on this delay.
        dynamics=dataclasses.replace(
            scenario.dynamics,
            processes=tuple(
                pair for pair in scenario.dynamics.processes if not leaves_clusters_short(pair[0])
            ),
        ),
    )
    return reference_delay(closed)


@lru_cache(maxsize=64)
def reference_delay(scenario: Scenario) -> float:
    """Reference delay ``T_ref`` [s]: the even split at mean gains in the layout of ``layout_seed``.

    Even split over all devices, equal bandwidth, full power, ``M = 4`` or the nearest allowed
    (`system_model.md` section 4). It is a constant of the scenario, even where layouts are redrawn.
    """
    state = mean_state(scenario, fixed_layout(scenario))
    parameters = _unweighted_parameters(scenario)
    return float(round_costs(parameters, state, even_split(parameters, state)).delay)
