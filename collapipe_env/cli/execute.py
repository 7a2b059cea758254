"""``collapipe execute``: real processes that execute a scheduler's plans."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from collapipe_env.cli.common import Call, chosen_scenario, command, opened, say_data
from collapipe_env.cli.early_end import note, status_after
from collapipe_env.cli.executed_rounds import ExecutedRounds, finished, say_where
from collapipe_env.cli.option_types import Count, Folder, Fresh, Seed, Source, Within, about
from collapipe_env.evaluation.labels import counted
from collapipe_env.evaluation.own_parts import require_known_everywhere
from collapipe_env.evaluation.rounds import lasting
from collapipe_env.evaluation.run_directory import RunDirectory, folder_name
from collapipe_env.evaluation.scheduler_loading import full_names, load_scheduler, require_scheduler
from collapipe_env.execution.committed_rounds import committed, reports
from collapipe_env.execution.fork_server import start_fork_server
from collapipe_env.execution.replanned import Replanned
from collapipe_env.execution.tokens import SHORTEST_TOKEN, token_of_file
from collapipe_env.ground.errors import ScenarioError, shown
from collapipe_env.scenario import Scenario

if TYPE_CHECKING:
    from collapipe_env.execution.launching import Launcher
    from collapipe_env.execution.transport.tcp import Address

DESCRIPTION = """Carry out a scheduler's plans with real processes, one per device.

Starts a process for the edge server, for each control unit and for each device on this machine. They train
the real segments over TCP, and their times are compared with the simulator's. With the wall clock, operations
and transfers last as long as the simulator says. With the virtual clock nothing waits, and all times are the
simulator's. Ends with a table, a picture of each round, a Chrome trace and the weights. Ctrl-C and SIGTERM
stop all processes. However a run ends, finished rounds are kept, and the same command resumes there, also
with a larger --rounds.

Examples:
  collapipe execute --scenario small --scheduler dssra --rounds 3
  collapipe execute --clock virtual --fault c0d1@1.5
  collapipe execute --scheduler pipeline --schedule 1f1b --kill c0d1@2
  collapipe execute --serve HOST:29500 --token-file FILE
  collapipe execute --join HOST:29500 --role c0d1 --token-file FILE
