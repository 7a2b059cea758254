"""Carry out a scheduler's plans: devices, control units and heads really train.

By default, all of them are objects of this process, and with the virtual
clock nothing waits: all times are the simulator's. With --engine ray each
device and each control unit has a process of its own, here or on the machines
of a Ray cluster, and with the wall clock operations and transfers last as
long as the simulator says. Times are compared with the simulator's. Ends with
a table, a picture of each round, a Chrome trace and the weights. Ctrl-C and
SIGTERM stop all processes. However a run ends, finished rounds are kept, and
the same command resumes there, also with a larger --rounds.

Examples:
  collapipe execute --scenario small --rounds 3
  collapipe execute --fault c0d1@1.5
  collapipe execute --engine ray --schedule 1f1b --kill c0d1@2
  collapipe execute --engine ray --ray-address auto --place c0*=hall c1*=lab
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from collapipe_env.cli.chosen import chosen_scenario, say_data
from collapipe_env.cli.common import opened, run_folder
from collapipe_env.cli.early_end import Call
from collapipe_env.cli.executed_rounds import ExecutedRounds
from collapipe_env.cli.option_types import Count, Folder, Fresh, Seed, Source, Within, about
from collapipe_env.evaluation.labels import counted
from collapipe_env.evaluation.own_parts import require_known_everywhere
from collapipe_env.evaluation.rounds import lasting
from collapipe_env.evaluation.scheduler_loading import full_names, make_scheduler
from collapipe_env.execution.committed_rounds import committed, reports
from collapipe_env.execution.engine import Engine, Inline
from collapipe_env.execution.replanned import replanned
from collapipe_env.execution.scripts import node_name
from collapipe_env.ground.errors import ScenarioError, shown
from collapipe_env.ground.files import json_digest
from collapipe_env.ground.ray_cluster import require_ray
from collapipe_env.scenario import Scenario

if TYPE_CHECKING:
    from collapipe_env.execution.driver import Execution


LONGEST_S = 1e6
"""Latest time of a failure since the start of its round [s]."""
FAILURE = re.compile(r"c([0-9]{1,4})d([0-9]{1,4})@([0-9]{1,9}\.?[0-9]{0,9}|\.[0-9]{1,9})")
"""Cluster, device and seconds of a failure."""
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
    fresh: Fresh = False

    def check(self) -> None:
        """Refuse combinations that make no sense."""
        ray, clock, killed = self.engine == "ray", self.usual_clock, "--kill" if self.kill else "--hang"
        alone = "needs --engine ray: in this process nothing runs side by side"
        for wrong, message in (
            (clock != "virtual" and not ray, f"--clock {clock} {alone}"),
            (self.ray_address is not None and not ray, f"--ray-address {alone}"),
            (
                self.place and self.ray_address is None,
                "--place needs --ray-address: a Ray that is started here is on this machine",
            ),
            (
                self.time_scale is not None and clock != "wall",
                "--time-scale needs --clock wall: other clocks do not wait for simulated times",
            ),
            (
                self.slow_down != 1.0 and clock != "none",
                "--slow-down needs --clock none: other clocks take the priced times",
            ),
            (
                self.fault and clock != "virtual",
                "--fault needs --clock virtual; with another clock use --kill",
            ),
            (
                (self.kill or self.hang) and clock == "virtual",
                f"{killed} needs --engine ray with --clock wall or none; otherwise use --fault",
            ),
        ):
            if wrong:
                raise ScenarioError(message)

    @property
    def usual_clock(self) -> Literal["wall", "virtual", "none"]:
        """The clock, or that of the engine if none is given."""
        return self.clock or ("wall" if self.engine == "ray" else "virtual")

    def start_engine(self, scenario: Scenario, places: Mapping[str, str]) -> Engine:
        """Return the engine, with the label of the machines by the roles that they carry.

        Processes of Ray import what their roles need while plans are made.
        """
        if self.engine == "inline":
            return Inline()
        from collapipe_env.execution.ray_engine import Ray

        engine = Ray(self.ray_address, places=places)
        if not places:
            processes = sum(scenario.cluster.devices_per_cluster) + scenario.cluster.clusters
            engine.prepare(processes, "collapipe_env.execution.device")
        return engine


def run(options: Options, call: Call) -> None:
    """Carry out the rounds."""
    options.check()
    scenario = lasting(chosen_scenario(options.scenario), options.rounds)
    require_known_everywhere(scenario, "collapipe execute")
    places = _places(options.place, scenario)
    if options.engine == "ray":
        require_ray("--engine ray")
    if options.full_size:
        scenario = scenario.with_overrides({"learning.proxy": None})
    (name,) = full_names([options.scheduler])
    scheduler = replanned(make_scheduler(name, scenario), scenario, options.schedule, options.micro_batches)
    failing = {"--fault": options.fault, "--kill": options.kill, "--hang": options.hang}
    failures = [_failures(option, texts, scenario) for option, texts in failing.items()]
    say_data([scenario])
    run = run_folder(options.out, "execute", scenario.name, options.scheduler)
    # A run may grow, and nothing else.
    names = ("seed", "time_scale", "slow_down", "schedule", "micro_batches")
    deciding = {
        "kind": "execution",
        "scenario": scenario.to_dict(),
        "scheduler": name,
        "clock": options.usual_clock,
        **{name: getattr(options, name) for name in names},
        **{option.removeprefix("--"): list(texts) for option, texts in failing.items()},
    }
    origin, asked = json_digest(deciding), {**deciding, "rounds": options.rounds}
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
        with Inline() if done else options.start_engine(scenario, places) as engine:
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


def _places(given: Iterable[str], scenario: Scenario) -> dict[str, str]:
    """Label of the machines by the roles that they carry."""
    counts = enumerate(scenario.cluster.devices_per_cluster)
    names = [node_name(n, k) for n, count in counts for k in range(count + 1)]
    places = {}
    for text in given:
        roles, _, label = text.partition("=")
        if not (roles and label):
            raise ScenarioError(f"--place {shown(text)} is not ROLES=LABEL; c0d*=office is an example")
        if not fnmatch.filter(names, roles):
            raise ScenarioError(
                f"--place {shown(roles)} fits no role of {scenario.name}: use one of {names[0]} to "
                f"{names[-1]}, or a pattern such as c0d*"
            )
        places[roles] = label
    return places


def _say_what_begins(options: Options, scenario: Scenario, execution: Execution) -> None:
    units, devices = scenario.cluster.clusters, sum(scenario.cluster.devices_per_cluster)
    print(
        f"{counted(units, 'control unit')} and {counted(devices, 'device')} "
        f"{'as processes' if options.engine == 'ray' else 'in this process'}; "
        f"{counted(options.rounds, 'round')} of {options.scheduler} on {scenario.name}"
    )
    said = {
        "virtual": "virtual clock: nothing waits in real time",
        "none": "no clock: all work runs as fast as this machine can",
    }
    if options.usual_clock == "wall":
        each = f"a round takes about {execution.scale * execution.upcoming.script.delay_s:.0f} s"
        said["wall"] = f"wall clock: a simulated second lasts {execution.scale:.3g} s, {each}"
    print(said[options.usual_clock])


def _failures(option: str, given: Sequence[str], scenario: Scenario) -> list[tuple[int, int, float]]:
    """Cluster, device and time of each ``ROLE@SECONDS``."""
    found: dict[tuple[int, int], float] = {}
    devices = scenario.cluster.devices_per_cluster
    for text in given:
        place, said = f"{option} {shown(text)}", FAILURE.fullmatch(text)
        if said is None:
            raise ScenarioError(
                f"{place} names no device and time: c0d1@1.5 is an example, with a time in seconds since the "
                "start of the round"
            )
        n, device, at = int(said[1]), int(said[2]), float(said[3])
        if n >= len(devices):
            raise ScenarioError(
                f"{place} names no device of {scenario.name}: its clusters are c0 to c{len(devices) - 1}"
            )
        if device >= devices[n]:
            there = f"devices of cluster c{n} are c{n}d0 to c{n}d{devices[n] - 1}"
            raise ScenarioError(f"{place} names no device of {scenario.name}: its {there}")
        if at > LONGEST_S:
            raise ScenarioError(f"{place}: use a time of at most {LONGEST_S:,.0f} s")
        if (n, device) in found:
            raise ScenarioError(
                f"{option} names c{n}d{device} twice: a device fails once in a round, leave one out"
            )
        found[n, device] = at
    # Role 0 of a cluster is its control unit.
    return [(n, device + 1, at) for (n, device), at in found.items()]
