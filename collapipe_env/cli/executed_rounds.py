"""Rounds of ``collapipe execute``: played, kept in the run's folder, and reported at the end."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from collapipe_env.cli.common import print_pages, say_files
from collapipe_env.evaluation.labels import counted
from collapipe_env.evaluation.run_directory import RunDirectory
from collapipe_env.execution.committed_rounds import commit
from collapipe_env.ground.files import write_bytes, write_json, write_text
from collapipe_env.ground.interrupts import uninterrupted

if TYPE_CHECKING:
    from collapipe_env.execution.driver import Execution, Failures
    from collapipe_env.execution.planned_rounds import PlannedRound
    from collapipe_env.execution.price_comparison import ComparedRound


@dataclass
class ExecutedRounds:
    """Rounds of a run: played, kept, and reported.

    Attributes:
        origin: Digest of all that decides the rounds.
        record: Returns the origin of the results, for their file.
        title: Scenario and scheduler, for tables and pictures.
        until: Rounds to play.
        played: Plan and report of each round so far.
        compared: Its comparison with its prices.
    """

    execution: Execution
    run: RunDirectory
    origin: str
    record: Callable[[], dict[str, Any]]
    title: str
    clock: str
    until: int
    played: list[tuple[PlannedRound, dict[str, Any]]] = field(default_factory=list)
    compared: list[ComparedRound] = field(default_factory=list)

    def take_up(self, past: Sequence[dict[str, Any]]) -> None:
        """Take over the rounds that were played before, by the report of each."""
        for planned, result in zip(self.execution.replayed, past, strict=True):
            self._add(planned, result)
            self._draw()

    def play(self, failures: Failures) -> None:
        """Play the remaining rounds, if any; keep each, and write the results at the end, early or not.

        Args:
            failures: What happens to devices in the first round.
        """
        from collapipe_env.execution.cluster_round import ExecutionError
        from collapipe_env.execution.driver import NO_FAILURES

        try:
            for number in range(len(self.played) + 1, self.until + 1):
                begun = time.monotonic()
                load = {"load": os.getloadavg()[0]} if hasattr(os, "getloadavg") else {}
                planned, result = self.execution.play(failures if number == 1 else NO_FAILURES)
                result |= load
                state = self.execution.committed()
                with uninterrupted():
                    commit(self.run, self.origin, result, state)
                    self._add(planned, result)
                print(self._line(time.monotonic() - begun), flush=True)
                self._draw()
            content = io.BytesIO()
            np.savez(content, **self.execution.weights())  # type: ignore[arg-type] # no options of savez
            write_bytes(self.run / "weights.npz", content.getvalue())
        except ExecutionError as error:
            kept = len(self.played)
            raise ExecutionError(
                f"{error}; {counted(kept, 'finished round')} {'is' if kept == 1 else 'are'} kept: the same "
                "command continues from there"
            ) from None
        finally:
            if self.played:
                self._report()

    def _add(self, planned: PlannedRound, result: dict[str, Any]) -> None:
        from collapipe_env.execution.price_comparison import compare_round

        scale = self.execution.scale if self.clock == "wall" else 1.0
        self.compared.append(compare_round(len(self.played) + 1, planned, result, scale))
        self.played.append((planned, result))

    def _line(self, took_s: float) -> str:
        """Return the result of the last round in a line."""
        one = self.compared[-1]
        line = f"round {one.round} of {self.until}  delay {one.delay_measured_s:.3f} s"
        line += f" (priced {one.delay_priced_s:.3f})"
        if one.train_loss is not None:
            line += f"  training loss {one.train_loss:.4f}"
        if lost := ", ".join(name for cluster in one.clusters for name in cluster.lost):
            line += f"  lost {lost}"
        if given_up := ", ".join(f"c{cluster.cluster}" for cluster in one.clusters if cluster.given_up):
            line += f"  given up by {given_up}"
        if one.clock_bound_s is not None:
            line += f"  clocks within {1e3 * one.clock_bound_s:.2g} ms"
        return f"{line}  [{took_s:.1f} s]"

    def _draw(self) -> None:
        """Draw the last round, unless an earlier run has drawn it."""
        from collapipe_env.execution.pictures import write_picture

        path = self.run / "figures" / f"round-{len(self.played)}.png"
        if not path.exists():
            write_picture(path, *self.played[-1], self.title)

    def _report(self) -> None:
        """Write table, numbers and trace, and print the table."""
        from collapipe_env.execution.comparison_page import comparison_page, phase_page
        from collapipe_env.execution.measured_timeline import both_timelines
        from collapipe_env.rendering.chrome_trace import chrome_trace

        run, scales = self.run, {"wall": ", time scale", "none": ", slow-down"}
        scale = f"{scales[self.clock]} {self.execution.scale:.3g}" if self.clock in scales else ""
        loads = [result["load"] for _, result in self.played if "load" in result]
        load = f"; load average of the machine {min(loads):.1f} to {max(loads):.1f}" if loads else ""
        below = [f"clock {self.clock}{scale}{load}"]
        page = comparison_page(f"Priced and measured: {self.title}", self.compared, self.clock, below)
        phases = phase_page(self.compared)
        write_json(run / "execution.json", {**self.record(), "rounds": self.compared})
        write_text(run / "table.md", page.markdown() + "\n" + phases.markdown())
        write_json(run / "trace.json", chrome_trace(both_timelines(self.played)))
        print_pages(page, phases)
        names = {"table": "table.md", "numbers": "execution.json", "pictures": "figures"}
        say_files(run, **names, trace="trace.json", weights="weights.npz")
