"""Launcher of ranks: processes started by torchrun or Slurm play the roles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from collapipe_env.execution.joining import ExecutionError, role_names
from collapipe_env.execution.launching import Launcher, failed_names
from collapipe_env.execution.ranks import PATIENCE_S, MeetingPlace, Offer, Rank
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import Scheduler


class RankedLauncher(Launcher):
    """Rank 0: launcher of an execution whose processes are running already.

    Args:
        scenario: The scenario.
        scheduler: Decides the rounds.
        rank: Place of this process.
        place: Meeting place of the ranks.
        token_in_file: Whether the other ranks have the token from a file.
        how: Further arguments of :class:`~collapipe_env.execution.launching.Launcher`.

    Raises:
        ExecutionError: If the number of ranks is not one more than that of roles.
    """

    def __init__(
        self,
        scenario: Scenario,
        scheduler: Scheduler,
        *,
        rank: Rank,
        place: MeetingPlace,
        token_in_file: bool = False,
        **how: Any,
    ) -> None:
        self._roles = role_names(scenario)
        if rank.size != 1 + len(self._roles):
            raise ExecutionError(
                f"{rank.size} ranks were started, {scenario.name} needs {1 + len(self._roles)}: the "
                f"launcher, {', '.join(self._roles)}. With torchrun on one machine: --nproc-per-node "
                f"{1 + len(self._roles)}; with srun: --ntasks {1 + len(self._roles)}"
            )
        super().__init__(scenario, scheduler, **how)
        self._rank, self._place, self._token_in_file = rank, place, token_in_file
        self._calls = dict.fromkeys(self._roles, 0)

    @property
    def one_machine(self) -> bool:
        """Whether all ranks are on this machine."""
        return self._rank.one_machine

    def wait_for_others(
        self, patience: float = PATIENCE_S, tell: Callable[[str], None] | None = None
    ) -> None:
        """Tell the other ranks how to join, and wait until all have."""
        self._place.offer(Offer(self.address, self._roles, "" if self._token_in_file else self.token))
        super().wait_for_others(patience, tell)

    def ask_for(self, names: Sequence[str]) -> None:
        """Restart devices that have failed, each in its rank."""
        for name in names:
            role = name.partition(".")[0]
            self._place.call_back(role, name, self._calls[role])
            self._calls[role] += 1
        self.wait_until_ready(names, PATIENCE_S)

    def lose_device(self, name: str, why: str, failing: Sequence[tuple[int, int, float]]) -> None:
        """Note that a device's process is gone: without its rank, nothing can continue.

        Raises:
            ExecutionError: If its failure was not requested.
        """
        if name not in failed_names(failing, self.names):
            number = 1 + self._roles.index(name.partition(".")[0])
            raise ExecutionError(
                f"rank {number} ({name}) was lost: {why}; ranks are not started again, so all of them end"
            )
        super().lose_device(name, why, failing)
