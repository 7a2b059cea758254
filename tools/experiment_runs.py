"""Training runs that are kept: what the commands behind ``docs/learning.md`` share.

A run is one scenario, one way to allocate and one seed, really trained. Finished runs are JSON files,
complete or not there; a run whose file fits is not trained again.
"""

from __future__ import annotations

import gzip
import hashlib
import shlex
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from shutil import copyfile
from typing import TYPE_CHECKING, Any

import numpy as np
import tyro
from generated_parts import write_parts
from tqdm import tqdm

import collapipe_env
from collapipe_env.allocation import Allocation
from collapipe_env.apportionment import apportion
from collapipe_env.cli.common import guarded, require_within
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.errors import DataError
from collapipe_env.evaluation.episode import HELD_OUT_SEED
from collapipe_env.evaluation.plotting import RC, save
from collapipe_env.evaluation.pool import run_tasks
from collapipe_env.evaluation.provenance import versions
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.evaluation.statistics import Estimate, estimate
from collapipe_env.files import read_json, write_json, write_text
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.even_split import even_split
from collapipe_env.simulator.feasibility import EnergyBudgetWarning
from collapipe_env.simulator.state import SystemParameters, SystemState

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "learning.md"
PICTURES = DOCS / "images" / "learning"
FORMAT = 1
"""Of a run's file; runs in another format are trained again."""
EVEN, FEWEST = "even", "fewest"
"""Fixed ways to allocate; any other name is a scheduler's."""


@dataclass(frozen=True)
class Run:
    """One training run.

    Attributes:
        case: What it is a run of; names its file.
        seed: Number of the run, from 0.
        scenario: The scenario; its rounds are the rounds of the run.
        allocator: ``"even"`` or ``"fewest"`` devices, or the name of a scheduler.
        micro_batches: Micro-batches of the two fixed ways.
        folder: Where its file goes.
        train_lines: Pairs of parallel text to train on, the first ones; None for all.
    """

    case: str
    seed: int
    scenario: Scenario
    allocator: str
    micro_batches: int
    folder: Path
    train_lines: int | None = None

    def __str__(self) -> str:
        return f"{self.case}, seed {self.seed}"

    @property
    def file(self) -> Path:
        """Its file."""
        return self.folder / f"{self.case}-{self.seed}.json"

    @property
    def rounds(self) -> int:
        """Rounds to train."""
        return self.scenario.dynamics.rounds

    @property
    def key(self) -> str:
        """Digest of everything that the result depends on."""
        parts = (
            FORMAT, collapipe_env.__version__, self.scenario, self.seed, self.allocator, self.micro_batches,
            self.train_lines,
        )  # fmt: skip
        return hashlib.sha256(repr(parts).encode()).hexdigest()


@dataclass(frozen=True)
class RunResult:
    """Result of a run; the lists have one entry for every evaluation, the untrained model's first.

    Attributes:
        rounds: Rounds trained until then.
        seconds: Simulated time until then [s].
        loss: Evaluation loss [nat].
        metrics: The task's metrics by name; without the untrained model's.
        delay: Mean round delay [s].
        segments: Mean number of devices that hold a segment in a cluster.
        survival: Share of each cluster's micro-batches that arrived.
        processor_s: Processor time that the run took [s].
    """

    rounds: list[int]
    seconds: list[float]
    loss: list[float]
    metrics: dict[str, list[float]]
    delay: float
    segments: float
    survival: list[float]
    processor_s: float


def fewest_devices(parameters: SystemParameters, state: SystemState, micro_batches: int) -> Allocation:
    """Blocks split evenly over the fewest devices whose memory holds the encoder, else as the even split.

    Devices with much memory come first; of equally large ones the faster.

    Args:
        parameters: Scalars of the scenario.
        state: State with any leading axes.
        micro_batches: Wanted number of micro-batches; the nearest allowed one is taken.
    """
    base = even_split(parameters, state, micro_batches)
    cap = np.where(state.present, state.memory_cap, 0)
    order = np.lexsort((-state.speed, -cap), axis=-1)
    held = np.cumsum(np.take_along_axis(cap, order, axis=-1), axis=-1)
    # A device is needed where those before it cannot hold all blocks.
    needed = np.concatenate((np.zeros_like(held[..., :1]), held[..., :-1]), axis=-1) < parameters.costs.blocks
    chosen = np.zeros(cap.shape)
    np.put_along_axis(chosen, order, needed.astype(np.float64), axis=-1)
    return Allocation(
        blocks=apportion(parameters.costs.blocks, chosen, np.where(chosen > 0.0, cap, 0)),
        micro_batches=base.micro_batches,
        bandwidth=base.bandwidth,
        device_power=base.device_power,
        cu_power=base.cu_power,
    )


