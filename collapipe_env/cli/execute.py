"""``collapipe execute``: a scheduler's plans, carried out by roles that really train."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from collapipe_env.cli.common import Call, chosen_scenario, command, opened, say_data
from collapipe_env.cli.executed_rounds import ExecutedRounds
from collapipe_env.cli.option_types import Count, Folder, Fresh, Seed, Source, Within, about
from collapipe_env.evaluation.labels import counted
from collapipe_env.evaluation.own_parts import require_known_everywhere
from collapipe_env.evaluation.rounds import lasting
from collapipe_env.evaluation.run_directory import RunDirectory, folder_name
from collapipe_env.evaluation.scheduler_loading import full_names, load_scheduler, require_scheduler
from collapipe_env.execution.committed_rounds import committed, reports
from collapipe_env.execution.engine import Engine, Inline
from collapipe_env.execution.replanned import replanned
from collapipe_env.execution.scripts import node_name
from collapipe_env.ground.errors import ScenarioError, shown
from collapipe_env.ground.files import json_digest
from collapipe_env.scenario import Scenario

if TYPE_CHECKING:
    from collapipe_env.execution.driver import Execution

DESCRIPTION = """Carry out a scheduler's plans: devices, control units and heads really train.

By default, all of them are objects of this process, and with the virtual clock nothing waits: all times are
the simulator's. With --engine ray each device and each control unit has a process of its own, here or on the
machines of a Ray cluster, and with the wall clock operations and transfers last as long as the simulator
says. Times are compared with the simulator's. Ends with a table, a picture of each round, a Chrome trace and
the weights. Ctrl-C and SIGTERM stop all processes. However a run ends, finished rounds are kept, and the same
command resumes there, also with a larger --rounds.

Examples:
  collapipe execute --scenario small --rounds 3
  collapipe execute --fault c0d1@1.5
  collapipe execute --engine ray --schedule 1f1b --kill c0d1@2
  collapipe execute --engine ray --ray-address auto --place c0*=office c1*=hall
