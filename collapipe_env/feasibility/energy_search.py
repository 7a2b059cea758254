"""Plans of least energy for all clusters of many rounds at once, delay ignored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from collapipe_env.feasibility.priced_segments import cheapest_segments
from collapipe_env.feasibility.sampled_rounds import sample_rounds
from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.physics import radio
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.energy import IDEAL_RADIO, compute_time, radio_power
from collapipe_env.physics.links import plan_graph
from collapipe_env.physics.overheads import cycles_time
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.running import slowest_state
from collapipe_env.simulator.state import SystemState

POWER_LEVELS = 6
"""Powers to choose from where more power can save energy: under ``arq``, by fewer repeats."""

BANDWIDTH_STEPS = 12
INTERFERENCE_STEPS = 2

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
        if "clock_cap" in parameters.opened:
            sample = replace(sample, state=slowest_state(sample.state, parameters.clock_cap_min))
        self.sample = sample
        state, costs = sample.state, parameters.costs
        # Less power means less energy per bit, for the sender and for the nodes it disturbs. The exceptions
        # are repeats, and radios that draw more than they emit.
        ideal = parameters.radio_power == IDEAL_RADIO and parameters.d2d_snr_cap == np.inf
        levels = POWER_LEVELS if parameters.transmissions > 1.0 or not ideal else 1
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

        It counts the uplinks and computing in the rounds of the lowest loads, and none of the links between
        devices: no plan need be tried.
        """
        sample = self.sample
        by_round = self._block_use.reshape(sample.systems, sample.rounds, *self._cap.shape[1:])
        _, computing = self._fill(by_round.min(axis=1))
        episodes = len(self._uplink_use) // sample.systems
        return np.maximum(np.repeat(computing, episodes, axis=0), self._uplink_use)

    def least_use(self) -> FloatArray:
        """Energy over budget of each node, averaged over each episode's rounds (E, N, K+1).

        Each round's plan is the cheapest at energy prices. Prices follow the uses so far, which lowers the
        largest; plans follow the channels and loads. Half as many further rounds are played first, uncounted,
        to find the prices.
        """
        S, F = self.sample.systems, self.sample.rounds
        rounds = max(min(max(FEWEST_ROUNDS, PLAYED // S), MOST_ROUNDS) // F, 1) * F
        computing = self.sample.mean(self._block_use)
        blocks, _ = self._fill(computing)
        average = np.concatenate((self._uplink_of_system[..., None], blocks * computing), axis=-1)
        total = np.zeros(average.shape)
        links = [self._link_joules(self.sample.state[f::F]) for f in range(F)]
        before = rounds // 2
        for t in range(before + rounds):
            f = t % F
            rows = np.arange(f, S * F, F)
            price = (average / average.max(axis=-1, keepdims=True)) ** SHARPNESS + LEAST_PRICE
            use = self._play(rows, self._cheapest(rows, links[f], price))
            use[..., 0] += self._uplink_of_system
            average += (use - average) / (t + PRIOR)
            if t >= before:
                total += use
        # The episodes of a system differ only in their uplinks.
        episodes = len(self._uplink_use) // S
        best: FloatArray = np.repeat(total / rounds, episodes, axis=0)
        best[..., 0] += self._uplink_use - np.repeat(self._uplink_of_system, episodes, axis=0)
        return best

    def _split_bandwidth(self) -> FloatArray:
        """Use of each CU's budget by its uplink (E, N), with shares of the band that equalise these uses.

        One split for all rounds of an episode; a cluster whose CU uses more of its budget gets more.
        """
        N, floor = self.parameters.clusters, self.parameters.bandwidth_floor
        gain = self.sample.uplink_gain
        budget = self.sample.state.budget[0, :, 0]
        share = np.full((len(gain), N), 1.0 / N)
        best = np.full(share.shape, np.inf)
        for _ in range(BANDWIDTH_STEPS):
            joules = [self._uplink_joules(share[:, None], power, gain) for power in self._powers]
            use = np.min(joules, axis=0).mean(axis=1) / budget
            worst, least_worst = use.max(axis=-1), best.max(axis=-1)
            best = np.where((worst < least_worst)[:, None], use, best)
            if (worst > 0.99 * least_worst).all():
                break
            wanted = share * np.sqrt(use / worst[:, None])
            share = floor + (1.0 - N * floor) * wanted / wanted.sum(axis=-1, keepdims=True)
        return best

    def _uplink_joules(self, share: FloatArray, power: FloatArray | float, gain: FloatArray) -> FloatArray:
        """Energy of a round's uplinks (...) [J], from shares of the band, powers and gains (...)."""
        parameters, costs = self.parameters, self.parameters.costs
        noise = parameters.uplink_noise_w
        radios = parameters.radio_power
        drawn = radio_power(power, radios.edge_circuit_w, radios.efficiency)
        rate = radio.uplink_rate(share, power, gain, noise, parameters.uplink_bandwidth_hz)
        exponent = radio.uplink_failure_exponent(share, power, gain, noise, parameters.waterfall_threshold)
        each = radio.seconds_per_bit(rate, exponent, parameters.transmissions)
        messages = self._passes * parameters.overheads.edge_message_s
        bits = self._samples * costs.activation_bits
        total: FloatArray = drawn * (bits * each + costs.update_payload_bits / rate + messages)
        return total

    def _fill(self, block_use: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Average blocks of each device (S, N, K), and the common level of their uses (S, N).

        Every device carries as many blocks as bring its use to the common level, at most what its memory
        holds. Without transmit energy, no plan and no mixture of plans does better.
        """
        L = self.parameters.costs.blocks
        cap = self._cap.astype(np.float64)
        # Devices fill up in the order of their use when full; until the next does, the others rise together.
        full_at = cap * block_use
        order = np.argsort(full_at, axis=-1)
        full_at, held, rate = (
            np.take_along_axis(values, order, axis=-1) for values in (full_at, cap, 1.0 / block_use)
        )
        before = np.cumsum(held, axis=-1) - held
        level = ((L - before) / np.cumsum(rate[..., ::-1], axis=-1)[..., ::-1]).max(axis=-1)
        return np.minimum(cap, level[..., None] / block_use), level

    def _play(self, rows: IntArray, blocks: IntArray) -> FloatArray:
        """Energy over budget without the uplinks (R, N, K+1), of plans (R, N, K) in the given rounds."""
        state, clusters = self.sample.state[rows], blocks.shape[:-1]
        allocation = Allocation(
            blocks=blocks,
            micro_batches=np.full(clusters, self._micro_batches),
            bandwidth=np.full(clusters, 1.0 / self.parameters.clusters),
            device_power=np.full(blocks.shape, self._powers[0]),
            cu_power=np.full(clusters, self._powers[0]),
        )
        power = self._best_powers(state, allocation)
        allocation = replace(allocation, device_power=power[..., 1:], cu_power=power[..., 0])
        played = round_costs(self.parameters, state, allocation)
        use: FloatArray = played.energy_ratio
        radios = self.parameters.radio_power
        edge = self._passes * played.elements.uplink + played.upload
        uplink = radio_power(power[..., 0], radios.edge_circuit_w, radios.efficiency) * edge
        use[..., 0] = (played.energy[..., 0] - uplink) / state.budget[..., 0]
        return use

    def _best_powers(self, state: SystemState, allocation: Allocation) -> FloatArray:
        """Power of each node (R, N, K+1) [W] that minimises the energy of its transmissions in a plan."""
        nodes = state.budget.shape
        power = np.full(nodes, self._powers[0])
        if len(self._powers) == 1:
            return power
        parameters, costs = self.parameters, self.parameters.costs
        bits = self._samples * np.array([costs.activation_bits, costs.gradient_bits])
        blocks, forward = allocation.blocks, plan_graph(allocation).successor
        gains = [(state.d2d_gain * to).sum(axis=-1) for to in (forward, forward.swapaxes(-1, -2))]
        # Apart from its bits, a node sends a message each way for every micro-batch.
        messages_s = 2.0 * self._passes * parameters.overheads.message_s
        for _ in range(INTERFERENCE_STEPS):
            disturbed = radio.interference(state.cross_gain, radio.mean_active_power(power, blocks > 0))
            best = np.full(nodes, np.inf)
            for level in self._powers:
                sent = [self._bit_joules(level, gain, disturbed[..., None]) for gain in gains]
                joules = bits[0] * sent[0][0] + bits[1] * sent[1][0] + messages_s * self._hop_power(level)
                to_cu = self._bit_joules(level, state.d2d_gain[..., 1:, 0], disturbed[..., None])[1]
                joules[..., 1:] += blocks * costs.block_payload_bits * to_cu
                if self.parameters.numbers.relay_bits:
                    sent_on = self._bit_joules(level, state.d2d_gain[..., 0, 1:], disturbed[..., None])[1]
                    joules[..., 0] += (blocks * self.parameters.numbers.relay_bits * sent_on).sum(axis=-1)
                equal = np.array(1.0 / parameters.clusters)
                joules[..., 0] += self._uplink_joules(equal, level, state.uplink_gain)
                power = np.where(joules < best, level, power)
                best = np.minimum(best, joules)
        return power

    def _bit_joules(
        self, power: float, gain: FloatArray, interference: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Energy of a bit between nodes (...) [J], with repeats and without."""
        parameters = self.parameters
        noise = radio.d2d_noise(parameters.noise_density, parameters.d2d_bandwidth_hz, interference)
        # No link leads to its own sender.
        snr = power * np.where(gain > 0.0, gain, 1.0) / noise
        used = radio.usable_snr(snr, parameters.d2d_snr_cap)
        rate = radio.shannon_rate(used, parameters.d2d_bandwidth_hz)
        exponent = radio.failure_exponent(snr, parameters.waterfall_threshold)
        drawn = self._hop_power(power)
        return drawn * radio.seconds_per_bit(rate, exponent, parameters.transmissions), drawn / rate

    def _hop_power(self, power: float) -> float:
        """Power drawn while a node sends to another node [W].

        It includes the receiver's power, as if both nodes shared one budget.
        """
        radios = self.parameters.radio_power
        return float(radio_power(power, radios.d2d_circuit_w, radios.efficiency) + radios.receive_w)

    def _link_joules(self, state: SystemState) -> tuple[FloatArray, FloatArray]:
        """Least energy of a bit between nodes (R, N, K+1, K+1) [J], with repeats and without."""
        unit = radio.interference(state.cross_gain, np.ones(state.uplink_gain.shape))[..., None, None]
        joules = [self._bit_joules(power, state.d2d_gain, power * unit) for power in self._powers]
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
