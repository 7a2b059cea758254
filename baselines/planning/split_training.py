"""Split training (SplitFed, PiPar): the encoder cut between a cluster's strongest device and the server.

How the published systems are mapped to this one ([X]): a client is a cluster. Its data are on the control
unit (CU), where the embedding is; the client-side model, the encoder's first ``l`` blocks, is computed by the
fastest device present (at its current speed) whose memory holds ``l`` blocks and the activations of a
mini-batch. The server runs the other ``L - l`` blocks and the head. Whatever the systems do not decide gets
the common defaults: equal bandwidth and full power.

**Not on equal terms with CollaPipe's plans.** These systems use the server's compute for encoder blocks,
which CollaPipe's own plans may not. A shorter delay than DSSRA's says where the work is done, not that it is
scheduled better. The simulator charges the server as follows:

* server-side copies (SplitFed V1, PiPar): every cluster has ``1 / N`` of the server's speed all the time;
* a sequential server (SplitFed V2): all of its speed, first come, first served;
* the scenario's terms of the server (`docs/server.md`) apply: its memory, which rules out cuts that do not
  fit, other tenants and its energy, whose queue is ignored like all others; by default all are free;
* launching a pass takes the server as long as for the decoder alone, whatever its part is;
* a cluster uploads its own ``l`` blocks and the embedding, and the broadcast carries the blocks that any
  cluster trains, so its length depends on the largest ``l``. Where a cut moves deeper from one round to the
  next, the blocks that a CU then lacks are not charged.

Activations have the same size after every block, so a cut weighs only work and updates: as long as the server
finishes its part of a block sooner than the device, one block at the cluster is best. Deeper cuts pay
where the server is slow or shared by many. All cuts are priced by the simulator, overheads, latencies and
updates included; the fastest device is chosen by speed alone.
"""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.physics.allocation import COPIES, Allocation
from collapipe_env.physics.server import most_server_blocks
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import StateScheduler
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import equal_resources
from collapipe_env.simulator.round import RoundCosts
from collapipe_env.simulator.state import SystemState


def strongest_devices(state: SystemState, blocks: int) -> tuple[IntArray, BoolArray]:
    """The device that computes the client-side model, for every number of blocks up to ``L``.

    Returns:
        For 1..L blocks, (L, E, N) each: the fastest device present with memory for them, the first of equally
        fast ones, and whether there is any. Where there is none, the device for one block stands in.
    """
    room = np.where(state.present, state.memory_cap, 0)
    able: BoolArray = np.asarray(room >= np.arange(1, blocks + 1)[:, None, None, None])
    fastest = np.where(able, state.speed, -np.inf).argmax(axis=-1)
    exists: BoolArray = np.asarray(able.any(axis=-1))
    return np.where(exists, fastest, fastest[:1]), exists


def best_cuts(delay: FloatArray, broadcast: FloatArray, room: int | None = None) -> IntArray:
    """Each cluster's cut, jointly the best for the round, exact.

    The clusters' own delays are independent at equal bandwidth and full power; the broadcast depends on the
    largest cut. For every limit on the cuts each cluster takes its best cut within it; the best limit wins.

    Args:
        delay: Delay of each cluster with each cut 1..L (L, E, N) [s], infinite where it is impossible.
        broadcast: Broadcast where the largest cut is 1..L (L, E) [s].
        room: Blocks that the server can hold for all clusters together, ``None`` for any number. Where the
            best cuts leave it more, the best cuts that fit replace them; where none fit, the best cuts stay,
            and the round is refused.

    Returns:
        Cuts (E, N); the smaller of two equally good cuts.
    """
    within = np.minimum.accumulate(delay, axis=0)
    limit = (within.max(axis=-1) + broadcast).argmin(axis=0)
    allowed = np.arange(len(delay))[:, None, None] <= limit[:, None]
    cuts: IntArray = 1 + np.where(allowed, delay, np.inf).argmin(axis=0)
    if room is None:
        return cuts
    L, N = len(delay), delay.shape[-1]
    for e in np.flatnonzero((L - cuts).sum(axis=-1) > room):
        found = _cuts_with_room(delay[:, e], broadcast[:, e], N * L - room)
        cuts[e] = found if len(found) else cuts[e]
    return cuts