"""

LOOPBACK = "127.0.0.1"
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
    clock: Literal["wall", "virtual", "none"] = "wall"
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
    """Devices whose processes are killed in the first round of the wall clock, with the time."""
    hang: Failing = ()
    """Devices whose processes stop responding in the first round of the wall clock."""
    serve: Annotated[str | None, about("HOST:PORT", "start them here")] = None
    """Wait at this address for processes that join, instead of starting them (for several machines)."""
    join: Annotated[str | None, about("HOST:PORT", "none")] = None
    """Join the run that waits at this address, as --role; it supplies all other options."""
    role: Annotated[str | None, about("ROLE", "none")] = None
    """Role to join as: server, c0, c0d0 and so on."""
    bind: Annotated[str, about("HOST")] = LOOPBACK
    """Address of this machine at which a joining process listens."""
    token_file: Annotated[Path | None, about("FILE", "none")] = None
    """File with the secret that all processes share; needed with --serve and --join."""
    out: Annotated[Folder, about(default="runs/execute-<scenario>-<scheduler>")] = None
    """Folder for all files."""
    fresh: Fresh = False

    def check(self) -> None:
        """Refuse combinations that make no sense.

        Raises:
            ScenarioError: Names the options and the remedy.
        """
        if self.slow_down != 1.0 and self.clock != "none":
            raise ScenarioError("--slow-down needs --clock none: other clocks take the priced times")
        if self.fault and self.clock != "virtual":
            raise ScenarioError("--fault needs --clock virtual; with another clock use --kill")
        for option, given in (("--kill", self.kill), ("--hang", self.hang)):
            if given and self.clock == "virtual":
                raise ScenarioError(
                    f"{option} needs --clock wall or none; with the virtual clock use --fault"
                )
            if given and self.serve is not None:
                raise ScenarioError(f"{option} needs processes that are started here: leave --serve out")
        if self.serve is not None and self.join is not None:
            raise ScenarioError("--serve and --join are two ends of one execution: use one of them")
        if (self.join is None) != (self.role is None):
            raise ScenarioError("--join and --role go together: --join HOST:PORT --role c0d0")
        if (self.serve is not None or self.join is not None) and self.token_file is None:
            raise ScenarioError(
                f"--serve and --join need --token-file, a file with a secret of at least {SHORTEST_TOKEN} "
                "characters"
            )


def _run(options: Options, call: Call) -> None:
    options.check()
    _require_one_address("--bind", options.bind)
    if options.join is None and options.bind != LOOPBACK:
        raise ScenarioError("--bind is for --join: --serve HOST:PORT says where the launcher listens")
    if options.join is None and options.serve is None and options.token_file is not None:
        raise ScenarioError("--token-file is for --serve and --join: processes started here get a new token")
    # These are checked before anything is loaded or written.
    address = None if options.serve is None else _address("--serve", options.serve)
    token = None if options.token_file is None else token_of_file(options.token_file)
    if options.join is not None:
        assert token is not None
        _join(options, token)
        return
    scenario = lasting(chosen_scenario(options.scenario), options.rounds)
    require_known_everywhere(scenario, "collapipe execute")
    if options.full_size:
        scenario = scenario.with_overrides({"learning.proxy": None})
    require_scheduler(options.scheduler)
    (name,) = full_names([options.scheduler])
    scheduler = Replanned.of(
        load_scheduler(name, scenario, None), scenario, options.schedule, options.micro_batches
    )
    asked_for = (("--fault", options.fault), ("--kill", options.kill), ("--hang", options.hang))
    failures = [_failures(option, texts, scenario) for option, texts in asked_for]
    say_data([scenario])
    default = Path("runs") / f"execute-{folder_name(scenario.name)}-{folder_name(options.scheduler)}"
    run = RunDirectory(options.out or default)
    asked = {"kind": "execution", "scenario": scenario.to_dict(), "scheduler": name, **_deciding(options)}
    with opened(run, call, asked, scenario, fresh=options.fresh, growing="rounds"):
        state = committed(run, scenario)
        past = [] if state is None else reports(run, scenario, state.rounds)
        if past and finished(run, options.rounds):
            print(f"all {options.rounds} rounds are done: a larger --rounds continues, --fresh starts over")
            say_where(run)
            return
        run.weights.unlink(missing_ok=True)  # those of fewer rounds
        if past:
            print(f"{len(past)} of {options.rounds} rounds are done: their plans are computed again first")
        if options.serve is None:
            start_fork_server()  # it imports the same modules meanwhile
        # Imported late, so that --help and typing errors are answered at once.
        import torch

        from collapipe_env.execution.launching import Failures, Launcher
        from collapipe_env.execution.time_scale import usual_scale

        torch.set_num_threads(1)
        with Launcher(
            scenario,
            scheduler,
            seed=options.seed,
            clock=options.clock,
            bind=address or (LOOPBACK, 0),
            token=token,
            committed=state,
        ) as launcher:
            if state is None and options.clock == "wall":
                launcher.scale = options.time_scale or usual_scale(launcher.upcoming.script)
            elif options.clock == "none":
                launcher.scale = options.slow_down
            execution = ExecutedRounds(
                launcher, run, scenario, call.record(), options.scheduler, options.clock, options.rounds
            )
            execution.take_up(past)
            _say_what_begins(options, scenario, launcher)
            if options.serve is None:
                launcher.start_local()
            else:
                host, port = launcher.address
                print(f"waiting at {host}:{port} for all processes to join", flush=True)
                launcher.wait_for_others(tell=partial(print, flush=True))
            execution.play(Failures(*failures))


def _join(options: Options, token: str) -> None:
    """Play a role of an execution that another process serves."""
    from collapipe_env.execution.joining import play_role

    assert options.join is not None
    assert options.role is not None
    address = _address("--join", options.join)
    _require_one_address("--join", address[0])
    print(f"joining {options.join} as {options.role}", flush=True)
    try:
        play_role(options.role, address, token, options.bind)
    except KeyboardInterrupt as stop:  # it has nothing to keep, and cannot go on alone
        note(f"\n{options.role} has been stopped; its launcher will notice")
        raise SystemExit(status_after(stop)) from None
    print("the execution has ended")


def _address(option: str, text: str) -> Address:
    """Host and port of ``HOST:PORT``."""
    from collapipe_env.execution.addresses import host_and_port

    address = host_and_port(text)
    if address is None:
        raise ScenarioError(
            f"{option} {shown(text)} is not an address: give HOST:PORT, such as 192.168.1.5:29500"
        )
    return address


def _require_one_address(option: str, host: str) -> None:
    """Refuse a host at which a process may listen, but to which nobody can connect.

    Raises:
        ScenarioError: Names the option and the host.
    """
    from collapipe_env.execution.addresses import is_wildcard

    if is_wildcard(host):
        raise ScenarioError(
            f"{option} {host} stands for all addresses of a machine, and others cannot connect to it: name "
            "the address by which they reach the machine, such as 192.168.1.5"
        )


def _say_what_begins(options: Options, scenario: Scenario, launcher: Launcher) -> None:
    devices = sum(scenario.cluster.devices_per_cluster)
    units = scenario.cluster.clusters
    begins = "starting" if options.serve is None else "waiting for"
    first = launcher.upcoming  # a plan that cannot be executed is refused before anything is started
    print(
        f"{begins} {1 + units + devices} processes: the server, {counted(units, 'control unit')}, "
        f"{counted(devices, 'device')}; {counted(options.rounds, 'round')} of {options.scheduler} on "
        f"{scenario.name}"
    )
    if options.clock == "wall":
        each = launcher.scale * first.script.delay_s
        print(
            f"wall clock: a simulated second lasts {launcher.scale:.3g} s, a round takes about {each:.0f} s"
        )
    elif options.clock == "virtual":
        print("virtual clock: nothing waits in real time")
    else:
        print("no clock: all work runs as fast as this machine can")


def _deciding(options: Options) -> dict[str, Any]:
    """Options that decide what is measured, for the record of the run."""
    names = (
        *("rounds", "seed", "clock", "time_scale", "slow_down"),
        *("schedule", "micro_batches", "fault", "kill", "hang"),
    )
    values = {name: getattr(options, name) for name in names}
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