"""

LONGEST_S = 1e6
"""Latest time of a failure since the start of its round [s]."""
FAILURE = re.compile(
    r"c(?P<cluster>[0-9]{1,4})d(?P<device>[0-9]{1,4})@(?P<seconds>[0-9]{1,9}(\.[0-9]{0,9})?|\.[0-9]{1,9})"
)


Failing = Annotated[tuple[str, ...], about("ROLE@SECONDS ...")]


@dataclass(frozen=True)
class Options:
    """All options."""

    scenario: Source = "small"
    scheduler: Annotated[str, about("NAME")] = "dssra"
    """Scheduler whose plans are carried out: one of the package, or your own (file.py:Name)."""
    rounds: Annotated[int, Within(1, 100_000)] = 3
    """Number of rounds."""
    seed: Seed = 0
    engine: Literal["inline", "ray"] = "inline"
    """inline: this process. ray: a process for each device and each control unit; needs the extra ray."""
    clock: Annotated[
        Literal["wall", "virtual", "none"] | None, about(default="virtual, or wall with --engine ray")
    ] = None
    """wall: wait for simulated times. virtual: wait for nothing. none: as fast as this machine can."""
    time_scale: Annotated[
        float | None, Within(1e-3, 1e4), about("FLOAT", "the shortest operation lasts 20 ms")
    ] = None
    """Seconds of wall time per simulated second."""
    full_size: bool = False
    """Train the priced model instead of its small proxy, so that real and simulated work are equal."""
    slow_down: Annotated[float, Within(1, 1000)] = 1.0
    """With --clock none: factor by which devices are slower than this machine; they sleep for the rest."""
    schedule: Annotated[
        Literal["gpipe", "1f1b", "interleaved", "zb-h1"] | None, about(default="the scheduler's")
    ] = None
    """Schedule of the micro-batches, instead of the scheduler's."""
    micro_batches: Annotated[Count, about(default="the scheduler's")] = None
    """Micro-batches of every cluster, instead of the scheduler's."""
    fault: Failing = ()
    """Devices that fail in the first round of the virtual clock, with the time since its start."""
    kill: Failing = ()
    """Devices whose processes are killed in the first round; with --clock none, times are real seconds."""
    hang: Failing = ()
    """Devices whose processes stop responding in the first round, with the time as for --kill."""
    ray_address: Annotated[str | None, about("ADDRESS", "a Ray that the command starts here")] = None
    """Ray cluster to use, such as auto or 10.0.0.1:6379."""
    place: Annotated[tuple[str, ...], about("ROLES=LABEL ...")] = ()
    """Machines of the cluster for roles: their names, such as c0 or c0d*, and the machines' label."""
    out: Annotated[Folder, about(default="runs/execute-<scenario>-<scheduler>")] = None
    """Folder for all files."""
    fresh: Fresh = False

    def check(self) -> None:
        """Refuse combinations that make no sense.

        Raises:
            ScenarioError: Names the options and the remedy.
        """
        ray = self.engine == "ray"
        for option, given in (
            ("--clock wall", self.clock == "wall"),
            ("--clock none", self.clock == "none"),
            ("--ray-address", self.ray_address is not None),
            ("--place", bool(self.place)),
        ):
            if given and not ray:
                raise ScenarioError(f"{option} needs --engine ray: in this process nothing runs side by side")
        if self.place and self.ray_address is None:
            raise ScenarioError("--place needs --ray-address: a Ray that is started here is on this machine")
        if self.time_scale is not None and self.usual_clock != "wall":
            raise ScenarioError(
                "--time-scale needs --clock wall: other clocks do not wait for simulated times"
            )
        if self.slow_down != 1.0 and self.clock != "none":
            raise ScenarioError("--slow-down needs --clock none: other clocks take the priced times")
        if self.fault and self.usual_clock != "virtual":
            raise ScenarioError("--fault needs --clock virtual; with another clock use --kill")
        for option, failing in (("--kill", self.kill), ("--hang", self.hang)):
            if failing and (not ray or self.clock == "virtual"):
                raise ScenarioError(
                    f"{option} needs --engine ray with --clock wall or none; otherwise use --fault"
                )

    @property
    def usual_clock(self) -> Literal["wall", "virtual", "none"]:
        """The clock, or that of the engine if none is given."""
        return self.clock or ("wall" if self.engine == "ray" else "virtual")

    @property
    def places(self) -> dict[str, str]:
        """Label of the machines by the roles that they carry.

        Raises:
            ScenarioError: If one is not ROLES=LABEL.
        """
        pairs = [text.partition("=") for text in self.place]
        for text, (roles, _, label) in zip(self.place, pairs, strict=True):
            if not (roles and label):
                raise ScenarioError(f"--place {shown(text)} is not ROLES=LABEL; c0d*=office is an example")
        return {roles: label for roles, _, label in pairs}

    def start_engine(self, scenario: Scenario) -> Engine:
        """Return the engine; processes of Ray import what their roles need while plans are made.

        Raises:
            CollaPipeError: If Ray is not installed, or cannot be used.
        """
        if self.engine == "inline":
            return Inline()
        from collapipe_env.execution.ray_engine import Ray

        engine = Ray(self.ray_address, places=self.places)
        if not self.places:
            processes = sum(scenario.cluster.devices_per_cluster) + scenario.cluster.clusters
            engine.prepare(processes, "collapipe_env.execution.device")
        return engine


def _run(options: Options, call: Call) -> None:
    options.check()
    _ = options.places
    if options.engine == "ray":
        from collapipe_env.ground.ray_cluster import require_ray

        require_ray("--engine ray")
    scenario = lasting(chosen_scenario(options.scenario), options.rounds)
    require_known_everywhere(scenario, "collapipe execute")
    _require_roles(options.places, scenario)
    if options.full_size:
        scenario = scenario.with_overrides({"learning.proxy": None})
    require_scheduler(options.scheduler)
    (name,) = full_names([options.scheduler])
    scheduler = replanned(
        load_scheduler(name, scenario, None), scenario, options.schedule, options.micro_batches
    )
    asked_for = (("--fault", options.fault), ("--kill", options.kill), ("--hang", options.hang))
    failures = [_failures(option, texts, scenario) for option, texts in asked_for]
    say_data([scenario])
    default = Path("runs") / f"execute-{folder_name(scenario.name)}-{folder_name(options.scheduler)}"
    run = RunDirectory(options.out or default)
    asked = {"kind": "execution", "scenario": scenario.to_dict(), "scheduler": name, **_deciding(options)}
    # A run may grow, and nothing else.
    origin = json_digest({name: value for name, value in asked.items() if name != "rounds"})
    with opened(run, call, asked, scenario, fresh=options.fresh, growing="rounds"):
        state = committed(run, origin)
        past = [] if state is None else reports(run, origin, state.rounds)
        done = len(past) >= options.rounds
        if past:
            more = "results are written again; a larger --rounds continues, --fresh starts over"
            print(
                f"{len(past)} of {counted(options.rounds, 'round')} done: their "
                f"{more if done else 'plans are computed again first'}"
            )
        if not done:
            (run / "weights.npz").unlink(missing_ok=True)  # those of fewer rounds
        with Inline() if done else options.start_engine(scenario) as engine:
            # Imported late, so that --help and typing errors are answered at once.
            from collapipe_env.execution.uncompiled import leave_compiler_out

            leave_compiler_out()
            import torch

            from collapipe_env.execution.driver import Execution, Failures
            from collapipe_env.execution.time_scale import usual_scale

            torch.set_num_threads(1)
            clock, plays_by = options.usual_clock, "virtual" if done else options.usual_clock
            execution = Execution(
                scenario, scheduler, seed=options.seed, clock=plays_by, engine=engine, committed=state
            )
            if state is None and clock == "wall":
                execution.scale = options.time_scale or usual_scale(execution.upcoming.script)
            elif clock == "none":
                execution.scale = options.slow_down
            title = f"{scenario.name}, {options.scheduler}"
            rounds = ExecutedRounds(execution, run, origin, call.record, title, clock, options.rounds)
            rounds.take_up(past)
            if not done:
                _say_what_begins(options, scenario, execution)
            rounds.play(Failures(*failures))