def train(run: Run, on_round: Callable[[], None]) -> None:
    """Train one run, on one thread, and keep its result."""
    import torch

    torch.set_num_threads(1)
    with _data_of(run) as folder, warnings.catch_warnings():
        # Fixed allocations look at no budget, and how well a scheduler keeps one is shown elsewhere.
        warnings.simplefilter("ignore", EnergyBudgetWarning)
        scenario = run.scenario
        if folder is not None:
            scenario = scenario.with_overrides({"learning.dataset": folder})
        result = _played(run, scenario, on_round)
    write_json(run.file, {"key": run.key, "run": str(run), "result": asdict(result)})


def _played(run: Run, scenario: Scenario, on_round: Callable[[], None]) -> RunResult:
    env = CollaPipeVectorEnv(
        num_envs=1, scenario=scenario, learner="real", reward="delay", autoreset_mode="Disabled"
    )
    began = time.process_time()
    seed = HELD_OUT_SEED + run.seed
    observation, info = env.reset(seed=seed)
    parameters = system_parameters(scenario)
    scheduler = None if run.allocator in (EVEN, FEWEST) else make_scheduler(run.allocator, scenario)
    if scheduler is not None:
        scheduler.reset(seed)
    fixed = fewest_devices if run.allocator == FEWEST else even_split
    rounds, seconds, losses = [0], [0.0], [float(info["loss"][0])]
    metrics: dict[str, list[float]] = {}
    delays: list[float] = []
    survival, segments = np.zeros(scenario.clusters), 0.0
    for number in range(1, run.rounds + 1):
        if scheduler is None:
            decision: Any = fixed(parameters, env.state, run.micro_batches)
        else:
            decision = scheduler.act(observation, env.state)
        step = env.step_allocation if isinstance(decision, Allocation) else env.step
        observation, *_ = step(decision)
        record = env.last_round
        assert record is not None
        delays.append(float(record.costs.delay[0]))
        survival += record.surviving_fraction()[0] / run.rounds
        segments += float((record.allocation.blocks[0] > 0).sum(axis=-1).mean()) / run.rounds
        if number % scenario.learning.evaluate_every == 0:
            rounds.append(number)
            seconds.append(float(np.sum(delays)))
            losses.append(float(record.learning.loss[0]))
            for name, values in record.learning.metrics.items():
                metrics.setdefault(name, []).append(float(values[0]))
        on_round()
    return RunResult(
        rounds, seconds, losses, metrics, float(np.mean(delays)), segments, survival.tolist(),
        time.process_time() - began,
    )  # fmt: skip


def _data_of(run: Run) -> AbstractContextManager[str | None]:
    """A folder with the shortened parallel text of a run, which goes away; None where nothing is cut."""
    if run.train_lines is None:
        return nullcontext()
    whole = Path(run.scenario.learning.dataset).expanduser()
    cut = tempfile.TemporaryDirectory(prefix="collapipe-")
    for file in whole.iterdir():
        target = Path(cut.name) / file.name
        if file.name.startswith("train."):
            lines = _opened(file).splitlines(keepends=True)[: run.train_lines]
            target.with_suffix("" if file.suffix == ".gz" else file.suffix).write_bytes(b"".join(lines))
        else:
            target.symlink_to(file.resolve())
    return cut


def _opened(file: Path) -> bytes:
    content = file.read_bytes()
    return gzip.decompress(content) if file.suffix == ".gz" else content


