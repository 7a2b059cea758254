"""A training of the graph net, as options."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from collapipe_env.agents.learned.tracking import Tracker
from collapipe_env.scenario import Scenario

from .graph_parameters import GraphParameters


@dataclass(frozen=True)
class GraphPlan:
    """A training to do.

    Attributes:
        scenario: Scenario whose validations are shown; the net trains on systems of many sizes in any case.
        parameters: Hyper-parameters.
        steps: Gradient steps in all.
        seed: Governs weights, systems, episodes and samples.
        validate_every: Gradient steps between two validations.
        command: Command that trains it, for the record.
        track: Tracker that receives its curves, in addition to TensorBoard.
    """

    scenario: Scenario
    parameters: GraphParameters
    steps: int
    seed: int
    validate_every: int
    command: str = ""
    track: Tracker | None = None

    @property
    def told(self) -> dict[str, Any]:
        """Plain values that describe it to a tracker."""
        return {
            "scenario": self.scenario.name,
            "algorithm": "graph",
            "steps": self.steps,
            "seed": self.seed,
            "command": self.command,
            **asdict(self.parameters),
        }
