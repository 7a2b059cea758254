"""Plans of least energy for all clusters of many rounds at once, delay ignored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from collapipe_env.feasibility.priced_segments import cheapest_segments
from collapipe_env.feasibility.sampled_rounds import sample_rounds
from collapipe_env.feasibility.shortest_round import shortest_round
from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.physics import packet_errors, radio, rates
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.energy import IDEAL_RADIO, compute_time, idle_power, radio_power
from collapipe_env.physics.overheads import cycles_time
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.running import slowest_state
from collapipe_env.simulator.state import SystemState

POWER_LEVELS = 6
"""Powers to choose from where more power can save energy: under ``arq``, by fewer repeats."""

BANDWIDTH_STEPS = 12

SHARPNESS = 16.0
"""Prices are energy uses to this power, so that almost only the largest use counts."""

LEAST_PRICE = 1e-9
"""Least price, so that nodes not used so far are not free."""

PRIOR = 6.0
"""Weight of the uses of computing alone in the first prices, in rounds."""

FEWEST_ROUNDS, MOST_ROUNDS, PLAYED = 32, 192, 4096
"""Fewest and most counted rounds of a system, and their total over all systems."""


class EnergySearch:
    """Least time-average energy of every node in sampled episodes, over budget.

    Where clocks may be capped, they run as slowly as allowed: that saves energy, and delay is ignored.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.parameters = parameters = system_parameters(scenario)
        sample = sample_rounds(scenario)
        power = parameters.radio_power.idle_w
        present, budget = sample.state.present[:: sample.rounds], sample.state.budget[:: sample.rounds]
        on = idle_power(power, present, np.ones(present.shape[:-1], dtype=np.bool_), budget)
        length = shortest_round(parameters, sample.state).reshape(sample.systems, sample.rounds)
        # Use of idle radios in rounds as short as can be, on average and at least (S, N, K+1).
        self._idle_use: FloatArray = on / budget * length.mean(axis=-1)[:, None, None]
        self._least_idle_use: FloatArray = on / budget * length.min(axis=-1)[:, None, None]
        if "clock_cap" in parameters.opened:
            sample = replace(sample, state=slowest_state(sample.state, parameters.clock_cap_min))
        self.sample = sample
        state, costs = sample.state, parameters.costs
        # Less power means less energy per bit, for the sender and for the nodes it disturbs. The exceptions
        # are repeats, and radios that draw more than they emit.
        sending = parameters.radio_power._replace(edge_receive_w=0.0, idle_w=0.0)
        ideal = sending == IDEAL_RADIO and parameters.link.transmissions == 1.0
        levels = 1 if ideal else POWER_LEVELS
        self._powers = np.geomspace(parameters.power_min_w, parameters.power_max_w, levels)
        self._samples = float(costs.local_steps * costs.batch_size)
        work = self._samples * (1.0 + costs.backward_over_forward) * costs.block_forward_flops
        # The fewest micro-batches, because each costs launches and messages.
        self._micro_batches = parameters.micro_batch_choices[0]
        self._passes = float(costs.local_steps * self._micro_batches)
        extra = parameters.overheads
        launches = compute_time(
            self._passes, cycles_time(1.0, extra.block_cycles, state.clock), costs.backward_over_forward
        )
        launches = launches + costs.local_steps * cycles_time(1.0, extra.update_cycles, state.clock)
        # Budget use of one block's computing (S F, N, K).
        self._block_use: FloatArray = (
            state.compute_power * (work / state.speed + launches) / state.budget[:, :, 1:]
        )
        self._cap = state.memory_cap[:: sample.rounds]
        self._uplink_use = self._split_bandwidth()
        # The search is for a system's median episode: in the worst ones a single deep fade dominates.
        per_system = self._uplink_use.reshape(sample.systems, -1, parameters.clusters)
        self._uplink_of_system: FloatArray = np.median(per_system, axis=1)

    def bound(self) -> FloatArray:
        """Energy over budget of each cluster's worst node (E, N) that no plans of the search fall below.

        It counts the edge links and computing in the rounds of the lowest loads, idle radios in the shortest
        round (:func:`~.shortest_round.shortest_round`), and none of the links between devices: no plan need
        be tried.
        """
        sample = self.sample
        by_round = self._block_use.reshape(sample.systems, sample.rounds, *self._cap.shape[1:])
        computing = self._least_level(by_round.min(axis=1))
        idle, episodes = self._least_idle_use, len(self._uplink_use) // sample.systems
        of_devices = np.where(sample.state.present[:: sample.rounds], idle[..., 1:], np.inf).min(axis=-1)
        computing, of_cu = (np.repeat(a, episodes, axis=0) for a in (computing + of_devices, idle[..., 0]))
        found: FloatArray = np.maximum(computing, self._uplink_use + of_cu)
        return found

    def least_use(self) -> FloatArray:
        """Energy over budget of each node, averaged over each episode's rounds (E, N, K+1).

        Each round's plan is the cheapest at energy prices. Prices follow the uses so far, which lowers the
        largest; plans follow the channels and loads. Half as many further rounds are played first, uncounted,
        to find the prices. As delay is ignored, idle radios are on for no longer than the shortest rounds:
        plans need more than this where they draw much.
        """
        S, F = self.sample.systems, self.sample.rounds
        rounds = max(min(max(FEWEST_ROUNDS, PLAYED // S), MOST_ROUNDS) // F, 1) * F
        computing = self._block_use.reshape(S, F, *self._cap.shape[1:]).mean(axis=1)
        alone = np.minimum(self._cap * computing, self._least_level(computing)[..., None])
        average = np.concatenate((self._uplink_of_system[..., None], alone), axis=-1) + self._idle_use
        total = np.zeros(average.shape)
        links = [self._link_joules(self.sample.state[f::F]) for f in range(F)]
        before = rounds // 2
        for t in range(before + rounds):
            f = t % F
            rows = np.arange(f, S * F, F)
            price = (average / average.max(axis=-1, keepdims=True)) ** SHARPNESS + LEAST_PRICE
            use = self._play(rows, self._cheapest(rows, links[f], price), price)
            use[..., 0] += self._uplink_of_system
            use += self._idle_use
            average += (use - average) / (t + PRIOR)
            if t >= before:
                total += use
        # The episodes of a system differ only in their uplinks.
        episodes = len(self._uplink_use) // S
        best: FloatArray = np.repeat(total / rounds, episodes, axis=0)
        best[..., 0] += self._uplink_use - np.repeat(self._uplink_of_system, episodes, axis=0)
        return best

    def _split_bandwidth(self) -> FloatArray:
        """Use of each CU's budget by its edge link (E, N), with shares of the band that equalise these uses.

        One split for all rounds of an episode; a cluster whose CU uses more of its budget gets more.
        """
        N, floor = self.parameters.clusters, self.parameters.bandwidth_floor
        gain = self.sample.uplink_gain
        budget = self.sample.state.budget[0, :, 0]
        share = np.full((len(gain), N), 1.0 / N)
        best = np.full(share.shape, np.inf)
        for _ in range(BANDWIDTH_STEPS):
            joules = [self._edge_joules(share[:, None], power, gain) for power in self._powers]
            use = np.min(joules, axis=0).mean(axis=1) / budget
            worst, least_worst = use.max(axis=-1), best.max(axis=-1)
            best = np.where((worst < least_worst)[:, None], use, best)
            if (worst > 0.99 * least_worst).all():
                break
            wanted = share * np.sqrt(use / worst[:, None])
            share = floor + (1.0 - N * floor) * wanted / wanted.sum(axis=-1, keepdims=True)
        return best

    def _edge_joules(self, share: FloatArray, power: FloatArray | float, gain: FloatArray) -> FloatArray:
        """Energy of a round's edge links (..., N) [J], from shares of the band, powers and gains (..., N)."""
        parameters = p = self.parameters
        costs = parameters.costs
        noise = parameters.uplink_noise_w
        radios = parameters.radio_power
        drawn = radio_power(power, radios.edge_circuit_w, radios.efficiency)
        link, snr = parameters.link, rates.uplink_snr(share, power, gain, noise)
        rate = rates.link_rate(link, share * parameters.uplink_bandwidth_hz, snr)
        exponent = packet_errors.failure_exponent(link, snr)
        each = packet_errors.seconds_per_bit(rate, exponent, link.transmissions)
        messages = self._passes * parameters.overheads.edge_message_s
        bits = self._samples * costs.activation_bits
        total: FloatArray = drawn * (bits * each + costs.update_payload_bits / rate + messages)
        if radios.edge_receive_w > 0.0:
            down = rates.full_band_rate(link, p.bs_power_w, gain, p.downlink_noise_w, p.downlink_bandwidth_hz)
            back = self._samples * costs.gradient_bits / (share * down) + messages
            back = back + p.numbers.broadcast_bits / down.min(axis=-1, keepdims=True)
            total = total + radios.edge_receive_w * back
        return total

    def _least_level(self, block_use: FloatArray) -> FloatArray:
        """Least common level of the devices' uses (S, N), given the use of a block on each (S, N, K).

        Every device carries as many blocks as bring its use to the common level, at most what its memory
        holds. Without transmit energy, no plan and no mixture of plans does better.
        """
        cap = self._cap.astype(np.float64)
        # Devices fill up in the order of their use when full; until the next does, the others rise together.
        order = np.argsort(cap * block_use, axis=-1)
        held, rate = (np.take_along_axis(values, order, axis=-1) for values in (cap, 1.0 / block_use))
        left = self.parameters.costs.blocks - (np.cumsum(held, axis=-1) - held)
        level: FloatArray = (left / np.cumsum(rate[..., ::-1], axis=-1)[..., ::-1]).max(axis=-1)
        return level

    def _play(self, rows: IntArray, blocks: IntArray, price: FloatArray) -> FloatArray:
        """Energy over budget (R, N, K+1), without edge links and idle radios, of plans (R, N, K) in rounds.

        All nodes send with one power: in each cluster, that of least energy at prices (R, N, K+1).
        """
        parameters, radios = self.parameters.without_idle_radios, self.parameters.radio_power
        state, clusters = self.sample.state[rows], blocks.shape[:-1]
        uses = []
        for power in self._powers:
            plan = Allocation(
                blocks=blocks,
                micro_batches=np.full(clusters, self._micro_batches),
                bandwidth=np.full(clusters, 1.0 / parameters.clusters),
                device_power=np.full(blocks.shape, power),
                cu_power=np.full(clusters, power),
            )
            played = round_costs(parameters, state, plan)
            edge = self._passes * played.elements.uplink + played.upload
            edge_j = radio_power(power, radios.edge_circuit_w, radios.efficiency) * edge
            if radios.edge_receive_w > 0.0:
                back = self._passes * played.elements.downlink + played.broadcast[:, None]
                edge_j = edge_j + radios.edge_receive_w * back
            use = played.energy_ratio
            use[..., 0] = (played.energy[..., 0] - edge_j) / state.budget[..., 0]
            uses.append(use)
        found = np.array(uses)
        best = (found * price).sum(axis=-1, keepdims=True).argmin(axis=0)
        return np.asarray(np.take_along_axis(found, best[None], axis=0)[0])

    def _link_joules(self, state: SystemState) -> tuple[FloatArray, FloatArray]:
        """Least energy of a bit between nodes (R, N, K+1, K+1) [J], with repeats and without.

        It includes the receiver's, as if both nodes shared one budget.
        """
        p, radios = self.parameters, self.parameters.radio_power
        unit = radio.interference(state.cross_gain, np.ones(state.uplink_gain.shape))[..., None, None]
        joules = []
        for power in self._powers:
            noise = radio.d2d_noise(p.noise_density, p.d2d_bandwidth_hz, power * unit)
            # No link leads to its own sender.
            snr = power * np.where(state.d2d_gain > 0.0, state.d2d_gain, 1.0) / noise
            rate = rates.link_rate(p.link, p.d2d_bandwidth_hz, snr)
            exponent = packet_errors.failure_exponent(p.link, snr)
            each = packet_errors.seconds_per_bit(rate, exponent, p.link.transmissions), 1.0 / rate
            drawn = radio_power(power, radios.d2d_circuit_w, radios.efficiency) + radios.receive_w
            joules.append(drawn * np.array(each))
        repeated, once = np.min(joules, axis=0)
        return repeated, once

    def _cheapest(self, rows: IntArray, links: tuple[FloatArray, FloatArray], price: FloatArray) -> IntArray:
        """Blocks (R, N, K) of the plans of least energy at prices (R, N, K+1) in rounds with these links."""
        costs, state = self.parameters.costs, self.sample.state
        per_joule = price / state.budget[rows]
        sent = per_joule[..., None] * links[0] * self._samples
        hop = sent * costs.activation_bits + sent.swapaxes(-1, -2) * costs.gradient_bits
        block = price[..., 1:] * self._block_use[rows]
        block = block + per_joule[..., 1:] * links[1][..., 1:, 0] * costs.block_payload_bits
        if self.parameters.numbers.relay_bits:
            block = block + per_joule[..., :1] * links[1][..., 0, 1:] * self.parameters.numbers.relay_bits
        cap = state.memory_cap[rows]
        found = cheapest_segments(
            hop.reshape(-1, *hop.shape[-2:]),
            block.reshape(-1, cap.shape[-1]),
            cap.reshape(-1, cap.shape[-1]),
            costs.blocks,
        )
        return found.reshape(cap.shape)
