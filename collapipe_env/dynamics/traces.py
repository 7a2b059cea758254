"""Traces: uplinks of clusters follow measured traces, or synthetic traces that resemble them."""

from __future__ import annotations

from functools import partial
from typing import Any

from collapipe_env.dynamics.traces_spec import POWERS, RATES, TracesSpec, bank_of
from collapipe_env.ground.arrays import Array, namespace
from collapipe_env.ground.errors import ScenarioError, shown
from collapipe_env.physics.radio import db_to_linear
from collapipe_env.physics.trace_gains import rate_gain, resource_element_power_dbm, rsrp_gain
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.fields import conditions
from collapipe_env.simulator.build import usual_round
from collapipe_env.simulator.process import Carried, CarriedArray, Process
from collapipe_env.simulator.system import System

LOOK_BACK_S = 1.0
"""Time before a round over which the known gain is averaged [s]."""
LATE_S = 1e9
"""Play time after which the count restarts [s]: rounds that hardly deliver anything may last very long."""


class Traces(Process):
    """Gains of uplinks from traces ([X]), which replace path loss, shadowing and fading.

    In an episode each cluster's uplink has its own trace, from a uniform time on. A round's gain follows
    from the mean over ``[tau, tau + T_ref]`` of received power in dB, or of the rate. At its end a trace is
    played backwards, which avoids jumps. Schedulers know the gain of the mean over the last second before
    ``tau``, and nothing about the round's gain.

    Raises:
        ScenarioError: A trace reaches a path gain above 1.
    """

    name = "traces"
    endogenous = False
    after = ("shadowing", "mobility", "fading")
    Spec = TracesSpec

    def __init__(self, scenario: Scenario, spec: TracesSpec) -> None:
        super().__init__(scenario, spec)
        self._clusters, self._round_s = scenario.clusters, usual_round(scenario)
        self.bank = bank_of(spec, scenario.clusters)
        last = len(self.bank) - 1
        hidden = partial(CarriedArray, "N", seen="never")
        self.carries = {
            "trace": hidden("1", 0, last, "whole", about="index of the cluster's trace"),
            "position_s": hidden("s", LOOK_BACK_S, about="play time on it"),
        }
        self._epre_dbm = resource_element_power_dbm(spec.bs_power_dbm, spec.resource_blocks)
        # The antennas of the scenario's links come in place of the measured one.
        radio = scenario.radio
        self._antenna_db = spec.antenna_gain_db - radio.bs_antenna_dbi - radio.device_antenna_dbi
        self.numbers = len(self.bank) + scenario.clusters
        if spec.level == "absolute":
            self._require_attenuation()

    def _require_attenuation(self) -> None:
        """Refuse traces that play path gains above 1: a receiver would have got more than was sent."""
        gains = self._gain(self.bank.greatest)
        worst = int(gains.argmax())
        if gains[worst] > 1.0:
            powers = self.spec.quantity == "rsrp"
            to_correct = POWERS if powers else RATES
            names = [name for name, found in conditions(TracesSpec).items() if found is to_correct]
            raise ScenarioError(
                f"dynamics.processes.traces: {shown(self.bank.names[worst])} reaches "
                f"{self.bank.greatest[worst]:g} {'dBm' if powers else 'bit/s'}, a path gain of "
                f"{gains[worst]:.3g}, above 1: more would be received than was sent; correct "
                f"{', '.join(names)}, or the file, or set level: layout"
            )

    def begin(self, system: System, u: Array) -> Carried:  # noqa: ARG002 - the interface
        """Choose a trace and a time for each cluster."""
        xp, N, count = namespace(u), self._clusters, len(self.bank)
        # As from a shuffled pack: no trace twice, unless there are fewer traces than clusters.
        shuffled = xp.argsort(u[:, :count], axis=-1)
        places = [cluster % count for cluster in range(N)]
        trace = xp.stack([xp.astype(shuffled[:, place], xp.int64) for place in places], axis=-1)
        # Not before the first second, because the known gain looks back on one.
        room = self.bank.lengths_s.like(u)[trace] - LOOK_BACK_S
        return {"trace": trace, "position_s": LOOK_BACK_S + u[:, count:] * room}

    def advance(self, carried: Carried, state: Any, costs: Any, u: Array, delta_s: Array) -> Carried:  # noqa: ARG002
        """Advance by the seconds that passed."""
        xp, trace = namespace(u), carried["trace"]
        position = carried["position_s"] + xp.astype(delta_s, u.dtype)[:, None]
        # After so long a time that seconds would lose digits, play restarts early at the same place.
        period = 2.0 * self.bank.lengths_s.like(position)[trace]
        early = xp.remainder(position, period) + period
        return {"trace": trace, "position_s": xp.where(position > LATE_S, early, position)}

    def apply(self, system: System, carried: Carried) -> System:
        """Set the uplinks' gains, and the known gains."""
        xp, N, real = namespace(system.link_gain), self._clusters, system.link_gain.dtype
        trace, now = carried["trace"], carried["position_s"]
        times = xp.stack((now - LOOK_BACK_S, now, now + self._round_s), axis=-1)
        gains = self._gain(self.bank.means_between(trace, times))
        known, gain = gains[..., 0], gains[..., 1]
        if self.spec.level == "layout":
            mean = self._gain(self.bank.means.like(now)[trace])
            path = xp.astype(system.link_gain[:, :N], xp.float64)
            gain, known = path * (gain / mean), path * (known / mean)
        pairs, small = system.link_gain[:, N:], system.small_scale
        gain, known = xp.astype(gain, real), xp.astype(known, real)
        if small is not None:
            small = xp.concat((xp.ones_like(gain), small[:, N:]), axis=-1)
            known = xp.concat((known, pairs * small[:, N:]), axis=-1)
        else:
            known = xp.concat((known, pairs), axis=-1)
        links = xp.concat((gain, pairs), axis=-1)
        return system._replace(link_gain=links, small_scale=small, known_gain=known)

    def _gain(self, mean: Array) -> Array:
        """Gains of means in the traces' unit (R, N)."""
        s = self.spec
        if s.quantity == "rsrp":
            return rsrp_gain(mean, self._epre_dbm, self._antenna_db)
        return rate_gain(
            mean,
            s.bandwidth_hz,
            s.efficiency,
            self.scenario.radio.bs_noise_w_per_hz,
            db_to_linear(s.power_dbm - 30.0),
            least_rate=1e6 * s.rate_min_mbps,
            most_snr=db_to_linear(s.snr_max_db),
        )
