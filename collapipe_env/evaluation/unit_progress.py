"""Progress of an evaluation: a bar over the rounds of all episodes, and a line for each finished episode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from collapipe_env.evaluation.plan import Unit
from collapipe_env.ground.progress import progress_bar


class UnitProgress:
    """The progress bar over the rounds of all units, and lines about them.

    Args:
        missing: Units that are still to be played.
        several: Whether there are several scenarios, which lines then name.
    """

    def __init__(self, units: Sequence[Unit], missing: Sequence[Unit], several: bool) -> None:
        self._several = several
        self._rounds: Counter[str] = Counter()
        total, left = (sum(unit.plan.rounds for unit in some) for some in (units, missing))
        self._bar = progress_bar(total, "evaluating", "rounds", initial=total - left)
        self.close = self._bar.close

    def round(self, unit: Unit) -> None:
        """Count a round."""
        self._rounds[unit.key] += 1
        self._bar.update(1)

    def again(self, unit: Unit, reason: str) -> None:
        """Take back the rounds of a restarted unit, and print the reason."""
        self._bar.update(-self._rounds.pop(unit.key, 0))
        self._say(unit, f"{unit.scheduler:>12}  {unit.place}  restarted: {reason}")

    def ended(self, unit: Unit, line: str = "") -> None:
        """Count the rounds of a unit that were not reported, and print a line about it."""
        self._bar.update(unit.plan.rounds - self._rounds[unit.key])
        if line:
            self._say(unit, line)

    def _say(self, unit: Unit, line: str) -> None:
        self._bar.write(f"{unit.plan.scenario.name:>8}  {line}" if self._several else line)