def _require_roles(patterns: Iterable[str], scenario: Scenario) -> None:
    """Refuse a pattern of ``--place`` that fits no role.

    Raises:
        ScenarioError: Names the pattern.
    """
    counts = enumerate(scenario.cluster.devices_per_cluster)
    names = [node_name(n, k) for n, count in counts for k in range(count + 1)]
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise ScenarioError(
                f"--place {shown(pattern)} fits no role of {scenario.name}: use one of {names[0]} to "
                f"{names[-1]}, or a pattern such as c0d*"
            )


def _say_what_begins(options: Options, scenario: Scenario, execution: Execution) -> None:
    devices = sum(scenario.cluster.devices_per_cluster)
    units = scenario.cluster.clusters
    first = execution.upcoming
    begins = f"{counted(units, 'control unit')} and {counted(devices, 'device')}"
    print(
        f"{begins} {'as processes' if options.engine == 'ray' else 'in this process'}; "
        f"{counted(options.rounds, 'round')} of {options.scheduler} on {scenario.name}"
    )
    if options.usual_clock == "wall":
        each = execution.scale * first.script.delay_s
        print(
            f"wall clock: a simulated second lasts {execution.scale:.3g} s, a round takes about {each:.0f} s"
        )
    elif options.usual_clock == "virtual":
        print("virtual clock: nothing waits in real time")
    else:
        print("no clock: all work runs as fast as this machine can")


def _deciding(options: Options) -> dict[str, Any]:
    """Options that decide what is measured, for the record of the run."""
    names = (
        *("rounds", "seed", "time_scale", "slow_down"),
        *("schedule", "micro_batches", "fault", "kill", "hang"),
    )
    values = {"clock": options.usual_clock, **{name: getattr(options, name) for name in names}}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _failures(option: str, given: Sequence[str], scenario: Scenario) -> list[tuple[int, int, float]]:
    """Cluster, device and time of each ``ROLE@SECONDS``."""
    found: list[tuple[int, int, float]] = []
    devices = scenario.cluster.devices_per_cluster
    for text in given:
        said = FAILURE.fullmatch(text)
        if said is None:
            raise ScenarioError(
                f"{option} {shown(text)} names no device and time: c0d1@1.5 is an example, with a time in "
                "seconds since the start of the round"
            )
        n, device, at = int(said["cluster"]), int(said["device"]), float(said["seconds"])
        if n >= len(devices) or device >= devices[n]:
            there = f"clusters are c0 to c{len(devices) - 1}"
            if n < len(devices):
                there = f"devices of cluster c{n} are c{n}d0 to c{n}d{devices[n] - 1}"
            raise ScenarioError(f"{option} {shown(text)} names no device of {scenario.name}: its {there}")
        if at > LONGEST_S:
            raise ScenarioError(f"{option} {shown(text)}: use a time of at most {LONGEST_S:,.0f} s")
        node = device + 1
        if (n, node) in [one[:2] for one in found]:
            raise ScenarioError(
                f"{option} names c{n}d{device} twice: a device fails once in a round, leave one out"
            )
        found.append((n, node, at))
    return found


main = command(Options, _run, DESCRIPTION, "collapipe execute")
