"""Evaluation of schedulers on the same held-out episodes, in parallel and resumable."""

from __future__ import annotations

import contextlib
import hashlib
import pickle
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from collapipe_env.evaluation.episode import play_episode
from collapipe_env.evaluation.episode_files import EpisodeFiles, packed_episode
from collapipe_env.evaluation.episode_result import REMEDY, EpisodeResult
from collapipe_env.evaluation.executor import Executor, Hooks
from collapipe_env.evaluation.folder_content import Files, files_below
from collapipe_env.evaluation.own_code import object_identity, register_again
from collapipe_env.evaluation.own_parts import knowing_all
from collapipe_env.evaluation.own_scheduler import OwnScheduler
from collapipe_env.evaluation.plan import EvaluationPlan, Unit
from collapipe_env.evaluation.pool import LocalExecutor
from collapipe_env.evaluation.scheduler_loading import ReadyMade, make_scheduler, own_identity, registered
from collapipe_env.evaluation.titles import own_titles
from collapipe_env.evaluation.torch_threads import TorchThreads
from collapipe_env.evaluation.unit_progress import UnitProgress
from collapipe_env.ground.errors import CheckpointError, CollaPipeError, DataError, SchedulerError
from collapipe_env.ground.files import ARCHIVE_BYTES, read_regular, write_bytes
from collapipe_env.ground.version import __version__
from collapipe_env.learners.factory import LEARNERS
from collapipe_env.learners.surrogate_fits import fits_digest
from collapipe_env.physics.allocation import Allocation
from collapipe_env.schedulers import LEARNED, Factory
from collapipe_env.zoo.shipped_agents import agent_path, is_shipped

FORMAT = 5
"""Format of an episode's file; episodes in another format are measured again."""


@dataclass(frozen=True)
class Outcome:
    """Episodes of a plan, and schedulers that could not play.

    Attributes:
        results: Each scheduler's episodes, run by run and in order, for those that could play them all.
        impossible: Reasons why the others could not play.
    """

    results: dict[str, list[EpisodeResult]]
    impossible: dict[str, str]


def evaluate_all(
    plans: Sequence[EvaluationPlan], workers: int | Executor, *, tolerant: bool = False, lines: bool = True
) -> list[Outcome]:
    """Play the unfinished episodes of several plans, one by one, with one progress bar.

    An episode whose files are damaged is measured again, with a note on standard error.

    Args:
        plans: Plans to evaluate, each in a folder of its own.
        workers: Processes on this machine, or the executor that plays the episodes.
        tolerant: Whether to leave out a scheduler in a scenario that it cannot play, and continue with the
            rest. This is not stored, so the next run tries again. Unusable data and files still end
            everything, except an agent of the zoo that does not fit a scenario.
        lines: Whether to print a line for each episode that ends.

    Raises:
        CollaPipeError: If a scheduler cannot be built or fails, or a file cannot be read or written.
        KeyboardInterrupt: If the user interrupts; finished episodes are kept.
    """
    # Names that were registered here mean nothing in another process, so it gets their factories.
    plans = [replace(plan, factories={**registered(plan.schedulers), **plan.factories}) for plan in plans]
    # Episode by episode, so that an interrupted evaluation has some episodes of every scheduler.
    units = sorted((unit for plan in plans for unit in _units(plan)), key=lambda unit: unit.episode)
    missing = [unit for unit in units if not _finished(unit)]
    executor: Executor = LocalExecutor(workers) if isinstance(workers, int) else workers
    if missing:
        executor = knowing_all(executor, [plan.scenario for plan in plans])
    if executor.apart or (executor.jobs > 1 and len(missing) > 1):
        for plan in plans:
            _require_portable(plan.factories)
    impossible: dict[tuple[int, str], str] = {}
    # What is played now is taken from here, not from the disk, where a scheduler's code could change it.
    played: dict[Path, EpisodeResult] = {}
    with contextlib.closing(UnitProgress(units, missing, len(plans) > 1)) as progress:

        def failed(unit: Unit, error: CollaPipeError) -> None:
            files = isinstance(error, DataError | CheckpointError) and not is_shipped(unit.scheduler)
            if not tolerant or files:
                raise error
            impossible.setdefault((id(unit.plan), unit.scheduler), str(error))
            progress.ended(unit, f"{unit.scheduler:>12}  not possible: {error}")

        def wanted(unit: Unit) -> bool:
            if (id(unit.plan), unit.scheduler) not in impossible:
                return True
            progress.ended(unit)
            return False

        def done(unit: Unit, episode: tuple[bytes, Files]) -> None:
            unit.files.write(*episode)
            result = played[unit.files.path] = unit.read(episode[0])
            progress.ended(unit, _line(unit, result) if lines else "")

        if executor.apart:
            missing = [replace(unit, agent=_agent(unit)) for unit in missing]
        executor.run(_work, missing, Hooks(done, progress.round, failed, progress.again, wanted))
    return [_outcome(plan, units, impossible, played) for plan in plans]


def _line(unit: Unit, result: EpisodeResult) -> str:
    """A line about a finished unit."""
    return (
        f"{result.title:>12}  {unit.place}  priced delay {result.priced_delay:7.2f} s  "
        f"energy {100.0 * (result.worst_energy_ratio - 1.0):+6.1f} %  loss {result.smoothed_loss[-1]:.4f}"
    )


