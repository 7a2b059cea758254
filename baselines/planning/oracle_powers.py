"""Optimal powers and shares for fixed segments and micro-batches: the oracle's inner, convex problem.

Once powers and shares are replaced by their logarithms the problem is *convex* (our own observation, [R]):
``1 / log(1 + SNR)`` is log-convex and falls with ``log SNR``, which is concave in the logarithms of powers
and shares (the logarithm of a sum of exponentials, the interference, is subtracted); products with powers
stay log-convex; sums and maxima of convex functions are convex, and so is the constraint
``sum exp(log beta) <= 1``. Overheads, latencies, updates and the power of circuits and receivers add
constants and positive multiples of such times, as does the relay of new weights, and idle radios add those
of the round's delay; a cap on the SNR is a maximum of such times. A local minimum is therefore a global one.
Under ``arq`` this holds as long as hardly any packet is given up: the repeats are log-convex up to their
limit, and only a local minimum is found near it. The exact drift is convex in the energies and rises with
each, so with it the problem stays convex. The maxima
(slowest element, longest collection, longest sender or receiver of moments, slowest cluster) become variables
with one smooth constraint for each element, and SciPy's SLSQP solves the result with central differences of
the simulator's own ``round_costs``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from collapipe_env.dynamics.migration import change_of_plan, phase_times
from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.physics import radio
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.elements import collection_times
from collapipe_env.physics.energy import idle_power
from collapipe_env.physics.parameters import Parameters
from collapipe_env.physics.queues import update_backlog
from collapipe_env.physics.rates import link_rate
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.state import SystemState

STEP = 1e-5
"""Step of the central differences in the logarithms of powers and shares."""
LEAST_SHARE = 1e-6
"""Smallest share considered where the scenario sets no floor."""


class FixedPlan:
    """Segments and micro-batches of a round whose powers and shares are to be optimised.

    A point is the logarithms of the powers of CUs and used devices and, with several clusters, of the shares.

    Args:
        state: The system without a batch axis.
        segments: Blocks of each device (N, K).
        micro_batches: ``M_n`` (N,).
        tradeoff_v: ``V`` [1/s].
        exact_drift: Whether the drift is ``L(t+1) - L(t)`` rather than its bound ``sum z e``.
    """

    def __init__(
        self,
        parameters: Parameters,
        state: SystemState,
        segments: IntArray,
        micro_batches: IntArray,
        tradeoff_v: float,
        *,
        exact_drift: bool = False,
    ) -> None:
        self.parameters = parameters
        self.exact_drift = exact_drift
        self.state = state.map(lambda a: a[None])
        self.segments = segments
        self.micro_batches = micro_batches
        self.tradeoff_v = tradeoff_v
        everybody = np.ones((1, len(segments)), dtype=np.bool_)
        radios = idle_power(parameters.radio_power.idle_w, self.state.present, everybody, self.state.budget)
        self.idle_use = radios / self.state.budget  # budgets that idle radios use in a second [1/s]
        self.clusters = N = len(segments)
        self.floor = max(parameters.bandwidth_floor, LEAST_SHARE)
        unread = np.ones((1, *segments.shape))  # powers and shares
        idle = Allocation(segments[None], micro_batches[None], unread[..., 0], unread, unread[..., 0])
        self.change = change_of_plan(parameters, self.state, idle)
        self.broadcast_s = float(round_costs(parameters, self.state, idle).broadcast[0])
        active = segments > 0
        if self.change is not None:
            active = active | (self.change.leaving[0] > 0.0)  # devices that only send moments
        self.used = np.concatenate((np.ones((N, 1), dtype=np.bool_), active), axis=1)
        self.powers = int(self.used.sum())
        self.size = self.powers + (N if N > 1 else 0)
        self.low = np.full(self.size, math.log(parameters.power_min_w))
        self.high = np.full(self.size, math.log(parameters.power_max_w))
        self.low[self.powers :], self.high[self.powers :] = math.log(self.floor), 0.0

    def start(self, rng: np.random.Generator | None = None) -> FloatArray:
        """A starting point (size,): middle powers and equal shares, or random ones from a generator."""
        if rng is not None:
            drawn: FloatArray = rng.uniform(self.low, self.high)
            return drawn
        point: FloatArray = 0.5 * (self.low + self.high)
        point[self.powers :] = -math.log(self.clusters)
        return point

    def allocation(self, points: FloatArray) -> Allocation:
        """The allocation of each point (..., size), not clipped, so that finite differences are true."""
        N, K = self.segments.shape
        lead = points.shape[:-1]
        power = np.full((*lead, N, K + 1), self.parameters.power_min_w)
        power[..., self.used] = np.exp(points[..., : self.powers])
        return Allocation(
            blocks=np.broadcast_to(self.segments, (*lead, N, K)),
            micro_batches=np.broadcast_to(self.micro_batches, (*lead, N)),
            bandwidth=np.exp(points[..., self.powers :]) if N > 1 else np.ones((*lead, 1)),
            device_power=power[..., 1:],
            cu_power=power[..., 0],
        )

    def drift(self, energy_ratio: FloatArray, seconds: float) -> tuple[FloatArray, FloatArray]:
        """Drift beyond that of a round without energy, or its bound, and its slope in the delay [1/s].

        Args:
            energy_ratio: Energy over budget without that of idle radios (..., N, K+1).
            seconds: ``T`` [s].
        """
        backlog = self.state.live_backlog
        used, price = energy_ratio + self.idle_use * seconds, backlog
        drift = backlog * used
        if self.exact_drift:
            least, price = (update_backlog(backlog, e) for e in (np.zeros_like(backlog), used))
            drift = 0.5 * (price - least) * (price + least)
        return drift.sum(axis=(-2, -1)), (price * self.idle_use).sum(axis=(-2, -1))

    def optimise(self, point: FloatArray) -> Allocation:
        """Optimise from a starting point; the shares of the result add up to the whole band."""
        programme = _Programme(self, point)
        at = programme.evaluate
        objective: Any = {"fun": lambda x: at(x).value, "jac": lambda x: at(x).slope}
        constraint: Any = {"type": "ineq", "fun": lambda x: at(x).slack, "jac": lambda x: at(x).slack_slope}
        result = minimize(
            **objective,
            x0=programme.first,
            bounds=programme.bounds,
            constraints=constraint,
            method="SLSQP",
            options={"maxiter": 200, "ftol": 1e-9},
        )
        best = np.clip(result.x[: self.size], self.low, self.high)
        allocation = self.allocation(best)
        low, high = self.parameters.power_min_w, self.parameters.power_max_w  # left by rounding only
        above = allocation.bandwidth - self.floor
        # More band never hurts; scaling the part above the floors keeps the floors.
        above = above * (1.0 - self.clusters * self.floor) / max(float(above.sum()), 1e-300)
        powers = (np.clip(watts, low, high) for watts in (allocation.device_power, allocation.cu_power))
        return Allocation(self.segments, self.micro_batches, self.floor + above, *powers)


class _Evaluation(NamedTuple):
    """The objective over that of the first point, its gradient, and the constraints' slacks and Jacobian."""

    value: float
    slope: FloatArray
    slack: FloatArray
    slack_slope: FloatArray