def _cuts_with_room(delay: FloatArray, broadcast: FloatArray, least: int) -> IntArray:
    """The best cuts (N,) of one environment with at least ``least`` blocks at the clusters; (0,) if none.

    Exact: for every limit on the cuts and every bound on the delay, each cluster takes the deepest cut within
    both; the best pair with enough blocks at the clusters wins. Then clusters take shallower cuts where these
    are faster and the server still has room.
    """
    best, cuts = np.inf, np.zeros(0, dtype=np.int64)
    depth = np.arange(1, len(delay) + 1)[:, None]
    for limit in range(1, len(delay) + 1):
        within = np.where(depth <= limit, delay, np.inf)
        bounds = np.unique(within[np.isfinite(within)])
        deepest = np.where(within[None] <= bounds[:, None, None], depth, 0).max(axis=1)
        enough = (deepest > 0).all(axis=-1) & (deepest.sum(axis=-1) >= least)
        if enough.any() and bounds[enough.argmax()] + broadcast[limit - 1] < best:
            best, cuts = bounds[enough.argmax()] + broadcast[limit - 1], deepest[enough.argmax()].copy()
    for n in range(len(cuts)):
        shallowest = max(1, cuts[n] - (int(cuts.sum()) - least))
        choices = np.arange(shallowest, cuts[n] + 1)
        cuts[n] = choices[delay[choices - 1, n].argmin()]
    return cuts


class SplitTraining(StateScheduler):
    """A scheduler that cuts the encoder between a cluster and the server anew in every round.

    Cut and number of micro-batches of each cluster are jointly the best for the round; the server has a copy
    of its part for each.
    """

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.numbers: tuple[int, ...] = self.parameters.micro_batch_choices
        """Numbers of micro-batches that are tried."""

    def allocate(self, state: SystemState) -> Allocation:
        """Decide one round; refuses states in which no device of a cluster can hold a block."""
        device, exists = strongest_devices(state, self.parameters.costs.blocks)
        if not exists[0].all():
            e, n = np.argwhere(~exists[0])[0]
            raise self.refusal(
                e,
                n,
                "no device that is present can hold one encoder block and the activations of a mini-batch, "
                "so there is no client-side model. Give devices more memory, or a smaller batch_size",
            )
        return self.choose(state, device, exists)

    def choose(self, state: SystemState, device: IntArray, exists: BoolArray) -> Allocation:
        """Decide one round among the cuts 1..L that exist; see :func:`strongest_devices`."""
        costs = [self.priced(state, device, M, COPIES)[1] for M in self.numbers]
        delay = np.stack([np.where(exists, each.cluster_delay, np.inf) for each in costs])
        fastest = np.asarray(self.numbers, dtype=np.int64)[delay.argmin(axis=0)]
        p = self.parameters
        room = most_server_blocks(p.server, p.costs, p.clusters)
        # The broadcast is the same for every number of micro-batches.
        cuts = best_cuts(delay.min(axis=0), costs[0].broadcast, room)
        return self.plan(cuts, device, fastest, COPIES)

    def priced(
        self, state: SystemState, device: IntArray, micro_batches: int, server_mode: int
    ) -> tuple[Allocation, RoundCosts]:
        """Plans with the same cut 1..L in all clusters (L, E), and their simulated costs."""
        cut = np.broadcast_to(np.arange(1, len(device) + 1)[:, None, None], device.shape)
        plans = self.plan(cut, device, np.full(device.shape, micro_batches), server_mode)
        return plans, round_costs(self.parameters, state.map(lambda a: a[None]), plans)

    def plan(self, cut: IntArray, device: IntArray, micro_batches: IntArray, server_mode: int) -> Allocation:
        """The allocation of a cut in every cluster, at equal bandwidth and full power.

        Args:
            cut: Blocks ``l`` at the cluster (..., E, N).
            device: Device that computes them, for 1..L blocks (L, E, N).
            micro_batches: ``M``, likewise.
            server_mode: ``COPIES`` or ``SEQUENTIAL`` of :mod:`collapipe_env.physics.allocation`.
        """
        E, N = cut.shape[-2:]
        of_cut = (cut - 1, *np.ogrid[:E, :N])
        own = np.arange(self.scenario.max_devices) == device[of_cut][..., None]
        return Allocation(
            blocks=np.where(own, cut[..., None], 0),
            micro_batches=micro_batches[of_cut],
            **equal_resources(self.parameters, own.shape),
            server_blocks=self.parameters.costs.blocks - cut,
            server_mode=np.full(cut.shape[:-1], server_mode),
        )