def _require_portable(factories: Mapping[str, Factory]) -> None:
    """Refuse schedulers that another process could not import by name."""
    for name, factory in factories.items():
        main = getattr(sys.modules["__main__"], "__file__", None) or ""
        if isinstance(factory, ReadyMade):
            what = "an object that was built here"
        elif getattr(factory, "__module__", None) == "__main__" and not Path(main).is_file():
            what = "defined in an interactive session"
        else:
            try:
                pickle.dumps(factory)
            except (pickle.PicklingError, AttributeError, TypeError):
                what = "not defined at the top level of a module"
            else:
                continue
        raise SchedulerError(
            f"scheduler {name!r} is {what}, which other processes cannot import: put its class or a function "
            "that builds it at the top level of a file and name that (file.py:Name), or use processes=1"
        )


def _outcome(
    plan: EvaluationPlan,
    units: Sequence[Unit],
    impossible: Mapping[tuple[int, str], str],
    played: Mapping[Path, EpisodeResult],
) -> Outcome:
    reasons = {name: reason for (key, name), reason in impossible.items() if key == id(plan)}
    results: dict[str, list[EpisodeResult]] = {n: [] for n in plan.schedulers if n not in reasons}
    for unit in sorted(units, key=lambda unit: (unit.run, unit.episode)):
        if unit.plan is plan and unit.scheduler in results:
            results[unit.scheduler].append(played.get(unit.files.path) or unit.read())
    return Outcome(results, reasons)


def decisions_of(plan: EvaluationPlan, scheduler: str, episode: int, run: int = 0) -> list[Allocation]:
    """The decisions of a finished episode; of one training run for a learned scheduler.

    Raises:
        DataError: If their file is missing or damaged.
    """
    files = EpisodeFiles(plan.folder, scheduler, episode, run)
    return files.read_decisions(plan.scenario, plan.rounds, plan.until_target)


def _agent(unit: Unit) -> bytes | None:
    """Content of the learned scheduler's file, which travels with a unit."""
    file = unit.plan.agent_of(unit.run) if unit.scheduler == LEARNED else None
    try:
        return None if file is None else read_regular(file, ARCHIVE_BYTES)
    except OSError as error:
        raise DataError(f"cannot read the agent {file} ({error.strerror}): give it again") from None


def _units(plan: EvaluationPlan) -> list[Unit]:
    common: list[object] = [FORMAT, __version__, plan.scenario, plan.rounds, plan.learner, plan.blind]
    common.append(fits_digest() if plan.learner == "surrogate" else "")
    common += ["until the target"] * plan.until_target
    if plan.own_learner is not None:
        common.append(object_identity(plan.own_learner))
    titles = own_titles(plan.schedulers, plan.scenario, plan.agent_of(0), plan.factories)
    units = []
    for name in plan.schedulers:
        for run in range(plan.runs_of(name)):
            identity = _identity(plan, name, run)
            for episode in range(plan.episodes):
                about = (name, episode, plan.seed_of(episode), plan.samples_of(episode))
                decisive = "".join(f"{part!r}\0" for part in (*common, *about)).encode() + identity
                key = hashlib.sha256(decisive).hexdigest()
                unit = Unit(plan, name, run, episode, key, titles.get(name))
                # An episode that kept its model before keeps it again, newly trained.
                keeps = (plan.save_models and episode == 0) or unit.files.model.exists()
                units.append(replace(unit, keeps_model=keeps))
    return units


def _identity(plan: EvaluationPlan, name: str, run: int) -> bytes:
    """Everything on which a scheduler's decisions depend apart from its name and the package's version."""
    own = own_identity(name, plan.scenario, plan.factories)
    if own is not None:
        return own
    file = agent_path(name) if is_shipped(name) else plan.agent_of(run) if name == LEARNED else None
    return b"" if file is None else read_regular(file, ARCHIVE_BYTES)


def _finished(unit: Unit) -> bool:
    try:
        plan = unit.plan
        stored = unit.files.is_finished(unit.key, plan.scenario, plan.rounds, plan.until_target)
    except DataError as error:
        fact = str(error).removesuffix(f": {REMEDY}")
        print(f"note: {fact}: measuring this episode again", file=sys.stderr)
        return False
    return stored and (unit.files.model.is_dir() or not unit.keeps_model)


def _work(unit: Unit, on_round: Callable[[], None]) -> tuple[bytes, Files]:
    """Play a unit, in any process; returns the content of its file and the files of its model."""
    plan, file = unit.plan, unit.plan.agent_of(unit.run)
    apart = unit.agent is not None or unit.keeps_model
    with (
        tempfile.TemporaryDirectory(prefix="collapipe-") if apart else contextlib.nullcontext("") as place,
        TorchThreads(plan.threads) as threads,
    ):
        if file is not None and unit.agent is not None:
            file = Path(place) / file.name
            write_bytes(file, unit.agent)
        if plan.own_learner is not None and plan.learner not in LEARNERS:  # in another process
            register_again(LEARNERS, plan.learner, plan.own_learner)
        scheduler = make_scheduler(unit.scheduler, plan.scenario, file, plan.factories)
        if isinstance(scheduler, OwnScheduler):
            scheduler.fingerprint()  # raises here if it fails, instead of being measured again in every run
        model = Path(place) / "model" if unit.keeps_model else None
        if plan.learner == "real":
            import torch  # noqa: F401 - before the learner computes anything
        threads.apply()

        def after_round() -> None:
            threads.apply()
            on_round()

        played = play_episode(
            unit.scheduler,
            scheduler,
            plan.scenario,
            unit.episode,
            plan.rounds,
            plan.learner,
            after_round,
            unit.run,
            plan.samples_of(unit.episode),
            model,
            seed=plan.seed_of(unit.episode),
            blind=plan.blind,
            until_target=plan.until_target,
        )
        return packed_episode(unit.key, played), {} if model is None else files_below(model)