class _Programme:
    """Values and slopes for SLSQP: ``min V t + E(x)`` with ``slack(x, t, maxima) >= 0``.

    Variables are the point ``x``, the delay ``t`` and, of every cluster, the slowest forward and the slowest
    backward element, the longest collection and, where blocks change hands, the longest sender or receiver of
    moments. Times are in units of the first point's delay.
    """

    def __init__(self, plan: FixedPlan, point: FloatArray) -> None:
        self.plan = plan
        size, local_steps = plan.size, plan.parameters.costs.local_steps
        self.differences = STEP * np.concatenate((np.eye(size), -np.eye(size), np.zeros((1, size))))
        # T_n = base_n + H (M - 1) (forward + backward maximum) + collection (+ moments) maximum, where the
        # local steps are the cluster's own or, with a barrier, those of any other one: a delay for each pair.
        clusters = np.arange(plan.clusters)
        self.resting = self.stepping = clusters
        if plan.parameters.barrier:
            self.resting, self.stepping = (pair.ravel() for pair in np.meshgrid(clusters, clusters))
        self.repeats = (local_steps * (plan.micro_batches - 1)).astype(np.float64)[self.stepping]
        base, used, *maximised = (piece[0] for piece in self._pieces(point[None]))
        maxima = [m.max(axis=-1) for m in maximised]
        slowest, once = (maxima[0] + maxima[1])[self.stepping], np.sum(maxima[2:], axis=0)[self.resting]
        longest = float((base + self.repeats * slowest + once).max())
        self.unit = longest
        self.scale = plan.tradeoff_v * longest + float(plan.drift(used, longest)[0][0])
        self.first = np.concatenate((point, [1.0], np.concatenate(maxima) / longest))
        self.bounds = [
            *zip(plan.low, plan.high, strict=True),
            *[(0.0, None)] * (1 + len(maxima) * plan.clusters),
        ]
        self._linear = self._linear_part([m.shape[-1] for m in maximised])
        self._known: tuple[bytes, _Evaluation] | None = None

    def _linear_part(self, counts: Sequence[int]) -> FloatArray:
        """Slopes of the slacks with respect to the delay and the maxima (constraints, variables)."""
        N, kinds = self.plan.clusters, len(counts)
        eye = np.eye(N)
        often, once = self.repeats[:, None] * eye[self.stepping], eye[self.resting]
        delay = np.concatenate(
            (np.ones((len(self.resting), 1)), -often, -often, *[-once] * (kinds - 2)), axis=1
        )
        rows = [delay]
        for place, count in enumerate(counts):
            block = np.zeros((N * count, 1 + kinds * N))
            block[:, 1 + place * N : 1 + (place + 1) * N] = np.repeat(eye, count, axis=0)
            rows.append(block)
        if N > 1:
            rows.append(np.zeros((1, 1 + kinds * N)))
        return np.concatenate(rows)

    def _pieces(self, points: FloatArray) -> Sequence[FloatArray]:
        """Smooth parts of the physics: delays without the maxima, energy over budget, and what is maximised.

        Idle radios are left out.
        """
        plan, parameters = self.plan, self.plan.parameters.without_idle_radios
        allocation = plan.allocation(points)
        costs = round_costs(parameters, plan.state, allocation)
        e = costs.elements
        forward, backward = (
            np.concatenate((hop, compute, edge[..., None], server[..., None]), axis=-1)
            for hop, compute, edge, server in (
                (e.hop_forward, e.compute_forward, e.uplink, e.server_forward),
                (e.hop_backward, e.compute_backward, e.downlink, e.server_backward),
            )
        )
        noise = radio.d2d_noise(parameters.noise_density, parameters.d2d_bandwidth_hz, costs.interference)
        snr = radio.d2d_snr(allocation.node_power, plan.state.d2d_gain, noise)
        collect = collection_times(
            costs.graph,
            link_rate(parameters.link, parameters.d2d_bandwidth_hz, snr)[..., 1:, 0],
            allocation.device_blocks * float(parameters.costs.block_payload_bits),
        )
        steps = parameters.costs.local_steps
        once = 2.0 * e.latency + costs.update  # in a local step, whatever the powers
        stepping = steps * (forward.sum(axis=-1) + backward.sum(axis=-1) + once)
        resting = costs.upload + costs.relay
        base = stepping[..., self.stepping] + resting[..., self.resting]
        pieces = (base, costs.energy_ratio, forward, backward, collect)
        rules = parameters.migration
        if plan.change is None or rules is None or not rules.moves:
            return pieces
        times = phase_times(parameters, plan.state, allocation, plan.change)
        nodes = slice(0, 1) if rules.through_cu else slice(1, None)
        return *pieces, np.concatenate((times.sent[..., nodes], times.received[..., nodes]), axis=-1)

    def evaluate(self, point: FloatArray) -> _Evaluation:
        """Values and central differences at a point, remembered until the next one."""
        known = point.tobytes()
        if self._known is None or self._known[0] != known:
            self._known = known, self._evaluate(point)
        return self._known[1]

    def _evaluate(self, point: FloatArray) -> _Evaluation:
        plan = self.plan
        size = plan.size
        x, rest = point[:size], point[size:]
        points = x + self.differences
        base, used, *maximised = self._pieces(points)
        rows = points.shape[0]
        tightened = [-piece.reshape(rows, -1) / self.unit for piece in (base, *maximised)]
        smooth = np.concatenate(tightened, axis=1)
        if plan.clusters > 1:
            band = 1.0 - np.exp(points[:, plan.powers :]).sum(axis=1, keepdims=True)
            smooth = np.concatenate((smooth, band), axis=1)
        weight = plan.tradeoff_v * self.unit / self.scale
        priced, later = (a / self.scale for a in plan.drift(used, rest[0] * self.unit + plan.broadcast_s))
        steep = (priced[:size] - priced[size:-1]) / (2.0 * STEP)
        return _Evaluation(
            float(priced[-1] + weight * rest[0]),
            np.concatenate((steep, [weight + self.unit * later[-1]], np.zeros(rest.shape[0] - 1))),
            smooth[-1] + self._linear @ rest,
            np.concatenate(((smooth[:size] - smooth[size:-1]).T / (2.0 * STEP), self._linear), axis=1),
        )
