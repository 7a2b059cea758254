"""Planning of recoveries: scripts with which a cluster continues after it has lost devices ([R], [X]).

Remaining plans, moves and credited local steps are the simulator's
(:mod:`collapipe_env.simulator.plans_left`), which counts only the first failure of a cluster in a round.
Later failures are planned here by the same formulas from the remaining plan ([X]): the earlier recovery is
carried out to its end, unless it waits for the device that is lost now. Then those blocks are lost with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from collapipe_env.dynamics.presence import PRESENCE
from collapipe_env.execution.script_building import cluster_script
from collapipe_env.execution.scripts import ClusterScript, Move, RecoveryScript
from collapipe_env.ground.arrays import FloatArray, on_host
from collapipe_env.physics.recovery import BLOCK_PARTS, RecoveryTerms
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.general_costs import seconds_per_bit
from collapipe_env.simulator.plans_left import PlansLeft, Recovery
from collapipe_env.simulator.record import RoundRecord
from collapipe_env.simulator.round import RoundCosts
from collapipe_env.simulator.state import Parameters

USUAL_TERMS = RecoveryTerms("light", 0.5, 4)
"""Terms where a scenario names none: a light replay, heartbeats of 0.5 s, 4 misses."""


def recovery_terms(scenario: Scenario) -> RecoveryTerms:
    """Return the terms on which clusters recover: the scenario's, or the usual ones if `presence` is off."""
    presence = dict(scenario.dynamics.processes).get(PRESENCE)
    if presence is None:
        return USUAL_TERMS
    return RecoveryTerms(presence.recovery, presence.heartbeat_s, presence.misses)


class RecoveryPlanner:
    """Planner of one cluster's recoveries in one round, loss after loss.

    Other clusters count with their plans at the start of the round, even if they lose devices: a CU does not
    know of losses elsewhere.

    Args:
        record: The round as it was planned.
        script: Script of a cluster that plays.
        terms: Terms on which clusters recover.
    """

    def __init__(
        self,
        record: RoundRecord,
        row: int,
        script: ClusterScript,
        parameters: Parameters,
        terms: RecoveryTerms = USUAL_TERMS,
    ) -> None:
        self._parameters, self._recovery = parameters, Recovery(parameters, terms)
        self._state = record.state[row : row + 1].map(on_host)
        self._costs = record.costs.map(on_host)[row : row + 1]
        self._arrived = script.arrived
        self._script, self._at = script, (0, script.cluster)
        # Seconds from the start of the round to the start of the present script.
        self._begin_s = 0.0
        self._moves: tuple[Move, ...] = ()
        self._moves_begin_s = 0.0
        self._reset: set[int] = set()

    @property
    def script(self) -> ClusterScript:
        """The present script: the round's own, or that of the last recovery."""
        return self._script

    def lost(
        self,
        device: int,
        at_s: float,
        *,
        detect_s: float | None = None,
        completed: int | None = None,
    ) -> RecoveryScript | None:
        """Plan how the cluster continues without a device, and store this plan as its script.

        Args:
            device: Number of a device that was not lost before, from 1.
            at_s: ``t_f``, since the start of the round [s].
            detect_s: Measured ``T_det`` [s]; by default that of the terms.
            completed: Completed local steps of the present script, if they were counted; by default they
                follow from ``at_s``.

        Returns:
            The recovery; ``None`` if the device holds no blocks and sends none, so that nothing changes.
        """
        n = self._at[1]
        found: RecoveryScript | None = None
        unfinished = self._unfinished(device, at_s)
        if unfinished or self._costs.allocation.device_blocks[0, n, device - 1] > 0:
            at = np.zeros(1, dtype=np.int64), np.array([n])
            who, when = np.array([device - 1]), np.array([at_s - self._begin_s])
            done = None if completed is None else np.array([completed])
            rounds = PlansLeft(self._recovery, self._state, self._costs, at, who, when, done)
            for move in unfinished:
                # Only the sender has the blocks; no device is to get those that the CU waited for.
                waiting = slice(None) if move.target == 0 else move.target - 1
                rounds.holders[0, move.first_block : move.end_block, waiting] = False
                rounds.holders[0, move.first_block : move.end_block, device - 1] = True
            found = self._planned(rounds, device, at_s, detect_s)
        present = self._state.present.copy()
        present[0, n, device - 1] = False
        self._state = replace(self._state, present=present)
        return found

    def _planned(
        self,
        rounds: PlansLeft,
        device: int,
        at_s: float,
        detect_s: float | None,
    ) -> RecoveryScript:
        """Return the recovery, which becomes the present state of the planner."""
        terms, found = self._recovery.terms, rounds.continued()
        detect = terms.detection_s if detect_s is None else detect_s
        dropped = not found.goes_on[0]
        move = 0.0 if dropped else float(found.move_s[0])
        resume = at_s + detect + terms.planning_s + move
        lost = set() if dropped else set(np.flatnonzero(found.reset[0]).tolist())
        # Nobody has the moments of blocks that an earlier recovery had to reset.
        self._reset |= lost
        reset = tuple(sorted(self._reset)) if lost else ()
        credited = 0 if dropped else int(found.credited[0])
        moves: tuple[Move, ...] = ()
        if dropped:
            # A loss does not shorten the round: nobody knows before its end that no update will come.
            script = _given_up(self._script, max(resume, self._script.delay_s))
        else:
            left = len(self._arrived) if reset else self._script.local_steps - credited
            after, nothing = found.after[:1], np.zeros_like(self._costs.relay)
            steps = after.allocation.whole_steps(self._parameters.costs.local_steps).copy()
            steps[self._at] = left
            after = replace(
                after,
                allocation=replace(after.allocation, local_steps=steps),
                relay=nothing,
                barrier=nothing,
            )
            script = self._left(after, left, resume)
            # Under the interference and the powers of the plan before the failure.
            power, disturbance = self._costs.allocation.node_power, self._costs.interference
            seconds = np.asarray(seconds_per_bit(self._parameters, self._state, power, disturbance))[self._at]
            moves = _moves(
                found.messages[0, : found.sent[0]].tolist(),
                self._recovery.block_bits.of_parts,
                seconds,
                float(rounds.rest_s[0]),
                one_by_one=terms.kind == "heavy",
            )
            self._costs = after
        self._script, self._begin_s = script, resume
        self._moves, self._moves_begin_s = moves, at_s + detect + terms.planning_s
        return RecoveryScript(
            device=device,
            at_s=at_s,
            dropped=dropped,
            credited=credited,
            restored=bool(reset),
            detect_s=detect,
            plan_s=terms.planning_s,
            move_s=move,
            resume_s=resume,
            moves=moves,
            reset=reset,
            script=script,
        )

    def _left(self, after: RoundCosts, left: int, resume_s: float) -> ClusterScript:
        """Return the script of the remaining local steps."""
        arrived = self._arrived[len(self._arrived) - left :]
        script = cluster_script(
            after, self._state, self._parameters, self._at, arrived=arrived, local_steps=left
        )
        return replace(script, delay_s=resume_s + script.delay_s)

    def _unfinished(self, device: int, at_s: float) -> list[Move]:
        """Moves of the last recovery that still wait for a device.

        Args:
            device: Number of the device that sends, from 1.
            at_s: Time since the start of the round [s].
        """
        return [
            move
            for move in self._moves
            if device == move.source != move.target
            and self._moves_begin_s + move.start_s + move.seconds > at_s
        ]


