"""A Flower federation on this machine, compared with the learner in this process (``docs/flower.md``) [X]."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collapipe_env.evaluation.rounds import lasting
from collapipe_env.evaluation.scheduler_loading import full_names, load_scheduler, require_scheduler
from collapipe_env.execution.flower.local_deployment import LocalDeployment, write_app
from collapipe_env.execution.flower.round_figures import largest_difference, shown_loss, table
from collapipe_env.execution.joining import ExecutionError
from collapipe_env.execution.parts import Arrays
from collapipe_env.execution.planned_rounds import PlannedRounds
from collapipe_env.execution.setting import MOMENT_BITS, require_executable
from collapipe_env.execution.tokens import new_token
from collapipe_env.files import write_json, write_text
from collapipe_env.scenario import Scenario, load_scenario

DESCRIPTION = "Play rounds with Flower on this machine, and compare the weights with the learner's."


def learned_weights(scenario: Scenario, scheduler: str, seed: int, rounds: int) -> Arrays:
    """Return the weights that the learner has after the same rounds, trained in this process.

    Args:
        scenario: The scenario.
        scheduler: Full name of the scheduler.
        seed: Seed of the episode.
        rounds: Rounds to train.
    """
    from collapipe_env.training.real_learner import TorchLearner

    plan = PlannedRounds(scenario, load_scheduler(scheduler, scenario, None), seed)
    learner = TorchLearner.from_scenario(scenario, 1, device="cpu", moment_bits=MOMENT_BITS)
    learner.reset([plan.new_generator()])
    for _ in range(rounds):
        learner.train_round(plan.next().outcome)
    return {
        f"{part}/{name}": parameter.detach().numpy().copy()
        for part, module in zip(("model", "head"), learner.common_model(0), strict=True)
        for name, parameter in module.named_parameters()
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: Arguments; those of this process by default.

    Returns:
        The exit status: 2 also if the weights differ, otherwise that of
        :func:`~collapipe_env.cli.common.guarded`.
    """
    from collapipe_env.cli.common import guarded  # above this layer

    parser = argparse.ArgumentParser(prog="python -m collapipe_env.execution.flower", description=DESCRIPTION)
    parser.add_argument("--scenario", default="small", help="name or file of a scenario (default: small)")
    parser.add_argument("--scheduler", default="dssra", help="name of a scheduler (default: dssra)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds to play (default: 3)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the episode (default: 0)")
    parser.add_argument("--out", type=Path, default=Path("runs/flower"), help="folder (default: runs/flower)")
    parser.add_argument("--patience", type=float, default=600.0, help="longest duration [s] (default: 600)")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=1e-5,
        help="largest difference of weights (default: 1e-5; 0 with learning.samples_per_pass: 1)",
    )
    parser.add_argument("--write-app", type=Path, metavar="DIR", help="write the Flower app to DIR and end")
    given = sys.argv[1:] if arguments is None else arguments
    options = parser.parse_args(given)
    if options.rounds < 1 or not options.patience > 0.0:
        parser.error("--rounds and --patience must be positive")
    return guarded(lambda: _run(options), parser.prog, given, resumable=False)


def _run(options: argparse.Namespace) -> None:
    if options.write_app is not None:
        write_app(options.write_app)
        print(f"wrote {options.write_app}: flwr run {options.write_app} --run-config 'out=\"FOLDER\"'")
        return
    import torch

    torch.set_num_threads(1)
    begins = time.monotonic()
    scenario = lasting(load_scenario(options.scenario), options.rounds)
    require_executable(scenario)
    require_scheduler(options.scheduler)
    (scheduler,) = full_names([options.scheduler])
    token_file = options.out / "token"
    options.out.mkdir(parents=True, exist_ok=True)
    token_file.touch(mode=0o600)  # a file that exists keeps its mode
    token_file.chmod(0o600)
    write_text(token_file, new_token() + "\n")
    file = Path(options.scenario)
    settings = {
        "scenario": str(file.resolve()) if file.is_file() else options.scenario,
        "scheduler": scheduler,
        "seed": options.seed,
        "rounds": options.rounds,
    }
    clusters = scenario.cluster.clusters
    print(f"starting a SuperLink and {clusters} SuperNodes; logs are in {options.out / 'logs'}", flush=True)
    with LocalDeployment(options.out, clusters, token_file) as deployment:
        rows, weights = deployment.run(settings, options.patience, _say)
    print("training the same rounds in this process", flush=True)
    expected = learned_weights(scenario, scheduler, options.seed, options.rounds)
    difference = largest_difference(weights, expected)
    shown = table(rows)
    write_json(
        options.out / "comparison.json",
        {"settings": settings, "rounds": rows, "largest_difference": difference},
    )
    write_text(options.out / "table.md", shown + "\n")
    print(f"\n{shown}\n")
    equal = "equal to the bit" if difference == 0.0 else f"different by {difference:.3g} at most"
    print(f"weights after {options.rounds} rounds: {equal}; {time.monotonic() - begins:.0f} s in all")
    print(f"wrote {options.out / 'comparison.json'} and {options.out / 'table.md'}")
    if difference > options.tolerance:
        raise ExecutionError(f"weights differ by {difference:.3g}, above --tolerance {options.tolerance:g}")


def _say(row: Mapping[str, Any]) -> None:
    print(f"round {row['round']}: training loss {shown_loss(row['loss'])}, {row['wall_s']:.1f} s", flush=True)


if __name__ == "__main__":
    from collapipe_env.cli.early_end import run_process

    sys.exit(run_process(main))
