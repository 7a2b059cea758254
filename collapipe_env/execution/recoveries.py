"""Recoveries of the present round: plans for the remaining work, on request of the control units."""

from __future__ import annotations

from collapipe_env.dynamics.presence import PRESENCE
from collapipe_env.execution.frames import Frame
from collapipe_env.execution.planned_rounds import PlannedRound
from collapipe_env.execution.recovery_planning import USUAL_TERMS, RecoveryPlanner
from collapipe_env.execution.script_reading import to_json
from collapipe_env.physics.recovery import RecoveryTerms
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import system_parameters


def recovery_terms(scenario: Scenario) -> RecoveryTerms:
    """Return the terms on which clusters recover: the scenario's, or the usual ones if `presence` is off."""
    presence = dict(scenario.dynamics.processes).get(PRESENCE)
    if presence is None:
        return USUAL_TERMS
    return RecoveryTerms(presence.recovery, presence.heartbeat_s, presence.misses)


class Recoveries:
    """Answers control units that have lost a device.

    Args:
        scenario: The scenario; if its process `presence` is off, clusters recover on the usual terms.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._terms = recovery_terms(scenario)
        self._parameters = system_parameters(scenario)
        self._planned: PlannedRound | None = None
        self._planners: dict[int, RecoveryPlanner] = {}

    def begin(self, planned: PlannedRound) -> None:
        """Begin a round."""
        self._planned, self._planners = planned, {}

    def answer(self, frame: Frame) -> Frame:
        """Plan how a cluster continues.

        Args:
            frame: The control unit's request.

        Returns:
            The answer: a recovery, or ``None`` if the device had nothing to do.
        """
        assert self._planned is not None
        n = int(frame.meta["cluster"])
        if n not in self._planners:
            script = self._planned.script.clusters[n]
            self._planners[n] = RecoveryPlanner(
                self._planned.record, 0, script, self._parameters, self._terms
            )
        detect = frame.meta["detect_s"]
        found = self._planners[n].lost(int(frame.meta["device"]), float(frame.meta["at_s"]), detect_s=detect)
        tag = frame.tag._replace(attempt=frame.tag.attempt + 1)
        return Frame("recovery", tag, meta={"recovery": None if found is None else to_json(found)})