def _given_up(script: ClusterScript, delay_s: float) -> ClusterScript:
    """Return the script of a cluster that does nothing more in this round."""
    return ClusterScript(
        cluster=script.cluster,
        plays=False,
        local_steps=0,
        micro_batches=script.micro_batches,
        schedule=script.schedule,
        recompute=script.recompute,
        latency_s=script.latency_s,
        edge_latency_s=script.edge_latency_s,
        collect_each_s=(0.0,) * len(script.collect_each_s),
        delay_s=delay_s,
    )


def _moves(
    messages: Sequence[Sequence[int]],
    bits_of: Sequence[float],
    seconds_per_bit: FloatArray,
    rest_s: float,
    *,
    one_by_one: bool,
) -> tuple[Move, ...]:
    """Return messages as moves of consecutive blocks, with their times.

    Args:
        messages: The messages, in their order: sender, receiver, block and part.
        bits_of: Bits of the parts of a block [bit].
        seconds_per_bit: Airtime of a bit from node to node (K+1, K+1) [s].
        rest_s: Start of the first message [s].
        one_by_one: Whether all follow each other; otherwise those of a pair do, and pairs go in parallel.
    """
    moves: list[Move] = []
    last: dict[tuple[int, int], int] = {}
    ends: dict[object, float] = {}
    for source, target, block, place in messages:
        pair, part = (source, target), BLOCK_PARTS[place]
        seconds = bits_of[place] * float(seconds_per_bit[pair]) if source != target else 0.0
        line: object = None if one_by_one else pair
        start = ends.get(line, rest_s)
        ends[line] = start + seconds
        before = last.get(pair)
        if before is not None and (not one_by_one or before == len(moves) - 1):
            longer = moves[before]
            if longer.part == part and longer.end_block == block:
                moves[before] = replace(longer, end_block=block + 1, seconds=longer.seconds + seconds)
                continue
        last[pair] = len(moves)
        moves.append(Move(source, target, block, block + 1, part, start, seconds))
    return tuple(moves)