def evaluation_interval(rounds: int, evaluations: int) -> int:
    """Rounds between evaluations so that the last round is evaluated, about ``evaluations`` in all."""
    wanted = max(rounds // evaluations, 1)
    return max(divisor for divisor in range(1, wanted + 1) if rounds % divisor == 0)


def finished(run: Run) -> RunResult | None:
    """The result of a run, if it was trained as it is now.

    Raises:
        DataError: If its file is damaged.
    """
    remedy = "delete it to train this run again"
    if not run.file.exists():
        return None
    content = read_json(run.file, remedy)
    if content.get("key") != run.key:
        return None
    try:
        return RunResult(**content["result"])
    except (KeyError, TypeError):
        raise DataError(f"{run.file} holds no result: {remedy}") from None


def train_all(runs: Sequence[Run], processes: int) -> None:
    """Train the runs that are not finished, with a progress bar over rounds.

    Seed by seed, so that an interrupted command has something of everything.

    Raises:
        CollaPipeError: If a run fails or a file cannot be read or written.
        KeyboardInterrupt: If the user interrupts; finished runs are kept.
    """
    missing = sorted((run for run in runs if finished(run) is None), key=lambda run: run.seed)
    total = sum(run.rounds for run in runs)
    bar = tqdm(
        total=total,
        initial=total - sum(run.rounds for run in missing),
        desc="training",
        unit=" rounds",
        dynamic_ncols=True,
        disable=None,
    )

    def done(run: Run) -> None:
        result = finished(run)
        assert result is not None
        bar.write(
            f"{run}: {run.rounds} rounds of {result.delay:.2f} s, final loss {result.loss[-1]:.4f}, "
            + ", ".join(f"{name} {values[-1]:.4f}" for name, values in result.metrics.items())
        )

    def progress(_: Run) -> None:
        bar.update(1)

    with bar:
        run_tasks(train, missing, processes, progress, done)


def results_of(runs: Sequence[Run]) -> dict[str, list[RunResult]]:
    """Results of the finished runs by case, in the order of their seeds."""
    found: dict[str, list[RunResult]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        result = finished(run)
        if result is not None:
            found.setdefault(run.case, []).append(result)
    return {case: found[case] for case in dict.fromkeys(run.case for run in runs) if case in found}


def time_to_loss(result: RunResult, target: float) -> float:
    """Simulated time at which the loss first is at the target [s], linear between evaluations; else NaN."""
    for place, (loss, now) in enumerate(zip(result.loss, result.seconds, strict=True)):
        if loss <= target:
            if place == 0:
                return now
            before, then = result.loss[place - 1], result.seconds[place - 1]
            return then + (now - then) * (before - target) / (before - loss)
    return float("nan")


def interval(values: Sequence[float], digits: str, scale: float = 1.0) -> str:
    """Mean and 95 % bootstrap interval over seeds, as text; a dash for what does not exist."""
    found: Estimate = estimate([scale * value for value in values])
    if np.isnan(found.mean):
        return "–"
    mean = format(found.mean, digits)
    if np.isnan(found.low):
        return mean
    return f"{mean} ({format(found.low, digits)}…{format(found.high, digits)})"


@dataclass(frozen=True)
class RunOptions:
    """Options of both commands."""

    seeds: int = 3
    """Runs of each case."""
    processes: int = 2
    """Worker processes, with one thread each."""
    work: Path = Path("runs")
    """Folder of the finished runs, the table and the figure."""
    page_only: bool = False
    """Write table, figure and page from the runs that are there, and train nothing."""
    no_page: bool = False
    """Leave the page in docs as it is."""

    def check(self) -> None:
        """Refuse what cannot be run.

        Raises:
            ScenarioError: Names the option, its value and the range.
        """
        require_within(("--seeds", self.seeds, 1, 1000), ("--processes", self.processes, 1, 64))


def command(
    kind: type[Any], run: Callable[[Any, list[str]], None], script: str, arguments: Sequence[str] | None
) -> int:
    """Read a command line and run it; returns the exit status.

    Args:
        kind: Dataclass of the options, with ``check``.
        run: Is given the options and the arguments.
        script: Name of the script.
        arguments: Without the program's name; those of this process by default.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = tyro.cli(kind, args=given, config=(tyro.conf.FlagCreatePairsOff,))

    def job() -> None:
        options.check()
        run(options, given)

    return guarded(job, f"python tools/{script}", given)


def publish(
    options: RunOptions,
    part: str,
    table: str,
    picture: tuple[str, Callable[[], Figure]],
    facts: Mapping[str, Any],
    stamp: str,
    *,
    page: bool,
) -> None:
    """Write figure, table and summary into the work folder, and into the page if asked to.

    Args:
        options: The command's.
        part: Name of the page's part; the one of the command is called after it.
        table: The table in Markdown.
        picture: Name of the figure's file, and what draws it.
        facts: Content of ``summary.json``.
        stamp: The command that produces the part, in Markdown.
        page: Whether to write the page.
    """
    import matplotlib as mpl

    name, draw = picture
    with mpl.rc_context(RC):
        drawn = save(draw(), options.work / name)
    write_json(options.work / "summary.json", facts)
    write_text(options.work / "table.md", table + "\n")
    print(table)
    if page:
        PICTURES.mkdir(parents=True, exist_ok=True)
        copyfile(drawn, PICTURES / name)
        write_parts(PAGE, {part: table, f"{part} command": stamp})
        print(f"wrote {PAGE} and {PICTURES / name}")
    print(f"wrote {options.work}/: {name}, table.md, summary.json")


def stamp_of(script: str, arguments: Sequence[str]) -> str:
    """The command that produces a part of the page, as a block of Markdown."""
    given = [argument for argument in arguments if argument != "--page-only"]
    named = ", ".join(f"{n} {v}" for n, v in versions().items() if n in ("collapipe-env", "torch"))
    line = shlex.join(["python", f"tools/{script}", *given])
    return f"```bash\n{line}\n```\n\n{named}. Finished {time.strftime('%Y-%m-%d')}."


def reached(times: Sequence[float]) -> str:
    """Simulated times to a loss as text; where some runs never get there, how many do."""
    there = [seconds for seconds in times if not np.isnan(seconds)]
    return interval(times, ".0f") if len(there) == len(times) else f"{len(there)} of {len(times)} reach it"


def require_case(results: Mapping[str, object], case: str, folder: Path) -> None:
    """Refuse to write anything without a case that everything is compared with.

    Raises:
        DataError: If no run of it is finished.
    """
    if case not in results:
        raise DataError(f"{folder} holds no finished run of {case!r}: leave --page-only out to train it")
