"""Rounds of ``collapipe execute``: played, kept in the run's folder, and reported at the end."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from collapipe_env.cli.common import print_pages, say_files
from collapipe_env.evaluation.labels import counted
from collapipe_env.evaluation.run_directory import RunDirectory
from collapipe_env.execution.committed_rounds import REMEDY, commit, report_path
from collapipe_env.execution.round_reports import require_report
from collapipe_env.ground.files import read_json, write_bytes, write_json, write_text
from collapipe_env.ground.interrupts import uninterrupted
from collapipe_env.scenario import Scenario

if TYPE_CHECKING:
    from collapipe_env.execution.launching import Failures, Launcher
    from collapipe_env.execution.planned_rounds import PlannedRound
    from collapipe_env.execution.price_comparison import ComparedRound


def finished(run: RunDirectory, rounds: int) -> bool:
    """Whether an earlier run has played all these rounds, and written everything."""
    if not (run.execution.exists() and run.weights.exists()):
        return False
    written = read_json(run.execution, "start over with --fresh").get("rounds")
    return isinstance(written, list) and len(written) == rounds


class Execution:
    """Rounds of a run: played, kept, and reported.

    Args:
        head: Origin of the results, for their file.
        scheduler: The scheduler as asked for.
        rounds: Rounds to play.
    """

    def __init__(
        self,
        launcher: Launcher,
        run: RunDirectory,
        scenario: Scenario,
        head: dict[str, Any],
        *,
        scheduler: str,
        clock: str,
        rounds: int,
    ) -> None:
        self._launcher, self._run = launcher, run
        self._scenario, self._head = scenario, head
        self._clock, self._until = clock, rounds
        self._rounds: list[tuple[PlannedRound, dict[str, Any]]] = []
        self._compared: list[ComparedRound] = []
        self._title = f"{launcher.name}, {scheduler}"

    def take_up(self, past: Sequence[dict[str, Any]]) -> None:
        """Take over the rounds that were played before.

        Args:
            past: The server's report of each.

        Raises:
            StateError: If a report is damaged.
        """
        for planned, result in zip(self._launcher.replayed, past, strict=True):
            place = report_path(self._run, len(self._rounds) + 1)
            require_report(result, planned.script, str(place), REMEDY)
            self._add(planned, result)
            if not self._picture(len(self._rounds)).exists():  # the run ended between report and picture
                self._draw(planned, result)

    def play(self, failures: Failures) -> None:
        """Play the remaining rounds; keep each, and write the results at the end, early or not.

        Raises:
            ExecutionError: If a process is lost without which the execution cannot continue.
        """
        from collapipe_env.execution.joining import ExecutionError

        load_before = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
        try:
            for number in range(len(self._rounds) + 1, self._until + 1):
                self._play(number, failures)
            _write_weights(self._run.weights, self._launcher.weights())
        except ExecutionError as error:
            kept = len(self._rounds)
            raise ExecutionError(
                f"{error}; {counted(kept, 'finished round')} {'is' if kept == 1 else 'are'} kept: the same "
                "command continues from there"
            ) from None
        finally:
            if self._rounds:
                self._report(load_before)

    def _play(self, number: int, failures: Failures) -> None:
        """Play a round, keep it, and print its result."""
        from collapipe_env.execution.launching import NO_FAILURES

        begun = time.monotonic()
        planned, result = self._launcher.play(failures if number == 1 else NO_FAILURES)
        state = self._launcher.committed()
        with uninterrupted():
            commit(self._run, self._scenario, result, state)
            self._add(planned, result)
        one = self._compared[-1]
        known = one.clock_bound_s
        clocks = "" if known is None else f"  clocks within {1e3 * known:.2g} ms"
        loss = "" if one.train_loss is None else f"  training loss {one.train_loss:.4f}"
        lost = [name for c in one.clusters for name in c.lost]
        print(
            f"round {number} of {self._until}  delay {one.delay_measured_s:.3f} s (priced "
            f"{one.delay_priced_s:.3f}){loss}"
            f"{'  lost ' + ', '.join(lost) if lost else ''}"
            f"{clocks}  [{time.monotonic() - begun:.1f} s]",
            flush=True,
        )
        self._draw(planned, result)

    def _picture(self, number: int) -> Path:
        return self._run.figures / f"round-{number}.png"

    def _draw(self, planned: PlannedRound, result: dict[str, Any]) -> None:
        """Draw the last round."""
        from collapipe_env.execution.pictures import write_picture

        self._run.figures.mkdir(exist_ok=True)
        write_picture(self._picture(len(self._rounds)), planned, result, self._title)

    def _add(self, planned: PlannedRound, result: dict[str, Any]) -> None:
        from collapipe_env.execution.price_comparison import compare_round

        scale = self._launcher.scale if self._clock == "wall" else 1.0
        self._compared.append(compare_round(len(self._rounds) + 1, planned, result, scale))
        self._rounds.append((planned, result))

    def _report(self, load_before: float) -> None:
        """Write table, numbers and trace, and print the table."""
        from collapipe_env.execution.chrome_trace import write_trace
        from collapipe_env.execution.comparison_page import comparison_page, phase_page

        run = self._run
        load = f"load average of the machine {load_before:.1f}" if load_before == load_before else ""
        scale = {
            "wall": f", time scale {self._launcher.scale:.3g}",
            "none": f", slow-down {self._launcher.scale:.3g}",
        }
        below = [f"clock {self._clock}{scale.get(self._clock, '')}; {load}"]
        page = comparison_page(f"Priced and measured: {self._title}", self._compared, self._clock, below)
        write_json(run.execution, {**self._head, "rounds": [one.to_dict() for one in self._compared]})
        phases = phase_page(self._compared)
        write_text(run.table, page.markdown() + "\n" + phases.markdown())
        write_trace(run.trace, self._rounds)
        print_pages(page, phases)
        say_where(run)


def say_where(run: RunDirectory) -> None:
    """Print where everything is."""
    say_files(
        table=run.table, numbers=run.execution, pictures=run.figures, trace=run.trace, weights=run.weights
    )


def _write_weights(path: Path, weights: dict[str, np.ndarray[Any, Any]]) -> None:
    content = io.BytesIO()
    np.savez(content, **weights)  # type: ignore[arg-type] # the names are no option of savez
    write_bytes(path, content.getvalue())
