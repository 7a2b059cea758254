"""Progress of an evaluation: a bar over the rounds of all episodes, and a line for each finished episode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from collapipe_env.evaluation.plan import Unit
from collapipe_env.ground.errors import CollaPipeError
from collapipe_env.ground.progress import progress_bar


class UnitProgress:
    """The progress bar over the rounds of all units, and a line for each unit that ends.

    Args:
        missing: Units that are still to be played.
        several: Whether there are several scenarios, which lines then name.
        lines: Whether to print a line for each unit that ends.
    """

    def __init__(self, units: Sequence[Unit], missing: Sequence[Unit], several: bool, lines: bool) -> None:
        self._several, self._lines = several, lines
        self._rounds: Counter[str] = Counter()
        total = sum(unit.plan.rounds for unit in units)
        done = total - sum(unit.plan.rounds for unit in missing)
        self._bar = progress_bar(total, "evaluating", "rounds", initial=done)

    def __enter__(self) -> UnitProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def round(self, unit: Unit) -> None:
        """Count a round."""
        self._rounds[unit.key] += 1
        self._bar.update(1)

    def again(self, unit: Unit, reason: str) -> None:
        """Take back the rounds of a restarted unit, and print the reason."""
        self._bar.update(-self._rounds.pop(unit.key, 0))
        self._bar.write(f"{self._place(unit)}{unit.scheduler:>12}  {unit.place}  restarted: {reason}")

    def done(self, unit: Unit) -> None:
        """Show a unit that ended."""
        self._bar.update(unit.plan.rounds - self._rounds[unit.key])  # rounds that were not reported
        if not self._lines:
            return
        result = unit.read()
        self._bar.write(
            f"{self._place(unit)}{result.title:>12}  {unit.place}  priced delay "
            f"{result.priced_delay:7.2f} s  energy {100.0 * (result.worst_energy_ratio - 1.0):+6.1f} %  "
            f"loss {result.smoothed_loss[-1]:.4f}"
        )

    def failed(self, unit: Unit, error: CollaPipeError) -> None:
        """Show a unit that could not be played."""
        self._bar.update(unit.plan.rounds - self._rounds[unit.key])
        self._bar.write(f"{self._place(unit)}{unit.scheduler:>12}  not possible: {error}")

    def skipped(self, unit: Unit) -> None:
        """Count a unit that is left out."""
        self._bar.update(unit.plan.rounds)

    def _place(self, unit: Unit) -> str:
        return f"{unit.plan.scenario.name:>8}  " if self._several else ""
