"""Measure this machine and write a scenario with its speed.

Processes train the priced model on plans of one cluster, as fast as they can
and without emulation (this needs the extra ray). The simulator's formulas are
then fitted to the measured passes and messages: FLOP/s, overhead per block,
and overhead, latency and rate of messages. Other plans, not used for the fit,
are measured and predicted to check it. Ends with a table and with
profile.yaml, a scenario. After Ctrl-C, finished rounds are kept and the same
command resumes there.

Examples:
  collapipe calibrate --scenario small
  collapipe calibrate --scenario small --devices 3 --slow-down 4
  collapipe calibrate --from runs/calibrate-small --out runs/again
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from collapipe_env.cli.chosen import chosen_scenario
from collapipe_env.cli.common import opened, print_pages, run_folder, say_files
from collapipe_env.cli.early_end import Call
from collapipe_env.cli.option_types import Count, Folder, Fresh, Seed, Source, Within, about
from collapipe_env.evaluation.run_directory import RunDirectory
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.ground.files import read_json, write_json, write_text
from collapipe_env.ground.ray_cluster import require_ray
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.scenario.names import PRESETS

if TYPE_CHECKING:
    from collapipe_env.execution.calibration_rounds import Measured


@dataclass(frozen=True)
class Options:
    """All options."""

    scenario: Source = "small"
    devices: Annotated[Count, Within(1, 64), about(default="one per core, 2 to 4")] = None
    """Devices of the measured cluster, a process each; with more devices than cores, use --slow-down."""
    rounds: Annotated[int, Within(1, 100)] = 3
    """Rounds per plan; the median is used."""
    slow_down: Annotated[float, Within(1, 1000)] = 1.0
    """Factor by which devices are slower than this machine; they sleep for the rest."""
    seed: Seed = 0
    from_: Annotated[
        Folder, about(None, "measure", "Earlier calibration whose measurements to fit again.", name="from")
    ] = None
    out: Annotated[Folder, about(default="runs/calibrate-<scenario>")] = None
    fresh: Fresh = False


def run(options: Options, call: Call) -> None:
    """Measure, fit and write a scenario."""
    # Imported late, so that --help and typing errors are answered at once.
    import torch

    from collapipe_env.execution import calibration_rounds as calibration

    torch.set_num_threads(1)
    earlier = None if options.from_ is None else RunDirectory(options.from_)
    if earlier is None:
        base, named = chosen_scenario(options.scenario), options.scenario
        devices, slow_down = options.devices or min(max(os.cpu_count() or 2, 2), 4), options.slow_down
    else:
        if options.out is None:
            raise ScenarioError("--from needs --out, another folder for the new profile")
        before = read_json(earlier / "run.json", "name the folder of a calibration with --from")
        if before.get("kind") != "calibration":
            raise ScenarioError(f"--from {options.from_} holds no calibration: name the folder of one")
        base, named = load_scenario(before["base"]), str(before["base_name"])
        devices, slow_down = int(before["devices"]), float(before["slow_down"])
    setting = calibration.setting_of(base, devices)
    if earlier is None:
        require_ray("collapipe calibrate")
    run = run_folder(options.out, "calibrate", base.name)
    asked = {
        "kind": "calibration",
        "base": base.to_dict(),
        "base_name": named,
        "devices": devices,
        "rounds": options.rounds,
        "slow_down": slow_down,
        "seed": options.seed,
        "from": None if options.from_ is None else str(options.from_),
    }
    with opened(run, call, asked, setting, fresh=options.fresh, growing="rounds"):
        if earlier is None:
            _measure(run, setting, devices, options)
        paths = sorted(((earlier or run) / "measured").glob("*.json"))
        if not paths:
            raise ScenarioError(f"--from {options.from_} holds no finished rounds: measure first")
        rounds = [calibration.read_round(path) for path in paths]
        _report(run, base, named, setting, rounds, call.record())


def _measure(run: RunDirectory, setting: Scenario, devices: int, options: Options) -> None:
    """Measure the missing rounds; all plans take turns, so that the machine's load affects all of them."""
    from collapipe_env.execution import calibration_rounds as calibration

    plans = calibration.calibration_plans(setting)
    places = {
        run / "measured" / f"{number:02d}-{place:02d}.json": plan
        for number in range(1, options.rounds + 1)
        for place, plan in enumerate(plans, 1)
    }
    missing = [(path, plan) for path, plan in places.items() if not path.exists()]
    print(
        f"{len(plans)} plans, {options.rounds} rounds each, {len(missing)} still to measure; "
        f"{2 + devices} processes: the server, a control unit, {devices} devices"
    )
    # Each round is kept as soon as it ends.
    measured = calibration.measured_rounds(setting, missing, options.seed, options.slow_down)
    for done, one in enumerate(measured, 1 + len(places) - len(missing)):
        load = f"(load {one.load:.1f})"
        print(f"[{done}/{len(places)}] {one.plan.name}: T_step {one.step_s:.3f} s  {load}", flush=True)


def _report(
    run: RunDirectory,
    base: Scenario,
    named: str,
    setting: Scenario,
    rounds: Sequence[Measured],
    head: dict[str, Any],
) -> None:
    """Fit, check, write and print."""
    from collapipe_env.execution import calibration_profile as profile
    from collapipe_env.execution.calibration_fit import fit
    from collapipe_env.scenario.plain_data import plain_yaml
    from collapipe_env.simulator.build import system_parameters

    constants = fit([one for one in rounds if one.plan.fitted], system_parameters(setting).costs)
    sections = profile.calibrated(base, f"{base.name}-calibrated", setting, constants)
    scenario = profile.merged(base, sections)
    checked = profile.checked_plans(rounds, scenario)
    loads = [one.load for one in rounds]
    load = [min(loads), max(loads)]
    below = f"Load average of the machine: {load[0]:.1f} to {load[1]:.1f}; {os.cpu_count()} cores."
    title = f"Calibration of this machine on {base.name}"
    page = profile.calibration_page(title, checked, constants, [below])
    written = {"base": named, **sections} if named in PRESETS else scenario.to_dict()
    write_text(run / "profile.yaml", f"# Written by {head['command']}\n{plain_yaml(written)}")
    write_json(run / "calibration.json", {**head, "constants": constants, "plans": checked, "load": load})
    write_text(run / "table.md", page.markdown())
    print_pages(page)
    say_files(run, table="table.md", numbers="calibration.json", scenario="profile.yaml")
