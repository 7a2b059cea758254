"""Time scale of the wall clock: how many seconds a priced second lasts."""

from __future__ import annotations

from collapipe_env.execution.scripts import RoundScript

SHORTEST_S = 0.02
"""Least wall time of the shortest priced operation or transfer [s]: a machine's delays hardly count then."""
NEGLIGIBLE_S = 1e-3
"""Priced times below this are left out [s]: a server's head takes microseconds by its price."""


def shortest_priced(script: RoundScript) -> float | None:
    """Return a round's shortest priced operation or transfer that counts [s]; ``None`` if there is none."""
    times: list[float] = []
    for cluster in script.clusters:
        for stage in cluster.stages:
            shares = stage.chunk_share
            times += [t * share for t in (stage.forward_s, stage.backward_s) for share in shares]
        if cluster.plays:
            times += [*cluster.hop_forward_s, *cluster.hop_backward_s, cluster.uplink_s, cluster.downlink_s]
    return min((t for t in times if t >= NEGLIGIBLE_S), default=None)


def usual_scale(script: RoundScript) -> float:
    """Return the seconds of wall time for a priced second, at least 1."""
    shortest_s = shortest_priced(script)
    return 1.0 if shortest_s is None else max(1.0, SHORTEST_S / shortest_s)
